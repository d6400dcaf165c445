"""Streams of a process wait a moment for each other: one commit stores the answers of all, and one claims for all.

A stream takes part while all its connections are in use and its calls are quick. If the others have waited for it in
vain, it takes no part until nothing of it is in flight: a call that hangs holds them up once.
"""

import asyncio

from campaigns.threads import happens


class GroupCommit:
    """Which streams of a process have calls on their way, and of which the answers are being stored."""

    def __init__(self) -> None:
        self._calling, self._storing = set[object](), set[object]()
        self._answered, self._stored = asyncio.Event(), asyncio.Event()
        self._tell()

    def begin(self, stream: object) -> None:
        """Its calls start; nothing of it was in flight."""
        self._calling.add(stream)
        self._answered.clear()
        self._stored.clear()

    def answered(self, stream: object) -> None:
        """All its calls are answered."""
        if stream in self._calling:
            self._calling.remove(stream)
            self._storing.add(stream)
            self._tell()

    def end(self, stream: object) -> None:
        """Nothing of it is in flight any more, or the stream has ended."""
        self._calling.discard(stream)
        self._storing.discard(stream)
        self._tell()

    async def all_answered(self, seconds: float) -> None:
        """Waits until no call is on its way, at most so long."""
        if not self._answered.is_set() and not await happens(self._answered, seconds):
            self._calling.clear()
            self._tell()

    async def all_stored(self, seconds: float) -> None:
        """Waits until nothing is in flight, at most so long."""
        if not self._stored.is_set() and not await happens(self._stored, seconds):
            self._calling.clear()
            self._storing.clear()
            self._tell()

    def _tell(self) -> None:
        if not self._calling:
            self._answered.set()
            if not self._storing:
                self._stored.set()
