"""Reasons for a session's failed messages, and its recipients with their results as files."""

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from ninja.params.functions import Query
from pydantic import BaseModel, Field

from campaigns.doors.downloads import KINDS
from campaigns.doors.front.keys import Key
from campaigns.doors.front.schemas import ProblemOut
from campaigns.integrations.api.sessions import causes_of, labels_of, session_of
from campaigns.integrations.results import reader
from campaigns.reporting import reasons
from campaigns.reporting.export import Export
from campaigns.reporting.report_files import file_of

router = Router(tags=["sessions"])
PROBLEMS = dict.fromkeys((401, 403, 404, 422, 429, 503), ProblemOut)
BINARY = {kind.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}} for kind in KINDS.values()}


class ReasonOut(BaseModel):
    reason: str = Field(description="A stable name, like unknown, expired or vendor: with the vendor's code")
    status: str = Field(description="Of these messages")
    text: str = Field(description="A sentence")
    messages: int
    causes: dict[str, int] = Field(description="How many of them have which cause; not all do")


class ReasonsOut(BaseModel):
    data: list[ReasonOut]


@router.get(
    "/sessions/{session_id}/reasons",
    auth=Key("read"),
    response={200: ReasonsOut, **PROBLEMS},
    summary="Why messages of a session failed",
)
def get_reasons(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """How many messages did not reach their recipients, by reason; those of most messages first."""
    look = session_of(request, session_id)
    found = reasons.reasons_of_campaign(look.job.campaign, look.job.vendor.channel, look.sums)
    return {
        "data": [
            {
                "reason": one.key,
                "status": reader.machine_word(one.state),
                "text": one.sentence,
                "messages": one.messages,
                "causes": one.causes,
            }
            for one in found
        ]
    }


@router.get(
    "/sessions/{session_id}/report",
    auth=Key("read"),
    response={200: None, **PROBLEMS},
    summary="The recipients of a session as a file",
    openapi_extra={"responses": {200: {"description": "The file", "content": BINARY}}},
)
def get_report(
    request: HttpRequest,
    session_id: str,
    format: Literal["csv", "xlsx"] = Query("csv"),
    status: str = Query("", max_length=200, description="Only those in these states, as failed,bounced"),
    cause: str = Query("", max_length=200, description="Only those of these causes, as us,capacity"),
) -> Any:
    """Recipient and fields, then state, reason, vendor's id, times and cause. In CSV, a text that a spreadsheet would
    take for a formula begins with a quote."""
    look = session_of(request, session_id)
    of = Export(look.job.campaign, look.job.vendor.channel, labels_of(status), causes=causes_of(cause))
    return file_of(of, format, look.session.pk.hex[:12])
