"""Whose request has a thread: each sponsor has a share of them, and of what takes a processor for long (decision 44).

Requests that wait hold no thread. Those of one sponsor wait in a line of its own, and the lines have their turns one
after the other, so nobody waits behind all that another one has sent. All of this is in the event loop (rsgi); threads
say whose a session is, and when a request turns out to be dear.
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from campaigns.content.render_pool import RenderPool, RequestRenderer

DEAR_AT_ONCE, DEAR_EACH, DEAR_MOST = 2, 1, 100  # requests that take a processor for long: in all, of one; that wait
WAITING_MOST = 1_000  # other requests of one sponsor that may wait
SLICE, PATIENCE = 0.002, 0.05  # seconds that a thread computes before it gives way, and gives way at most
CHEAP, DEAR = "", "dear"  # kinds of requests
MOST_SESSIONS = 10_000  # that are remembered
STRANGER: Hashable = "stranger"  # whose key or session this process has not seen


class TooManyWait(Exception):
    """Too many of one sponsor wait. The text says so."""


class Turns:
    """Lets so many through at once, and so many of each; the others wait, in a line for each.

    most: how many of each may wait; detail: of the refusal for those beyond; total: how many of all may wait.
    """

    def __init__(self, at_once: int, each: int, most: int, detail: str, total: int | None = None) -> None:
        self._free, self._each, self._most, self._detail, self._total = at_once, each, most, detail, total
        self._running: dict[Hashable, int] = {}
        self._lines: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()  # the next one is the first

    @asynccontextmanager
    async def turn(self, who: Hashable) -> AsyncIterator[None]:
        """Raises TooManyWait."""
        await self._take(who)
        try:
            yield
        finally:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]
            self._free += 1
            self._call()

    async def _take(self, who: Hashable) -> None:
        if self._free and who not in self._lines and self._running.get(who, 0) < self._each:
            self._begin(who)
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
            if waiting.done() and not waiting.cancelled():  # it had its turn in the same moment
                self._running[who] -= 1
                self._free += 1
            self._call()
            raise

    def _begin(self, who: Hashable) -> None:
        self._free -= 1
        self._running[who] = self._running.get(who, 0) + 1

    def _call(self) -> None:
        """Lets those through who may go now, one of each line in turn."""
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
            self._begin(who)
            line.popleft().set_result(None)
            if line:
                self._lines[who] = line
            passed = 0


class TurnsOutDear(BaseException):
    """A request that was taken for a cheap one is to begin anew in the line of dear ones: nothing of it was stored.

    No Exception, so that nothing on its way takes it for an error.
    """


_here = threading.local()
_pool = RenderPool(DEAR_AT_ONCE)
_clear = threading.Event()  # no cheap request has a thread
_clear.set()
_cheap = 0  # that have one; counted by the event loop alone


@contextmanager
def cheap() -> Iterator[None]:
    """A cheap request has a thread: others give way to it. For the event loop."""
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
def answering(kind: str) -> Iterator[None]:
    """This thread answers a request. kind: of the turn that it had."""
    _here.cheap, _here.computed = kind == CHEAP, time.thread_time()
    _here.renderer = RequestRenderer(_pool) if kind == DEAR else None
    try:
        yield
    finally:
        if _here.renderer:
            _here.renderer.close()
        vars(_here).clear()


def renderer() -> RequestRenderer | None:
    """Returns that of the dear request which this thread answers."""
    return getattr(_here, "renderer", None)


def turn_dear() -> None:
    """Called before work that takes a processor for long. Raises TurnsOutDear if the request has no turn for it."""
    if getattr(_here, "cheap", False):
        raise TurnsOutDear


def give_way() -> None:
    """Called again and again by what computes for long: lets cheap requests have Python's lock, for a moment.

    It waits no longer than it has computed since the last time, so cheap requests that never end, or that themselves
    wait for something, take half of its speed at most.
    """
    if _clear.is_set() or getattr(_here, "cheap", True):
        return
    computed = time.thread_time() - _here.computed
    if computed < SLICE:
        return
    _clear.wait(min(computed, PATIENCE))
    _here.computed = time.thread_time()


class Sessions:
    """Whose the sessions of pages are, as those of this process have seen them. Safe for threads."""

    def __init__(self) -> None:
        self._known: dict[str, Hashable] = {}

    def find(self, session_key: str) -> Hashable:
        return self._known.get(session_key, STRANGER)

    def remember(self, session_key: str | None, user: Any) -> None:
        """The user's only sponsor, or the user."""
        if not session_key or session_key in self._known:
            return
        if len(self._known) >= MOST_SESSIONS:
            self._known.clear()
        sponsors = list(user.sponsors.values_list("pk", flat=True)[:2])
        self._known[session_key] = sponsors[0] if len(sponsors) == 1 else f"user {user.pk}"


sessions = Sessions()
