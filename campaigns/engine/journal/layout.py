"""The layout of a journal: a header, places of streams, places of claims, slots of answers.

A record counts by its last byte, which is written after the rest. A kill between two writes therefore leaves the record
of before, or none.
"""

import os
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from django.conf import settings

VERSION = 1
SUFFIX = ".journal"
FOLDER = "journals"
MAGIC = b"mailhub\x01"
WAITS, CALLED, ANSWERED, STORED = b"wcas"  # states of a message

HEADER_BYTES = 4096
HEAD = struct.Struct("<8sII")  # magic, length and checksum of the JSON behind it

STREAMS = 2048  # streams of a process: SENDER_STREAMS is 300 by default; those above get no place
STREAM = struct.Struct("<qii")  # job, fence, adoptions of the store
STREAM_NOTED, STREAM_CHECK, STREAM_VALID, STREAM_BYTES = 16, 24, 31, 32

CHUNK = 64  # messages in a place; a larger claim has several places
CHUNKS = 4096
CHUNK_HEAD = struct.Struct("<qqqiiHH")  # job, claim, its time in microseconds since 1970, fence, adoptions, messages, 0
CHUNK_IDS = 40
CHUNK_UNITS = CHUNK_IDS + 8 * CHUNK
CHUNK_SLOTS = CHUNK_UNITS + 4 * CHUNK
CHUNK_STATES = CHUNK_SLOTS + 4 * CHUNK
CHUNK_CHECK = CHUNK_STATES + CHUNK
CHUNK_VALID, CHUNK_BYTES = 1151, 1152

SLOTS = 8192
SLOT = struct.Struct("<IHH")  # checksum, length, 0
SLOT_BYTES = 384  # a longer answer is not written: its call stays *called*

STREAMS_AT = HEADER_BYTES
CHUNKS_AT = STREAMS_AT + STREAMS * STREAM_BYTES
SLOTS_AT = CHUNKS_AT + CHUNKS * CHUNK_BYTES
FILE_BYTES = SLOTS_AT + SLOTS * SLOT_BYTES

CHECK = struct.Struct("<I")
NUMBER = struct.Struct("<q")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class StoreIdentity(NamedTuple):
    """The database that the ids of a journal belong to. adoptions: see failover/guard.py."""

    system: str
    relation: int
    adoptions: int


class MarkedAnswer(NamedTuple):
    """An answer as it is stored: campaigns.models.AnswerBatch."""

    kind: str
    code: str | None = None
    note: str | None = None
    cause: str | None = None
    wait: float | None = None


def journal_folder() -> Path:
    return Path(settings.MAILHUB_HOME) / FOLDER


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def name_own_process() -> str:
    """Return the name of this process among all of this machine: its namespace, id and start."""
    return f"{os.stat('/proc/self/ns/pid').st_ino} {os.getpid()} {_process_start('self')}"


def is_running(process: str) -> bool:
    """True if a process of this name surely runs. One of another namespace cannot be seen."""
    try:
        namespace, pid, started = process.split()
        same = os.stat("/proc/self/ns/pid").st_ino == int(namespace)
        return same and _process_start(pid) == started
    except (OSError, ValueError):
        return False


def _process_start(pid: str) -> str:
    """Return the start of the process, in ticks since the start of the machine; empty for one that has ended."""
    state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]


def header_of(file: int, identity: StoreIdentity) -> dict[str, Any]:
    """Return the header that a journal in this open file has, for these rows and since this start of the machine."""
    known = os.fstat(file)
    return {
        "version": VERSION,
        "boot": boot_id(),
        "device": known.st_dev,
        "inode": known.st_ino,
        "sizes": [STREAMS, CHUNK, CHUNKS, SLOTS, SLOT_BYTES],
        "system": identity.system,
        "relation": identity.relation,
    }


def pack_header(header: dict[str, Any]) -> bytes:
    body = orjson.dumps(header)
    return HEAD.pack(MAGIC, len(body), zlib.crc32(body)) + body


def count_microseconds(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def moment_of_microseconds(since: int) -> datetime:
    return EPOCH + since * MICROSECOND
