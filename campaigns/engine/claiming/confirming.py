"""Whether what was claimed ahead of the connections may still be called.

A claim allows its calls. Those that wait for a connection start a moment later, and meanwhile somebody may stop the
job, pause its vendor or suppress a recipient. So a waiting call starts only if, less than FRESH seconds before, the
rows still said what the claim had checked. One statement asks for all streams of a process. If it fails, or finds a
change, the messages that were not called wait again. So FRESH bounds the time from the commit of a stop to the last
call.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from campaigns.engine.failover import guard
from campaigns.engine.threads import cut_off
from vendors.condition import brake

log = logging.getLogger(__name__)

FRESH = 0.05  # seconds for which a confirmation holds, counted from before its question
EVERY = 0.02  # seconds between two questions


def read_ticks() -> float:
    """Return seconds of a clock that cannot be set and runs on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# As CLAIM (claims.py) asks it, but without locks: a statement sees what had committed when it began.
CONFIRM = f"""
SELECT a.number, v.suppressions FROM json_to_recordset(%(asked)s::json) AS a(number int, job bigint, fence int,
    vendor bigint, credential bigint, generation int, limits_version int, destination bigint, adoptions int)
JOIN campaigns_job j ON j.id = a.job JOIN vendors_vendor v ON v.id = a.vendor
JOIN vendors_credential c ON c.id = a.credential
WHERE j.fence = a.fence AND j.status = 'SENDING' AND j.paused_at IS NULL
    AND v.generation = a.generation AND v.limits_version = a.limits_version AND NOT v.paused AND NOT c.paused
    AND v.destination + c.destination = a.destination AND {brake.OPEN}
    AND EXISTS ({guard.KNOWN} AND s.adoptions = a.adoptions)
"""


class ClaimTerms(NamedTuple):
    """What a claim checked: the rows of its calls must still say this when they start.

    suppressions: the position of the last one stored before the claim.
    """

    job: int
    fence: int
    vendor: int
    credential: int
    generation: int
    limits_version: int
    destination: int
    adoptions: int
    suppressions: int

    def allows_calls_of(self, earlier: "ClaimTerms") -> bool:
        """Tell whether calls claimed earlier may start under these terms, once new suppressions are looked up."""
        return self._replace(suppressions=earlier.suppressions) == earlier


class WaitingCalls(Protocol):
    """Calls that were claimed and have not begun. terms: of their claim."""

    terms: ClaimTerms | None

    @property
    def waiting(self) -> Sequence[Any]: ...

    def confirm_calls(self, asked: float) -> None: ...

    def give_back_calls(self) -> None: ...


# Called with the new position of suppressions. Returns once recipients suppressed since are taken out.
Recheck = Callable[[int], Awaitable[None]]


class Confirmations:
    """Confirms the waiting calls of all streams of an event loop. rows: executes statements like a connection."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._watched: dict[WaitingCalls, Recheck] = {}
        self._rechecks: dict[WaitingCalls, Recheck] = {}
        self._asking: asyncio.Task[None] | None = None

    def begin_stream(self, calls: WaitingCalls, recheck: Recheck) -> None:
        """Note the stream that these calls belong to, until `end_stream`."""
        self._rechecks[calls] = recheck

    def end_stream(self, calls: WaitingCalls) -> None:
        self._rechecks.pop(calls, None)
        self._watched.pop(calls, None)

    def watch_calls(self, calls: WaitingCalls) -> None:
        """Confirm these calls, again and again, as long as some of them wait."""
        if calls in self._rechecks:
            self._watched[calls] = self._rechecks[calls]
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask_all())

    async def close(self) -> None:
        if self._asking is not None:
            await cut_off(self._asking)
            self._asking = None

    async def _ask_all(self) -> None:
        try:
            while self._watched:
                began = read_ticks()
                await self._ask_once(began)
                await asyncio.sleep(max(0.001, EVERY - (read_ticks() - began)))
        finally:
            self._asking = None

    async def _ask_once(self, began: float) -> None:
        watched = [(calls, calls.terms) for calls in self._watched if calls.waiting and calls.terms]
        for calls in self._watched.keys() - {calls for calls, _ in watched}:
            del self._watched[calls]
        if not watched:
            return
        asked = [{"number": number, **terms._asdict()} for number, (_, terms) in enumerate(watched)]
        try:
            rows = await self._rows.execute(CONFIRM, {"asked": orjson.dumps(asked).decode(), "probe": None})
            sure = dict(await rows.fetchall())
            for number, (calls, terms) in enumerate(watched):
                await self._tell_calls(calls, terms, sure.get(number), began)
        except Exception as error:  # the next claim reports it
            log.info("what was claimed ahead is given back: %s", error)
            for calls, _ in watched:
                calls.give_back_calls()

    async def _tell_calls(self, calls: WaitingCalls, terms: ClaimTerms, suppressions: int | None, began: float) -> None:
        if calls.terms is not terms or calls not in self._watched:  # a newer claim has asked for itself
            return
        if suppressions is None:
            calls.give_back_calls()
            return
        if suppressions > terms.suppressions:
            await self._watched[calls](suppressions)
            if calls.terms is terms:
                calls.terms = terms._replace(suppressions=suppressions)
        calls.confirm_calls(began)
