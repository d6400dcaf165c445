"""POST /recipients/find: the fate of one recipient's messages, in all campaigns of the key's sponsor.

The address is in the body, since URLs end up in the logs of servers and proxies.
"""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, Field

from campaigns.audience import finding
from campaigns.doors.front import request_bodies
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.schemas import CAUSE, ProblemOut, Strict

router = Router(tags=["recipients"])
PROBLEMS = dict.fromkeys((400, 401, 403, 413, 422, 429, 503), ProblemOut)


class FindIn(Strict):
    """The recipient or message to look for."""

    text: str = Field(
        min_length=1,
        max_length=finding.LONGEST,
        description="An address, our reference, msg_..., or the vendor's id where its reports name nothing else",
    )


class HappeningOut(BaseModel):
    at: datetime
    event: str
    note: str | None


class FoundOut(BaseModel):
    id: str
    reference: str = Field(description="By which the vendor knows it")
    campaign: str
    status: str = Field(description="As in the list of its session")
    cause: str | None = CAUSE
    vendor: str
    vendor_message_id: str | None
    events: list[HappeningOut]


class SuppressedOut(BaseModel):
    reason: str
    topic: str | None
    since: datetime
    until: datetime | None


class FindOut(BaseModel):
    data: list[FoundOut] = Field(description="The newest, at most 50")
    more: bool = Field(description="There are older ones")
    suppressed: list[SuppressedOut] = Field(description="Entries about this recipient, held or ended; those of yours")


@router.post(
    "/recipients/find",
    auth=Key("read"),
    response={200: FindOut, **PROBLEMS},
    summary="What one recipient got",
    openapi_extra={"requestBody": request_bodies.describe_body(FindIn)},
)
def find_recipient(request: HttpRequest) -> dict[str, Any]:
    """Exactly this address, e-mail in any capitals; also of campaigns that no program sent. It changes nothing."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    asked, _ = request_bodies.read_body(request, FindIn)
    found = finding.look_for(asked.text, [caller.sponsor_id], caller.test)
    mine = [row for row in found.suppressed if row.sponsor_id == caller.sponsor_id and not caller.test]
    return {
        "data": [{"id": one.name, **finding.found_facts(one)} for one in found.messages],
        "more": found.more,
        "suppressed": [finding.suppression_facts(row) for row in mine],
    }
