"""The rows that a stream needs in order to claim: is the job still its own, may it be called, under which limits.

The contexts of all streams of a process are read together once a second. After a refusal a stream reads its own. A
context may be out of date between two reads, so the claim's statement checks again everything that a promise rests on.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from campaigns.engine import refusal_runs
from campaigns.engine.claiming import receiver_waits
from campaigns.engine.claiming.letters import Lease, LeasedJob
from campaigns.engine.failover import guard
from campaigns.engine.refusal_runs import SeenRun
from campaigns.engine.threads import cut_off
from vendors import alarms, destinations, shut
from vendors.health import HealthPolicy
from vendors.limits.values import Limit, Scope

log = logging.getLogger(__name__)

FIND_OUT = 1.0  # seconds between two reads
STALE = 3 * FIND_OUT  # seconds after which a stream reads its own context

# For a vendor v and a credential l: units, seconds, credential, receiver of each limit; NULL: there is none. The units
# of a warm-up grow by days of the vendor's clock. No statement of a claim checks the day: an older one allows less.
RECEIVER_LIMITS = """(SELECT json_agg(json_build_array(
        CASE WHEN r.grows_from IS NULL THEN r.units ELSE floor(least(2e9, r.units * power(r.growth,
            least(60, greatest(0, (clock_timestamp() AT TIME ZONE v.time_zone)::date - r.grows_from)))))::bigint END,
        r.seconds, r.credential_id, r.receiver))
    FROM vendors_receiverlimit r WHERE r.vendor_id = v.id AND coalesce(r.credential_id, l.id) = l.id)"""
READ = f"""
SELECT j.id, clock_timestamp() AS now, j.status, j.fence, v.generation, v.limits_version, {destinations.NUMBER},
    coalesce({shut.WHY}, CASE WHEN j.paused_at IS NOT NULL THEN (
        SELECT rtrim('paused: ' || k.paused_reason, ': ') FROM campaigns_campaign k WHERE k.id = j.campaign_id
    ) END) AS paused,
    l.retry_after_until,
    (SELECT coalesce(json_agg(json_build_array(r.units, r.seconds, r.credential_id)), '[]')
     FROM vendors_ratelimit r WHERE r.vendor_id = v.id AND coalesce(r.credential_id, l.id) = l.id) AS limits,
    {RECEIVER_LIMITS} AS receiver_limits,
    j.size::bigint - j.accepted - j.refused - j.in_doubt - j.expired - j.suppressed,
    coalesce(j.next_message, j.first_message),
    (SELECT json_build_array(s.adoptions, {guard.ALL})
     FROM campaigns_store s WHERE s.id = 1) AS store,
    l.unreached_since,
    (SELECT l.unreached_since <= clock_timestamp() - r.patience * interval '1 second'
     FROM campaigns_campaign k JOIN campaigns_route r ON r.id = k.route_id WHERE k.id = j.campaign_id) AS given_up,
    l.asked_wait IS NOT NULL, {receiver_waits.SEEN}, {receiver_waits.HELD}, {refusal_runs.SEEN} AS run,
    l.braked_at, l.brake_released_at, l.probed_at,
    v.min_requests, v.min_ratio, v.health_ttl, v.retry_after
FROM campaigns_job j JOIN vendors_credential l ON l.id = j.credential_id JOIN vendors_vendor v ON v.id = j.vendor_id
WHERE j.id = ANY(%(jobs)s)
"""


@dataclass(frozen=True, slots=True)
class SendContext:
    """The state of a job at one moment: is the lease still ours, may it be called, under which limits.

    asked, read: before and after the query (seconds of time.monotonic); now: the database's clock in between. halted:
    why no call at all may start; adoptions: of the store. paused: why no call of the job may start. left: messages of
    the job without a result, including those in a call. next_message: where a sender begins. unreached_since: no call
    has reached the vendor since then; given_up: that has lasted longer than the patience of the campaign's route.
    waited: the vendor asked to wait, and no good answer since is known. receivers: those that wait or have accepted
    nothing since, with the end of their wait (Unix seconds by the database's clock). held: groups of receivers to which
    the job may not send before a person lets it. run: equal refusals over the credential.
    braked_at: since when only probes may call the vendor (vendors/condition/brake.py), the last of them at probed_at;
    brake_released_at: the end of the last brake.
    """

    asked: float
    read: float
    now: datetime
    halted: str | None
    adoptions: int
    ours: bool
    limits_version: int
    scope: Scope
    paused: str | None
    retry_after_until: datetime | None
    left: int
    next_message: int
    unreached_since: datetime | None
    given_up: bool
    waited: bool
    receivers: Mapping[str, float]
    held: frozenset[str]
    run: SeenRun | None
    braked_at: datetime | None
    brake_released_at: datetime | None
    probed_at: datetime | None
    health: HealthPolicy

    @property
    def closed_for(self) -> float:
        """Seconds until the vendor may be called again, never an underestimate; 0 if it may be called now."""
        if self.retry_after_until is None:
            return 0.0
        return max(0.0, (self.retry_after_until - self.now).total_seconds() - (time.monotonic() - self.read))

    def monotonic(self, at: datetime) -> float:
        """Convert a time of the database's clock to seconds of time.monotonic, never later than the true moment."""
        return self.asked + (at - self.now).total_seconds()

    def monotonic_of(self, unix: float) -> float:
        """Convert a Unix time of the database's clock, as `monotonic` does."""
        return self.asked + unix - self.now.timestamp()

    def reached_at(self, answered: float) -> bool:
        """Tell whether an answer at that time (time.monotonic) shows that `unreached_since` is over."""
        return self.unreached_since is not None and answered > self.monotonic(self.unreached_since)

    def served_at(self, answered: float) -> bool:
        """Tell whether a good answer at that time (time.monotonic) shows that `waited` is over."""
        return self.waited and (self.retry_after_until is None or answered > self.monotonic(self.retry_after_until))

    def halted_since(self, adoptions: int) -> str | None:
        """Return the reason why no sender from that adoption may call or expire anything, or None."""
        return self.halted or (None if self.adoptions == adoptions else "the store was taken over in the meantime")


async def read(connection: Any, streams: Sequence["Read"]) -> list[SendContext]:
    """Read the current rows of these streams with one statement."""
    asked = time.monotonic()
    rows = await (await connection.execute(READ, {"jobs": [stream.lease.job_id for stream in streams]})).fetchall()
    answered, of_job = time.monotonic(), {row[0]: row[1:] for row in rows}  # jobs are never deleted
    return [_context(stream, asked, answered, *of_job[stream.lease.job_id]) for stream in streams]


class Read(NamedTuple):
    """Identifies the stream whose context is read."""

    lease: Lease
    vendor_id: int
    credential_id: int


def _context(
    of: Read,
    asked: float,
    answered: float,
    now: datetime,
    status: str,
    fence: int,
    generation: int,
    version: int,
    destination: int,
    paused: str | None,
    retry_after_until: datetime | None,
    limits: list[Any],
    receiver_limits: list[Any] | None,
    left: int,
    next_message: int,
    store: list[Any] | None,
    unreached_since: datetime | None,
    given_up: bool | None,
    waited: bool,
    receivers: Mapping[str, float] | None,
    held: list[str] | None,
    run: list[Any] | None,
    braked_at: datetime | None,
    brake_released_at: datetime | None,
    probed_at: datetime | None,
    *health: Any,
) -> SendContext:
    adoptions, *state = store or (0, False, False, False)
    halted = guard.why_halted(*state)
    scope = _scope(of.vendor_id, of.credential_id, generation, limits, destination, receiver_limits)
    ours = status == "SENDING" and fence == of.lease.fence
    return SendContext(
        asked, answered, now, halted, adoptions, ours, version, scope, paused, retry_after_until, left, next_message,
        unreached_since, bool(given_up), waited, receivers or {}, frozenset(held or ()), SeenRun.read(run),
        braked_at, brake_released_at, probed_at, HealthPolicy(*health),
    )  # fmt: skip


class Followed:
    """The context of one stream, refreshed until the stream ends."""

    def __init__(self, rows: Any, of: Read) -> None:
        self.of, self._rows = of, rows
        self._newest: SendContext | None = None

    async def read(self) -> SendContext:
        """Read the rows now."""
        [context] = await read(self._rows, [self.of])
        self.note(context)
        return context

    async def newest(self) -> SendContext:
        """Return the last context read, usually at most a second old; read a new one if it is stale."""
        if self._newest is None or time.monotonic() - self._newest.asked > STALE:
            return await self.read()
        return self._newest

    def note(self, context: SendContext) -> None:
        if self._newest is None or context.asked > self._newest.asked:
            self._newest = context


class Contexts:
    """Reads the contexts of all streams of an event loop together, every second."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._followed: set[Followed] = set()
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def follow(self, job: LeasedJob) -> Iterator[Followed]:
        """Yield the context of the job's stream, and refresh it until the block ends."""
        one = Followed(self._rows, Read(job.lease, job.vendor_id, job.credential_id))
        self._followed.add(one)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        try:
            yield one
        finally:
            self._followed.discard(one)

    async def close(self) -> None:
        if self._reading is not None:
            await cut_off(self._reading)
            self._reading = None

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(FIND_OUT)
            if not (streams := list(self._followed)):
                continue
            try:
                for one, context in zip(streams, await read(self._rows, [one.of for one in streams]), strict=True):
                    one.note(context)
            except Exception as error:  # each stream then reads its own, and reports its own error
                alarms.CONTEXTS_NOT_READ.log(log, len(streams), error)


READ_VENDOR = f"""
SELECT v.generation, v.limits_version, {destinations.NUMBER}, {shut.WHY} IS NULL
        AND (l.braked_at IS NOT NULL OR coalesce(l.retry_after_until <= clock_timestamp(), true))
        AND EXISTS ({guard.KNOWN}),
    (SELECT coalesce(json_agg(json_build_array(r.units, r.seconds, r.credential_id)), '[]')
     FROM vendors_ratelimit r WHERE r.vendor_id = v.id AND coalesce(r.credential_id, l.id) = l.id), {RECEIVER_LIMITS}
FROM vendors_vendor v JOIN vendors_credential l ON l.vendor_id = v.id
WHERE v.id = %(vendor)s AND l.id = %(credential)s
"""


async def read_vendor(connection: AsyncConnection[Any], vendor_id: int, credential_id: int) -> Scope | None:
    """Return the limits under which the vendor may be called now, without a job; None if it may not.

    A brake does not matter here: the statement that allows the call looks at it.
    """
    cursor = await connection.execute(READ_VENDOR, {"vendor": vendor_id, "credential": credential_id})
    row = await cursor.fetchone()
    assert row is not None, "vendors with jobs are never deleted"
    generation, limits_version, destination, may_be_called, limits, of_receivers = row
    scope = _scope(vendor_id, credential_id, generation, limits, destination, of_receivers)
    scope = replace(scope, limits_version=limits_version)
    return scope if may_be_called else None


def _scope(
    vendor_id: int,
    credential_id: int,
    generation: int,
    limits: list[Any],
    destination: int,
    of_receivers: list[Any] | None,
) -> Scope:
    of_vendor = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is None)
    of_login = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is not None)
    scope = Scope(vendor_id, credential_id, generation, of_vendor, of_login, destination=destination)
    if not of_receivers:
        return scope
    found: dict[str, tuple[list[Limit], list[Limit]]] = {}
    for units, seconds, credential, receiver in of_receivers:
        found.setdefault(receiver, ([], []))[credential is not None].append(Limit(units, seconds))
    return replace(scope, receivers={name: (tuple(both[0]), tuple(both[1])) for name, both in found.items()})
