"""Records the outcomes of calls. A credential's row is written at most once a second, and directly on a change.

A process keeps one `ConditionFeed` for each credential it calls. All its streams share it, so a row of bad answers is
counted across jobs.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Error as RowsError

from vendors.outcomes import InDoubt, NotSent, Outcome

EVERY = 1.0
"""Seconds between two writes of a credential by one process, unless its condition changes."""
LAST_WRITE = 2.0
"""Seconds that the end of a process waits for its last writes."""
ANSWER_MOST = 200
LATE = 5.0
"""Seconds that a call may have begun before a later one with a clear answer; a doubt about an older call is no news."""
NEVER = float("-inf")

# `good`: seconds since the last good answer of this span, NULL: there was none. Its bad answers followed it.
WRITE = """
INSERT INTO vendors_vendorcondition AS k
    (credential_id, receiver, destination, good_at, failing_since, tries, doubts, last_at, last_answer, last_cause)
SELECT %(credential)s, %(receiver)s, %(destination)s, n.now - %(good)s::float8 * interval '1 second',
    n.now - %(failing)s::float8 * interval '1 second', %(tries)s, %(doubts)s,
    n.now - %(last)s::float8 * interval '1 second', %(answer)s, %(cause)s
FROM (SELECT clock_timestamp() AS now) n
ON CONFLICT (credential_id, receiver) DO UPDATE SET destination = excluded.destination,
    good_at = CASE WHEN k.destination = excluded.destination THEN greatest(k.good_at, excluded.good_at)
        ELSE excluded.good_at END,
    failing_since = CASE WHEN excluded.failing_since IS NULL THEN NULL
        WHEN excluded.good_at IS NULL AND k.destination = excluded.destination
        THEN coalesce(k.failing_since, excluded.failing_since) ELSE excluded.failing_since END,
    tries = excluded.tries + CASE WHEN excluded.good_at IS NULL AND k.destination = excluded.destination
        THEN k.tries ELSE 0 END,
    doubts = excluded.doubts + CASE WHEN excluded.good_at IS NULL AND k.destination = excluded.destination
        THEN k.doubts ELSE 0 END,
    last_at = coalesce(excluded.last_at, k.last_at),
    last_answer = CASE WHEN excluded.last_at IS NULL THEN k.last_answer ELSE excluded.last_answer END,
    last_cause = CASE WHEN excluded.last_at IS NULL THEN k.last_cause ELSE excluded.last_cause END
WHERE k.destination <= excluded.destination
RETURNING k.doubts
"""


def is_clear(outcome: Outcome | None) -> bool | None:
    """Return True for an answer that ends a row of doubts, False for a doubt, None if there was no answer at all.

    Four outcomes raise no doubt: the vendor has the message and reports later; the answer pauses the credential; no
    connection came about; the mail waits because its round broke off before it.
    """
    if isinstance(outcome, InDoubt):
        return outcome.pause or outcome.wait > 0
    if isinstance(outcome, NotSent):
        asks_to_wait = outcome.retry_after is not None and (outcome.retry_after > 0 or outcome.scope != "message")
        return True if outcome.pause or asks_to_wait else None
    return True


def is_good_answer(outcome: Outcome | None) -> bool | None:
    """Return True for an answer that shows a working vendor, False for the contrary, None for a request to wait."""
    if isinstance(outcome, NotSent) and outcome.asks_to_wait:
        return None
    return not isinstance(outcome, InDoubt | NotSent) or (isinstance(outcome, InDoubt) and outcome.wait > 0)


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """Answers not yet written. Times are seconds of time.monotonic. The bad answers followed the good one."""

    good_at: float | None = None
    failing_since: float | None = None
    last_at: float | None = None
    tries: int = 0
    doubts: int = 0
    answer: str = ""
    cause: str = ""

    def followed_by(self, later: "AnswerSpan") -> "AnswerSpan":
        """Return this span and a later one as one."""
        if later.good_at is not None or later.last_at is None:
            return replace(later, good_at=later.good_at or self.good_at)
        return replace(
            later, good_at=self.good_at, failing_since=self.failing_since or later.failing_since,
            tries=self.tries + later.tries, doubts=self.doubts + later.doubts,
        )  # fmt: skip


class ConditionFeed:
    """The answers of one credential in this process. `receiver`: a receiving domain, if not the whole credential.

    For the brake, in seconds of time.monotonic: `clear_at`: time of the last clear answer; `doubt_at`: end of the last
    call in doubt.
    """

    def __init__(self, credential_id: int, destination: int, receiver: str, wake: Callable[[], None]) -> None:
        self.credential_id, self.destination, self.receiver, self._wake = credential_id, destination, receiver, wake
        self._span = AnswerSpan()
        self._written_at = NEVER
        self.clear_at = self.doubt_at = NEVER
        self._clear_began = NEVER
        self._doubts = 0  # calls in doubt since the last clear answer, in this process
        self._doubts_of_all = 0  # in all processes, as last written
        self._was_good: bool | None = None  # as last written by this process

    def note_outcome(self, outcome: Outcome | None, good: bool | None, text: str = "") -> None:
        """Count a call's outcome. `good`: Adapter.is_good; `text`: a bad answer without its recipient."""
        now, span = time.monotonic(), self._span
        if good:
            if self._was_good and span.last_at is None:  # the usual case costs nothing
                if span.good_at is None:
                    self._span = AnswerSpan(good_at=now)
                    self._wake()
                return
            self._span = AnswerSpan(good_at=now)
        elif good is False:
            doubt = is_clear(outcome) is False
            cause = str(getattr(outcome, "cause", ""))
            bad = AnswerSpan(None, now, now, 1, int(doubt), text[:ANSWER_MOST], cause)
            self._span = span.followed_by(bad)
        else:
            return
        self._wake()

    def note_call(self, outcomes: Sequence[Outcome], began: float) -> None:
        """Count a call for the brake. `began`: seconds of time.monotonic."""
        clear = [is_clear(outcome) for outcome in outcomes]
        if True in clear:
            self.clear_at = time.monotonic()
            self._clear_began = max(self._clear_began, began)
            self._doubts = self._doubts_of_all = 0
        elif False in clear and began + LATE >= self._clear_began:
            self.doubt_at = time.monotonic()
            self._doubts += 1

    @property
    def doubts_running(self) -> int:
        """Calls in a row in doubt. A process without any clear answer yet counts those of the others, too."""
        return self._doubts if self._clear_began > NEVER else max(self._doubts, self._doubts_of_all)

    def note_release(self, at: float) -> None:
        """Begin counting afresh if the brake was released since the last doubt. `at`: seconds of time.monotonic."""
        self._clear_began = max(self._clear_began, at)
        if at > self.doubt_at:
            self._doubts = self._doubts_of_all = 0

    @property
    def is_unwritten(self) -> bool:
        return self._span.good_at is not None or self._span.last_at is not None

    def due_in(self) -> float:
        """Return the seconds until it is to be written; 0 at a change."""
        is_good = self._span.failing_since is None
        return 0.0 if is_good != self._was_good else max(0.0, self._written_at + EVERY - time.monotonic())

    async def write_notes(self, rows: Any) -> None:
        """Write the notes since the last write. After a database error the next write includes them."""
        if not self.is_unwritten:
            return
        span, self._span = self._span, AnswerSpan()
        self._written_at = now = time.monotonic()
        times = {"good": span.good_at, "failing": span.failing_since, "last": span.last_at}
        params: dict[str, Any] = {name: None if at is None else now - at for name, at in times.items()}
        params |= {
            "credential": self.credential_id, "receiver": self.receiver, "destination": self.destination,
            "tries": span.tries, "doubts": span.doubts, "answer": storable_text(span.answer), "cause": span.cause,
        }  # fmt: skip
        self._was_good = span.failing_since is None
        try:
            row = await (await rows.execute(WRITE, params)).fetchone()
            self._doubts_of_all = row[0] if row else 0
        except BaseException:
            self._span = span.followed_by(self._span) if self.is_unwritten else span
            self._was_good = None
            raise


class ConditionFeeds:
    """The feeds of an event loop. `rows` executes statements like a connection."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._feeds: dict[tuple[int, str], ConditionFeed] = {}
        self._changed: asyncio.Event | None = None
        self._writing: asyncio.Task[None] | None = None
        self._one_write = asyncio.Lock()

    def feed_of(self, credential_id: int, destination: int, receiver: str = "") -> ConditionFeed:
        """Return the feed of a credential at its present destination (vendors/destinations.py)."""
        key = credential_id, receiver
        feed = self._feeds.get(key)
        if feed is None or feed.destination < destination:
            feed = self._feeds[key] = ConditionFeed(credential_id, destination, receiver, self._wake_writer)
        return feed

    async def close(self) -> None:
        """Write everything now, for LAST_WRITE seconds at most, and end the task that writes.

        Drops notes that the database refuses or is too slow for: the next answer tells the same.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WRITE):
                await self._write_feeds(list(self._feeds.values()))
        if self._writing is not None:  # it must not use a connection that nobody closes after this
            self._writing.cancel()
            await asyncio.wait([self._writing])
            self._writing = None

    def _wake_writer(self) -> None:
        if self._writing is None:
            self._changed = asyncio.Event()
            self._writing = asyncio.create_task(self._write_due())
        elif self._changed is not None:
            self._changed.set()

    async def _write_due(self) -> None:
        assert self._changed is not None
        while unwritten := [feed for feed in self._feeds.values() if feed.is_unwritten]:
            self._changed.clear()
            if due := [feed for feed in unwritten if not feed.due_in()]:
                failed = await self._write_feeds(due)
                if failed:
                    await asyncio.sleep(EVERY)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(feed.due_in() for feed in unwritten)):
                        await self._changed.wait()
        self._writing = None

    async def _write_feeds(self, feeds: Sequence[ConditionFeed]) -> bool:
        """Return True if the database refused one of them."""
        failed = False
        async with self._one_write:
            for feed in feeds:
                try:
                    await feed.write_notes(self._rows)
                except RowsError:
                    failed = True
        return failed


def storable_text(text: str) -> str:
    """Return the text as a column can store it."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
