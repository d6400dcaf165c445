"""GET /days: what happened to the messages of the key's sponsor, by day, as the chart of campaign owners shows it."""

from dataclasses import asdict
from datetime import date
from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.params.functions import Query
from pydantic import BaseModel, Field

from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.schemas import ProblemOut
from campaigns.engine import day_counts

router = Router(tags=["days"])
PROBLEMS = dict.fromkeys((401, 403, 422, 429, 503), ProblemOut)
CORRECTED = "; negative where later reports correct those of that day"


class DayOut(BaseModel):
    day: date = Field(description="In UTC")
    sent: int = Field(description="Accepted by a vendor, on the day of the call")
    delivered: int = Field(description=f"Reported as delivered, by vendors that report it{CORRECTED}")
    bounced: int = Field(description=f"Reported as bounced{CORRECTED}")
    complained: int
    unsubscribed: int


class DaysOut(BaseModel):
    data: list[DayOut]


@router.get("/days", auth=Key("read"), response={200: DaysOut, **PROBLEMS}, summary="What happened by day")
def list_days(
    request: HttpRequest,
    days: int = Query(
        day_counts.DAYS_SHOWN, ge=1, le=day_counts.MOST_DAYS, description="Number of days, today included"
    ),
) -> dict[str, Any]:
    """Every day up to today, for all messages of the sponsor, sent by programs or people.

    A test key gets an empty list, because these sums include live messages.
    """
    caller: Caller = request.auth  # type: ignore[attr-defined]
    found = [] if caller.test else day_counts.sum_days([caller.sponsor_id], days)
    return {"data": [asdict(one) for one in found]}
