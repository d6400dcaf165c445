"""The API's inbox: recipients' answers that no rule is sure of, to be treated as a stop or marked as read."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from ninja.params.functions import Query
from pydantic import BaseModel, Field

from campaigns.audience import unread_answers
from campaigns.doors.front.cursors import page_of
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem
from campaigns.doors.front.schemas import PageLinks, ProblemOut
from campaigns.doors.labels import format_recipient
from campaigns.doors.public_ids import PATTERN, id_of_number, number_of_id
from campaigns.models import RecipientAnswer
from vendors.history import Actor

router = Router(tags=["answers"])
HERE = "/api/v1/answers"
PROBLEMS = dict.fromkeys((401, 403, 404, 409, 422, 429, 503), ProblemOut)


class AnswerOut(BaseModel):
    """What a recipient wrote, and what became of it."""

    id: str
    channel: str
    kind: str = Field(description="sms, reply (to an e-mail), fraud (a report of it)")
    near: bool = Field(description="Perhaps it asks to stop")
    sender: str = Field(description="Masked: its first sign alone")
    to: str
    text: str = Field(description="At most 2,000 characters")
    message_id: str | None = Field(description="The message that it answers, if known")
    outcome: str = Field(description="unread; stop: the sender is suppressed; read")
    decided_by: str | None
    decided_at: datetime | None
    at: datetime


class AnswersOut(BaseModel):
    data: list[AnswerOut]
    links: PageLinks


class AnswerDecidedOut(BaseModel):
    changed: bool = Field(description="false: it was decided already")
    outcome: str


@router.get(
    "/answers",
    auth=Key("read"),
    response={200: AnswersOut, **PROBLEMS},
    summary="Answers of recipients, page by page",
)
def list_answers(
    request: HttpRequest,
    outcome: Literal["unread", "stop", "read", "all"] = Query("unread", description="Unread: the oldest first"),
    limit: int = Query(100, ge=1, le=1000),
    cursor: str = Query("", pattern=rf"^(ans_{PATTERN})?$", description="From the link to the next page"),
) -> dict[str, Any]:
    """Those that no rule is sure of, for as many days as the installation keeps events."""
    rows = unread_answers.filter_by_state(
        RecipientAnswer.objects.filter(sponsor=_live_caller(request).sponsor_id), outcome
    )
    here = f"{HERE}?outcome={outcome}&limit={limit}"
    return page_of(rows, "ans", here, limit, cursor, _answer_facts, oldest_first=outcome == "unread")


@router.post(
    "/answers/{answer_id}/stop",
    auth=Key("ops"),
    response={200: AnswerDecidedOut, **PROBLEMS},
    summary="Treat an answer as a stop",
)
def stop_answer(request: HttpRequest, answer_id: str) -> dict[str, Any]:
    """Its sender gets nothing more from you on this channel. Repeats change nothing."""
    return _decide_answer(request, answer_id, unread_answers.treat_as_stop)


@router.post(
    "/answers/{answer_id}/read",
    auth=Key("ops"),
    response={200: AnswerDecidedOut, **PROBLEMS},
    summary="Mark an answer as read",
)
def read_answer(request: HttpRequest, answer_id: str) -> dict[str, Any]:
    """Nothing else changes. Repeats change nothing."""
    return _decide_answer(request, answer_id, unread_answers.mark_read)


def _decide_answer(request: HttpRequest, answer_id: str, decide: Callable[[int, Actor], bool]) -> dict[str, Any]:
    caller: Caller = request.auth  # type: ignore[attr-defined]
    rows = RecipientAnswer.objects.filter(sponsor=caller.sponsor_id, pk=number_of_id("ans", answer_id) or 0)
    if caller.test or not rows.exists():
        raise Problem("not-found", "You have no such answer.")
    try:
        changed = decide(rows.get().pk, Actor(caller.prefix))
    except unread_answers.StartedSince as why:
        raise Problem("state-conflict", str(why)) from why
    return {"changed": changed, "outcome": rows.get().outcome or "unread"}


def _live_caller(request: HttpRequest) -> Caller:
    """Return the caller. Raises Problem for a test key, as answers are to live mail."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if caller.test:
        raise Problem("forbidden", "What recipients write is of live mail, so a test key sees none of it.")
    return caller


def _answer_facts(row: RecipientAnswer) -> dict[str, Any]:
    return {
        "id": id_of_number("ans", row.pk),
        "channel": row.channel,
        "kind": row.kind,
        "near": row.near,
        "sender": format_recipient(row.sender, seen=False),
        "to": row.to,
        "text": row.text,
        "message_id": id_of_number("msg", row.message) if row.message else None,
        "outcome": row.outcome or "unread",
        "decided_by": row.decided_by or None,
        "decided_at": row.decided_at,
        "at": row.written_at,
    }
