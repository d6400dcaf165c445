"""One job's stream: enqueue, grant, claim, call and record overlap in one event loop; nothing waits for a slow answer.

A slice of the messages is copied to ops whenever fewer are left there than can be called at once. So the first call
waits for one slice only, however large the job, and a stop leaves the others untouched in the ground truth.

What starts a call is always in this order: places in the vendor's window, then the messages marked as called and the
ledger written in one commit, then the call. What ends one: the result stored, the places handed back.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from psycopg import Error as RowsError

from campaigns import failpoints, sending_hours
from campaigns.claiming import claims, limits
from campaigns.claiming.claims import LeasedJob
from campaigns.claiming.rebuild import rebuild_lost
from campaigns.connections import Connections
from campaigns.sending import recording
from campaigns.sending.call_pool import CallPool
from campaigns.sending.recording import NO_DATABASE, CallResult, Recorder, StreamEnd
from vendors import health
from vendors.limits.throttle import ThrottleUnreachable
from vendors.limits.values import Grant, Lost, Never, Paused, Skewed, Wait
from vendors.outcomes import InDoubt, NotSent

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds that a sender waits by itself; for longer it lets go of the job
SLACK = 2.0  # seconds between a grant and the start of the last call under it
SLICE = 1000  # messages that are enqueued at once
FIND_OUT = 1.0  # seconds between two looks at the world


class Stream:
    """Sends what is left of a job until it is drained, stopped, taken away, or has to wait."""

    def __init__(
        self,
        work: LeasedJob,
        connections: Connections,
        stopping: Callable[[], bool],
    ) -> None:
        self._work, self._connections, self._stopping = work, connections, stopping
        throttle, self._health = connections.to_redis()
        self._claimer = limits.claimer(work)
        self._hold = work.adapter.deadline + SLACK
        self._window = limits.Permits(throttle, work, self._hold)
        self._room = CallPool(work, self._write)
        self._cursor = self._reached = work.first  # claimed, and enqueued, up to here
        self._closes: datetime | None = None
        self._backoff = 0.0
        self._looked = self._beaten = time.monotonic()

    async def run(self) -> StreamEnd:
        """On an error the open calls are cut and thereby in doubt."""
        self._claims = await self._connections.to_rows()
        try:
            self._recorder = Recorder(self._work.lease, self._connections)
            await self._recorder.open()
            try:
                return await self._send()
            finally:
                await self._recorder.close()
        finally:
            await self._connections.give_back(self._claims)

    async def _send(self) -> StreamEnd:
        self._reached = await claims.reached(self._claims, self._work.lease, self._work.first, self._work.end)
        self._world = await self._look()
        self._adoptions = self._world.adoptions
        if self._world.left < self._work.end - self._work.first:
            await self._room.refusals.read(self._claims, self._work.lease.job_id)
        serving = asyncio.create_task(self._room.serve())
        feeding = asyncio.create_task(self._feed())
        try:
            await asyncio.wait((serving, feeding), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # it never ends but by an error
            return feeding.result()
        finally:
            for task in (feeding, serving):
                task.cancel()
            await asyncio.gather(feeding, serving, return_exceptions=True)
            self._room.settle_health()
            await self._tell_health()

    async def _feed(self) -> StreamEnd:
        """Claims whenever there is room, until there is a reason to end; then waits for the open calls."""
        end: StreamEnd | None = None
        while True:
            try:
                if end is None:
                    end = await self._step()
                else:
                    await self._room.wait(0.2)
                    await self._live()
                end = await self._heed(end)
            except NO_DATABASE as error:  # what is in flight goes on; its answers are stored when it is back
                log.warning("job %s: no database: %s", self._work.lease.job_id, error)
                end = self._later(5, "the database could not be reached")
            except RowsError as error:
                end = self._later(10, self._recorder.refuse(error))
            except ThrottleUnreachable as error:
                end = self._later(10, f"the throttle's Redis cannot be reached: {error}")
            if end is None or self._room.taken:
                continue
            if end.drained:
                end = await self._again(end)
            if end is not None:
                return end

    async def _heed(self, end: StreamEnd | None) -> StreamEnd | None:
        """What the vendor said of login, account or waiting outranks every other reason to wait, and is never lost.

        It binds the credential whatever becomes of this job: stopped, taken away, or without a place in the window.
        """
        while refusal := self._room.refusal:
            told = await self._after(refusal)
            if self._room.refusal is refusal:
                self._room.refusal = None
            if told and not (end and end.drained):
                end = told
        return end

    async def _again(self, end: StreamEnd) -> StreamEnd | None:
        """The job is drained, unless some were provably not sent: they go again, from its start.

        Those that the vendor has put off wait for their time; whom it has put off for too long is given up, visibly.
        """
        work, room = self._work, self._room
        try:
            if room.put_off:
                await recording.expire(self._claims, work.lease, work.first, work.end, put_off=settings.PUT_OFF)
        except NO_DATABASE:
            return self._later(5, "the database could not be reached")
        room.put_off = 0
        if not room.not_sent:
            return end
        self._cursor, room.not_sent = work.first, 0
        return None

    async def _step(self) -> StreamEnd | None:
        await self._live()
        if not self._world.ours or self._stopping():
            return StreamEnd()
        if halted := self._recorder.refused or self._world.halted_since(self._adoptions):
            return self._later(10, halted)
        if self._overdue():
            return await self._expire()
        if end := await self._reason_to_end():
            return end
        if self._reached < min(self._work.end, self._cursor + self._room.size):
            return await self._enqueue()
        if self._world.closed_for:
            await self._room.wait(min(0.2, self._world.closed_for))
            self._world = await self._look()
        elif self._room.free < max(1, self._room.size // 4):
            await self._room.wait(0.02 if self._room.free else 0.2)
        if self._room.free and not self._world.closed_for and not self._room.refusal:
            return await self._claim()
        return None

    async def _live(self) -> None:
        """Looks at the world every second, and says that we live."""
        now = time.monotonic()
        if self._claims.broken:
            self._claims = await self._connections.to_rows()
        if now - self._looked > FIND_OUT:
            self._looked = now
            self._world = await self._look()
            await self._tell_health()
        if now - self._beaten > settings.HEARTBEAT_SECONDS:
            self._beaten = now
            await claims.heartbeat(self._claims, self._work.lease)

    async def _tell_health(self) -> None:
        """What the answers said of the vendor's health; a store that is away holds up no mail."""
        good, bad = self._room.well, self._room.ill
        self._room.well = self._room.ill = 0
        try:
            if good or bad:
                await self._health.note(self._work.vendor_id, self._world.health, good, bad, self._room.trouble)
        except health.HealthStoreUnreachable:
            log.warning("job %s: %s good and %s bad answers are not counted", self._work.lease.job_id, good, bad)

    def _overdue(self) -> bool:
        deadline = self._work.deadline
        return deadline is not None and self._world.now >= deadline

    async def _reason_to_end(self) -> StreamEnd | None:
        seen = self._world
        if seen.paused is not None:
            return StreamEnd(words=f"paused: {seen.paused}", paused=True)
        if seen.closed_for > PATIENCE:
            return StreamEnd(until=seen.closed_until, words="the vendor asked to wait")
        if opening := sending_hours.opens_at(self._work.campaign, seen.now):
            return StreamEnd(
                until=opening, words=sending_hours.describe_opening(self._work.campaign, opening), held=True
            )
        return StreamEnd(drained=True) if self._cursor >= self._work.end else None

    async def _enqueue(self) -> StreamEnd | None:
        """The next slice; ends if the job was stopped or taken from us."""
        high = min(self._reached + SLICE, self._work.end)
        if not await claims.enqueue(self._claims, self._work.lease, self._reached, high):
            return StreamEnd()
        self._reached = high
        return None

    async def _expire(self) -> StreamEnd | None:
        """The deadline has passed. What is not enqueued yet is first, so that it can be seen to expire."""
        if self._reached < self._work.end:
            return await self._enqueue()
        await recording.expire(self._claims, self._work.lease, self._work.first, self._work.end)
        return StreamEnd(drained=True)

    async def _after(self, refusal: NotSent | InDoubt) -> StreamEnd | None:
        """The vendor could not be called: the whole credential waits as long as it said, or longer each time."""
        if refusal.pause or isinstance(refusal, InDoubt):
            await limits.pause(self._claims, self._work.credential_id, refusal.reason)
            self._world = await self._look()
            return StreamEnd(words=f"paused: {refusal.reason}", paused=True)
        self._backoff = 0.5 if self._room.good else min(60.0, max(0.5, 2 * self._backoff))
        self._room.good = 0
        seconds = self._backoff if refusal.retry_after is None else refusal.retry_after
        await limits.close(self._claims, self._work.credential_id, seconds)
        self._world = await self._look()
        if seconds > PATIENCE:
            return StreamEnd(until=self._world.closed_until, words=f"waits for the vendor: {refusal.reason}")
        return None

    async def _claim(self) -> StreamEnd | None:
        """As many as there are places and room for; or a short wait; or a reason to let go of the job."""
        # No more places than there are messages left: each one too many keeps somebody else's message waiting.
        left = min(self._work.end - self._cursor, self._world.left - self._room.taken)
        most = max(1, min(self._room.free, left))
        need = await self._claimer.need(self._claims, self._world.scope, self._cursor, most)
        failpoints.here("before_grant")
        note = f"{self._work.credential_id} {self._cursor} {self._work.end}"
        answer, opens_at = await self._window.acquire(self._claims, self._world.scope, need, note, PATIENCE)
        match answer:
            case Grant() as grant:
                failpoints.here("after_grant")
                await self._use(grant)
            case Wait(seconds) if seconds > PATIENCE:
                return StreamEnd(until=opens_at, words="no place in the vendor's window")
            case Wait(seconds):
                await asyncio.sleep(min(seconds, FIND_OUT))
            case Paused():
                return StreamEnd(words="paused: the limit is 0")
            case Never(units):
                return StreamEnd(words=f"a message costs more than the limit of {units}")
            case Lost():
                return await self._mend()
            case Skewed(seconds):
                return self._later(10, f"the clock of Redis differs by {seconds:.1f} s")
        return None

    async def _mend(self) -> StreamEnd | None:
        try:
            await rebuild_lost(self._world.scope)
        except Exception as error:
            log.warning("job %s: the window cannot be rebuilt: %s", self._work.lease.job_id, error)
            return self._later(5, f"the vendor's window cannot be rebuilt: {error}")
        self._world = await self._look()
        return None

    def _later(self, seconds: float, words: str, *, held: bool = True) -> StreamEnd:
        return StreamEnd(until=self._world.now + timedelta(seconds=seconds), words=words, held=held)

    def _closing(self) -> datetime | None:
        """When the campaign closes: from then on nothing is claimed and no call starts."""
        now = self._world.now
        if self._closes is None or self._closes <= now:
            self._closes = sending_hours.closes_at(self._work.campaign, now)
        return self._closes

    async def _use(self, grant: Grant) -> None:
        seen, work, closes = self._world, self._work, self._closing()
        words = {
            "job": work.lease.job_id, "fence": work.lease.fence, "vendor": work.vendor_id, "terms": seen.terms,
            "credential": work.credential_id, "generation": seen.scope.generation, "adoptions": self._adoptions,
            "cursor": self._cursor, "end": work.end, "hold": self._hold, "closes": closes, "grant": grant.id,
        }  # fmt: skip
        latest = grant.deadline - work.adapter.deadline
        latest = min(latest, seen.monotonic(closes)) if closes else latest
        refused = self._recorder.refused
        tickets = [] if refused else await self._claimer.claim(self._claims, words, grant, latest)
        self._room.enter(tickets)
        if tickets:
            self._cursor = tickets[-1].message.id + 1
        unused = grant.places()[sum(len(ticket.places) for ticket in tickets) :]
        if unused:
            await self._window.cancel(self._claims, seen.scope, unused)
        if not tickets:
            self._world = await self._look()
            if self._world.admits(seen) and not (closes and closes <= self._world.now):
                self._cursor = self._reached  # nothing is left from the cursor on

    async def _look(self) -> limits.SendContext:
        return await limits.read(self._claims, self._work.lease, self._work.vendor_id, self._work.credential_id)

    async def _write(self, answers: list[CallResult], places: list[str]) -> None:
        """Stores results and hands places back."""
        await asyncio.gather(self._window.done(self._world.scope, places), self._recorder.store(answers))
