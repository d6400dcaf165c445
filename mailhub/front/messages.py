"""POST /messages: work comes in (document 002's Post office Front)."""

import hashlib
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router

from mailhub.front import accepting, checking
from mailhub.front.accepting import Receipt
from mailhub.front.forecasts import forecasts
from mailhub.front.keys import Caller, Key
from mailhub.front.orders import SESSIONS
from mailhub.front.problems import Problem, invalid
from mailhub.front.schemas import Accepted, ProblemOut, SendRequest

router = Router(tags=["send"])
LONGEST_KEY = 255
JSON = "application/json"
PROBLEMS = dict.fromkeys((400, 401, 403, 409, 413, 422, 429, 503), ProblemOut)


@router.post(
    "/messages",
    auth=Key("send"),
    response={202: Accepted, 200: Accepted, **PROBLEMS},
    summary="Send 1 to 1,000 messages",
)
def send_messages(
    request: HttpRequest,
    asked: SendRequest,
    dry_run: bool = Query(False, description="Check and forecast; store nothing"),
    idempotency_key: str | None = Header(None, alias="Idempotency-Key", description="Needed, but for a dry run"),
) -> HttpResponse:
    """All of the messages are taken, or none. A repeat with the same key and body gets the first answer again."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if dry_run:
        return _dry_run(asked, caller)
    key = _checked(idempotency_key)
    fingerprint = _fingerprint(request)
    try:
        receipt = accepting.accept(checking.check(asked, caller, key, fingerprint))
    except Problem as problem:
        receipt = _told_before(problem, caller, key, fingerprint)
    headers = {"Location": f"{SESSIONS}/{receipt.session}"}
    if receipt.replayed:
        headers["Idempotent-Replayed"] = "true"
    return HttpResponse(receipt.answer, JSON, 202, headers=headers)


def _dry_run(asked: SendRequest, caller: Caller) -> HttpResponse:
    order = checking.check(asked, caller, "dry run", b"")
    desk = order.desks[0]
    return HttpResponse(order.answer(None, desk, forecasts.of(desk, order.size, order.send_at)), JSON, 200)


def _checked(key: str | None) -> str:
    if not key:
        raise Problem("idempotency-key-missing", "Name each request, so that repeating it sends nothing twice.")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        detail = f"it must be 1 to {LONGEST_KEY} printable ASCII characters"
        raise invalid([{"parameter": "Idempotency-Key", "code": "idempotency-key", "detail": detail}])
    return key


def _fingerprint(request: Any) -> bytes:
    """Of the content, however it is spelled."""
    return hashlib.sha256(orjson.dumps(request.parsed, option=orjson.OPT_SORT_KEYS)).digest()


TIME_TELLS = ("validation", "forbidden", "vendor-paused", "vendor-unhealthy")


def _told_before(problem: Problem, caller: Caller, key: str, fingerprint: bytes) -> Receipt:
    """A repeat is answered as the first time, whatever has changed since then. Else raises the problem."""
    if problem.kind not in TIME_TELLS:
        raise problem
    try:
        return accepting.replay(caller.sponsor_id, caller.test, key, fingerprint)
    except Problem:
        raise problem from None
