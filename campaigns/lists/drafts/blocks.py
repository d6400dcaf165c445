"""Files of drafts, stored in blocks: the uploaded files, and the checked rows."""

import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO

import orjson
import psycopg
from django.db import connection

from campaigns.models import DraftBlock

SIZE = 1_000_000  # bytes of a block of a file
ROWS = 1_000  # rows in a block
ADD = "INSERT INTO campaigns_draftblock (draft_id, kind, version, number, content) VALUES (%s, %s, %s, %s, %s)"
READ = "SELECT content FROM campaigns_draftblock WHERE draft_id = %s AND kind = %s AND version = %s AND number = %s"
DELETE = "DELETE FROM campaigns_draftblock WHERE draft_id = %s AND kind = ANY(%s) AND version <> %s"


class GoneAway(Exception):
    """The file has been replaced in the meantime."""


def add_blocks(draft_id: int, kind: str, version: int, contents: Iterable[bytes]) -> None:
    """Store blocks one after the other."""
    connection.ensure_connection()
    with psycopg.Cursor(connection.connection) as cursor:  # Django's cursor would write the bytes as text
        for number, content in enumerate(contents):
            cursor.execute(ADD, [draft_id, kind, version, number, content])


def blocks_of_file(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's content in blocks, from its current position."""
    while content := file.read(SIZE):
        yield content


def blocks_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[bytes]:
    """Yield checked recipients with their fields in blocks, compressed."""
    left = iter(rows)
    while some := list(islice(left, ROWS)):
        yield zlib.compress(orjson.dumps(some), 1)


def read_block(draft_id: int, kind: str, version: int, number: int) -> bytes | None:
    """Return a block, or None if there is none."""
    connection.ensure_connection()
    with psycopg.Cursor(connection.connection) as cursor:
        row = cursor.execute(READ, [draft_id, kind, version, number], binary=True).fetchone()
    return bytes(row[0]) if row else None


def yield_blocks(draft_id: int, kind: str, version: int, first: int = 0) -> Iterator[bytes]:
    """Yield the blocks in order."""
    while (content := read_block(draft_id, kind, version, first)) is not None:
        yield content
        first += 1


def spool_list(draft_id: int, version: int, size: int, alive: Callable[[], None]) -> BinaryIO:
    """Return the uploaded list as a temporary file. alive: called after each block. Raises GoneAway."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        for content in yield_blocks(draft_id, DraftBlock.LIST, version):
            file.write(content)
            alive()
        if file.tell() != size:
            raise GoneAway
    except BaseException:
        file.close()
        raise
    return file


def delete_others(draft_id: int, kinds: Iterable[str], version: int) -> None:
    """Delete the blocks of these kinds that belong to another version."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE, [draft_id, list(kinds), version])


class SpooledRows:
    """Checked recipients in a temporary file: while a campaign is stored, its connection can read nothing else."""

    def __init__(self, draft_id: int, version: int, size: int, alive: Callable[[float], None]) -> None:
        self._file, self._sizes, self._size = tempfile.TemporaryFile(), list[int](), size  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        for content in yield_blocks(draft_id, DraftBlock.ROWS, version):
            self._sizes.append(self._file.write(content))
            alive(0)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        self._file.seek(0)
        for size in self._sizes:
            yield from orjson.loads(zlib.decompress(self._file.read(size)))


class CheckedRows:
    """The checked recipients of a draft with their fields, read anew at each iteration; len() is their number."""

    def __init__(self, draft_id: int, version: int, size: int) -> None:
        self._draft, self._version, self._size = draft_id, version, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return self.since(0)

    def spool_rows(self, alive: Callable[[float], None]) -> SpooledRows:
        """Return the rows in a temporary file, for callers that need the connection. alive: called after each block."""
        return SpooledRows(self._draft, self._version, self._size, alive)

    def since(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows from this recipient on, counted from 0; earlier blocks are not read."""
        block, skipped = divmod(number, ROWS)
        for content in yield_blocks(self._draft, DraftBlock.ROWS, self._version, block):
            yield from islice(orjson.loads(zlib.decompress(content)), skipped, None)
            skipped = 0
