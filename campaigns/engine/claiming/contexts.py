"""The rows that a stream needs in order to claim: is the job still its own, may it be called, under which limits.

The contexts of all streams of a process are read together once a second. After a refusal a stream reads its own. A
context may be out of date between two reads, so the claim's statement checks again everything that a promise rests on.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from campaigns.engine.claiming import receiver_waits
from campaigns.engine.claiming.confirming import Confirmations
from campaigns.engine.claiming.letters import Lease, LeasedJob
from campaigns.engine.claiming.receiver_waits import SeenWaits
from campaigns.engine.claiming.slices import Slices, StreamSlice
from campaigns.engine.failover import guard
from campaigns.engine.pausing import complaints
from campaigns.engine.refusal_runs import run_rows
from campaigns.engine.refusal_runs.run_rows import SeenRun
from campaigns.engine.threads import cut_off
from vendors import alarms, destinations, receiver_domains, receivers, shut
from vendors.health import HealthPolicy
from vendors.limits.values import Limit, Scope, SponsorShare

log = logging.getLogger(__name__)

FIND_OUT = 1.0  # seconds between two reads
STALE = 3 * FIND_OUT  # seconds after which a stream reads its own context
NOWHERE = frozenset[str]()

READ = f"""
SELECT j.id, clock_timestamp() AS now, j.status, j.fence, v.generation, v.limits_version, {destinations.NUMBER},
    coalesce({shut.WHY}, CASE WHEN j.paused_at IS NOT NULL THEN (
        SELECT rtrim('paused: ' || k.paused_reason, ': ') FROM campaigns_campaign k WHERE k.id = j.campaign_id
    ) END) AS paused,
    l.retry_after_until, j.size::bigint - j.accepted - j.refused - j.in_doubt - j.expired - j.suppressed,
    coalesce(j.next_message, j.first_message),
    (SELECT json_build_array(s.adoptions, {guard.ALL})
     FROM campaigns_store s WHERE s.id = 1) AS store,
    l.unreached_since,
    (SELECT l.unreached_since <= clock_timestamp() - r.patience * interval '1 second'
     FROM campaigns_campaign k JOIN campaigns_route r ON r.id = k.route_id WHERE k.id = j.campaign_id) AS given_up,
    l.asked_wait IS NOT NULL, {receiver_waits.STAMP} AS stamp, {run_rows.SEEN} AS run,
    {run_rows.SEEN_OF_SPONSOR} AS sponsor_run,
    l.braked_at, l.brake_released_at, l.probed_at, j.sponsor_id, j.mail_class, v.floor,
    (SELECT t.weight FROM campaigns_sponsorturn t
     WHERE t.vendor_id = j.vendor_id AND t.sponsor_id = j.sponsor_id) AS weight,
    v.min_requests, v.min_ratio, v.health_ttl, v.retry_after
FROM campaigns_job j JOIN vendors_credential l ON l.id = j.credential_id JOIN vendors_vendor v ON v.id = j.vendor_id
WHERE j.id = ANY(%(jobs)s)
"""
# What changes with limits_version alone, for a vendor v and a credential l. Units, seconds, credential, receiver of
# each limit; the units of a warm-up grow by days of the vendor's clock, to the last number. No statement of a claim
# checks the day, because an older one allows less. Then the end of that day where there is a warm-up.
TERMS = f"""v.limits_version, v.receivers_version,
    (SELECT coalesce(json_agg(json_build_array(r.units, r.seconds, r.credential_id)), '[]')
     FROM vendors_ratelimit r WHERE r.vendor_id = v.id AND coalesce(r.credential_id, l.id) = l.id) AS limits,
    (SELECT json_agg(json_build_array(
        CASE WHEN r.grows_from IS NULL THEN r.units ELSE floor(least(2e9, r.units * power(r.growth,
            least(60, greatest(0, (clock_timestamp() AT TIME ZONE v.time_zone)::date - r.grows_from)))))::bigint END,
        r.seconds, r.credential_id, r.receiver,
        CASE WHEN r.grows_from IS NULL THEN 0 ELSE floor(least(2e9, r.units * power(r.growth, 60)))::bigint END))
     FROM vendors_receiverlimit r WHERE r.vendor_id = v.id AND coalesce(r.credential_id, l.id) = l.id) AS of_receivers,
    (SELECT (date_trunc('day', clock_timestamp() AT TIME ZONE v.time_zone) + interval '1 day') AT TIME ZONE v.time_zone
     FROM vendors_receiverlimit r WHERE r.vendor_id = v.id AND r.grows_from IS NOT NULL LIMIT 1) AS ends,
    {complaints.HELD} AS held"""
READ_TERMS = f"""
SELECT l.id, {TERMS} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id
WHERE l.id = ANY(%(credentials)s)
"""


READ_DOMAINS = "SELECT domain, receiver FROM vendors_receiverdomain LIMIT %(most)s"


async def read_domains(connection: Any) -> None:
    """Use the domains that operators put into groups by now, in this process."""
    rows = await connection.execute(READ_DOMAINS, {"most": receiver_domains.MOST_DOMAINS})
    receivers.replace_own_domains(dict(await rows.fetchall()))


class Terms:
    """The limits of a credential under one version of them, and the receivers to which sponsors may not send bulk mail.

    ends: the end of a warm-up's day; None: there is none. held: groups of receivers by sponsor.
    """

    def __init__(
        self,
        version: int,
        receivers_version: int,
        limits: list[Any],
        of_receivers: list[Any] | None,
        ends: datetime | None,
        held: Mapping[str, list[str]] | None,
    ) -> None:
        self.version, self.ends = version, ends
        self.held = {int(sponsor): frozenset(groups) for sponsor, groups in (held or {}).items()}
        of_vendor = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is None)
        of_login = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is not None)
        found: dict[str, tuple[list[Limit], list[Limit]]] = {}
        for units, seconds, credential, receiver, grows_to in of_receivers or ():
            found.setdefault(receiver, ([], []))[credential is not None].append(Limit(units, seconds, grows_to))
        limited = {name: (tuple(both[0]), tuple(both[1])) for name, both in found.items()}
        self._scope = Scope(
            0, 0, 0, of_vendor, of_login, version, receivers=limited, receivers_version=receivers_version
        )

    def scope_of(self, vendor_id: int, credential_id: int, generation: int, destination: int) -> Scope:
        """Return these limits as a scope. Returns the same one until something else changes."""
        last = self._scope
        if (last.vendor_id, last.credential_id, last.generation, last.destination) != (
            vendor_id, credential_id, generation, destination,
        ):  # fmt: skip
            self._scope = replace(
                last,
                vendor_id=vendor_id,
                credential_id=credential_id,
                generation=generation,
                destination=destination,
            )
        return self._scope


class KnownRows:
    """Terms and waits of credentials, read again only if their version or stamp has changed.

    With the terms it reads the domains that operators put into groups: they raise the version of all vendors of e-mail.
    A version or stamp is that of one store: another one may have used the same numbers.
    """

    def __init__(self) -> None:
        self.terms: dict[int, tuple[int, Terms]] = {}  # by credential: with the adoptions of the store
        self.waits: dict[int, tuple[tuple[int, int], SeenWaits]] = {}  # with adoptions and stamp
        self._reading = asyncio.Lock()  # of terms and domains: no older ones come after newer ones

    async def refresh_rows(self, connection: Any, found: "Iterable[_Row]") -> None:
        """Read again the changes since, for these rows."""
        terms, waits = set[int](), dict[int, tuple[int, int]]()
        for row in found:
            adoptions, known = self.terms.get(row.credential_id, (0, None))
            is_over = known and known.ends and known.ends <= row.now
            if known is None or (adoptions, known.version) != (row.adoptions_of_store, row.version) or is_over:
                terms.add(row.credential_id)
            mark, _ = self.waits.get(row.credential_id, (None, None))
            if row.stamp is not None and mark != (row.adoptions_of_store, row.stamp):
                waits[row.credential_id] = row.adoptions_of_store, row.stamp
        if terms:
            adoptions = max(row.adoptions_of_store for row in found)
            async with self._reading:
                rows = await (await connection.execute(READ_TERMS, {"credentials": list(terms)})).fetchall()
                await read_domains(connection)
                self.terms |= {credential: (adoptions, Terms(*of)) for credential, *of in rows}
        if waits:
            seen = await receiver_waits.read_waits(connection, waits)
            self.waits |= {credential: (mark, seen[credential]) for credential, mark in waits.items()}


@dataclass(frozen=True, slots=True)
class SendContext:
    """The state of a job at one moment: is the lease still ours, may it be called, under which limits.

    asked, read: before and after the query (seconds of time.monotonic); now: the database's clock in between. halted:
    why no call at all may start; adoptions: of the store. paused: why no call of the job may start. left: messages of
    the job without a result, including those in a call. next_message: where a sender begins. unreached_since: no call
    has reached the vendor since then; given_up: that has lasted longer than the patience of the campaign's route.
    waited: the vendor asked to wait, and no good answer since is known. receivers: those that wait or have accepted
    nothing since, with the end of their wait (Unix seconds by the database's clock); receivers_known: the list is
    complete. held: groups of receivers closed to the job until a person opens them. run: equal refusals over the
    credential; sponsor_run: of the sponsor's mail over it. braked_at: since when only probes may call the vendor
    (vendors/condition/brake.py), the last of them at probed_at; brake_released_at: the end of the last brake. share:
    the weights for sharing out the vendor's permits; floor: percent of them for each lower class.
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
    receivers_known: bool
    held: frozenset[str]
    run: SeenRun | None
    sponsor_run: SeenRun | None
    braked_at: datetime | None
    brake_released_at: datetime | None
    probed_at: datetime | None
    share: SponsorShare
    floor: int
    health: HealthPolicy

    @property
    def closed_for(self) -> float:
        """Seconds until the vendor may be called again, never an underestimate; 0 if it may be called now."""
        if self.retry_after_until is None:
            return 0.0
        return max(0.0, (self.retry_after_until - self.now).total_seconds() - (time.monotonic() - self.read))

    def monotonic_seconds(self, at: datetime) -> float:
        """Convert a time of the database's clock to seconds of time.monotonic, never later than the true moment."""
        return self.asked + (at - self.now).total_seconds()

    def monotonic_of(self, unix: float) -> float:
        """Convert a Unix time of the database's clock, as `monotonic_seconds` does."""
        return self.asked + unix - self.now.timestamp()

    def reached_at(self, answered: float) -> bool:
        """Tell whether an answer at that time (time.monotonic) shows that `unreached_since` is over."""
        return self.unreached_since is not None and answered > self.monotonic_seconds(self.unreached_since)

    def served_at(self, answered: float) -> bool:
        """Return True if a good answer at that time (time.monotonic) shows that `waited` is over."""
        return self.waited and (
            self.retry_after_until is None or answered > self.monotonic_seconds(self.retry_after_until)
        )

    def halted_since(self, adoptions: int) -> str | None:
        """Return the reason why no sender from that adoption may call or expire anything, or None."""
        return self.halted or (None if self.adoptions == adoptions else "the store was taken over in the meantime")


class Read(NamedTuple):
    """Identifies the stream whose context is read. bulk_of: the sponsor, if the mail is bulk; None: it is not."""

    lease: Lease
    vendor_id: int
    credential_id: int
    bulk_of: int | None = None


class _Row(NamedTuple):
    """What READ found for a stream."""

    credential_id: int
    now: datetime
    status: str
    fence: int
    generation: int
    version: int
    destination: int
    paused: str | None
    retry_after_until: datetime | None
    left: int
    next_message: int
    store: list[Any] | None
    unreached_since: datetime | None
    given_up: bool | None
    waited: bool
    stamp: int | None
    run: list[Any] | None
    sponsor_run: list[Any] | None
    braked_at: datetime | None
    brake_released_at: datetime | None
    probed_at: datetime | None
    sponsor: int
    mail_class: int
    floor: int
    weight: int | None
    min_requests: int
    min_ratio: float
    health_ttl: int
    retry_after: int

    @property
    def adoptions_of_store(self) -> int:
        return self.store[0] if self.store else 0


async def read_contexts(connection: Any, streams: Sequence[Read], known: KnownRows | None = None) -> list[SendContext]:
    """Read the current rows of these streams with one statement, and changes to `known` with further ones."""
    asked, known = time.monotonic(), known or KnownRows()
    rows = await (await connection.execute(READ, {"jobs": [stream.lease.job_id for stream in streams]})).fetchall()
    answered, of_job = time.monotonic(), {row[0]: row[1:] for row in rows}  # jobs are never deleted
    found = [_Row(stream.credential_id, *of_job[stream.lease.job_id]) for stream in streams]
    await known.refresh_rows(connection, found)
    return [_make_context(stream, asked, answered, row, known) for stream, row in zip(streams, found, strict=True)]


def _make_context(of: Read, asked: float, answered: float, row: _Row, known: KnownRows) -> SendContext:
    adoptions, *state = row.store or (0, False, False, False)
    _, terms = known.terms[of.credential_id]
    _, waits = known.waits[of.credential_id] if row.stamp is not None else (None, receiver_waits.NONE_WAITS)
    scope = terms.scope_of(of.vendor_id, of.credential_id, row.generation, row.destination)
    held = terms.held.get(of.bulk_of, NOWHERE) if of.bulk_of else NOWHERE
    ours = row.status == "SENDING" and row.fence == of.lease.fence
    return SendContext(
        asked, answered, row.now, guard.judge_halt(*state), adoptions, ours, terms.version, scope, row.paused,
        row.retry_after_until, row.left, row.next_message, row.unreached_since, bool(row.given_up), row.waited,
        waits.until, waits.is_whole, held, SeenRun.read_run(row.run), SeenRun.read_run(row.sponsor_run),
        row.braked_at, row.brake_released_at, row.probed_at,
        SponsorShare(row.sponsor, row.weight or 1, row.mail_class), row.floor,
        HealthPolicy(row.min_requests, row.min_ratio, row.health_ttl, row.retry_after),
    )  # fmt: skip


class Followed:
    """The context of one stream, refreshed until the stream ends. place: at its vendor."""

    def __init__(self, rows: Any, of: Read, known: KnownRows, place: StreamSlice, confirmations: Confirmations) -> None:
        self.of, self._rows, self._known, self.place = of, rows, known, place
        self.confirmations = confirmations
        self._newest: SendContext | None = None

    async def read_now(self) -> SendContext:
        """Read the rows now."""
        [context] = await read_contexts(self._rows, [self.of], self._known)
        self.note(context)
        return context

    async def newest_context(self) -> SendContext:
        """Return the last context read, usually at most a second old; read a new one if it is stale."""
        if self._newest is None or time.monotonic() - self._newest.asked > STALE:
            return await self.read_now()
        return self._newest

    def note(self, context: SendContext) -> None:
        if self._newest is None or context.asked > self._newest.asked:
            self._newest = context
            self.place.note_scope(context.scope)


class Contexts:
    """Reads the contexts of all streams of an event loop together, every second, and minds their time slices."""

    def __init__(self, rows: Any) -> None:
        self._rows, self._known, self._slices = rows, KnownRows(), Slices(rows)
        self._confirmations = Confirmations(rows)
        self._followed: set[Followed] = set()
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def follow_job(self, job: LeasedJob) -> Iterator[Followed]:
        """Yield the context of the job's stream, and refresh it until the block ends."""
        bulk_of = job.campaign.sponsor_id if job.campaign.is_bulk else None
        of = Read(job.lease, job.vendor_id, job.credential_id, bulk_of)
        place = StreamSlice(
            self._slices, job.lease.job_id, job.vendor_id, job.campaign.sponsor_id, job.mail_class, job.end - job.first
        )
        one = Followed(self._rows, of, self._known, place, self._confirmations)
        self._followed.add(one)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_followed())
        try:
            yield one
        finally:
            self._followed.discard(one)
            place.count_time()

    async def close(self) -> None:
        await self._confirmations.close()
        if self._reading is not None:
            await cut_off(self._reading)
            self._reading = None

    async def _read_followed(self) -> None:
        due = time.monotonic() + FIND_OUT
        while True:
            is_quick = not await self._slices.wait(due - time.monotonic())
            streams = list(self._followed)
            try:
                await self._slices.charge_and_tell((one.place for one in streams), is_quick)
            except Exception as error:  # the next one charges what this one could not, and nobody gives way until then
                log.info("what sponsors were given is not charged yet: %s", error)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + FIND_OUT
            if not streams:
                continue
            try:
                found = await read_contexts(self._rows, [one.of for one in streams], self._known)
                for one, context in zip(streams, found, strict=True):
                    one.note(context)
            except Exception as error:  # each stream then reads its own, and reports its own error
                alarms.CONTEXTS_NOT_READ.log(log, len(streams), error)


READ_VENDOR = f"""
SELECT v.generation, {destinations.NUMBER}, {shut.WHY} IS NULL
        AND (l.braked_at IS NOT NULL OR coalesce(l.retry_after_until <= clock_timestamp(), true))
        AND EXISTS ({guard.KNOWN}), {TERMS}
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
    generation, destination, may_be_called, *columns = row
    terms = Terms(*columns)
    scope = terms.scope_of(vendor_id, credential_id, generation, destination)
    if may_be_called and (scope.receivers or terms.held):
        await read_domains(connection)
    return scope if may_be_called else None
