"""Orders become sessions: vendor health, queue, one transaction for all of them, bell (document 002, steps 1 to 3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg
from django.conf import settings

from campaigns.intake import requests as accepting
from campaigns.intake.requests import Request, Stored
from campaigns.models import Session
from campaigns.tasks import dispatch_later
from mailhub.front import notifier, rate_limits
from mailhub.front.batcher import Batcher
from mailhub.front.forecasts import Forecast, forecasts
from mailhub.front.problems import Problem
from mailhub.front.send_orders import SendOrder
from mailhub.front.vendor_cache import VendorSnapshot
from vendors import health
from vendors.health import HealthStatus

AGAIN = 1  # seconds until a request that is just being stored has an answer
SINGLE = (psycopg.DataError, psycopg.IntegrityError)  # one of many may be at fault


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """What the client is told. replayed: it was told so before."""

    session: str
    answer: str
    replayed: bool = False


def accept(order: SendOrder) -> AcceptedRequest:
    """Raises Problem, health.Unreachable, and the database's errors; then nothing of it was stored."""
    receipt = _counter.ask(order)
    if receipt is None:
        return replay(order.caller.sponsor_id, order.caller.test, order.idempotency_key, order.fingerprint)
    return receipt


def replay(sponsor_id: int, test: bool, key: str, fingerprint: bytes) -> AcceptedRequest:
    """What the first request with this key was told. Raises Problem, also if there was none: it is being stored."""
    first = Session.objects.filter(sponsor=sponsor_id, test=test, idempotency_key=key).first()
    if first is None:
        raise Problem("idempotency-key-in-use", "Ask again in a moment.", retry_after=AGAIN)
    if bytes(first.fingerprint) != fingerprint:
        detail = f"It belongs to {first.name}, whose request had another body."
        raise Problem("idempotency-key-reused", detail)
    return AcceptedRequest(first.name, first.answer, replayed=True)


def admit(order: SendOrder, known: dict[int, HealthStatus] | None = None) -> VendorSnapshot:
    """The first of its vendors that takes work. Raises Problem if none does, with the shortest time to wait."""
    refusals: list[Problem] = []
    for desk in order.desks:
        refusal = _refusal(desk, {} if known is None else known)
        if refusal is None:
            return desk
        refusals.append(refusal)
    raise min(refusals, key=lambda problem: int(problem.headers["Retry-After"]))


def _refusal(desk: VendorSnapshot, known: dict[int, HealthStatus]) -> Problem | None:
    if desk.paused is not None:
        return Problem("vendor-paused", f"{desk.slug}: {desk.paused}", retry_after=desk.terms.retry_after)
    status = known.get(desk.id) or health.at(settings.REDIS_URL).admit(desk.id, desk.terms)
    if status.state != "probe":  # of several who ask at once, one is the probe
        known[desk.id] = status
    if status.accepting:
        return None
    share = f"{status.ratio or 0:.0%} good of the last {status.good + status.bad:,} answers"
    detail = f"{desk.slug}: {share}; {desk.terms.min_ratio:.0%} is needed."
    facts = {"good": status.good, "bad": status.bad, "ratio": status.ratio, "threshold": desk.terms.min_ratio}
    return Problem("vendor-unhealthy", detail, retry_after=status.seconds, service=facts)


def _serve(orders: Sequence[SendOrder]) -> list["AcceptedRequest | Exception | None"]:
    """None: another request has its key."""
    known: dict[int, HealthStatus] = {}
    left = _counted(orders)
    admitted = [_admitted(order, left, known) for order in orders]
    work = [(order, desk) for order, desk in zip(orders, admitted, strict=True) if isinstance(desk, VendorSnapshot)]
    receipts = iter(_store(work) if work else [])
    return [next(receipts) if isinstance(desk, VendorSnapshot) else desk for desk in admitted]


def _counted(orders: Sequence[SendOrder]) -> dict[int, int]:
    """How many requests of each API key may be served."""
    asked: dict[tuple[int, int], int] = {}
    for order in orders:
        key = (order.caller.key_id, order.caller.requests_per_minute)
        asked[key] = asked.get(key, 0) + 1
    left: dict[int, int] = {}
    for (key_id, per_minute), number in asked.items():
        left[key_id] = left.get(key_id, 0) + rate_limits.take(key_id, per_minute, number)
    return left


def _admitted(order: SendOrder, left: dict[int, int], known: dict[int, HealthStatus]) -> VendorSnapshot | Problem:
    caller = order.caller
    try:
        if not left[caller.key_id]:
            raise rate_limits.refusal(caller.key_id, caller.requests_per_minute)
        left[caller.key_id] -= 1
        return admit(order, known)
    except Problem as problem:
        return problem


def _store(work: Sequence[tuple[SendOrder, VendorSnapshot]]) -> list["AcceptedRequest | Exception | None"]:
    told: dict[object, Forecast] = {}  # in one round, alike ones are told alike
    requests = [order.request(desk, _forecast(order, desk, told)) for order, desk in work]
    notifier.check()
    stored = [
        one if isinstance(one, Exception) else _stored(order, desk, request, one)
        for (order, desk), request, one in zip(work, requests, _stored_rows(requests), strict=True)
    ]
    _ring(
        desk
        for (order, desk), one in zip(work, stored, strict=True)
        if isinstance(one, AcceptedRequest) and not order.send_at
    )
    return stored


def _ring(desks: Iterable[VendorSnapshot]) -> None:
    for vendor_id, slug in {(desk.id, desk.slug) for desk in desks}:
        notifier.notifier.ring(vendor_id, slug)


def _forecast(order: SendOrder, desk: VendorSnapshot, told: dict[object, Forecast]) -> Forecast:
    asked = (desk.id, order.size, order.send_at)
    if asked not in told:
        told[asked] = forecasts.of(desk, order.size, order.send_at)
    return told[asked]


def _stored_rows(requests: list[Request]) -> "list[Stored | Exception]":
    """All in one statement; should one of them be at fault, each by itself."""
    try:
        return list(accepting.store(requests))
    except SINGLE:
        if len(requests) == 1:
            raise
    return [_alone(request) for request in requests]


def _alone(request: Request) -> "Stored | Exception":
    try:
        return accepting.store([request])[0]
    except SINGLE as error:
        return error


def _stored(
    order: SendOrder, desk: VendorSnapshot, request: Request, stored: Stored
) -> AcceptedRequest | Problem | None:
    if stored.busy:
        return Problem("idempotency-key-in-use", "Ask again in a moment.", retry_after=AGAIN)
    if stored.job_id is None:
        return None
    if request.send_at:
        dispatch_later(stored.job_id, request.send_at)
    else:
        forecasts.taken(desk, order.size)
    return AcceptedRequest(f"ses_{request.session.hex}", request.answer)


_counter: Batcher[SendOrder, AcceptedRequest | None] = Batcher(_serve)
