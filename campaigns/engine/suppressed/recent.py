"""A sending process's memory of suppressions newer than its jobs' imports.

The import has checked all older ones, so these are few. Each claim returns the position of its channel's last change; a
process reads new suppressions only if that exceeds its own position, once for all its streams. For a job older than the
memory, each claim checks the table with a statement.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from campaigns.engine.suppressed import HOLDS_ASKED
from campaigns.engine.suppressed.digests import digest_addresses, key_from_secret
from campaigns.models import Suppression, SuppressionKey

MOST = 100_000  # suppressions kept by a process
UNSUBSCRIBED = Suppression.Reason.UNSUBSCRIBED.value

READ = """
SELECT digest, id, position, sponsor_id, topic_id, reason,
    CASE WHEN until <= clock_timestamp() THEN to_timestamp(0) ELSE until END  -- ended by the database's clock
FROM campaigns_suppression
WHERE position > %(after)s AND position <= coalesce(%(upto)s::bigint, position) ORDER BY position LIMIT %(most)s
"""
SECRET: Any = SuppressionKey._meta.get_field("secret")
ASK = f"""
SELECT DISTINCT ON (s.digest) s.digest, s.reason FROM campaigns_suppression s
WHERE s.digest = ANY(%(digests)s::bigint[]) AND {HOLDS_ASKED} ORDER BY s.digest, s.reason
"""


@dataclass(frozen=True, slots=True)
class SuppressedRecipient:
    """The outcome of a message not called because its recipient is suppressed."""

    reason: str


class KeptSuppression(NamedTuple):
    """A suppression in memory. sponsor_id: None is all sponsors. topic_id: None is everything the sponsor sends."""

    position: int
    sponsor_id: int | None
    topic_id: int | None
    reason: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Asker:
    """The facts of a job that decide which suppressions hold. asked: the position up to which the import checked."""

    sponsor_id: int
    channel: str
    asked: int
    topic_id: int | None = None
    transactional: bool = False

    def is_suppressed_by(self, kept: KeptSuppression, now: datetime) -> bool:
        """Return True if a suppression holds for the job's messages, as HOLDS says."""
        return (
            kept.position > self.asked
            and kept.sponsor_id in (None, self.sponsor_id)
            and (kept.until is None or kept.until > now)
            and (kept.reason != UNSUBSCRIBED or (not self.transactional and kept.topic_id in (None, self.topic_id)))
        )


class RecentSuppressions:
    """The suppressions with a position in (after, upto], by digest and id."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, KeptSuppression]] = {}
        self._count = 0
        self._after: int | None = None
        self._upto = 0
        self._too_many = -1  # jobs that have checked up to here or less would need too many in memory
        self._key = b""
        self._lock = asyncio.Lock()

    async def find_reasons(self, rows: Any, job: Asker, upto: int, recipients: Iterable[str]) -> dict[int, str]:
        """Return reasons by index for the recipients suppressed since the job's import.

        upto: the position of the last change that the claim saw. Raises the database's errors.
        """
        if upto <= job.asked:
            return {}
        async with self._lock:
            known = await self._read_missing(rows, job.asked, upto)
        if known and not self._kept:
            return {}
        found = digest_addresses(self._key, job.channel, recipients)
        if not known:
            of = {"sponsor": job.sponsor_id, "topic": job.topic_id, "transactional": job.transactional}
            asked = await rows.execute(ASK, {"digests": found, **of})
            reasons = dict(await asked.fetchall())
        else:
            now = datetime.now(UTC)
            reasons = {one: reason for one in found if (reason := self._reason_for(one, job, now))}
        return {number: reasons[one] for number, one in enumerate(found) if one in reasons}

    def _reason_for(self, digest: int, job: Asker, now: datetime) -> str:
        return next((one.reason for one in self._kept.get(digest, {}).values() if job.is_suppressed_by(one, now)), "")

    async def _read_missing(self, rows: Any, asked: int, upto: int) -> bool:
        """Read the missing ones up to `upto`; return True if everything newer than `asked` is in memory."""
        if not self._key:
            [(token,)] = await (await rows.execute("SELECT secret FROM campaigns_suppressionkey")).fetchall()
            self._key = key_from_secret(SECRET.from_db_value(token, None, None))
        if self._after is None:
            self._after = self._upto = asked
        older = asked < self._after and asked > self._too_many
        if older and await self._keep_rows(rows, asked, self._after) is not None:
            self._after = asked
        elif older:
            self._too_many = asked
        # Read to the end after the older ones: a change moves a suppression to the end, and neither read may miss it.
        if older or upto > self._upto:
            last = await self._keep_rows(rows, self._upto)
            if last is None:
                self._kept, self._count, self._after, self._too_many = {}, 0, upto, upto - 1
            self._upto = max(upto, last or 0)
        return asked >= self._after

    async def _keep_rows(self, rows: Any, after: int, upto: int | None = None) -> int | None:
        """Read suppressions into memory and return the last position. None: too many; nothing has changed."""
        most = MOST - self._count
        answer = await rows.execute(READ, {"after": after, "upto": upto, "most": most + 1})
        found = await answer.fetchall()
        if len(found) > most:
            return None
        for digest, id, *values in found:
            of_digest = self._kept.setdefault(digest, {})
            row = KeptSuppression(*values)
            if id not in of_digest or of_digest[id].position < row.position:
                of_digest[id] = row
        self._count += len(found)
        positions: list[int] = [row[2] for row in found]
        return max([after, *positions])
