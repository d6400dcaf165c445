"""Inbound messages to our numbers: /inbound/{vendor} takes them from vendors, GET /inbound lists them.

The vendor proves itself as for delivery reports (receipts.py). It gets an empty 204 once a STOP has suppressed, because
some vendors would forward the text of an answer to the recipient.
"""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Status
from ninja.params.functions import Query
from pydantic import BaseModel, Field

from campaigns import tasks
from campaigns.audience import inbound
from campaigns.doors.front.cursors import page_of
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem
from campaigns.doors.front.schemas import PageLinks, ProblemOut
from campaigns.doors.labels import format_recipient
from campaigns.doors.public_ids import PATTERN, id_of_number
from campaigns.integrations.api import receipts
from campaigns.models import InboundMessage

router = Router(tags=["inbound"])
HERE = "/api/v1/inbound"
PROBLEMS = dict.fromkeys((400, 401, 403, 413, 422, 429, 503), ProblemOut)


class InboundOut(BaseModel):
    """An SMS that somebody has written to a number of yours."""

    id: str
    sender: str = Field(description="Masked: its first sign alone")
    to: str = Field(description="Your number")
    identity: str | None
    text: str
    command: str = Field(description="stop, start or help, which was done when it came; empty: none of them")
    answered: bool = Field(description="HELP was answered")
    at: datetime


class InboundsOut(BaseModel):
    data: list[InboundOut]
    links: PageLinks


@router.post("/inbound/{vendor}", response={204: None, **PROBLEMS}, include_in_schema=False)
def take_inbound(request: HttpRequest, vendor: str) -> Status[None]:
    return _take_texts(request, vendor)


@router.get("/inbound/{vendor}", response={204: None, **PROBLEMS}, include_in_schema=False)
def take_inbound_by_query(request: HttpRequest, vendor: str) -> Status[None]:
    return _take_texts(request, vendor)


def _take_texts(request: HttpRequest, slug: str) -> Status[None]:
    of, messages, credentials = receipts.read_inbound(request, slug)
    if len(messages) > inbound.MOST:
        raise invalid_problem([{"pointer": "", "code": "too_long", "detail": f"At most {inbound.MOST:,} messages."}])
    if inbound.store_texts(of.id, messages, credentials).calls:
        tasks.notify_webhooks()
    receipts.counts.count_reports(of.id, "taken", len(messages))
    return Status(204, None)


@router.get(
    "/inbound",
    auth=Key("read"),
    response={200: InboundsOut, **PROBLEMS},
    summary="What recipients have written to your numbers, page by page",
)
def list_inbound(
    request: HttpRequest,
    limit: int = Query(100, ge=1, le=1000),
    cursor: str = Query("", pattern=rf"^(inb_{PATTERN})?$", description="From the link to the next page"),
) -> dict[str, Any]:
    """The latest first, for as many days as the installation keeps events."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if caller.test:
        raise Problem("forbidden", "What recipients write is of live mail, so a test key sees none of it.")
    rows = InboundMessage.objects.filter(sponsor=caller.sponsor_id).select_related("identity").defer("identity__secret")
    rows = rows.order_by("-pk")
    return page_of(rows, "inb", f"{HERE}?limit={limit}", limit, cursor, _inbound_facts)


def _inbound_facts(row: InboundMessage) -> dict[str, Any]:
    return {
        "id": id_of_number("inb", row.pk),
        "sender": format_recipient(row.sender, seen=False),
        "to": row.to,
        "identity": row.identity.name if row.identity else None,
        "text": row.text,
        "command": row.command,
        "answered": row.answer_id is not None,
        "at": row.written_at,
    }
