"""Admission of request bodies: who may send one, how large, and how many in parallel. Decided before any of it is read.

Bodies up to LITTLE are read for everybody, in memory. Larger ones go to unnamed files, which vanish if the process is
killed. The owner is looked up once, in a thread (`judge` of the door). The body's bytes are reserved until it is
answered: within the owner's share, the total, and the disk.
"""

import asyncio
import logging
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.db import close_old_connections

from campaigns.doors.front.problems import STORES, Problem, unavailable_problem
from vendors import alarms

log = logging.getLogger(__name__)

LITTLE = 65_536  # bytes of a body kept in memory
STRANGERS_BODY = 1_000_000  # bytes of a body whose owner is unknown
SHARES = 8  # no owner gets more than this fraction of the spool
JUDGES = 2  # threads that look owners up
JUDGED_MOST = 200  # requests that may wait for a look-up
STRANGERS = "strangers"
BUSY = 5  # seconds after which a client should ask again

WsgiEnviron = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BodyVerdict:
    """The decision on a body. `most`: its bytes. `owners`: whose share it takes, such as "user 7" and "sponsor 3"."""

    most: int
    owners: tuple[str, ...] = (STRANGERS,)


Judge = Callable[[str, WsgiEnviron], BodyVerdict]


class Spool:
    """The bytes of bodies that a process is reading or answering, by owner. Used in one event loop."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self._all = 0

    @contextmanager
    def reserve_bytes(self, owners: tuple[str, ...], size: int, largest: int) -> Iterator[None]:
        """Reserve `size` bytes. Raises Problem if there is not enough room. `largest`: an owner's least share."""
        share = max(settings.SPOOL_BYTES // SHARES, largest)
        if any(self._used[one] + size > share for one in owners if self._used[one]):
            detail = f"Your bodies that are on their way may have {share:,} bytes together; wait until one is answered."
            raise Problem("too-many-uploads", detail, retry_after=BUSY)
        if self._all and self._all + size > max(settings.SPOOL_BYTES, largest):
            raise Problem("busy", "Too many large bodies are on their way; try again in a moment.", retry_after=BUSY)
        if free_bytes() - self._all < size + settings.SPOOL_FREE_BYTES:
            alarms.DISK_NEARLY_FULL.log(log, tempfile.gettempdir())
            raise Problem("insufficient-storage", "The disk is nearly full; nothing was read.", retry_after=60)
        self._all += size
        self._used.update(dict.fromkeys(owners, size))
        try:
            yield
        finally:
            self._all -= size
            self._used.subtract(dict.fromkeys(owners, size))
            self._used += Counter()  # drops owners without bytes


def free_bytes() -> int:
    """Return the free bytes on the bodies' disk. Reserved bytes may be written already; then they count twice."""
    found = os.statvfs(tempfile.gettempdir())
    return found.f_bavail * found.f_frsize


class BodyGate:
    """Admission at one door. `judge`: returns whose a body is and how large it may be; raises Problem."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._spool, self._waiting = judge, Spool(), 0
        self._threads = ThreadPoolExecutor(JUDGES, "bodies")

    async def admit_body(self, path: str, environ: WsgiEnviron, size: int | None) -> tuple[int, Any]:
        """Return how many bytes to read, and the context that reserves them. `size`: None if unknown.

        Raises Problem.
        """
        if self._waiting >= JUDGED_MOST:
            raise Problem("busy", "Too many large bodies come at once; try again in a moment.", retry_after=BUSY)
        self._waiting += 1
        try:
            verdict = await asyncio.get_running_loop().run_in_executor(self._threads, self._judge_body, path, environ)
        finally:
            self._waiting -= 1
        if size is not None and size > verdict.most:
            raise size_problem(verdict.most)
        return verdict.most, self._spool.reserve_bytes(verdict.owners, size or verdict.most, verdict.most)

    def _judge_body(self, path: str, environ: WsgiEnviron) -> BodyVerdict:
        close_old_connections()
        try:
            return self._judge(path, environ)
        except STORES as error:
            raise unavailable_problem("the database does not answer") from error
        finally:
            close_old_connections()


def size_problem(most: int) -> Problem:
    return Problem("payload-too-large", f"At most {most:,} bytes are read.")


class NamelessUploads(FileUploadHandler):
    """Stores files of forms like Django's own handler, but in unnamed files."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        extra = self.content_type_extra
        named = tempfile.TemporaryFile()  # noqa: SIM115 (the request closes it)
        self.file = UploadedFile(named, self.file_name, self.content_type, 0, self.charset, extra)
        weakref.finalize(self.file, named.close)  # Django forgets the file if the request breaks off

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        self.file.write(raw_data)
        return None

    def file_complete(self, file_size: int) -> "UploadedFile[bytes]":
        self.file.seek(0)
        self.file.size = file_size
        return self.file

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
