"""Doubt is settled in this order: a safe repeat with the same key, a look-up, a person. Never by a guess.

Receipts come first where a vendor sends them (campaigns.claims.truth.accept). What each adapter can do, it declares.
"""

import logging
import time
from dataclasses import dataclass
from typing import Any, cast

import uvloop
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from campaigns import failpoints, templates
from campaigns.claims import truth
from campaigns.claims.truth import Doubt
from campaigns.models import Message
from campaigns.sender import standing
from campaigns.sender.connections import connect
from campaigns.sender.sending import rebuild
from vendors import adapters, stores
from vendors.adapters.base import Adapter, Letter
from vendors.limits import Grant, Lost
from vendors.models import Credential
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.throttle import AsyncThrottle, Unreachable

log = logging.getLogger(__name__)

MOST = 50  # doubts a credential and a run
LEASE = 300.0  # seconds that they are ours
SLACK = 2.0
MARGIN = 60.0  # seconds before a key's end from which it is not trusted any more
NO_PLACE = 60.0  # seconds until a repeat without a place in the window is tried again
REBUILDS = 20  # each raises the generation by one; Redis may be so far ahead of a database that was restored
GIVE_UP = 86_400.0  # seconds after which only a person is asked


@dataclass(frozen=True, slots=True)
class Case:
    """One credential's means to settle."""

    adapter: Adapter
    vendor_id: int
    credential_id: int
    throttle: AsyncThrottle
    rows: Any

    @property
    def hold(self) -> float:
        return self.adapter.deadline + SLACK


def settle() -> int:
    """Settles what is due, credential by credential. Returns how many were looked at."""
    now = timezone.now()
    due = Message.objects.filter(in_doubt_at__isnull=False, settle_at__lte=now).values("campaign_id")[:10_000]
    logins = Credential.objects.filter(Q(campaigns__in=due), paused=False, vendor__paused=False).distinct()
    return sum(_one(login) for login in logins.select_related("vendor"))


def _one(login: Credential) -> int:
    """What goes wrong with one credential holds up no other."""
    try:
        return uvloop.run(_credential(login))
    except Exception:
        log.exception("doubts of credential %s cannot be settled", login)
        return 0


async def _credential(login: Credential) -> int:
    vendor: Any = login.vendor
    rows = await connect()
    redis = stores.async_redis(settings.REDIS_URL)
    adapter = adapters.load(vendor.adapter)(vendor.settings, cast(Any, login.secret))
    case = Case(adapter, vendor.pk, login.pk, AsyncThrottle(redis), rows)
    try:
        await adapter.open()
        doubts = await truth.due(rows, login.pk, MOST, LEASE)
        failpoints.here("after_due")
        for doubt in doubts:
            await _settle(case, doubt)
        return len(doubts)
    finally:
        await adapter.close()
        await redis.aclose()
        await rows.close()


async def _settle(case: Case, doubt: Doubt) -> None:
    can = case.adapter.capabilities
    over = case.hold + can.settle_delay - doubt.age  # until then the first call may still be running
    if over > 0:
        await truth.later(case.rows, doubt, over + 1, None)
    elif can.dedupe and _young(can.dedupe_ttl, doubt.age):
        await _repeat(case, doubt, proved=False)
    elif can.lookup != "none":
        await _look_up(case, doubt)
    else:
        await truth.later(case.rows, doubt, None, None)


def _young(ttl: float | None, age: float) -> bool:
    """Does the vendor surely still know the key of a call that is `age` seconds old?"""
    return ttl is None or age < ttl - MARGIN


async def _look_up(case: Case, doubt: Doubt) -> None:
    found = await case.adapter.look_up(doubt.reference)
    if isinstance(found, Accepted):
        await truth.accept(case.rows, [(doubt.id, found.vendor_id)])
    elif found is None and case.adapter.capabilities.lookup == "strong":
        await _repeat(case, doubt, proved=True)  # the vendor does not have it: the call may be made again
    else:
        note = "look-up: not found, which proves nothing" if found is None else f"look-up: {found.reason}"
        await _later(case, doubt, note)


async def _repeat(case: Case, doubt: Doubt, *, proved: bool) -> None:
    """proved: no earlier attempt was accepted, so the answer of this one is the whole truth."""
    letter = await _letter(case, doubt)
    if not isinstance(letter, Letter):
        return await _later(case, doubt, None)
    place = await _place(case)
    if place is None:  # the vendor's window is full, which says nothing of the doubt, however old that is
        return await truth.later(case.rows, doubt, NO_PLACE, None)
    grant, scope = place
    outcome: Outcome = NotSent("not allowed any more: stopped, paused, or it took too long")
    try:
        age = await truth.repeat(case.rows, scope, doubt, case.hold, proved=proved)
        if age is None:
            await case.throttle.cancel(scope, grant.places())
        else:
            in_time = time.monotonic() <= grant.deadline - case.adapter.deadline  # else its place may be gone
            if in_time and (proved or _young(case.adapter.capabilities.dedupe_ttl, age)):
                failpoints.here("before_repeat")
                outcome = (await case.adapter.send([letter]))[0]
                failpoints.here("after_repeat")
            await case.throttle.done(scope, grant.places())
    except Unreachable:
        log.warning("message %s: its place could not be handed back", doubt.id)
    failpoints.here("before_settle")
    match outcome:
        case Accepted(vendor_id):
            await truth.accept(case.rows, [(doubt.id, vendor_id)])
        case Refused(code, sub_type) if proved:
            await truth.refuse(case.rows, [(doubt.id, code, sub_type)])
        case Refused(code):
            await _later(case, doubt, f"repeat refused ({code}), the first call is still in doubt")
        case InDoubt(reason) | NotSent(reason):
            await _later(case, doubt, f"repeat: {reason}")
    failpoints.here("after_settle")
    return None


async def _place(case: Case) -> tuple[Grant, Any] | None:
    for _ in range(REBUILDS):
        seen = await standing.read_vendor(case.rows, case.vendor_id, case.credential_id)
        try:
            answer = await case.throttle.acquire(seen, 1, case.hold)
            if not isinstance(answer, Lost):
                return (answer, seen) if isinstance(answer, Grant) else None
            await rebuild(seen)  # no sender has asked since the window was lost
        except Unreachable:
            return None
    return None


async def _letter(case: Case, doubt: Doubt) -> Letter | None:
    subject, body, html = await truth.content(case.rows, doubt)
    content = templates.compile(subject, body, html=html)
    try:
        subject, body = content.render(doubt.recipient, doubt.params)
    except templates.TemplateError:
        return None
    return Letter(doubt.reference, doubt.recipient, subject, body, doubt.params, html)


async def _later(case: Case, doubt: Doubt, note: str | None) -> None:
    wait = min(3600.0, max(10.0, doubt.age / 4))
    await truth.later(case.rows, doubt, None if doubt.age > GIVE_UP else wait, note)
