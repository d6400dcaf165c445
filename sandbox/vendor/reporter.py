"""Delivery reports of the sandbox vendor, in its wire's form, posted until they are answered 2xx.

Waiting reports are kept only in memory; a killed vendor never sends them.
"""

import asyncio
import http.client
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from urllib.parse import urlsplit

from sandbox.vendor.books import BookEntry
from sandbox.vendor.plans import COMPLAINS, MAGIC, RETURNED, magic_word
from sandbox.vendor.settings import Settings
from sandbox.vendor.wires.base import Asked, Fate, FateKind, PostedReport, VendorWire

PATIENCE = 10.0  # seconds for an answer
AGAIN = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between the tries of one report; the last repeats for ever

log = logging.getLogger(__name__)


class Reporter:
    """Reports accepted letters. `settings` and `wire` return those in force."""

    def __init__(self, settings: Callable[[], Settings], wire: Callable[[], VendorWire]) -> None:
        self._settings, self._wire = settings, wire
        self._waiting: deque[tuple[float, Fate]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._connected_to = ""
        self.heard: Counter[str] = Counter()
        """Letters by what was reported of them, and heard."""

    def accepted(self, entry: BookEntry, asked: Asked) -> None:
        """Report this letter later, if `receipts_to` is set or the letter itself says where."""
        settings = self._settings()
        if not (settings.receipts_to or asked.report_to):
            return
        at = time.monotonic() + settings.receipts_after
        kinds = self._kinds(asked.word or magic_word(entry.recipient))
        self._waiting.extend((at, Fate(entry, kind, asked.report_to)) for kind in kinds)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._report())

    def _kinds(self, word: str) -> tuple[FateKind, ...]:
        if word == COMPLAINS:
            return "delivered", "complained"
        unknown = word == RETURNED or (word in MAGIC and not MAGIC[word].accepts and not self._wire().looks)
        return ("bounced",) if unknown or random.random() < self._settings().bounce_rate else ("delivered",)

    async def _report(self) -> None:
        while self._waiting:
            await asyncio.sleep(max(0.0, self._waiting[0][0] - time.monotonic()))
            now, wire, settings = time.monotonic(), self._wire(), self._settings()
            fates: list[Fate] = []
            while self._waiting and self._waiting[0][0] <= now and len(fates) < wire.together:
                fates.append(self._waiting.popleft()[1])
            if fates and (settings.receipts_to or fates[0].report_to):
                report = wire.reports(fates, settings.receipts_to, settings.receipts_secret)
                if await self._until_heard(report, settings):
                    self.heard.update(fate.kind for fate in fates)

    async def _until_heard(self, report: PostedReport, began: Settings) -> bool:
        """Post a report until it is accepted. Returns False if the settings redirect reports meanwhile."""
        tries = 0
        while self._settings().receipts_to == began.receipts_to:
            answer = await asyncio.to_thread(self._post, report)
            if answer in (200, 202):
                return True
            log.warning("the report is not accepted: %s", answer)
            await asyncio.sleep(AGAIN[min(tries, len(AGAIN) - 1)])
            tries += 1
        return False

    def _post(self, report: PostedReport) -> int | str:
        """Return the answer's status, or the error if there was none. One connection is used while it is open."""
        address = urlsplit(report.url)
        if self._connection is None or address.netloc != self._connected_to:
            self._connection = http.client.HTTPConnection(address.netloc, timeout=PATIENCE)
            self._connected_to = address.netloc
        try:
            target = address.path + (f"?{address.query}" if address.query else "")
            self._connection.request("POST", target, report.body, dict(report.headers))
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return str(error) or type(error).__name__
        return answer.status
