"""Stores events for webhooks, signs them, and manages webhooks (Standard Webhooks 1.0); delivery.py posts them.

An event's id is derived from the facts. If an event is found twice it is one row, and the receiver recognises a repeat.
"""

import base64
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import orjson
from django.contrib.admin.models import ADDITION, CHANGE, DELETION
from django.db import connection, transaction
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from campaigns.doors import public_ids
from campaigns.engine.ports import Complaint, ReportChange
from campaigns.models import Campaign, ReportKind, Session, Sponsor, Webhook, WebhookCall
from campaigns.models.api_clients import Event
from vendors import alarms, history, said, webhook_http
from vendors.history import Actor
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

SPACE = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
MOST_OF_A_PROGRAM = 20
OVERLAP = timedelta(days=1)  # during which both secrets sign
# A delivered or bounced message had been sent; this is the event of sending. Its delivery report is another event.
EVENTS = {
    **dict.fromkeys(("sent", "delivered", "bounced"), Event.MESSAGE_SENT),
    **dict.fromkeys(("failed", "expired", "suppressed"), Event.MESSAGE_FAILED),
    "needs_attention": Event.MESSAGE_NEEDS_ATTENTION,
}
REPORTS = {ReportKind.DELIVERED.value: Event.MESSAGE_DELIVERED, ReportKind.BOUNCED.value: Event.MESSAGE_BOUNCED}


# A client may remove its webhook at any time. This keeps the webhooks until the caller's transaction ends.
HOLD = "SELECT id FROM campaigns_webhook WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"


class TooMany(Exception):
    """A sponsor already has the maximum of webhooks made through the API or pages."""


@transaction.atomic
def create_webhook(
    sponsor: Sponsor, url: str, events: Sequence[str], test: bool, by: Actor | None = None, secret: str = ""
) -> tuple[Webhook, str]:
    """Make a webhook; return it and its signing secret. Raises webhook_http.Forbidden for a bad address."""
    webhook_http.check_url(url)
    row = Webhook(sponsor=sponsor, url=url, events=list(events) or list(Event.values), test=test)
    secret = secret or _new_secret()
    row.secret = {"key": secret}
    row.save()
    _record_decision(by, row.pk, "added", ADDITION)
    return row, secret


@transaction.atomic
def add_program_webhook(
    sponsor_id: int, url: str, events: Sequence[str], test: bool, by: Actor | None = None, secret: str = ""
) -> tuple[Webhook, str]:
    """Make a webhook for the API or a page, up to MOST_OF_A_PROGRAM for each sponsor.

    Raises TooMany, and the errors of `create_webhook`. secret: the one of this request. A repeat with it finds the
    webhook made by the first request.
    """
    sponsor = Sponsor.objects.select_for_update(no_key=True).get(pk=sponsor_id)
    mine = list(Webhook.objects.filter(sponsor=sponsor, test=test))
    if secret and (known := [one for one in mine if one.secret["key"] == secret]):
        return known[0], secret
    if len(mine) >= MOST_OF_A_PROGRAM:
        raise TooMany(f"There are {MOST_OF_A_PROGRAM} webhooks already; delete one.")
    return create_webhook(sponsor, url, events, test, by, secret)


@transaction.atomic
def rotate_secret(hook_id: int, by: Actor | None = None, secret: str = "") -> str:
    """Make a new signing secret; the old one also signs for a day. Raises Webhook.DoesNotExist.

    secret: as in `add_program_webhook`. Otherwise a repeat would turn the first request's secret into the old one.
    """
    row = Webhook.objects.select_for_update(no_key=True).get(pk=hook_id)
    if secret and row.secret["key"] == secret:
        return secret
    until = timezone.now() + OVERLAP
    secret = secret or _new_secret()
    row.secret = {"key": secret, "old": row.secret["key"], "until": until.isoformat()}
    row.save(update_fields=["secret"])
    _record_decision(by, hook_id, "secret replaced")
    return secret


@transaction.atomic
def remove_webhook(hook_id: int, by: Actor | None = None) -> None:
    """Delete a webhook with its calls, after any transaction that is storing events for it."""
    for row in Webhook.objects.select_for_update().filter(pk=hook_id):
        row.delete()
        _record_decision(by, hook_id, Said(gettext_noop("removed: %(name)s"), name=row.url), DELETION)


def _new_secret() -> str:
    return secret_of(secrets.token_bytes(32))


def secret_of(some: bytes) -> str:
    """Return 32 random bytes in the form of a Standard Webhooks signing secret."""
    return "whsec_" + base64.b64encode(some).decode()


def _record_decision(by: Actor | None, hook_id: int, what: str, flag: int = CHANGE) -> None:
    """Add it to the history if a person or a program decided it."""
    if by is not None:
        history.record_changes(by, Webhook, [(hook_id, what)], flag=flag)


def sign_event(hook: Webhook, name: str, moment: datetime, body: str) -> str:
    """Return the signature; during a rotation two, separated by a space as Standard Webhooks specifies."""
    stored = hook.secret
    keys = [stored["key"]]
    if "old" in stored and moment < datetime.fromisoformat(stored["until"]):
        keys.append(stored["old"])
    return " ".join(Signer(key).sign(name, moment, body) for key in keys)


def emit(session: Session, messages: Sequence[dict[str, Any]]) -> list[int]:
    """Store the calls for a finished session in the caller's transaction; return the ids of new ones."""
    hooks = list(Webhook.objects.filter(sponsor=session.sponsor_id, test=session.test, enabled=True))
    if not hooks:
        return []
    happened = [*_message_events(session, messages), _session_event(session, messages)]
    rows = [_make_session_call(hook, session, *one) for hook in hooks for one in happened if one[1] in hook.events]
    return store_calls(rows)


def store_report_calls(changes: Sequence[ReportChange]) -> list[int]:
    """Store the calls for delivery reports in the transaction that stores the reports; return the ids of new ones."""
    named = {change.session for change in changes if change.session}
    if not named:
        return []
    sessions = Session.objects.select_related("job").defer("answer", "fingerprint").in_bulk(named)
    sponsors = {session.sponsor_id for session in sessions.values()}
    hooks: dict[tuple[int, bool], list[Webhook]] = defaultdict(list)
    for hook in Webhook.objects.filter(sponsor__in=sponsors, enabled=True, events__overlap=list(REPORTS.values())):
        hooks[hook.sponsor_id, hook.test].append(hook)
    rows = []
    for change in changes:
        session = sessions.get(change.session) if change.session else None
        if session and (mine := hooks[session.sponsor_id, session.test]):
            happened = _receipt_event(session, change)
            rows += [_make_session_call(hook, session, *happened) for hook in mine if happened[1] in hook.events]
    return store_calls(rows) if rows else []


def store_complaint_calls(complaints: Sequence[Complaint]) -> list[int]:
    """Store the calls for complaints in the transaction that stores the complaints; return the ids of new ones."""
    if not complaints:
        return []
    named = {one.campaign_id for one in complaints}
    jobs = Session.objects.filter(job__campaign__in=named).select_related("job").defer("answer", "fingerprint")
    sessions = {session.job.campaign_id: session for session in jobs}
    sponsors = {session.sponsor_id for session in sessions.values()}
    wanted = Webhook.objects.filter(sponsor__in=sponsors, enabled=True, events__contains=[Event.MESSAGE_COMPLAINED])
    hooks = list(wanted) if sponsors else []
    rows = [
        _make_session_call(hook, session, *_complaint_event(session, one))
        for one in complaints
        if (session := sessions.get(one.campaign_id))
        for hook in hooks
        if (hook.sponsor_id, hook.test) == (session.sponsor_id, session.test)
    ]
    return store_calls(rows) if rows else []


def store_pause_calls(session: Session, campaign: Campaign) -> list[int]:
    """Store the calls for a paused campaign in the transaction that pauses it; return the ids of new ones."""
    hooks = Webhook.objects.filter(sponsor=session.sponsor_id, test=session.test, enabled=True)
    mine = [hook for hook in hooks if Event.SESSION_PAUSED in hook.events]
    name = uuid5(SPACE, f"{session.pk} paused {campaign.paused_at}")
    why = {"by": campaign.paused_by, "reason": campaign.paused_reason}
    data = {**why, "revision": session.job.revision, "metadata": session.metadata}
    return (
        store_calls([_make_session_call(hook, session, name, Event.SESSION_PAUSED, data) for hook in mine])
        if mine
        else []
    )


def store_answer_calls(sponsor_id: int, name: str, describe: Callable[[], dict[str, Any]], test: bool) -> list[int]:
    """Store the calls for a recipient's answer in the transaction that stores it; return the ids of new ones.

    name: of the answer, so that a repeat is the same event.
    """
    kind = Event.ANSWER_RECEIVED
    wanted = list(Webhook.objects.filter(sponsor=sponsor_id, test=test, enabled=True, events__contains=[kind]))
    if not wanted:
        return []
    event, data = uuid5(SPACE, f"{sponsor_id} {name} {kind.value}"), describe()
    return store_calls([_make_webhook_call(hook, None, event, kind, data) for hook in wanted])


def store_calls(rows: Sequence[WebhookCall]) -> list[int]:
    """Store new calls in the caller's transaction; return their ids."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD, [sorted({row.webhook_id for row in rows})])
        there = {hook_id for (hook_id,) in cursor.fetchall()}
    known = set(WebhookCall.objects.filter(event__in={row.event for row in rows}).values_list("webhook", "event"))
    fresh = [row for row in rows if row.webhook_id in there and (row.webhook_id, row.event) not in known]
    WebhookCall.objects.bulk_create(fresh, batch_size=1000, ignore_conflicts=True)
    made = WebhookCall.objects.filter(event__in={row.event for row in fresh}, tries=0, taken_at=None)
    return list(made.values_list("pk", flat=True))


Happened = tuple[UUID, Event, dict[str, Any]]


def _message_events(session: Session, messages: Iterable[dict[str, Any]]) -> Iterable[Happened]:
    for message in messages:
        kind = EVENTS.get(message["status"])
        if kind:
            number = public_ids.number_of_id("msg", message["id"])  # also from a result stored by an earlier version
            what = f"{session.pk} msg_{number} {message['attempt']} {kind.value}"
            names = ("id", "reference", "status", "reason")
            facts = {name: message[name] for name in names}
            yield uuid5(SPACE, what), kind, facts | {"id": public_ids.id_of_number("msg", number or 0)}


def _receipt_event(session: Session, change: ReportChange) -> Happened:
    kind = REPORTS[change.kind.value]
    what = f"{session.pk} msg_{change.id} {change.attempt} {kind.value} {change.at.isoformat()}"
    bounced = change.kind == ReportKind.BOUNCED
    data = {
        "id": public_ids.id_of_number("msg", change.id),
        "reference": _reference_of(session, change.id),
        "status": change.kind.value,
        "reason": {"code": "bounced", "text": change.note} if bounced else None,
        "vendor_message_id": change.vendor_message_id,
        "reported_at": change.at.isoformat(),
    }
    return uuid5(SPACE, what), kind, data


def _complaint_event(session: Session, one: Complaint) -> Happened:
    kind = Event.MESSAGE_COMPLAINED
    data = {
        "id": public_ids.id_of_number("msg", one.id),
        "reference": _reference_of(session, one.id),
        "reason": {"code": "complained", "text": one.note or None},
        "reported_at": one.at.isoformat(),
    }
    return uuid5(SPACE, f"{session.pk} msg_{one.id} {one.attempt} {kind.value}"), kind, data


def _reference_of(session: Session, message_id: int) -> str | None:
    return session.references[message_id - session.job.first_message] if session.references else None


def _session_event(session: Session, messages: Sequence[dict[str, Any]]) -> Happened:
    statuses = [message["status"] for message in messages]
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    ended = Counter("sent" if status in REPORTS else status for status in statuses)
    what = f"{session.pk} {dict(sorted(ended.items()))} {session.job.revision}"
    return uuid5(SPACE, what), Event.SESSION_FINISHED, {"counts": counts, "metadata": session.metadata}


def _make_session_call(hook: Webhook, session: Session, event: UUID, kind: Event, data: dict[str, Any]) -> WebhookCall:
    return _make_webhook_call(hook, session, event, kind, {"session_id": session.name, **data})


def _make_webhook_call(
    hook: Webhook, session: Session | None, event: UUID, kind: Event, data: dict[str, Any]
) -> WebhookCall:
    now = timezone.now()
    body = orjson.dumps({"type": kind.value, "timestamp": now.isoformat(), "data": data}).decode()
    return WebhookCall(webhook=hook, session=session, event=event, kind=kind, body=body, next_at=now)


@transaction.atomic
def enable_webhook(hook: Webhook, by: Actor) -> bool:
    """Switch a webhook on: events from now on are posted. Returns False if it was on already."""
    off = Webhook.objects.filter(pk=hook.pk, enabled=False)
    if not off.update(enabled=True, **said.columns("disabled_reason", ""), timeouts=0, suspended_until=None):
        return False
    _record_decision(by, hook.pk, Said(gettext_noop("switched on")))
    return True


@transaction.atomic
def disable_webhook(hook: Webhook, reason: str, by: Actor | None = None) -> None:
    """Switch a webhook off: it gets no more calls."""
    _record_decision(by, hook.pk, Said(gettext_noop("switched off")))
    Webhook.objects.filter(pk=hook.pk).update(enabled=False, **said.columns("disabled_reason", reason))
    WebhookCall.objects.filter(webhook=hook).update(next_at=None)
    alarms.WEBHOOK_OFF.log(log, hook.pk, reason)


@transaction.atomic
def repeat_call(call_id: int, by: Actor | None = None, seen: tuple[int, datetime | None] | None = None) -> bool:
    """Post an event again, with ten new tries.

    Returns False if the call does not exist, its webhook is off, or it has changed since it was seen. seen: the tries
    and the time of acceptance shown to the user, so that pressing a button twice changes nothing.
    """
    mine = WebhookCall.objects.filter(pk=call_id, webhook__enabled=True)
    if seen is not None:
        mine = mine.filter(tries=seen[0], taken_at=seen[1])
    of = WebhookCall.objects.filter(pk=call_id).values("webhook")
    # Locked before its calls, as in delivery.
    hooks = list(Webhook.objects.select_for_update(no_key=True).filter(pk__in=of).values_list("pk", flat=True))
    if mine.update(next_at=timezone.now(), tries=0, taken_at=None) != 1:
        return False
    Webhook.objects.filter(pk=hooks[0]).update(suspended_until=None)
    _record_decision(by, hooks[0], Said(gettext_noop("call %(call)s is posted again"), call=str(call_id)))
    return True
