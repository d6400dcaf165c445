"""Group commit for claims: streams that become ready while two claims are under way share the next one.

Streams of one process share a claim if they have the same credential, limits, generation and adoption of the store.
They share one request for permits and one statement. No stream waits for company: one that comes alone is served
immediately. If the throttle grants nothing before a certain time, all wait in their queue until then, and one request
covers them.

The throttle shares permits out by sponsors and their weights, wherever their streams run
(vendors/limits/shares.lua). Those of a sponsor are shared out equally among its streams of a round. The stream that has
gone longest without any comes first, so neither many free connections nor frequent requests keep permits from another.

Each round runs in its own task: cutting off one stream harms no other, and its claim is released. A stream whose job is
locked asks for nothing until the lock is gone, so no other stream waits for that lock.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from psycopg import DataError, IntegrityError, NotSupportedError, ProgrammingError
from psycopg import Error as RowsError
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from campaigns.engine import failpoints
from campaigns.engine.claiming import claims
from campaigns.engine.claiming.claims import ByCount, Claimed, ToClaim
from campaigns.engine.claiming.contexts import FIND_OUT, SendContext
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.claiming.limits import PATIENCE, Need
from campaigns.engine.claiming.permits import Permits
from campaigns.engine.claiming.waiting import Answer, Group, NotGranted, Permitted, Waiting, WantedClaim
from campaigns.engine.connections import Connections
from campaigns.engine.threads import LOCKED_SECONDS
from vendors import histograms
from vendors.limits.values import Grant, Scope, SharedAsk, SponsorShare, Wait, share_out

ROUNDS = 2  # per group at the same time: one is prepared while the other waits for the disk
MOST = 64  # streams in a round; bounds the note that Redis keeps of a grant
# After these errors nothing is claimed: the statement is a transaction of its own, and it was aborted.
REFUSED = (
    DataError, IntegrityError, NotSupportedError, ProgrammingError, DeadlockDetected, QueryCanceled, LockNotAvailable,
)  # fmt: skip


def _may_have_committed(error: Exception) -> bool:
    """Tell if the claim may have committed: PostgreSQL was asked and did not report an abort."""
    if not isinstance(error, RowsError):
        return True
    asked = error.pgconn is None  # False: there was not even a connection
    return asked and error.diag.severity_nonlocalized != "ERROR"


def _sum_by_share(served: Sequence[Waiting], units: Sequence[int]) -> Counter[SponsorShare]:
    sums = Counter[SponsorShare]()
    for one, number in zip(served, units, strict=True):
        sums[one.share] += number
    return sums


def _share_out(grant: Grant, served: Sequence[Waiting], wants: Sequence[int]) -> list[int]:
    """Return the permits of each stream: of its sponsor's part, or of all if the throttle named none."""
    shares = share_out(grant.units, wants)
    for share, units in grant.parts.items() if len(grant.parts) > 1 else ():
        of_sponsor = [number for number, one in enumerate(served) if one.share == share]
        for number, part in zip(of_sponsor, share_out(units, [wants[n] for n in of_sponsor]), strict=True):
            shares[number] = part
    return shares


class JointClaims:
    """Makes the claims of all streams of an event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections, self._rows = connections, connections.claims
        self._groups: dict[tuple[Any, ...], Group] = {}  # with a round under way
        self._name = secrets.token_urlsafe(6)
        self._tasks: set[asyncio.Task[None]] = set()
        self._locked: dict[int, asyncio.Event] = {}  # jobs that cannot claim until their event is set
        self._looking = False  # True while a task watches those locks
        self._closing = False

    async def claim_together(self, seen: SendContext, adoptions: int, hold: float, ask: WantedClaim) -> Answer:
        """Ask for permits and claim messages for a stream, together with others.

        seen: the stream's context; adoptions: the store's count of them as the stream began; hold: seconds within which
        a call under the grant is certain to have ended. If the stream is cut off, its claim is released. Raises
        ThrottleUnreachable, and the database's errors.
        """
        if unlocked := self._locked.get(ask.lease.job_id):
            try:
                async with asyncio.timeout(LOCKED_SECONDS):
                    await unlocked.wait()
            except TimeoutError:
                return NotGranted(Wait(0.0))
        # Where letters differ in cost or receivers wait, only the job's own stream knows which of them fit.
        alone = "" if isinstance(ask.claimer, ByCount) else str(ask.lease.job_id)
        scope = seen.scope
        key = scope.credential_id, scope.generation, seen.limits_version, adoptions, hold, alone, ask.probe
        group = self._groups.get(key)
        if group is None:
            terms = {
                "vendor": scope.vendor_id, "credential": scope.credential_id, "generation": scope.generation,
                "limits_version": seen.limits_version, "adoptions": adoptions, "hold": hold, "probe": ask.probe,
            }  # fmt: skip
            name = f"{self._name}:{scope.credential_id}:{hold:g}:{alone}"
            group = self._groups[key] = Group(scope, hold, terms, name, alone, seen.floor)
        group.floor = seen.floor
        loop = asyncio.get_running_loop()
        waiting = Waiting(ask, seen.share, loop.create_future(), time.monotonic() + FIND_OUT)
        group.waiting.append(waiting)
        letting_go = loop.call_later(FIND_OUT, group.end_wait, waiting)
        if group.rounds < ROUNDS and not group.gathering:
            group.rounds, group.gathering = group.rounds + 1, True
            self._start_task(self._serve_group(key, group))
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if not waiting.answer.cancelled():  # already answered, or failed
                if waiting.answer.exception() is None:
                    self._let_claim_go(scope, waiting.answer.result())
            elif waiting in group.waiting:
                group.waiting.remove(waiting)
            raise
        finally:
            letting_go.cancel()

    def leave_queue(self, lease: Lease) -> None:
        """Take the stream out of its queue with NotGranted, unless a round is under way for it."""
        for group in self._groups.values():
            for one in [one for one in group.waiting if one.ask.lease == lease]:
                group.end_wait(one)

    async def close(self) -> None:
        """Wait for the rounds under way, but for no lock. Every stream must have left."""
        self._closing = True
        self._wake_jobs(list(self._locked))
        for group in self._groups.values():
            group.open_group()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_group(self, key: tuple[Any, ...], group: Group) -> None:
        """Serve the waiting streams of a group, round after round, until none waits."""
        gathers = True
        try:
            permits = Permits(self._connections.redis_stores()[0], self._rows)
            while True:
                await asyncio.sleep(0)  # streams ready in this turn of the event loop join
                await group.wait_until_open()
                group.gathering = gathers = False
                together = group.take_streams(MOST)
                if not together:
                    break
                await self._answer_round(permits, group, together)
                if group.gathering:  # another round takes the waiting streams
                    break
                group.gathering = gathers = True
        except Exception as error:  # no stream may wait for a round that never comes
            for one in group.waiting:
                one.tell_result(error)
            group.waiting.clear()
            raise
        finally:
            group.rounds, group.gathering = group.rounds - 1, group.gathering and not gathers
            if not group.rounds:
                del self._groups[key]
                for one in group.waiting:
                    one.answer.cancel()

    async def _answer_round(self, permits: Permits, group: Group, together: Sequence[Waiting]) -> None:  # noqa: C901
        """Answer each of these streams, or requeue it.

        If the database refuses their statement, each gets one of its own, so one bad request harms no other. If a job
        is locked, the other streams join the next round.
        """
        served, needs = list[Waiting](), list[Need]()
        for one in together:
            if not one.answer.cancelled():
                try:
                    needs.append(one.ask.claimer.need(one.ask.most()))
                    served.append(one)
                except Exception as error:
                    one.tell_result(error)
        if not served:
            return
        try:
            found, unused = await self._answer_streams(permits, group, served, needs)
        except LockNotAvailable:
            await self._set_aside(group, served)
            return
        except Exception as error:
            if isinstance(error, REFUSED) and len(served) > 1:
                await asyncio.gather(*(self._answer_round(permits, group, [one]) for one in served))
                return
            for one in served:
                one.tell_result(error)
            return
        for one, came in zip(served, found, strict=True):
            if came is None:
                one.ask.note_bound()
                group.queue_again(one)
            elif one.answer.cancelled() and not isinstance(came, Exception):
                self._let_claim_go(group.scope, came)
            else:
                one.tell_result(came)
        if unused:
            with suppress(RowsError):  # mailcasters learn later of the free permits
                await permits.cancel_permits(group.scope, unused)
            for other in self._groups.values():
                if other.scope.vendor_id == group.scope.vendor_id:
                    other.open_group()

    async def _set_aside(self, group: Group, served: Sequence[Waiting]) -> None:
        """Send away the streams whose jobs are locked, and requeue the others."""
        try:
            locked = await claims.find_locked_jobs(self._rows, [one.ask.lease.job_id for one in served])
        except RowsError as error:
            for one in served:
                one.tell_result(error)
            return
        for one in served:
            if one.ask.lease.job_id not in locked:
                group.queue_again(one)
            elif not one.answer.cancelled():
                self._locked.setdefault(one.ask.lease.job_id, asyncio.Event())
                one.tell_result(NotGranted(Wait(0.0)))
        if self._locked and not self._looking:
            self._looking = True
            self._start_task(self._watch_locked_jobs())

    async def _watch_locked_jobs(self) -> None:
        """Watch the locked jobs and release each one whose lock is gone.

        It polls, but also queues for the lock of one job at a time. Polling alone could miss every gap between two
        locks.
        """
        try:
            while self._locked:
                await asyncio.sleep(LOCKED_SECONDS)
                with suppress(RowsError):
                    for first in islice(list(self._locked), 1):
                        self._locked[first] = self._locked.pop(first)  # rotate: another job next time
                        with suppress(LockNotAvailable):
                            async with self._rows.lend_connection() as connection:
                                await claims.queue_for_locks(connection, first)
                            self._wake_jobs([first])  # others may queue for it too
                    asked = set(self._locked)
                    self._wake_jobs(asked - await claims.find_locked_jobs(self._rows, asked))
        finally:
            self._looking = False

    def _wake_jobs(self, jobs: Iterable[int]) -> None:
        for job_id in jobs:
            if (event := self._locked.pop(job_id, None)) is not None:
                event.set()

    async def _answer_streams(
        self, permits: Permits, group: Group, served: Sequence[Waiting], needs: Sequence[Need]
    ) -> tuple[list[Answer | Exception | None], list[str]]:
        """Return (each stream's answer, its error, or None if it was granted nothing now; the unused permits)."""
        failpoints.here("before_grant")
        asks, wants = [one.ask for one in served], [need.want for need in needs]
        # A takeover of the store reads this note to learn about calls that it may have lost (failover/recovery.py).
        jobs = (ask.claimer.note(ask.cursor, ask.end, want) for ask, want in zip(asks, wants, strict=True))
        note = " ".join((f"{group.scope.credential_id}@{group.scope.destination}", *jobs))
        more = [one.ask.more(want) for one, want in zip(served, wants, strict=True)]
        asker = SharedAsk(group.name, _sum_by_share(served, wants), _sum_by_share(served, more), group.floor)
        of_all = Need(sum(wants), min(need.least for need in needs), needs[0].letters, asker)
        grant, until = await permits.acquire_permits(group.scope, of_all, group.hold, note, group.turns)
        if of_all.letters:  # of a stream that claims alone
            asks[0].claimer.note_answer(grant)
        if isinstance(grant, Wait) and grant.seconds <= PATIENCE:
            group.closed_for(grant.seconds)
            return [None] * len(asks), []
        if not isinstance(grant, Grant):
            return [NotGranted(grant, until)] * len(asks), []
        group.closed_for(grant.more_after if grant.more_after <= PATIENCE else 0.0)
        failpoints.here("after_grant")
        shares = _share_out(grant, served, wants)
        enough = [share >= need.least for share, need in zip(shares, needs, strict=True)]
        asked, failed = dict[int, ToClaim](), dict[int, Exception]()
        for n, ask in enumerate(asks):
            try:
                if enough[n] and ask.allowed():
                    asked[n] = ask.make_to_claim(shares[n])
            except Exception as error:
                failed[n] = error
        try:
            claimed = dict(zip(asked, await self._claim_for_group(group, grant, list(asked.values())), strict=True))
        except Exception as error:  # no call is made under it, even if only the answer was lost
            with suppress(RowsError):
                await permits.cancel_permits(group.scope, grant.places(), counted=_may_have_committed(error))
            group.open_group()
            raise
        found: list[Answer | Exception | None] = []
        places, unused = iter(grant.places()), list[str]()
        for n, ask in enumerate(asks):
            names: Sequence[str]
            names, came = list(islice(places, shares[n])), claimed.get(n, Claimed([]))
            used: Sequence[str] = ()
            if came.messages:
                used, names = ask.claimer.allot_permits(asked[n], came.messages, names)
            unused += names
            # A stream that got too little comes first in the next round.
            got = Permitted(ask.lease, came, used, grant.deadline)
            found.append(failed.get(n) or (got if enough[n] else None))
        return found, unused

    async def _claim_for_group(self, group: Group, grant: Grant, asked: Sequence[ToClaim]) -> list[Claimed]:
        if not asked:
            return []
        async with self._rows.lend_connection() as connection:
            began = time.monotonic()
            claimed = await claims.claim_for_jobs(connection, group.terms | {"grant": grant.id}, asked)
            histograms.counts.observe_value(histograms.STATEMENT, "claim", time.monotonic() - began)
            return claimed

    def _let_claim_go(self, scope: Scope, came: Answer) -> None:
        """Release a claim after its stream was cut off: nobody will make its calls."""
        if isinstance(came, Permitted):
            self._start_task(self._release_claim(scope, came))

    async def _release_claim(self, scope: Scope, got: Permitted) -> None:
        with suppress(RowsError):  # otherwise its messages are in doubt, like the stream's open calls
            if (claim := got.claimed.claim) is not None:
                await self._rows.run_with_rows(
                    lambda connection: claims.delete_claim(connection, got.lease, claim), over=lambda: self._closing
                )
        await Permits(self._connections.redis_stores()[0], self._rows).done(scope, got.permits)
