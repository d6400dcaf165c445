"""Sessions: the state of a request to send, its messages, stop and retry (document 002's Receiver Front)."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status
from ninja.params.functions import Header, Query

from campaigns.doors import public_ids
from campaigns.doors.front import request_bodies
from campaigns.doors.front.cursors import read_cursor
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem, quota_problem
from campaigns.doors.front.schemas import ProblemOut
from campaigns.doors.front.session_links import SESSIONS, session_links, session_name
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.integrations.api.session_schemas import ChangedOut, LimitsIn, MessagesOut, SessionOut
from campaigns.integrations.results import reader
from campaigns.integrations.results.reader import SessionView
from campaigns.operations import actions, pausing
from campaigns.operations.actions import QuotaDecision
from campaigns.reporting import export
from campaigns.reporting.api.forecasts import forecast_of_job
from vendors.causes.wording import read_causes
from vendors.history import Actor
from vendors.mail_classes import MailClass
from vendors.reporting import find_reporting

router = Router(tags=["sessions"])
NAME = re.compile(r"ses_([0-9a-f]{32})")
WAIT = re.compile(r"""(?:^|[,;\s])wait\s*=\s*("?)([0-9]{1,4})\1(?:$|[,;\s])""", re.IGNORECASE)
LONGEST_WAIT = 30  # seconds
LOOK_AGAIN = 0.25  # seconds
PROBLEMS = dict.fromkeys((401, 403, 404, 422, 429, 503), ProblemOut)
CONFLICTS = {409: ProblemOut, **PROBLEMS}
SEEN = "The session's revision that you decide about, as its links have it; 409 if it has another one by now"
REVISION = Query(..., ge=0, description=SEEN)
OPTIONAL = Query(None, ge=0, description=SEEN)
waiters = threading.BoundedSemaphore(2)  # threads of this process that may wait; others answer immediately


@router.get("/sessions/{session_id}", auth=Key("read"), response={200: SessionOut, **PROBLEMS}, summary="One session")
def get_session(
    request: HttpRequest,
    response: HttpResponse,
    session_id: str,
    prefer: str = Header("", description="wait=20: answer when it is finished, or after 20 seconds (at most 30)"),
) -> dict[str, Any]:
    """The session's state, and the number of its messages in each state."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    look = _find_session(session_id, caller)
    asked = WAIT.search(prefer)
    if asked and not look.is_finished and waiters.acquire(blocking=False):
        try:
            seconds = min(LONGEST_WAIT, int(asked[2]))
            response["Preference-Applied"] = f"wait={seconds}"
            _wait_for_change(look, seconds)
        finally:
            waiters.release()
        look = _find_session(session_id, caller)
    return _session_facts(look)


@router.get(
    "/sessions/{session_id}/messages",
    auth=Key("read"),
    response={200: MessagesOut, **PROBLEMS},
    summary="The messages of a session, page by page",
)
def get_messages(
    request: HttpRequest,
    session_id: str,
    status: str = Query("", max_length=200, description="Only those in these states, as failed,bounced"),
    cause: str = Query("", max_length=200, description="Only those of these causes, as us,capacity"),
    limit: int = Query(100, ge=1, le=1000),
    cursor: str = Query("", pattern=rf"^(msg_{public_ids.PATTERN})?$", description="From the link to the next page"),
) -> dict[str, Any]:
    """In the order of the request, each with its state."""
    look = session_of(request, session_id)
    states = {reader.machine_word(label) for label in labels_of(status)}
    after = read_cursor("msg", cursor)
    seen = 0 if after is None else max(0, after + 1 - look.job.first_message)  # they come in order and without gaps
    causes = causes_of(cause)
    mine = [
        row
        for row in reader.session_messages(look)[seen:]
        if (not states or row["status"] in states) and (not causes or row.get("cause") in causes)
    ]
    filters = {name: value for name, value in (("status", status), ("cause", cause)) if value}
    here = f"{SESSIONS}/{session_id}/messages?limit={limit}" + (f"&{urlencode(filters)}" if filters else "")
    more = f"{here}&cursor={mine[limit - 1]['id']}" if len(mine) > limit else None
    return {"data": mine[:limit], "links": {"self": here, "next": more}}


@router.post(
    "/sessions/{session_id}/stop", auth=Key("ops"), response={202: ChangedOut, **CONFLICTS}, summary="Stop a session"
)
def stop_session(request: HttpRequest, session_id: str, revision: int | None = OPTIONAL) -> Status[dict[str, Any]]:
    """No new call starts. The session is finished once its open calls are recorded. A repeat changes nothing."""
    return _apply_decision(request, session_id, lambda job, by: actions.stop_jobs([job], by, revision=revision))


@router.post(
    "/sessions/{session_id}/retry",
    auth=Key("ops"),
    response={202: ChangedOut, **CONFLICTS},
    summary="Send again what failed or was never called",
)
def retry_session(request: HttpRequest, session_id: str, revision: int = REVISION) -> Status[dict[str, Any]]:
    """Messages that the vendor accepted, or may have accepted, are never sent again. A repeat changes nothing."""
    return _apply_decision(request, session_id, lambda job, by: actions.retry_jobs([job], revision))


@router.post(
    "/sessions/{session_id}/pause", auth=Key("ops"), response={202: ChangedOut, **CONFLICTS}, summary="Pause a session"
)
def pause_session(request: HttpRequest, session_id: str, revision: int | None = OPTIONAL) -> Status[dict[str, Any]]:
    """No new call starts until it is resumed. Messages that expire meanwhile stay expired. A repeat changes nothing."""
    return _apply_decision(request, session_id, lambda job, by: pausing.pause_jobs([job], by, revision=revision))


@router.post(
    "/sessions/{session_id}/resume",
    auth=Key("ops"),
    response={202: ChangedOut, **CONFLICTS},
    summary="Let a paused session go on, also one that waits after its first messages",
)
def resume_session(request: HttpRequest, session_id: str, revision: int = REVISION) -> Status[dict[str, Any]]:
    """Messages never called go on; no other message is called again. This ends the pause of this revision only.

    So a repeated request changes nothing, even if the session was paused again since.
    """
    return _apply_decision(request, session_id, lambda job, by: pausing.resume_jobs([job], by, revision=revision))


@router.patch(
    "/sessions/{session_id}",
    auth=Key("ops"),
    response={200: ChangedOut, **PROBLEMS},
    summary="Change beyond which rates a session pauses itself",
    openapi_extra={"requestBody": request_bodies.describe_body(LimitsIn)},
)
def change_session(request: HttpRequest, session_id: str) -> Status[dict[str, Any]]:
    """Works while the session is being sent. Limits not named stay; a paused session stays paused until resumed."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    job = _find_session(session_id, caller).job.pk
    asked, _ = request_bodies.read_body(request, LimitsIn)
    limits = {name: getattr(asked, name) for name in asked.model_fields_set}
    return _changed_answer(200, pausing.set_limits([job], limits, Actor(caller.prefix))[0], session_id, caller)


def session_of(request: HttpRequest, name: str) -> SessionView:
    """Return the session of the request's sponsor and mode. Raises Problem."""
    return _find_session(name, request.auth)  # type: ignore[attr-defined]


def labels_of(status: str) -> list[str]:
    """Return the labels of the states in a query, separated by commas; empty: all. Raises Problem."""
    try:
        return export.states_named(status.split(",") if status else ())
    except ValueError as why:
        raise invalid_problem([{"parameter": "status", "code": "state", "detail": str(why)}]) from why


def causes_of(cause: str) -> list[str]:
    """Return the causes in a query, separated by commas; empty: all. Raises Problem."""
    try:
        return read_causes(cause.split(",") if cause else ())
    except ValueError as why:
        raise invalid_problem([{"parameter": "cause", "code": "cause", "detail": str(why)}]) from why


def _find_session(name: str, caller: Caller) -> SessionView:
    """Return the session. Raises the same Problem whether it does not exist or belongs to another sponsor."""
    found = NAME.fullmatch(name)
    look = reader.find_session_view(UUID(found[1]), caller.sponsor_id, caller.test) if found else None
    if look is None:
        raise Problem("not-found", "You have no such session.")
    return look


def _wait_for_change(look: SessionView, seconds: float) -> None:
    """Wait until the session has changed, or for so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not reader.has_changed_since(look):
        time.sleep(min(LOOK_AGAIN, max(0.0, end - time.monotonic())))


def _session_facts(look: SessionView) -> dict[str, Any]:
    session, sums = look.session, look.sums
    open_ = "stopped" if look.is_stopped else "waiting"
    counts = {
        open_: sums.waiting,
        "sending": sums.in_flight,
        "sent": sums.accepted - sums.delivered - sums.bounced,
        "delivered": sums.delivered,
        "bounced": sums.bounced,
        "failed": sums.refused,
        "expired": sums.expired,
        "suppressed": sums.suppressed,
        "needs_attention": sums.in_doubt,
    }
    return {
        "id": session_name(session.pk),
        "status": look.status,
        "finished": look.is_finished,
        "held": look.held or None,
        "paused": look.paused,
        "paused_providers": look.paused_providers,
        "waiting_receivers": look.waiting_receivers,
        "approval": look.approval,
        "due": look.continues_at,
        "revision": look.job.revision,
        "bounce_limit": look.job.campaign.bounce_limit,
        "complaint_limit": look.job.campaign.complaint_limit,
        "vendor": look.job.vendor.slug,
        "mail_class": MailClass(look.job.mail_class).word,
        "route": look.route,
        "moves": reader.session_moves(look),
        "forecast": forecast_of_job(look.job, sums),
        "mode": "test" if session.test else "live",
        "accepted": sums.size,
        "counts": counts,
        "reports_deliveries": sums.delivered > 0 or bool(find_reporting([look.job.vendor_id])),
        "events": reader.count_events(look),
        "units": sums.units,
        "metadata": session.metadata,
        "created_at": session.created_at,
        "finished_at": look.job.finished_at,
        "links": session_links(session.pk, look.job.revision),
    }


def _apply_decision(
    request: HttpRequest, session_id: str, verb: Callable[[int, str], list[JobDecision]]
) -> Status[dict[str, Any]]:
    """Apply a decision. `verb` takes (job, the key's prefix). Raises Problem if it is impossible now or outdated."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    (answer,) = verb(_find_session(session_id, caller).job.pk, caller.prefix)
    if isinstance(answer, QuotaDecision) and answer.refusal:
        raise quota_problem(answer.refusal)
    if answer.verdict in (Verdict.BUSY, Verdict.STALE):
        raise Problem("state-conflict", answer.message)
    return _changed_answer(202, answer, session_id, caller)


def _changed_answer(status: int, answer: JobDecision, session_id: str, caller: Caller) -> Status[dict[str, Any]]:
    look = _find_session(session_id, caller)
    facts = {"changed": answer.verdict == Verdict.DONE, "told": answer.message, "session": _session_facts(look)}
    return Status(status, facts)
