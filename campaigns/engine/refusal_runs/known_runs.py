"""The knowledge of one sender process about runs of equal refusals, and the parts of a statement that extend them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns.engine.refusal_runs.run_rows import RunKey, SeenRun, statements_of
from vendors.outcomes import Accepted, Refused


@dataclass(frozen=True, slots=True)
class RunPart:
    """Equal refusals at the end of a batch of answers. anew: an acceptance or other words came before them."""

    key: RunKey
    refusal: Refused
    messages: list[int]
    anew: bool

    async def note(self, rows: AsyncConnection[TupleRow], code: str, sub_type: str) -> bool:
        """Extend the run, or begin it. code, sub_type: as stored. Returns True if the run is full."""
        params = {**self.key.params, "code": code, "sub_type": sub_type, "messages": self.messages}
        cursor = await rows.execute(
            statements_of(self.key).note, {**params, "anew": self.anew, "most": settings.EQUAL_REFUSALS}
        )
        row = await cursor.fetchone()
        return bool(row and row[0])


class KnownRuns:
    """The knowledge of one sender process about runs: its acceptances, and the runs filled by it."""

    def __init__(self) -> None:  # in seconds of time.monotonic
        self._accepted: dict[RunKey, float] = {}
        self._noted: dict[RunKey, float] = {}
        self._filled: dict[RunKey, float] = {}

    def read_part(self, key: RunKey, answers: Iterable[tuple[int, Any]]) -> RunPart | None:
        """Return the run of equal refusals that ends a batch of answers, or None. answers: (message, outcome)."""
        last: Refused | None = None
        messages: list[int] = []
        accepted = anew = False
        for message_id, outcome in answers:
            if isinstance(outcome, Accepted):
                accepted = True
                if last is not None:
                    last, messages = None, []
            elif isinstance(outcome, Refused) and outcome.may_be_ours:
                if outcome != last:
                    messages, anew = [], anew or last is not None
                last = outcome
                messages.append(message_id)
        if accepted:
            self._accepted[key] = time.monotonic()
        if last is None or not settings.EQUAL_REFUSALS:
            return None
        anew = anew or self._accepted.get(key, 0.0) > self._noted.get(key, 0.0)
        return RunPart(key, last, messages, anew)

    def part_noted(self, part: RunPart, is_full: bool) -> None:
        """Remember that the part is committed."""
        self._noted[part.key] = time.monotonic()
        if is_full:
            self._filled[part.key] = time.monotonic()

    def holds_claims(self, key: RunKey, seen: SeenRun | None, asked: float) -> bool:
        """Return True if the run is full, by the row as read at `asked` or by notes since."""
        return self._filled.get(key, 0.0) > asked or (seen is not None and seen.is_full)

    def has_contradiction(self, key: RunKey, since: float) -> bool:
        """Return whether this process has stored an acceptance since then (seconds of time.monotonic)."""
        return self._accepted.get(key, 0.0) > since
