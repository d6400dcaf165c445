"""Campaigns of any size for the measurements, stored by one statement before the measured part."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from django.db import connection

if TYPE_CHECKING:
    from campaigns.models import Job
    from vendors.models import Credential

SUBJECT = "Your statement for March"
BODY = "Dear {{ name }}, " + "your statement is ready. " * 8
STORE = """
INSERT INTO campaigns_message (id, campaign_id, recipient, params)
SELECT n, %s, 'person' || n || '@example.org', '{"name": "Ann"}' FROM generate_series(%s, %s) n
"""

MANY = 1_000_000  # rows; from here on building an index is faster than maintaining it
INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE tablename = 'campaigns_message' AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""


@contextmanager
def indexed_afterwards(cursor: Any) -> Iterator[None]:
    """Drop the indexes while many rows are stored, then build them."""
    cursor.execute(INDEXES)
    indexes = cursor.fetchall()
    for name, _ in indexes:
        cursor.execute(f"DROP INDEX {name}")
    yield
    for _, definition in indexes:
        cursor.execute(definition)


def job(size: int, of: "Credential", status: str = "READY") -> "Job":
    """Return a job of a campaign with this many recipients; its letters are those of benchmarks.sandbox.call."""
    from tests import factories

    made = factories.campaign_with_job(size, of=of, messages=False, status=status)
    type(made.campaign).objects.filter(pk=made.campaign_id).update(subject=SUBJECT, body=BODY)
    with connection.cursor() as cursor:
        with indexed_afterwards(cursor) if size >= MANY else nullcontext():
            cursor.execute(STORE, [made.campaign_id, made.first_message, made.end - 1])
        cursor.execute("ANALYZE campaigns_message")
    return made
