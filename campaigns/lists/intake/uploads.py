"""Files that a sponsor's programs upload once and refer to by digest in their requests.

A content is stored once for all, but only an owner who has uploaded it may refer to it. Knowing the digest of somebody
else's file gives no access.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from campaigns.lists.intake.files import keep_content
from campaigns.texts.bad_input import BadInput
from vendors.said import Said

MOST_BYTES = 1_000_000_000  # of one owner's files
MOST_FILES = 10_000  # of one owner

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('campaigns_uploadedfile'), %(sponsor)s)"
SUMS = """
SELECT count(*), coalesce(sum(s.size), 0)
FROM campaigns_uploadedfile u JOIN campaigns_storedfile s ON s.sha256 = u.file_id
WHERE u.sponsor_id = %(sponsor)s AND u.test = %(test)s
"""
ADD = """
INSERT INTO campaigns_uploadedfile (sponsor_id, test, file_id) VALUES (%(sponsor)s, %(test)s, %(digest)s)
ON CONFLICT (sponsor_id, test, file_id) DO UPDATE SET asked_at = clock_timestamp() RETURNING xmax = 0
"""
# At most once an hour, so that requests with the same file do not wait for each other.
ASKED = """
UPDATE campaigns_uploadedfile SET asked_at = clock_timestamp()
WHERE sponsor_id = %(sponsor)s AND test = %(test)s AND file_id = ANY(%(digests)s)
    AND asked_at < clock_timestamp() - interval '1 hour'
"""
# Runs after ASKED, as a separate statement: the rows it finds were touched within the hour and will stay.
FOUND = """
SELECT s.sha256, s.size, u.asked_at
FROM campaigns_uploadedfile u JOIN campaigns_storedfile s ON s.sha256 = u.file_id
WHERE u.sponsor_id = %(sponsor)s AND u.test = %(test)s AND u.file_id = ANY(%(digests)s)
"""
# The content stays for another day, for requests that have just been checked.
REMOVE = """
WITH gone AS (
    DELETE FROM campaigns_uploadedfile WHERE sponsor_id = %(sponsor)s AND test = %(test)s AND file_id = %(digest)s
    RETURNING file_id
)
UPDATE campaigns_storedfile SET asked_at = clock_timestamp() WHERE sha256 IN (SELECT file_id FROM gone)
"""
UNUSED = "DELETE FROM campaigns_uploadedfile WHERE asked_at < clock_timestamp() - interval '30 days'"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of files: a sponsor, by its live keys or by its test keys."""

    sponsor_id: int
    test: bool

    @property
    def params(self) -> dict[str, Any]:
        return {"sponsor": self.sponsor_id, "test": self.test}


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An uploaded file. size: in bytes. asked_at: time of the last upload or reference, accurate to the hour."""

    digest: bytes
    size: int
    asked_at: datetime


def store_upload(of: Owner, content: bytes) -> tuple[Uploaded, bool]:
    """Store a content; return it, and True if it is new to the owner.

    Raises BadInput if the owner has too many files, and stores nothing.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_AT_A_TIME, of.params)
        digest = keep_content(content, connection.connection)
        cursor.execute(ADD, {**of.params, "digest": digest})
        [new] = cursor.fetchone()
        cursor.execute(SUMS, of.params)
        number, size = cursor.fetchone()
        if new and (number > MOST_FILES or size > MOST_BYTES):
            most = f"{MOST_FILES:,} files, and {MOST_BYTES:,} bytes of them"
            raise BadInput(
                Said(
                    "a sponsor may have %(most)s: delete some; those that nobody refers to go after 30 days",
                    most=str(most),
                )
            )
    return find_uploads(of, [digest])[digest], new


def find_uploads(of: Owner, digests: Collection[bytes]) -> dict[bytes, Uploaded]:
    """Return those of these files that the owner has uploaded; they stay for 30 more days."""
    with connection.cursor() as cursor:
        params: dict[str, Any] = {**of.params, "digests": list(digests)}
        cursor.execute(ASKED, params)
        cursor.execute(FOUND, params)
        return {bytes(digest): Uploaded(bytes(digest), size, at) for digest, size, at in cursor.fetchall()}


def remove_upload(of: Owner, digest: bytes) -> bool:
    """Delete an uploaded file and return whether there was one. Campaigns that carry it keep it."""
    with connection.cursor() as cursor:
        cursor.execute(REMOVE, {**of.params, "digest": digest})
        return bool(cursor.rowcount)


def delete_unused() -> int:
    """Delete files that have not been uploaded or referred to for 30 days; return their number."""
    with connection.cursor() as cursor:
        cursor.execute(UNUSED)
        return int(cursor.rowcount)
