"""All statements on parked tasks, one function each (document 004).

Under these rules a task runs once, no matter which process is killed at which moment:
- A sweep claims a row under a lease, publishes it with the claim as the publication's mark, then deletes the row.
- A claim whose lease has expired may or may not have been published. It is published again under a new mark, and the
  row is kept: the publication received first wins it, and every other one is dropped. A message that the broker
  delivers twice carries one mark and runs again, as Celery runs every unacknowledged message again.
- A revoke is a row, too. A task with a time of its own checks it at its start, because workers forget revokes.
- A cancelled row whose message may be in the broker is kept, received by NOBODY, so that no publication runs.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, models, transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce, Least
from django.utils import timezone

from waiter.models import ParkedTask, Revocation

LEASE = timedelta(minutes=1)  # for publishing one batch
KEEP = timedelta(days=30)  # a task that waits longer than this in a queue without workers runs again, even if revoked
NOBODY = UUID(int=0)


def now() -> datetime:
    return timezone.now()


def park(**row: Any) -> None:
    """Store a message; the fields are ParkedTask's."""
    ParkedTask.objects.create(**row)


def park_outside_transaction(**row: Any) -> None:
    """Store a message on another connection, so that a rollback of the caller's transaction keeps the row."""

    def on_own_connection() -> None:
        try:
            park(**row)
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(on_own_connection).result()


CLAIM = """
WITH ripe AS (
    SELECT id FROM waiter_parkedtask
    WHERE done_at IS NULL AND due_at <= %(until)s AND (due_at, id) > (%(due)s, %(after)s)
        AND (claimed_until IS NULL OR claimed_until < %(at)s OR claimed_until > %(longest)s)
        AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s))
    ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE waiter_parkedtask p SET claim = %(mark)s, claimed_until = %(lease)s, publications = p.publications + 1
FROM ripe WHERE p.id = ripe.id RETURNING p.*
"""


def claim(
    until: datetime, at: datetime, limit: int, ids: Collection[int] | None = None, after: ParkedTask | None = None
) -> list[ParkedTask]:
    """Claim up to `limit` rows due by `until`, oldest first, for the caller to publish within the lease.

    after: the last row that the same sweep has claimed; the scan continues behind it.
    """
    params = {
        "until": until,
        "due": after.due_at if after else datetime.min.replace(tzinfo=UTC),
        "after": after.pk if after else 0,
        "at": at,
        "ids": None if ids is None else list(ids),
        "limit": limit,
        "mark": uuid4(),
        "lease": at + LEASE,
        "longest": at + 2 * LEASE,  # a lease further ahead comes from a wrong clock
    }
    rows = ParkedTask.objects.raw(CLAIM, params)
    return sorted(rows, key=lambda row: (row.due_at, row.pk))


def published(rows: Sequence[ParkedTask], at: datetime) -> None:
    """Delete these published rows, but keep those with a possible second publication."""
    only = Q(received=None) | Q(received=F("claim"))
    _claimed(rows).filter(only, publications=1).delete()
    _of(rows).update(done_at=Coalesce("done_at", Value(at)))


def give_back(rows: Sequence[ParkedTask]) -> None:
    """Release the claim of rows whose publication was not tried."""
    _claimed(rows).update(claim=None, claimed_until=None, publications=F("publications") - 1)


def receive(id: int, mark: UUID, at: datetime) -> bool:
    """Return True if the publication with this mark may run: no other one of the row has been received."""
    ParkedTask.objects.filter(pk=id, received=None).update(received=mark, done_at=Coalesce("done_at", Value(at)))
    return not ParkedTask.objects.filter(pk=id).exclude(received=mark).exists()


def cancel(ids: Collection[int], at: datetime) -> list[ParkedTask]:
    """Cancel these rows. Returns those that will not run; the others had been received or deleted before."""
    with transaction.atomic():
        rows = list(ParkedTask.waiting.select_for_update().filter(pk__in=ids))
        _of(rows).filter(publications=0).delete()
        _of(rows).update(received=NOBODY, done_at=at)
    return rows


def named(task_ids: Collection[str]) -> list[int]:
    """Return the ids of waiting rows with these task ids."""
    return list(ParkedTask.waiting.filter(task_id__in=task_ids).values_list("pk", flat=True))


def bring_forward(ids: Collection[int], at: datetime) -> None:
    """Make these rows due at that time, unless they are due earlier."""
    ParkedTask.waiting.filter(pk__in=ids).update(due_at=Least("due_at", Value(at)))


def revoke(names: Collection[tuple[str, str]], at: datetime) -> None:
    """Store revokes, each a name and value of a Revocation. A known one is kept for longer."""
    rows = [Revocation(name=name, value=value, revoked_at=at) for name, value in sorted(set(names))]
    unique, changed = ["name", "value"], ["revoked_at"]
    Revocation.objects.bulk_create(rows, 1000, update_conflicts=True, unique_fields=unique, update_fields=changed)


def is_revoked(names: Collection[tuple[str, str]]) -> bool:
    """Return True if one of these names with its value was revoked."""
    any_of = Q()
    for name, value in names:
        any_of |= Q(name=name, value=value)
    return Revocation.objects.filter(any_of).exists()


def stamped() -> Iterator[tuple[int, str]]:
    """Yield the ids and messages of waiting rows that may have stamped headers."""
    rows = ParkedTask.waiting.filter(message__contains='"stamped_headers"').order_by()
    yield from rows.values_list("pk", "message").iterator(chunk_size=1000)


def forget(at: datetime) -> int:
    """Delete revokes, and rows kept against duplicates, after KEEP; returns the number of those rows."""
    Revocation.objects.filter(revoked_at__lt=at - KEEP).delete()
    return ParkedTask.objects.filter(done_at__lt=at - KEEP).delete()[0]


def _of(rows: Sequence[ParkedTask]) -> models.QuerySet[ParkedTask]:
    return ParkedTask.objects.filter(pk__in=[row.pk for row in rows])


def _claimed(rows: Sequence[ParkedTask]) -> models.QuerySet[ParkedTask]:
    """Select those of the rows that nobody has claimed since."""
    return _of(rows).filter(claim__in={row.claim for row in rows})
