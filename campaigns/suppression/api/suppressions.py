"""The API's suppressions: addresses that get nothing more from the key's sponsor."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router
from ninja.params.functions import Query

from campaigns.doors import public_ids
from campaigns.doors.front import request_bodies
from campaigns.doors.front.cursors import page_of
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem, make_error
from campaigns.doors.front.schemas import ProblemOut
from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.lists.intake import AddressReader
from campaigns.lists.intake.suppression_file import topic_of
from campaigns.models import Suppression, Topic
from campaigns.suppression import lists, suppressing
from campaigns.suppression.api.suppression_schemas import (
    AddressesIn,
    SuppressionChangeOut,
    SuppressionIn,
    SuppressionsIn,
    SuppressionsOut,
)
from campaigns.suppression.lists import NewSuppression
from vendors.history import Actor

router = Router(tags=["suppressions"])
HERE = "/api/v1/suppressions"
PROBLEMS = dict.fromkeys((400, 401, 403, 413, 422, 429, 503), ProblemOut)


@router.get(
    "/suppressions",
    auth=Key("read"),
    response={200: SuppressionsOut, **PROBLEMS},
    summary="Whom nobody writes to again, page by page",
)
def list_suppressions(
    request: HttpRequest,
    channel: str = Query("", pattern="^(print|email|sms)?$", description="Needed with an address"),
    address: str = Query("", max_length=2000, description="Only this one, also after its erasure"),
    limit: int = Query(100, ge=1, le=1000),
    cursor: str = Query("", pattern=rf"^(sup_{public_ids.PATTERN})?$", description="From the link to the next page"),
) -> dict[str, Any]:
    """Those of your own that hold, the latest first. Those of the installation for all sponsors are not listed."""
    caller = _live_sending_caller(request)
    rows = suppressing.held_suppressions().filter(sponsor=caller.sponsor_id).select_related("topic").order_by("-pk")
    if channel:
        rows = rows.filter(channel=channel)
    if address:
        if not channel:
            raise invalid_problem([make_error("/channel", "missing", "name the channel of the address")])
        normal = _normal_addresses(caller, channel, [address], "/address")
        rows = rows.filter(pk__in=lists.ids_of_addresses(channel, normal, caller.sponsor_id))
    here = f"{HERE}?limit={limit}" + (f"&channel={channel}" if channel else "")
    page = page_of(rows, "sup", here, limit, cursor, _suppression_facts)
    if address:  # links name no address
        page["links"]["next"] = None
    return page


@router.post(
    "/suppressions",
    auth=Key("ops"),
    response={200: SuppressionChangeOut, **PROBLEMS},
    summary="Suppress up to 1,000 addresses",
    openapi_extra={"requestBody": request_bodies.describe_body(SuppressionsIn)},
)
def add_suppressions(request: HttpRequest) -> dict[str, int]:
    """From the next claim on nothing is sent to them, also by campaigns that are being sent. Repeats change nothing."""
    caller = _live_sending_caller(request)
    asked, _ = request_bodies.read_body(request, SuppressionsIn)
    normal = _normal_addresses(
        caller, asked.channel, [one.address for one in asked.suppressions], "/suppressions/{}/address"
    )
    _check_until([one.until for one in asked.suppressions])
    topics = _topics_of_request(caller.sponsor_id, asked.suppressions)
    new = [
        NewSuppression(address, one.reason, one.source or caller.prefix, one.since, one.until, topic)
        for address, one, topic in zip(normal, asked.suppressions, topics, strict=True)
    ]
    return {"changed": suppressing.add_and_record(caller.sponsor_id, asked.channel, new, Actor(caller.prefix))}


@router.post(
    "/suppressions/lift",
    auth=Key("ops"),
    response={200: SuppressionChangeOut, **PROBLEMS},
    summary="Lift the suppressions of addresses",
    openapi_extra={"requestBody": request_bodies.describe_body(AddressesIn)},
)
def lift_suppressions(request: HttpRequest) -> dict[str, int]:
    """They may be written to again. Messages that were suppressed are sent only by a retry."""
    return {
        "changed": suppressing.lift_and_record(_suppression_ids(request), Actor(_live_sending_caller(request).prefix))
    }


@router.post(
    "/suppressions/erase",
    auth=Key("ops"),
    response={200: SuppressionChangeOut, **PROBLEMS},
    summary="Erase suppressed addresses",
    openapi_extra={"requestBody": request_bodies.describe_body(AddressesIn)},
)
def erase_suppressions(request: HttpRequest) -> dict[str, int]:
    """The addresses are deleted and stay suppressed, by a keyed hash."""
    return {
        "changed": suppressing.erase_and_record(_suppression_ids(request), Actor(_live_sending_caller(request).prefix))
    }


def _suppression_ids(request: HttpRequest) -> list[int]:
    caller = _live_sending_caller(request)
    asked, _ = request_bodies.read_body(request, AddressesIn)
    normal = _normal_addresses(caller, asked.channel, asked.addresses, "/addresses/{}")
    return lists.ids_of_addresses(asked.channel, normal, caller.sponsor_id)


def _live_sending_caller(request: HttpRequest) -> Caller:
    """Return the caller. Raises Problem for a test key, as suppressions apply to live mail."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if caller.test:
        raise Problem("forbidden", "Suppressions are those of live mail, so a test key neither sees nor changes any.")
    return caller


def _normal_addresses(caller: Caller, channel: str, addresses: list[str], pointer: str) -> list[str]:
    """Return the addresses in stored form. Raises Problem with one error for each invalid one."""
    read, found, errors = AddressReader(channel, vendor_cache.offered_to(caller.sponsor_id).region), [], []
    for number, address in enumerate(addresses):
        try:
            if "\0" in address:
                raise ValueError("it has a NUL character in it")
            found.append(read(address))
        except ValueError as why:
            errors.append(make_error(pointer.format(number), "address", str(why)))
    if errors:
        raise invalid_problem(errors)
    return found


def _topics_of_request(sponsor_id: int, asked: list[SuppressionIn]) -> list[int | None]:
    """Return the topic of each. Raises Problem for topics of other sponsors, or beside another reason."""
    known = dict(Topic.objects.filter(sponsor=sponsor_id).values_list("name", "pk"))
    found: list[int | None] = []
    errors = []
    for number, one in enumerate(asked):
        try:
            found.append(topic_of(known, one.topic, one.reason) if one.topic else None)
        except ValueError as why:
            errors.append(make_error(f"/suppressions/{number}/topic", "topic", str(why)))
    if errors:
        raise invalid_problem(errors)
    return found


def _check_until(times: list[datetime | None]) -> None:
    past = [number for number, until in enumerate(times) if until and until <= timezone.now()]
    if past:
        raise invalid_problem(
            [make_error(f"/suppressions/{number}/until", "past", "this time is past") for number in past]
        )


def _suppression_facts(row: Suppression) -> dict[str, Any]:
    names = ("channel", "address", "reason", "source", "since", "until")
    topic = row.topic.name if row.topic else None
    return {
        "id": public_ids.id_of_number("sup", row.pk),
        "topic": topic,
        **{name: getattr(row, name) for name in names},
    }
