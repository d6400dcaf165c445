"""Delivery reports of the sandbox vendor: batches of receipts, signed, and posted again until they are answered 202.

Receipts that wait are only in memory: a vendor that is killed never reports them.
"""

import asyncio
import http.client
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
from standardwebhooks import Webhook as Signer

from sandbox.vendor.books import BookEntry
from sandbox.vendor.plans import magic_word
from sandbox.vendor.settings import Settings

MOST = 500  # receipts in a report
PATIENCE = 10.0  # seconds for an answer
AGAIN = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between the tries of one report; the last for ever
RETURNED = "returned"  # returned@sandbox.example is accepted and comes back

log = logging.getLogger(__name__)


class Reporter:
    """Reports accepted letters. settings: returns the settings in force."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._waiting: deque[tuple[float, BookEntry]] = deque()
        self._task: asyncio.Task[None] | None = None

    def accepted(self, entry: BookEntry) -> None:
        """Report this letter later, if `receipts_to` is set."""
        if not self._settings().receipts_to:
            return
        self._waiting.append((time.monotonic() + self._settings().receipts_after, entry))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        while self._waiting:
            await asyncio.sleep(max(0.0, self._waiting[0][0] - time.monotonic()))
            now = time.monotonic()
            batch: list[dict[str, Any]] = []
            while self._waiting and self._waiting[0][0] <= now and len(batch) < MOST:
                batch.append(self._receipt(self._waiting.popleft()[1]))
            if batch:
                await self._until_heard(orjson.dumps({"receipts": batch}).decode())

    def _receipt(self, entry: BookEntry) -> dict[str, Any]:
        facts = {"reference": entry.reference, "at": datetime.now(UTC).isoformat(), "id": entry.id}
        came_back = magic_word(entry.recipient) == RETURNED or random.random() < self._settings().bounce_rate
        if came_back:
            return {**facts, "status": "bounced", "reason": "mailbox unknown"}
        return {**facts, "status": "delivered"}

    async def _until_heard(self, body: str) -> None:
        name, tries = f"msg_{uuid4().hex}", 0
        while self._settings().receipts_to:
            answer = await asyncio.to_thread(_post, self._settings(), name, body)
            if answer == 202:
                return
            log.warning("the report is not accepted: %s", answer)
            await asyncio.sleep(AGAIN[min(tries, len(AGAIN) - 1)])
            tries += 1


def _post(settings: Settings, name: str, body: str) -> int | str:
    """The status of the answer, or the error if there was none."""
    moment = datetime.now(UTC)
    headers = {
        "Content-Type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Signer(settings.receipts_secret).sign(name, moment, body),
    }
    address = urlsplit(settings.receipts_to)
    connection = http.client.HTTPConnection(address.netloc, timeout=PATIENCE)
    try:
        connection.request("POST", address.path, body.encode(), headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
