"""The comparison after a crash of PostgreSQL. Streams of a process that ask at about the same time share one answer."""

import asyncio
import threading
import time

from django.db import connection

from campaigns.engine.failover import crash
from campaigns.engine.lifecycle import LOCKED_BRIEFLY
from campaigns.engine.threads import locked_most

FRESH = 0.5  # seconds for which an answer is shared

_one_at_a_time = threading.Lock()
_last: tuple[float, str | None] = (-FRESH, None)


async def compare_once() -> str | None:
    """Run `crash.compare_after_crash` in a thread, on a connection of its own."""
    return await asyncio.to_thread(_compare_once)


def _compare_once() -> str | None:
    global _last
    with _one_at_a_time:
        at, why = _last
        if time.monotonic() - at > FRESH:
            locked_most.set(LOCKED_BRIEFLY)
            try:
                why = crash.compare_after_crash()
            finally:
                connection.close()  # the connection of this thread
            _last = time.monotonic(), why
        return why
