"""POST /messages: requests to send (document 002's Post office Front). GET /messages/{id}: one message's state."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse
from ninja import Router

from campaigns.doors import public_ids
from campaigns.doors.front import rate_limits, request_bodies
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem
from campaigns.doors.front.request_bodies import JSON
from campaigns.doors.front.schemas import ProblemOut
from campaigns.doors.front.session_links import SESSIONS
from campaigns.doors.front.vendor_cache import VendorSnapshot
from campaigns.integrations.api.session_schemas import OneMessageOut
from campaigns.integrations.results import reader
from campaigns.lists.api import accepting, checking
from campaigns.lists.api.accepting import AcceptedRequest
from campaigns.lists.api.schemas import AcceptedOut, SendRequest
from campaigns.lists.api.send_orders import SendOrder
from campaigns.reporting.api.forecasts import forecasts
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import NewWork

router = Router(tags=["send"])
DRY_RUN = ""  # no idempotency key
StepResult = TypeVar("StepResult")
PROBLEMS = dict.fromkeys((400, 401, 403, 409, 413, 422, 429, 503), ProblemOut)


# This endpoint gets most requests. It parses its parameters itself, which halves the framework's overhead. These
# describe them for the OpenAPI document.
PARAMETERS = [
    {
        "in": "query",
        "name": "dry_run",
        "schema": {"type": "boolean", "default": False},
        "description": "Check and forecast; store nothing",
    },
    request_bodies.key_parameter("Without it the answer is 400; a dry run ignores it", required=True),
]


@router.post(
    "/messages",
    auth=Key("send", counts=False),
    response={202: AcceptedOut, 200: AcceptedOut, **PROBLEMS},
    summary="Send 1 to 1,000 messages",
    openapi_extra={"parameters": PARAMETERS, "requestBody": request_bodies.describe_body(SendRequest)},
)
def send_messages(request: HttpRequest) -> HttpResponse:
    """All messages are accepted, or none. A repeat with the same key and body gets the first answer again."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    asked, key, fingerprint = _run_counted(caller, _read_send_request, request)
    try:
        order = _run_counted(caller, checking.check_order, asked, caller, key, fingerprint)
        if key == DRY_RUN:
            return _dry_run(order)
        accepted = accepting.accept_order(order)
    except Problem as problem:
        accepted = _replay_or_raise(problem, caller, key, fingerprint)
    headers = {"Location": f"{SESSIONS}/{accepted.session}"}
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
    return HttpResponse(accepted.answer, JSON, 202, headers=headers)


def _run_counted(caller: Caller, step: Callable[..., StepResult], *given: Any) -> StepResult:
    """Run one step; if it fails, count the request here. Others are counted with their batch (accepting.py)."""
    try:
        return step(*given)
    except Problem:
        rate_limits.check_rate(caller.key_id, caller.requests_per_minute)
        raise


def _dry_run(order: SendOrder) -> HttpResponse:
    rate_limits.check_rate(order.caller.key_id, order.caller.requests_per_minute)
    vendor = order.vendors[0]
    units = order.cost["units"] if order.cost else None
    asked = vendor, order.caller.sponsor_id, order.size, order.send_at, units
    at = forecasts.forecast_with_hours(order.hours) if order.hours else forecasts.of(*asked, order.mail_class(vendor))
    return HttpResponse(order.answer(None, vendor, at, _foresee_quotas(order, vendor)), JSON, 200)


def _foresee_quotas(order: SendOrder, vendor: VendorSnapshot) -> list[str]:
    """Return what the sponsor's quotas would say to the order."""
    if vendor.credential_id is None:  # the vendor is paused
        return []
    starts_at = order.send_at or datetime.now(UTC)
    work = NewWork(order.caller.sponsor_id, vendor.id, vendor.credential_id, order.size, starts_at)
    return [str(one.sentence) for one in admission.foresee_answers([work])]


def _read_send_request(request: HttpRequest) -> tuple[SendRequest, str, bytes]:
    """Return the body, the idempotency key or DRY_RUN, and the fingerprint of the parsed body."""
    asked, parsed = request_bodies.read_body(request, SendRequest)
    return asked, _key_or_dry_run(request), request_bodies.body_fingerprint(parsed)


def _key_or_dry_run(request: HttpRequest) -> str:
    if request.META["QUERY_STRING"] and _parse_flag(request.GET.get("dry_run", "false")):
        return DRY_RUN
    key = request_bodies.idempotency_key(request)
    if not key:
        raise Problem("idempotency-key-missing", "Name each request, so that repeating it sends nothing twice.")
    return key


def _parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise invalid_problem([{"parameter": "dry_run", "code": "bool_parsing", "detail": "it must be true or false"}])
    return text.lower() in ("true", "1")


@router.get(
    "/messages/{message_id}",
    auth=Key("read"),
    response={200: OneMessageOut, **dict.fromkeys((401, 403, 404, 422, 429, 503), ProblemOut)},
    summary="What became of one message",
)
def get_message(request: HttpRequest, message_id: str) -> dict[str, Any]:
    """The same facts as in the list of its session."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    number = public_ids.number_of_id("msg", message_id)
    facts = None if number is None else reader.find_session_message(number, caller.sponsor_id, caller.test)
    if facts is None:
        raise Problem("not-found", "You have no such message.")
    return facts


MAY_CHANGE = ("validation", "forbidden", "quota-too-small", "quota-used", "vendor-paused", "vendor-unhealthy")


def _replay_or_raise(problem: Problem, caller: Caller, key: str, fingerprint: bytes) -> AcceptedRequest:
    """Return the first answer to a repeat, whatever has changed since. Raises `problem` if it is not a repeat."""
    if problem.kind not in MAY_CHANGE or key == DRY_RUN:
        raise problem
    try:
        return accepting.replay_answer(caller.sponsor_id, caller.test, key, fingerprint)
    except Problem:
        raise problem from None
