"""The judge of every fault test: what our rows say, held against the books that the vendor kept itself.

The rows alone are judged by the product's own audit; only the vendor knows whether what they say is true.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from campaigns.engine import audit
from campaigns.models import Job, Resolution
from campaigns.models.states import DONE, PARENTS
from sandbox.vendor.books import ACCEPTING, BookEntry, Books

# A message without an end that is in a claim of its job's sender is in flight: its call was allowed at the claim.
ROWS = """
SELECT m.id, m.uuid::text AS uuid, m.campaign_id, coalesce(m.sent_at, open.at) AS sent_at,
    m.in_doubt_at IS NOT NULL AS in_doubt, m.message_id, m.error_code
FROM campaigns_message m LEFT JOIN (
    SELECT u.id, min(c.at) AS at FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id AND j.fence = c.fence,
        unnest(c.messages) AS u(id)
    GROUP BY 1
) open ON open.id = m.id AND m.dequeued_at IS NULL
ORDER BY m.id
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One message, as we see it."""

    id: int
    uuid: str
    campaign_id: int
    sent_at: datetime | None
    in_doubt: bool
    message_id: str | None
    error_code: str | None

    @property
    def state(self) -> str:
        if self.message_id is not None:
            return "accepted"
        if self.error_code is not None:
            return self.error_code if self.error_code in ("expired", "suppressed") else "refused"
        return "in doubt" if self.in_doubt else "in flight" if self.sent_at else "waiting"


def rows() -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(ROWS)
        return [Row(*row) for row in cursor.fetchall()]


def sums() -> Counter[str]:
    """Counts of messages by state, over all campaigns."""
    return Counter(row.state for row in rows())


def judge(
    books: Books,
    *,
    final: bool = True,
    windows: Iterable[tuple[int, float, str | None]] = (),
    all_checks: bool = False,
) -> list[str]:
    """Every broken promise as text; empty if all were kept.

    final: nothing is under way any more. windows: (units, seconds, the Authorization header or None for all calls).
    all_checks: what is stuck is asked too, by the time that a job stands still; tests set that time back.
    """
    found = rows()
    calls = _calls(books, {row.uuid for row in found})
    return [
        *_by_the_audit(all_checks),
        *_twice(found, calls),
        *(_unfinished(found) if final else ()),
        *_untrue(found, calls),
        *_charged(),
        *_too_fast(books, windows),
        *_after_the_stop(found, calls),
    ]


def _calls(books: Books, ours: set[str]) -> Mapping[str, list[BookEntry]]:
    """The calls for each message, under whatever reference."""
    found: dict[str, list[BookEntry]] = defaultdict(list)
    for entry in books.entries:
        uuid = entry.reference.rpartition("-")[0]
        if uuid in ours:
            found[uuid].append(entry)
    return found


def _accepted(calls: Mapping[str, list[BookEntry]], row: Row) -> list[BookEntry]:
    return [entry for entry in calls.get(row.uuid, ()) if entry.verdict in ACCEPTING]


def _by_the_audit(all_checks: bool) -> Iterator[str]:
    for check in audit.ask_all_questions():
        if not check.is_kept and (all_checks or check.promise != "stuck"):
            yield f"{check.promise}: not so: {check.question} ({check.breaches}: {', '.join(check.examples)})"


def _twice(found: list[Row], calls: Mapping[str, list[BookEntry]]) -> Iterator[str]:
    """P1. A second call is allowed if an operator chose to send again."""
    chosen = Counter(Resolution.objects.filter(decision="resend").values_list("message_id", flat=True))
    for row in found:
        times = len(_accepted(calls, row))
        if times > 1 + chosen[row.id]:
            yield f"P1: message {row.id} was accepted {times} times"


def _unfinished(found: list[Row]) -> Iterator[str]:
    """P2, at the end: messages wait only if their job was stopped, and none is in flight."""
    stopped = [(job.first_message, job.end) for job in Job.objects.filter(stopped_at__isnull=False)]
    for row in found:
        kept = any(first <= row.id < end for first, end in stopped)
        if row.state == "in flight" or (row.state == "waiting" and not kept):
            yield f"P2: message {row.id} is {row.state} for ever"
    for job in Job.objects.exclude(status__in=DONE).filter(stopped_at=None):
        yield f"P2: job {job.pk} is {job.status} for ever"


def _untrue(found: list[Row], calls: Mapping[str, list[BookEntry]]) -> Iterator[str]:
    """P3. What an operator settled needs no other evidence; a report may come without the vendor's id."""
    for row in found:
        ids = {entry.id for entry in _accepted(calls, row)}
        reported = {f"receipt:{entry.reference}" for entry in _accepted(calls, row)}
        by_person = (row.message_id or "").startswith("person:") or row.error_code == "person"
        if row.state == "accepted" and row.message_id not in ids | reported and not by_person:
            yield f"P3: message {row.id} is sent as {row.message_id}, the vendor has {ids or 'nothing'}"
        if row.state in ("refused", "expired", "suppressed", "waiting") and ids and not by_person:
            yield f"P3: message {row.id} is {row.state}, the vendor accepted it as {ids}"


# Each accepted message once, by the day of its call, for the sponsor and the credential of the job that it went by.
ACCOUNTS = """
SELECT day, sponsor, credential, e.messages, e.units, m.messages, m.units FROM (
    SELECT day, sponsor_id AS sponsor, credential_id AS credential, sum(messages) AS messages, sum(units) AS units
    FROM campaigns_costentry GROUP BY 1, 2, 3
) e FULL JOIN (
    SELECT (m.sent_at AT TIME ZONE 'UTC')::date AS day, j.sponsor_id AS sponsor, j.credential_id AS credential,
        count(*) AS messages, sum(coalesce(m.units, 1)) AS units
    FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id AND m.id >= j.first_message
        AND m.id < j.first_message + j.size
    WHERE m.message_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM campaigns_job k
        WHERE k.parent_id = j.id AND m.id >= k.first_message AND m.id < k.first_message + k.size)
    GROUP BY 1, 2, 3
) m USING (day, sponsor, credential) WHERE (e.messages, e.units) IS DISTINCT FROM (m.messages, m.units)
"""


def _charged() -> Iterator[str]:
    """P3. What the vendors charge is what they have accepted."""
    with connection.cursor() as cursor:
        cursor.execute(ACCOUNTS)
        for row in cursor.fetchall():
            yield "P3: accounts of {}, sponsor {}, credential {}: {} messages, {} units; accepted: {}, {}".format(*row)


def _too_fast(books: Books, windows: Iterable[tuple[int, float, str | None]]) -> Iterator[str]:
    for units, seconds, credential in windows:
        worst = books.worst_window(seconds, credential)
        if worst > units:
            yield f"P4: {worst} calls in a window of {seconds:g} s, not {units}"


def _after_the_stop(found: list[Row], calls: Mapping[str, list[BookEntry]]) -> Iterator[str]:
    """P5. A call that comes in after the stop has committed was allowed before it: its sent_at says when."""
    stops: dict[int, Any] = {}
    leaves = Job.objects.exclude(status__in=PARENTS).filter(stopped_at__isnull=False)
    for job in leaves:
        stops |= dict.fromkeys(range(job.first_message, job.end), job.stopped_at)
    for row in found:
        stop = stops.get(row.id)
        late = stop and any(entry.wall > stop.timestamp() for entry in calls.get(row.uuid, ()))
        if late and (row.sent_at is None or row.sent_at > stop):
            yield f"P5: message {row.id} was called after the stop, allowed at {row.sent_at}, stopped at {stop}"
