"""Accepts checked requests (document 002, steps 1 to 3), many in one transaction (batcher.py).

For each batch: count requests, ask the vendors' health, check the broker, store sessions and jobs, notify the queues.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
from django.conf import settings

from campaigns.doors.front import rate_limits
from campaigns.doors.front.batcher import Batcher
from campaigns.doors.front.problems import Problem, quota_problem
from campaigns.doors.front.vendor_cache import VendorSnapshot
from campaigns.engine.dispatch.dispatcher import dispatch_later
from campaigns.lists.api import notifier
from campaigns.lists.api.send_orders import SendOrder
from campaigns.lists.intake import requests as accepting
from campaigns.lists.intake.requests import Request, Stored
from campaigns.lists.intake.to_oneself import TooManyToOneself
from campaigns.models import Session
from campaigns.reporting.api.forecasts import Forecast, forecasts
from vendors import health
from vendors.health import HealthStatus

AGAIN = 1  # seconds; Retry-After while the first request with this key is being stored
SINGLE = (psycopg.DataError, psycopg.IntegrityError)  # caused by one request of a batch


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """The answer for the client. `replayed`: it repeats the answer to an earlier request with this key."""

    session: str
    answer: str
    replayed: bool = False


def accept_order(order: SendOrder) -> AcceptedRequest:
    """Store the order. Raises Problem, HealthStoreUnreachable or database errors; then nothing was stored."""
    accepted = _batcher.serve_in_batch(order)
    if accepted is None:
        return replay_answer(order.caller.sponsor_id, order.caller.test, order.idempotency_key, order.fingerprint)
    return accepted


def replay_answer(sponsor_id: int, test: bool, key: str, fingerprint: bytes) -> AcceptedRequest:
    """Return the first answer for this key. Raises Problem if it is still being stored or had another body."""
    first = Session.objects.filter(sponsor=sponsor_id, test=test, idempotency_key=key).first()
    if first is None:
        raise Problem("idempotency-key-in-use", "Ask again in a moment.", retry_after=AGAIN)
    if bytes(first.fingerprint) != fingerprint:
        detail = f"It belongs to {first.name}, whose request had another body."
        raise Problem("idempotency-key-reused", detail)
    return AcceptedRequest(first.name, first.answer, replayed=True)


def admit_order(order: SendOrder, known: dict[int, HealthStatus] | None = None) -> VendorSnapshot:
    """Return the order's first vendor that accepts work. Raises Problem with the shortest Retry-After if none does."""
    refusals: list[Problem] = []
    for vendor in order.vendors:
        refusal = _refusal_of_vendor(vendor, {} if known is None else known)
        if refusal is None:
            return vendor
        refusals.append(refusal)
    raise min(refusals, key=lambda problem: int(problem.headers["Retry-After"]))


def _refusal_of_vendor(vendor: VendorSnapshot, known: dict[int, HealthStatus]) -> Problem | None:
    if vendor.paused is not None:
        return Problem("vendor-paused", f"{vendor.slug}: {vendor.paused}", retry_after=vendor.policy.retry_after)
    status = known.get(vendor.id) or health.health_store(settings.REDIS_URL).admit(vendor.id, vendor.policy)
    if status.state != "probe":  # only one request may be the probe, so that answer is not shared
        known[vendor.id] = status
    if status.accepting:
        return None
    share = f"{status.ratio or 0:.0%} good of the last {status.good + status.bad:,} answers"
    detail = f"{vendor.slug}: {share}; {vendor.policy.min_ratio:.0%} is needed."
    facts = {"good": status.good, "bad": status.bad, "ratio": status.ratio, "threshold": vendor.policy.min_ratio}
    return Problem("vendor-unhealthy", detail, retry_after=status.seconds, service=facts)


def _serve_batch(orders: Sequence[SendOrder]) -> list["AcceptedRequest | Exception | None"]:
    """Serve a batch. None stands for an earlier request with the same idempotency key."""
    known: dict[int, HealthStatus] = {}
    left = _count_per_key(orders)
    admitted = [_admit_counted(order, left, known) for order in orders]
    admissible = [
        (order, vendor) for order, vendor in zip(orders, admitted, strict=True) if isinstance(vendor, VendorSnapshot)
    ]
    stored = iter(_store_admitted(admissible) if admissible else [])
    return [next(stored) if isinstance(vendor, VendorSnapshot) else vendor for vendor in admitted]


def _count_per_key(orders: Sequence[SendOrder]) -> dict[int, int]:
    """Return how many requests of each API key may be served."""
    asked: dict[tuple[int, int], int] = {}
    for order in orders:
        key = (order.caller.key_id, order.caller.requests_per_minute)
        asked[key] = asked.get(key, 0) + 1
    left: dict[int, int] = {}
    for (key_id, per_minute), number in asked.items():
        left[key_id] = left.get(key_id, 0) + rate_limits.take_requests(key_id, per_minute, number)
    return left


def _admit_counted(order: SendOrder, left: dict[int, int], known: dict[int, HealthStatus]) -> VendorSnapshot | Problem:
    caller = order.caller
    try:
        if not left[caller.key_id]:
            raise rate_limits.rate_refusal(caller.key_id, caller.requests_per_minute)
        left[caller.key_id] -= 1
        return admit_order(order, known)
    except Problem as problem:
        return problem


def _store_admitted(
    admissible: Sequence[tuple[SendOrder, VendorSnapshot]],
) -> list["AcceptedRequest | Exception | None"]:
    known: dict[object, Forecast] = {}  # one forecast for equal orders of a batch
    requests = [order.make_request(vendor, _forecast_order(order, vendor, known)) for order, vendor in admissible]
    notifier.check()
    stored = [
        one if isinstance(one, Exception) else _accepted_or_problem(order, vendor, request, one)
        for (order, vendor), request, one in zip(admissible, requests, _stored_rows(requests), strict=True)
    ]
    _notify_vendors(
        vendor
        for (order, vendor), one in zip(admissible, stored, strict=True)
        if isinstance(one, AcceptedRequest) and not order.send_at and order.route_id is None
    )
    return stored


def _notify_vendors(vendors: Iterable[VendorSnapshot]) -> None:
    for vendor_id, slug in {(vendor.id, vendor.slug) for vendor in vendors}:
        notifier.notifier.notify_soon(vendor_id, slug)


def _forecast_order(order: SendOrder, vendor: VendorSnapshot, known: dict[object, Forecast]) -> Forecast:
    if order.hours:
        return forecasts.forecast_with_hours(order.hours)
    sponsor = order.caller.sponsor_id
    mail_class = order.mail_class(vendor)
    asked = (vendor.id, vendor.credential_id, sponsor, order.size, order.send_at, mail_class)
    if asked not in known:
        known[asked] = forecasts.of(vendor, sponsor, order.size, order.send_at, mail_class=mail_class)
    return known[asked]


def _stored_rows(requests: list[Request]) -> "list[Stored | Exception]":
    """Store all in one statement, except letters to oneself. If one request makes it fail, store each separately."""
    others = [request for request in requests if not request.to_oneself]
    together = iter(_store_together(others) if others else [])
    return [_store_alone(request) if request.to_oneself else next(together) for request in requests]


def _store_together(requests: list[Request]) -> "list[Stored | Exception]":
    try:
        return list(accepting.store_requests(requests))
    except SINGLE:
        if len(requests) == 1:
            raise
    return [_store_alone(request) for request in requests]


def _store_alone(request: Request) -> "Stored | Exception":
    try:
        return accepting.store_requests([request])[0]
    except TooManyToOneself as error:
        wait = (error.again - datetime.now(UTC)).total_seconds()
        return Problem("rate-limited", str(error), retry_after=wait)
    except SINGLE as error:
        return error


def _accepted_or_problem(
    order: SendOrder, vendor: VendorSnapshot, request: Request, stored: Stored
) -> AcceptedRequest | Problem | None:
    if stored.refusal:
        return quota_problem(stored.refusal)
    if stored.busy:
        return Problem("idempotency-key-in-use", "Ask again in a moment.", retry_after=AGAIN)
    if stored.job_id is None:
        return None
    if request.send_at or request.route_id:
        dispatch_later(stored.job_id, request.send_at or datetime.now(UTC))
    else:
        forecasts.count_taken(vendor, order.caller.sponsor_id, order.size, order.mail_class(vendor))
    return AcceptedRequest(f"ses_{request.session.hex}", request.answer)


_batcher: Batcher[SendOrder, AcceptedRequest | None] = Batcher(_serve_batch)
