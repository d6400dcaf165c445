"""Fair shares of the web server's threads, and of expensive work, between sponsors (decision 44).

Waiting requests occupy no thread. Each sponsor has a queue of its own, and the queues take turns, so nobody waits
behind all requests of another. All of this runs in the event loop (rsgi). Threads report the sponsor of a session, and
each request that proves expensive.
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from campaigns.texts.render_pool import RenderPool, RequestRenderer

DEAR_AT_ONCE, DEAR_EACH, DEAR_MOST = 2, 1, 100  # expensive requests: in total, of one sponsor, waiting
WAITING_MOST = 1_000  # other requests of one sponsor that may wait
SLICE, PATIENCE = 0.002, 0.05  # seconds a thread computes before it yields, and yields at most
CHEAP, DEAR = "", "dear"  # kinds of requests
MOST_SESSIONS = 10_000  # cached sessions
STRANGER: Hashable = "stranger"  # for a key or session that this process has not seen


class TooManyWait(Exception):
    """Too many requests of one sponsor wait. The text says so."""


class Turns:
    """Admits a number of requests at a time, in total and of each owner; the others wait in a queue for each owner.

    `most`: how many of each may wait. `detail`: the text for those refused. `total`: how many may wait overall.
    """

    def __init__(self, at_once: int, each: int, most: int, detail: str, total: int | None = None) -> None:
        self._free, self._each, self._most, self._detail, self._total = at_once, each, most, detail, total
        self._running: dict[Hashable, int] = {}
        self._lines: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()  # the first is next

    @asynccontextmanager
    async def take_turn(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a turn and keep it for the block. Raises TooManyWait."""
        await self._wait_in_line(who)
        try:
            yield
        finally:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]
            self._free += 1
            self._call_next()

    async def _wait_in_line(self, who: Hashable) -> None:
        if self._free and who not in self._lines and self._running.get(who, 0) < self._each:
            self._begin_turn(who)
            return
        if self._total is not None and sum(map(len, self._lines.values())) >= self._total:
            raise TooManyWait(self._detail)
        line = self._lines.setdefault(who, deque())
        if len(line) >= self._most:
            raise TooManyWait(self._detail)
        waiting = asyncio.get_running_loop().create_future()
        line.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():  # it got its turn at the same moment
                self._running[who] -= 1
                self._free += 1
            self._call_next()
            raise

    def _begin_turn(self, who: Hashable) -> None:
        self._free -= 1
        self._running[who] = self._running.get(who, 0) + 1

    def _call_next(self) -> None:
        """Admit those who may go now, one from each queue in turn."""
        passed = 0
        while self._free and passed < len(self._lines):
            who, line = self._lines.popitem(last=False)
            while line and line[0].done():
                line.popleft()  # its client has gone
            if not line:
                continue
            if self._running.get(who, 0) >= self._each:
                self._lines[who] = line  # to the end: it has its share
                passed += 1
                continue
            self._begin_turn(who)
            line.popleft().set_result(None)
            if line:
                self._lines[who] = line
            passed = 0


class TurnsOutDear(BaseException):
    """A request taken for cheap must restart as an expensive one. Nothing of it was stored.

    A BaseException, so that no handler on the way takes it for an error.
    """


_here = threading.local()
_pool = RenderPool(DEAR_AT_ONCE)
_clear = threading.Event()  # set while no cheap request has a thread
_clear.set()
_cheap = 0  # number of cheap requests with a thread; only the event loop counts


@contextmanager
def mark_cheap() -> Iterator[None]:
    """Mark that a cheap request has a thread, so that others yield to it. For the event loop."""
    global _cheap
    _cheap += 1
    _clear.clear()
    try:
        yield
    finally:
        _cheap -= 1
        if not _cheap:
            _clear.set()


@contextmanager
def mark_answering(kind: str) -> Iterator[None]:
    """Mark this thread as answering a request. `kind`: of its turn."""
    _here.cheap, _here.computed = kind == CHEAP, time.thread_time()
    _here.renderer = RequestRenderer(_pool) if kind == DEAR else None
    try:
        yield
    finally:
        if _here.renderer:
            _here.renderer.close()
        vars(_here).clear()


def request_renderer() -> RequestRenderer | None:
    """Return the renderer of the expensive request in this thread."""
    return getattr(_here, "renderer", None)


def turn_dear() -> None:
    """Claim expensive work. Raises TurnsOutDear if the request lacks a turn for it."""
    if getattr(_here, "cheap", False):
        raise TurnsOutDear


def give_way() -> None:
    """Let cheap requests have Python's lock for a moment. Long computations call this repeatedly.

    It waits no longer than the caller has computed since the last call. So an endless stream of cheap requests, or ones
    that wait themselves, at most halve the caller's speed.
    """
    if _clear.is_set() or getattr(_here, "cheap", True):
        return
    computed = time.thread_time() - _here.computed
    if computed < SLICE:
        return
    _clear.wait(min(computed, PATIENCE))
    _here.computed = time.thread_time()


class Sessions:
    """Owners of page sessions that this process has seen. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Hashable] = {}

    def find_user(self, session_key: str) -> Hashable:
        return self._known.get(session_key, STRANGER)

    def remember_user(self, session_key: str | None, user: Any) -> None:
        """Remember the user's only sponsor, or the user."""
        if not session_key or session_key in self._known:
            return
        if len(self._known) >= MOST_SESSIONS:
            self._known.clear()
        sponsors = list(user.sponsors.values_list("pk", flat=True)[:2])
        self._known[session_key] = sponsors[0] if len(sponsors) == 1 else f"user {user.pk}"


sessions = Sessions()
