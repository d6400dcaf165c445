"""Ends stored messages to suppressed recipients, and frees those whose suppression was lifted, set by set."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from django.db import connection

from campaigns.engine.suppressed import HOLDS_ASKED, asking_params
from campaigns.engine.suppressed.digests import digest_addresses, digest_key
from campaigns.models import Campaign, Job
from campaigns.suppression.refused import REFUSED_SO

AT_ONCE = 20_000  # messages

NEWEST = "SELECT coalesce(max(position), 0) FROM campaigns_suppression"
ANY = f"SELECT EXISTS (SELECT FROM campaigns_suppression s WHERE {HOLDS_ASKED})"
FOUND = f"""unnest(%(ids)s::bigint[], %(digests)s::bigint[]) AS a(id, digest)
    CROSS JOIN LATERAL (SELECT min(s.reason) AS reason FROM campaigns_suppression s
        WHERE s.digest = a.digest AND {HOLDS_ASKED}) s"""
COUNT = f"""SELECT count(*) FROM unnest(%(digests)s::bigint[]) AS a(digest)
    WHERE EXISTS (SELECT FROM campaigns_suppression s WHERE s.digest = a.digest AND {HOLDS_ASKED})"""
# Begins with the suppressions: a planner that began with the messages would look up each of them.
END = f"""
WITH found AS MATERIALIZED (
    SELECT a.id, s.reason FROM unnest(%(ids)s::bigint[], %(digests)s::bigint[]) AS a(id, digest)
        JOIN campaigns_suppression s ON s.digest = a.digest AND {HOLDS_ASKED}
)
UPDATE campaigns_message m SET dequeued_at = clock_timestamp(), error_code = 'suppressed', error_sub_type = f.reason,
    cause = 'recipient'
FROM found f WHERE m.id = ANY(ARRAY[f.id]) AND m.dequeued_at IS NULL
"""
# A message refused as unknown or by a STOP is freed if a later suppression of its recipient was lifted.
FREE = f"""
UPDATE campaigns_message m SET resend_no = m.resend_no + (m.sent_at IS NOT NULL)::int, dequeued_at = NULL,
    sent_at = NULL, delivered_at = NULL, error_code = NULL, error_sub_type = NULL, cause = NULL, put_off_at = NULL,
    call_after = NULL
FROM {FOUND} WHERE s.reason IS NULL AND m.id = ANY(ARRAY[a.id]) AND (m.error_code = 'suppressed' OR {REFUSED_SO}
    AND EXISTS (SELECT FROM campaigns_suppression l WHERE l.digest = a.digest AND l.until > m.delivered_at
        AND l.reason IN ('bounced', 'stop') AND (l.sponsor_id IS NULL OR l.sponsor_id = %(sponsor)s)))
"""
WAITING = """SELECT id, recipient FROM campaigns_message WHERE id >= %(low)s AND id < %(high)s
    AND dequeued_at IS NULL"""
KEPT_BACK = f"""SELECT m.id, m.recipient FROM campaigns_message m WHERE m.id >= %(low)s AND m.id < %(high)s
    AND (m.error_code = 'suppressed' OR {REFUSED_SO})"""


def end_suppressed(job: Job) -> int:
    """End a newly stored job's messages to suppressed recipients; return their number.

    The job counts them and remembers the highest `position` checked; claims check newer suppressions.
    """
    secret = digest_key()
    if secret is None:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(NEWEST)
        job.suppressions = cursor.fetchone()[0]
        cursor.execute(ANY, asking_params(job.campaign))
        if cursor.fetchone()[0]:
            job.suppressed = _compare_slices(cursor, WAITING, END, job, range(job.first_message, job.end), secret)
    job.save(update_fields=["suppressions", "suppressed"])
    return job.suppressed


def count_suppressed(campaign: Campaign, channel: str, recipients: Iterable[str]) -> int:
    """Count the recipients who are suppressed for a campaign, which may be unsaved."""
    secret = digest_key()
    if secret is None:
        return 0
    found, asked = 0, iter(recipients)
    with connection.cursor() as cursor:
        cursor.execute(ANY, asking_params(campaign))
        if cursor.fetchone()[0]:
            while some := list(islice(asked, AT_ONCE)):
                cursor.execute(
                    COUNT,
                    {
                        "digests": _array_literal(sorted(digest_addresses(secret, channel, some))),
                        **asking_params(campaign),
                    },
                )
                found += cursor.fetchone()[0]
    return found


def free_lifted(job: Job, leaves: list[Job]) -> None:
    """Requeue messages whose suppressions were lifted or have expired: those of the job's leaves and of its uncut rest.

    Afterwards the job's remaining_suppressed matches its row; the caller must recount the leaves.
    """
    secret = digest_key()
    if secret is None:
        return
    with connection.cursor() as cursor:
        for leaf in leaves:
            if leaf.suppressed or leaf.refused:
                _compare_slices(cursor, KEPT_BACK, FREE, leaf, range(leaf.first_message, leaf.end), secret)
        if job.remaining_suppressed:
            uncut = range(job.end - job.remaining, job.end)
            job.remaining_suppressed -= _compare_slices(cursor, KEPT_BACK, FREE, job, uncut, secret)
            job.save(update_fields=["remaining_suppressed"])


def _compare_slices(cursor: Any, read: str, write: str, job: Job, messages: range, secret: bytes) -> int:
    changed = 0
    for low, high in _message_slices(messages):
        cursor.execute(read, {"low": low, "high": high})
        rows = cursor.fetchall()
        if rows:
            found = digest_addresses(secret, job.vendor.channel, [recipient for _, recipient in rows])
            # Sorted like the index, so that a look-up finds the page of the last one in memory.
            in_order = sorted(zip(found, [id for id, _ in rows], strict=True))
            arrays = {
                "digests": _array_literal([digest for digest, _ in in_order]),
                "ids": _array_literal([id for _, id in in_order]),
            }
            cursor.execute(write, {**arrays, **asking_params(job.campaign)})
            changed += cursor.rowcount
    return changed


def _array_literal(numbers: list[int]) -> str:
    """Return a PostgreSQL array literal, which is ten times faster than adapting a list."""
    return f"{{{','.join(map(str, numbers))}}}"


def _message_slices(messages: range) -> Iterator[tuple[int, int]]:
    for low in range(messages.start, messages.stop, AT_ONCE):
        yield low, min(low + AT_ONCE, messages.stop)
