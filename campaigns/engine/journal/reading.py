"""Reading the journals of dead processes.

A process is dead if its file is not locked any more, and no such process is seen: it may have closed the locked file by
mistake.

A file is believed as a whole or not at all. One that does not fit proves nothing: its calls are in doubt after the
lease, as without a journal.
"""

import fcntl
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from campaigns.engine.journal import layout
from campaigns.engine.journal.layout import MarkedAnswer, StoreIdentity
from vendors import alarms
from vendors.outcomes import TEXT_MAX

log = logging.getLogger(__name__)

DRAFT_SECONDS = 60.0  # an unlocked draft older than that has no process any more
_complained_of: set[str] = set()  # files that this process has complained of


class Unfit(Exception):
    """The file proves nothing."""


@dataclass(frozen=True, slots=True)
class MarkedStream:
    """A job that the process was sending. noted: the id of its last claim with a mark; 0: of none."""

    job: int
    fence: int
    adoptions: int
    noted: int


@dataclass(frozen=True, slots=True)
class MarkedClaim:
    """A claim, or a part of a large one. answers: of those messages that have one; waits: messages not called."""

    job: int
    fence: int
    adoptions: int
    claim: int
    at: datetime
    units: dict[int, int] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    answers: dict[int, MarkedAnswer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadJournal:
    """The journal of a dead process. Its file stays until `delete_file`."""

    path: Path
    streams: list[MarkedStream]
    claims: list[MarkedClaim]

    def delete_file(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def dead_journals(read_identity: Callable[[], StoreIdentity]) -> Iterator[DeadJournal]:
    """Yield the journals of dead processes of this database, each locked while the caller works on it.

    read_identity: asked only if a process has died.
    """
    for path in _journal_files(layout.journal_folder()):
        with _lock_dead_file(path) as file:
            if file is None:
                continue
            try:
                found = _read_content(file, path, read_identity())
            except Unfit as why:
                alarms.JOURNAL_UNFIT.log(log, path.name, why)
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            except OSError as error:
                _tell_once(path, str(error))
                continue
            if found is not None:
                yield found


def _journal_files(folder: Path) -> list[Path]:
    """Return the journals in the folder, by name; drafts of dead processes are removed."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:  # such as a folder of another user
        _tell_once(folder, str(error))
        return []
    for name in names:
        if name.startswith("."):
            _remove_draft(folder / name)
    return [folder / name for name in names if name.endswith(layout.SUFFIX) and not name.startswith(".")]


def _remove_draft(path: Path) -> None:
    """Remove an old draft of a dead process. A new one is left alone: its process is about to lock it."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DRAFT_SECONDS:
            with _lock_dead_file(path) as file:
                if file is not None:
                    path.unlink(missing_ok=True)


@contextmanager
def _lock_dead_file(path: Path) -> Iterator[int | None]:
    """Lock the file for the block. Yields None if its process lives, or another one reads it, or it is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _tell_once(path, str(error))
        yield None
        return
    try:
        yield file if _try_to_lock(file, path) else None
    finally:
        os.close(file)


def _try_to_lock(file: int, path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.stat(path).st_ino == os.fstat(file).st_ino  # else its reader has removed it meanwhile
    except OSError:
        return False


def _read_content(file: int, path: Path, identity: StoreIdentity) -> DeadJournal | None:
    """Return the content; None if it is of another database or version: left for those who can read it.

    Raises Unfit.
    """
    content = os.pread(file, layout.FILE_BYTES + 1, 0)
    header = _read_header(content)
    process = str(header.pop("process", ""))
    expected = layout.header_of(file, identity)
    if header.get("boot") != expected["boot"]:
        raise Unfit("it is from before the last start of the machine")
    if (header.get("device"), header.get("inode")) != (expected["device"], expected["inode"]):
        raise Unfit("it is a copy")
    if layout.is_running(process):
        _tell_once(path, "its process runs and has lost its lock")
        return None
    if header.get("version") != layout.VERSION:
        _tell_once(path, f"it has version {header.get('version')}, not {layout.VERSION}")
        return None
    if header != expected:
        if header.get("sizes") != expected["sizes"]:
            raise Unfit("its header is not one of this version")
        _tell_once(path, "it is of another database")
        return None
    if len(content) != layout.FILE_BYTES:
        raise Unfit(f"it has {len(content)} bytes, not {layout.FILE_BYTES}")
    return DeadJournal(path, list(_read_streams(content)), list(_read_claims(content)))


def _tell_once(path: Path, why: str) -> None:
    if path.name not in _complained_of:
        _complained_of.add(path.name)
        alarms.JOURNAL_LEFT.log(log, path.name, why)


def _read_header(content: bytes) -> dict[str, Any]:
    if len(content) < layout.HEADER_BYTES:
        raise Unfit(f"it has only {len(content)} bytes")
    magic, length, check = layout.HEAD.unpack_from(content)
    body = content[layout.HEAD.size : layout.HEAD.size + length]
    if magic != layout.MAGIC or zlib.crc32(body) != check:
        raise Unfit("it has no header of a journal")
    try:
        header = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unfit("its header cannot be read") from error
    if not isinstance(header, dict):
        raise Unfit("its header cannot be read")
    return header


def _read_streams(content: bytes) -> Iterator[MarkedStream]:
    for number in range(layout.STREAMS):
        at = layout.STREAMS_AT + number * layout.STREAM_BYTES
        valid = content[at + layout.STREAM_VALID]
        if not valid:
            continue
        checked = content[at : at + layout.STREAM_CHECK]
        if valid != 1 or (zlib.crc32(checked),) != layout.CHECK.unpack_from(content, at + layout.STREAM_CHECK):
            raise Unfit(f"place {number} of its streams is damaged")
        job, fence, adoptions = layout.STREAM.unpack_from(content, at)
        yield MarkedStream(job, fence, adoptions, layout.NUMBER.unpack_from(content, at + layout.STREAM_NOTED)[0])


def _read_claims(content: bytes) -> Iterator[MarkedClaim]:
    for number in range(layout.CHUNKS):
        at = layout.CHUNKS_AT + number * layout.CHUNK_BYTES
        valid = content[at + layout.CHUNK_VALID]
        if valid == 1:
            yield _read_claim(content, at, number)
        elif valid:
            raise Unfit(f"place {number} of its claims is damaged")


def _read_claim(content: bytes, at: int, number: int) -> MarkedClaim:
    job, claim, since, fence, adoptions, count, _ = layout.CHUNK_HEAD.unpack_from(content, at)
    if not 0 < count <= layout.CHUNK:
        raise Unfit(f"place {number} of its claims is damaged")
    head = content[at : at + layout.CHUNK_HEAD.size]
    ids = content[at + layout.CHUNK_IDS : at + layout.CHUNK_IDS + 8 * count]
    units = content[at + layout.CHUNK_UNITS : at + layout.CHUNK_UNITS + 4 * count]
    checked = zlib.crc32(units, zlib.crc32(ids, zlib.crc32(head)))
    if (checked,) != layout.CHECK.unpack_from(content, at + layout.CHUNK_CHECK):
        raise Unfit(f"place {number} of its claims is damaged")
    found = MarkedClaim(job, fence, adoptions, claim, layout.moment_of_microseconds(since))
    messages = [one for (one,) in layout.NUMBER.iter_unpack(ids)]
    found.units.update(zip(messages, (one for (one,) in layout.CHECK.iter_unpack(units)), strict=True))
    for place, message in enumerate(messages):
        state = content[at + layout.CHUNK_STATES + place]
        if state == layout.WAITS:
            found.waits.append(message)
        elif state == layout.ANSWERED:
            (slot,) = layout.CHECK.unpack_from(content, at + layout.CHUNK_SLOTS + 4 * place)
            found.answers[message] = _read_answer(content, slot, message)
        elif state not in (layout.CALLED, layout.STORED):
            raise Unfit(f"place {number} of its claims is damaged")
    return found


def _read_answer(content: bytes, slot: int, message: int) -> MarkedAnswer:
    if not layout.SLOTS_AT <= slot <= layout.FILE_BYTES - layout.SLOT_BYTES:
        raise Unfit(f"the answer for message {message} is damaged")
    check, length, _ = layout.SLOT.unpack_from(content, slot)
    body = content[slot + layout.SLOT.size : slot + layout.SLOT.size + length]
    if length > layout.SLOT_BYTES - layout.SLOT.size or zlib.crc32(body, message & 0xFFFFFFFF) != check:
        raise Unfit(f"the answer for message {message} is damaged")
    answer = MarkedAnswer(*orjson.loads(body))
    return answer._replace(code=answer.code and answer.code.replace("\0", "\ufffd")[:TEXT_MAX])
