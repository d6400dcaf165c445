"""Group commit for claims: streams that become ready while two claims are on their way are claimed for together next.

Together are streams of one process for whose calls the same must hold when the claim commits: the credential, the
limits, the generation, the adoption of the store. There is one question for permits and one statement for all of them.
Nobody waits for company: a stream that comes alone is served at once.

Permits are shared out equally, and who was last given some longest ago comes first. So neither a stream with many free
connections nor one that asks more often keeps permits from another one.
A round has a task of its own: a stream that is cut off harms no other, and what was claimed for it is released.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from psycopg import DataError, IntegrityError, NotSupportedError, ProgrammingError
from psycopg import Error as RowsError
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from campaigns import failpoints
from campaigns.claiming import claims, limits
from campaigns.claiming.claims import ByCount, Claimed, Claimer, ToClaim
from campaigns.claiming.contexts import SendContext
from campaigns.claiming.letters import Lease
from campaigns.claiming.limits import Need
from campaigns.connections import Connections
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Lost, Never, Paused, Scope, Skewed, Wait, share_out

log = logging.getLogger(__name__)

ROUNDS = 2  # at once for the streams of a group: one is being made while the other waits for the disk
MOST = 64  # streams in a round: as long is the note that Redis keeps of a grant
# Nothing was claimed then: the statement, which is a transaction of its own, was aborted.
REFUSED = (
    DataError, IntegrityError, NotSupportedError, ProgrammingError, DeadlockDetected, LockNotAvailable, QueryCanceled,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WantedClaim:
    """What a stream asks for. served: when it was last given permits, in seconds of time.monotonic.

    most: how many messages it can call; it is called when its round begins. allowed: called just before the claim;
    False: nothing is claimed for it. The others are those of claims.ToClaim.
    """

    lease: Lease
    cursor: int
    end: int
    closes: datetime | None
    claimer: Claimer
    served: float
    most: Callable[[], int]
    allowed: Callable[[], bool]

    def asked(self, permits: int) -> ToClaim:
        most, units = self.claimer.fitting(permits)
        return ToClaim(self.lease, self.cursor, self.end, most, self.closes, units)


class Permitted(NamedTuple):
    """What was claimed, and a permit for each unit of it. deadline: of the grant."""

    lease: Lease
    claimed: Claimed
    permits: Sequence[str]
    deadline: float


class NotGranted(NamedTuple):
    """Why there are no permits. until: a stream that does not want to wait may be taken again then."""

    why: Wait | Paused | Never | Lost | Skewed
    until: datetime | None = None


class Permits:
    """Asks for the permits of vendors, and returns them. rows: executes as a connection to the database does."""

    def __init__(self, throttle: AsyncThrottle, rows: Any) -> None:
        self._throttle, self._rows = throttle, rows

    async def acquire(self, scope: Scope, need: Need, hold: float, note: str) -> tuple[AcquireResult, datetime | None]:
        """(the throttle's answer, until when no mailcaster need try if the wait is longer than PATIENCE).

        hold: seconds within which a call has surely ended; note: Redis remembers it. Raises ThrottleUnreachable.
        """
        answer = await self._ask(scope, need, hold, note)
        if not isinstance(answer, Wait) or answer.seconds <= limits.PATIENCE:
            return answer, None
        opens_at = await limits.full(self._rows, scope.credential_id, answer.seconds - limits.LEAD)
        # A sender that cancels permits clears that row, but may have done so just before it was written.
        answer = await self._ask(scope, need, hold, note)
        if isinstance(answer, Grant):
            await limits.undo_full(self._rows, scope.vendor_id)
        return answer, opens_at

    async def _ask(self, scope: Scope, need: Need, hold: float, note: str) -> AcquireResult:
        if not need.least:
            return Grant("", 0, time.monotonic() + hold)
        return await self._throttle.acquire(scope, need.want, hold, need.least, note)

    async def done(self, scope: Scope, permits: Sequence[str]) -> None:
        """Returns the permits of calls that are over."""
        failpoints.here("before_done")
        try:
            await self._throttle.done(scope, permits)
        except ThrottleUnreachable:  # they expire by themselves
            log.warning("vendor %s: places could not be handed back", scope.vendor_id)
        failpoints.here("after_done")

    async def cancel(self, scope: Scope, permits: Sequence[str]) -> None:
        """Returns permits for which no call was started: they can be granted again at once."""
        try:
            await self._throttle.cancel(scope, permits)
        except ThrottleUnreachable:
            log.warning("vendor %s: places could not be handed back", scope.vendor_id)
        else:
            await limits.undo_full(self._rows, scope.vendor_id)


Answer = Permitted | NotGranted
Waiting = tuple[WantedClaim, "asyncio.Future[Answer]"]


@dataclass(slots=True)
class _Group:
    """Streams for which the same must hold when the claim commits: `terms`, as claims.CLAIM names them.

    rounds: how many are on their way; gathering: one of them is about to take those that wait.
    """

    scope: Scope
    hold: float
    terms: dict[str, Any]
    waiting: list[Waiting]
    rounds: int = 0
    gathering: bool = False


class JointClaims:
    """Claims for all streams of an event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections, self._rows = connections, connections.claims
        self._groups: dict[tuple[Any, ...], _Group] = {}  # with a round on its way
        self._tasks: set[asyncio.Task[None]] = set()

    async def claim(self, seen: SendContext, adoptions: int, hold: float, ask: WantedClaim) -> Answer:
        """Asks for permits and claims messages for a stream, together with others.

        seen: by the stream; adoptions: of the store when it began; hold: seconds within which a call under the grant
        has surely ended. If the stream is cut off, what is claimed for it is released. Raises ThrottleUnreachable, and
        the database's errors.
        """
        # Where letters cost different numbers of units only the job's own stream knows which of them fit.
        alone = None if isinstance(ask.claimer, ByCount) else ask.lease.job_id
        scope = seen.scope
        key = scope.credential_id, scope.generation, seen.limits_version, adoptions, hold, alone
        group = self._groups.get(key)
        if group is None:
            terms = {
                "vendor": scope.vendor_id, "credential": scope.credential_id, "generation": scope.generation,
                "limits_version": seen.limits_version, "adoptions": adoptions, "hold": hold,
            }  # fmt: skip
            group = self._groups[key] = _Group(scope, hold, terms, [])
        waiting: Waiting = ask, asyncio.get_running_loop().create_future()
        group.waiting.append(waiting)
        if group.rounds < ROUNDS and not group.gathering:
            group.rounds, group.gathering = group.rounds + 1, True
            self._start(self._serve(key, group))
        try:
            return await waiting[1]
        except asyncio.CancelledError:
            if not waiting[1].cancelled():  # it had come, or an error
                if waiting[1].exception() is None:
                    self._let_go(scope, waiting[1].result())
            elif waiting in group.waiting:
                group.waiting.remove(waiting)
            raise

    async def close(self) -> None:
        """Waits for what is on its way; no stream may be left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, key: tuple[Any, ...], group: _Group) -> None:
        """Serves those of a group that wait, a round after the other, until nobody does."""
        try:
            permits = Permits(self._connections.to_redis()[0], self._rows)
            while True:
                await asyncio.sleep(0)  # who is ready in this turn of the event loop comes along
                group.gathering = False
                group.waiting.sort(key=lambda one: one[0].served)
                together = group.waiting[:MOST]
                del group.waiting[:MOST]
                if not together:
                    break
                await self._round(permits, group, together)
        except Exception as error:  # nobody waits for a round that does not come
            _fail((answer for _, answer in group.waiting), error)
            group.waiting.clear()
            raise
        finally:
            group.rounds, group.gathering = group.rounds - 1, False
            if not group.rounds:
                del self._groups[key]
                for _, answer in group.waiting:
                    answer.cancel()

    async def _round(self, permits: Permits, group: _Group, together: Sequence[Waiting]) -> None:
        """Answers them all. If the database refuses their statement, each has one of its own: one harms no other.

        So it does if one of their jobs is locked for longer than claims.LOCKED_MOST; who has that job waits alone then.
        """
        asks, answers = list[tuple[WantedClaim, Need]](), list["asyncio.Future[Answer]"]()
        for ask, answer in together:
            if not answer.cancelled():
                try:
                    asks.append((ask, ask.claimer.need(ask.most())))
                    answers.append(answer)
                except Exception as error:
                    answer.set_exception(error)
        if not asks:
            return
        try:
            found, unused = await self._answers(permits, group, asks)
        except Exception as error:
            if isinstance(error, REFUSED) and len(asks) > 1:
                one_by_one = zip((ask for ask, _ in asks), answers, strict=True)
                await asyncio.gather(*(self._round(permits, group, [one]) for one in one_by_one))
                return
            _fail(answers, error)
            return
        for answer, came in zip(answers, found, strict=True):
            if isinstance(came, Exception):
                _fail([answer], came)
            elif answer.cancelled():
                self._let_go(group.scope, came)
            else:
                answer.set_result(came)
        if unused:
            with suppress(RowsError):  # casters learn later that there are permits again
                await permits.cancel(group.scope, unused)

    async def _answers(
        self, permits: Permits, group: _Group, wanted: Sequence[tuple[WantedClaim, Need]]
    ) -> tuple[list[Answer | Exception], list[str]]:
        """(an answer for each, or its own error; the permits that are not used)."""
        failpoints.here("before_grant")
        asks, needs = zip(*wanted, strict=True)
        wants = [need.want for need in needs]
        # By this note a takeover of the store finds out what it may have lost (failover/recovery.py).
        jobs = (f"{ask.cursor} {ask.end} {want}" for ask, want in zip(asks, wants, strict=True))
        note = " ".join((str(group.scope.credential_id), *jobs))
        of_all = Need(sum(wants), min(need.least for need in needs))
        grant, until = await permits.acquire(group.scope, of_all, group.hold, note)
        if not isinstance(grant, Grant):
            return [NotGranted(grant, until)] * len(asks), []
        failpoints.here("after_grant")
        shares = share_out(grant.units, wants)
        enough = [share >= need.least for share, need in zip(shares, needs, strict=True)]
        asked, failed = dict[int, ToClaim](), dict[int, Exception]()
        for n, ask in enumerate(asks):
            try:
                if enough[n] and ask.allowed():
                    asked[n] = ask.asked(shares[n])
            except Exception as error:
                failed[n] = error
        try:
            claimed = dict(zip(asked, await self._claim(group, grant, list(asked.values())), strict=True))
        except REFUSED:
            await permits.cancel(group.scope, grant.places())
            raise
        found: list[Answer | Exception] = []
        places, unused = iter(grant.places()), []
        for n, ask in enumerate(asks):
            names, came = list(islice(places, shares[n])), claimed.get(n, Claimed([]))
            used = asked[n].cost(came.messages) if came.messages else 0
            unused += names[used:]
            # Who has got too little is the first one in the next round.
            got = Permitted(ask.lease, came, names[:used], grant.deadline)
            found.append(failed.get(n) or (got if enough[n] else NotGranted(Wait(0.0))))
        return found, unused

    async def _claim(self, group: _Group, grant: Grant, asked: Sequence[ToClaim]) -> list[Claimed]:
        if not asked:
            return []
        async with self._rows.one() as connection:
            return await claims.claim(connection, group.terms | {"grant": grant.id}, asked)

    def _let_go(self, scope: Scope, came: Answer) -> None:
        """The stream was cut off: nobody makes its calls."""
        if isinstance(came, Permitted):
            self._start(self._release(scope, came))

    async def _release(self, scope: Scope, got: Permitted) -> None:
        with suppress(RowsError):  # else its messages are in doubt, like the stream's open calls
            if got.claimed.claim is not None:
                async with self._rows.one() as connection:
                    await claims.release(connection, got.lease, got.claimed.claim)
        await Permits(self._connections.to_redis()[0], self._rows).done(scope, got.permits)


def _fail(answers: "Iterable[asyncio.Future[Answer]]", error: Exception) -> None:
    for answer in answers:
        if not answer.cancelled():
            answer.set_exception(error)
