"""GET /costs: what vendors charge for the messages of the key's sponsor, by month and vendor."""

from datetime import date
from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.params.functions import Query
from pydantic import BaseModel, Field

from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import invalid_problem
from campaigns.doors.front.schemas import ProblemOut
from campaigns.reporting import accounts

router = Router(tags=["costs"])
PROBLEMS = dict.fromkeys((401, 403, 422, 429, 503), ProblemOut)


class CostOut(BaseModel):
    month: str = Field(description="Of the calls, in UTC: 2026-11")
    vendor: str
    messages: int = Field(description="Those that the vendor has accepted")
    units: int = Field(description="In the vendor's units, as SMS segments")
    currency: str | None = Field(description="ISO 4217; null if there is no price")
    amount: str | None = Field(description="Exact, as a decimal number in a text; null if there is no price")
    in_doubt: int = Field(description="Messages of which it is not known yet whether they were accepted; not in amount")
    in_doubt_amount: str | None = Field(description="What those would cost")


class CostsOut(BaseModel):
    data: list[CostOut]


FORM = r"^(\d{4}-\d{2})?$"


@router.get(
    "/costs",
    auth=Key("read"),
    response={200: CostsOut, **PROBLEMS},
    summary="What vendors charge for your messages",
)
def list_costs(
    request: HttpRequest,
    first: str = Query(
        "", alias="from", pattern=FORM, description="The first month, like 2026-01; default: a year ago"
    ),
    last: str = Query("", alias="to", pattern=FORM, description="The last month; default: this one"),
    vendor: str = Query("", max_length=50, description="Only this one, by its slug"),
) -> dict[str, Any]:
    """By month, vendor and currency, the newest first. A test key sees none: nothing is charged for its messages."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    begin, end = accounts.past_twelve_months()
    begin, end = _month_parameter("from", first, begin), _month_parameter("to", last, end)
    if caller.test:
        return {"data": []}
    try:
        found = accounts.accounts_of_months(begin, end, [caller.sponsor_id], [vendor] if vendor else None)
    except ValueError as why:
        raise invalid_problem([{"parameter": "from", "code": "months", "detail": str(why)}]) from why
    members = CostOut.model_fields
    return {
        "data": [
            {name: value for name, value in accounts.account_facts(one).items() if name in members} for one in found
        ]
    }


def _month_parameter(name: str, text: str, default: date) -> date:
    try:
        return accounts.parse_month(text) if text else default
    except ValueError as why:
        raise invalid_problem([{"parameter": name, "code": "month", "detail": str(why)}]) from why
