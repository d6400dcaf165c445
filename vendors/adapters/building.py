"""Builds slow mails in a few threads, and keeps those whose time ran out for the next try.

Large mails take longer on a busy machine. Without the kept result each try would start over and might never finish.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from vendors.adapters.base import Attachment, Letter

Made = TypeVar("Made")

KEPT_SECONDS = 120.0
"""Amazon SES refuses a request that was signed five minutes ago."""
KEPT_MOST = 8

# Few threads, as they share the processor. Mails with files have their own, so they delay no others.
_makers, _makers_of_files = ThreadPoolExecutor(2, "mails"), ThreadPoolExecutor(2, "mails-with-files")


class _Making(NamedTuple, Generic[Made]):
    letter: Letter
    made: Future[tuple[Made, float]]  # and its finish, in time.monotonic()


class Builds(Generic[Made]):
    """Writes letters with `make`, in one event loop."""

    def __init__(self, make: Callable[[Letter], Made]) -> None:
        self._make = make
        self._kept: dict[str, _Making[Made]] = {}

    async def build_letter(self, letter: Letter, seconds: float) -> Made:
        """Return what `make` returns, or raise what it raises.

        Raises TimeoutError after `seconds`, which include the wait for a thread. A letter that no thread has begun
        leaves the queue. One being built is finished and kept for the next call for the same letter.
        """
        making = self._kept.pop(letter.reference, None)
        if making is None or not _is_usable(making, letter):
            makers = _makers_of_files if letter.attachments else _makers
            making = _Making(letter, makers.submit(self._make_timed, letter))
        try:
            async with asyncio.timeout(seconds):
                made, _ = await asyncio.wrap_future(making.made)
                return made
        except TimeoutError:
            if not making.made.cancel():
                self._keep_making(making)
            raise

    def _make_timed(self, letter: Letter) -> tuple[Made, float]:
        return self._make(letter), time.monotonic()

    def _keep_making(self, making: _Making[Made]) -> None:
        self._kept[making.letter.reference] = making
        while len(self._kept) > KEPT_MOST:
            del self._kept[next(iter(self._kept))]


def _is_usable(making: _Making[Made], letter: Letter) -> bool:
    """Return True if the mail was built from the same letter and is recent."""
    done = making.made.done() and making.made.exception() is None
    if done and time.monotonic() > making.made.result()[1] + KEPT_SECONDS:
        return False
    if making.letter._replace(attachments=()) != letter._replace(attachments=()):
        return False
    return list(map(_content_key, making.letter.attachments)) == list(map(_content_key, letter.attachments))


def _content_key(file: Attachment) -> tuple[str, str, bytes, str]:
    return file.name, file.content_type, file.content, file.cid
