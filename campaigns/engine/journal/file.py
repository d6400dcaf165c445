"""Writing a journal: one file for each sender process, mapped into its memory. A mark costs no system call.

The lock of the file lasts until the process ends. Another open file than the mapping holds it, because a mapping in a
forked child would keep it. A child closes its copy immediately.
"""

import fcntl
import logging
import mmap
import os
import re
import secrets
import struct
import weakref
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson
from django.conf import settings
from django.db import connection

from campaigns.engine import failpoints
from campaigns.engine.claiming.claims import PermittedCall
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.failover import guard
from campaigns.engine.journal import layout
from campaigns.engine.journal.layout import MarkedAnswer, StoreIdentity
from vendors import alarms

log = logging.getLogger(__name__)

LENGTH_MOST = layout.SLOT_BYTES - layout.SLOT.size  # bytes; the call of a longer answer stays *called*
TAKEN_OVER = -1  # adoptions of no store
LOST = "the sender was lost in the call"
# Letters, digits and marks of codes. A longer row of digits may be a telephone number.
PLAIN = re.compile(r"(?!.*[0-9]{6})[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)
IDENTITY = f"SELECT {guard.SYSTEM}, 'campaigns_store'::regclass::oid::bigint, adoptions FROM campaigns_store"
_open: "weakref.WeakSet[CallJournal]" = weakref.WeakSet()


class NoMarks:
    """Marks of a stream in a process without a journal."""

    @property
    def are_kept(self) -> bool:
        """Whether a kill leaves only open calls in doubt, so that more may be claimed than is called at once."""
        return False

    def note_store(self, adoptions: int) -> None:
        pass

    def mark_claimed(self, calls: Sequence[PermittedCall]) -> None:
        pass

    def called(self, calls: Iterable[PermittedCall]) -> None:
        pass

    def accepted(self, call: PermittedCall, vendor_id: str) -> None:
        pass

    def keep_answer(self, call: PermittedCall, answer: MarkedAnswer) -> None:
        pass

    def free_stored(self, calls: Iterable[PermittedCall]) -> None:
        pass

    def give_up_places(self) -> None:
        pass


class CallMarks(NoMarks):
    """Marks of one stream. Its job is another process's as soon as this process dies."""

    def __init__(self, journal: "CallJournal", lease: Lease, adoptions: int) -> None:
        self._journal, self._lease, self._adoptions = journal, lease, adoptions
        self._map, self._free_slots = journal.map, journal.free_slots
        self._states: dict[int, int] = {}  # positions, by message
        self._slots: dict[int, int] = {}
        self._left: dict[int, int] = {}  # messages of a place not yet stored, by its position
        self._place = journal.free_streams.pop() if journal.free_streams else 0
        self._noted = 0
        self._write_place()

    def note_store(self, adoptions: int) -> None:
        """Note the store that the stream reads. It may have been taken over since the job's start.

        Another sender may have the same fence there, so this stream's marks then prove acceptances only.
        """
        if adoptions != self._adoptions:
            self._adoptions = TAKEN_OVER
            self._write_place()

    @property
    def are_kept(self) -> bool:
        has_space = len(self._journal.free_chunks) > layout.CHUNKS // 2
        return self._place > 0 and self._adoptions != TAKEN_OVER and has_space

    def _write_place(self) -> None:
        if not self._place:
            return
        at, memory = self._place, self._map
        memory[at + layout.STREAM_VALID] = 0
        head = layout.STREAM.pack(self._lease.job_id, self._lease.fence, self._adoptions)
        memory[at : at + len(head)] = head
        layout.NUMBER.pack_into(memory, at + layout.STREAM_NOTED, self._noted)
        layout.CHECK.pack_into(memory, at + layout.STREAM_CHECK, zlib.crc32(head + layout.NUMBER.pack(self._noted)))
        memory[at + layout.STREAM_VALID] = 1

    def mark_claimed(self, calls: Sequence[PermittedCall]) -> None:
        """Mark these messages of one claim as waiting. Later claims of the stream have made no call until they are."""
        if not calls:
            return
        failpoints.here("before_mark_waits")
        claim, memory, free = calls[0].claim, self._map, self._journal.free_chunks
        for first in range(0, len(calls), layout.CHUNK):
            if not free:  # the calls are made all the same; nothing is known of them after a kill
                break
            part = calls[first : first + layout.CHUNK]
            ids = [call.message.id for call in part]
            at, number = free.pop(), len(part)
            lease, since = self._lease, layout.count_microseconds(claim.at)
            head = layout.CHUNK_HEAD.pack(lease.job_id, claim.id, since, lease.fence, self._adoptions, number, 0)
            packed = struct.pack(f"<{number}q", *ids)
            units = struct.pack(f"<{number}I", *[len(call.permits) for call in part])
            check = zlib.crc32(units, zlib.crc32(packed, zlib.crc32(head)))
            states = at + layout.CHUNK_STATES
            memory[at : at + len(head)] = head
            memory[at + layout.CHUNK_IDS : at + layout.CHUNK_IDS + len(packed)] = packed
            memory[at + layout.CHUNK_UNITS : at + layout.CHUNK_UNITS + len(units)] = units
            memory[states : states + number] = b"w" * number
            layout.CHECK.pack_into(memory, at + layout.CHUNK_CHECK, check)
            memory[at + layout.CHUNK_VALID] = 1
            self._left[at] = number
            self._states.update(zip(ids, range(states, states + number), strict=True))
        self._noted = claim.id
        self._write_place()
        failpoints.here("after_mark_waits")

    def called(self, calls: Iterable[PermittedCall]) -> None:
        """Mark these messages as called. Their call may start after that."""
        failpoints.here("before_mark_called")
        for call in calls:
            if at := self._states.get(call.message.id):
                self._map[at] = layout.CALLED
        failpoints.here("after_mark_called")

    def accepted(self, call: PermittedCall, vendor_id: str) -> None:
        """Keep the usual answer, by the vendor's id of the message."""
        self._keep_body(call.message.id, orjson.dumps(("a", vendor_id)))

    def keep_answer(self, call: PermittedCall, answer: MarkedAnswer) -> None:
        """Keep any answer. Nothing of it is personal: a refusal's texts are kept only if they are codes."""
        self._keep_body(call.message.id, orjson.dumps(tuple(answer if answer.kind == "a" else _strip_texts(answer))))

    def _keep_body(self, message: int, body: bytes) -> None:
        at, free, length = self._states.get(message), self._free_slots, len(body)
        if not at or not free or length > LENGTH_MOST or message in self._slots:
            return
        failpoints.here("before_mark_answered")
        slot, memory = free.pop(), self._map
        self._slots[message] = slot
        record = layout.SLOT.pack(zlib.crc32(body, message & 0xFFFFFFFF), length, 0) + body
        memory[slot : slot + len(record)] = record
        offset = (at - layout.CHUNKS_AT) % layout.CHUNK_BYTES  # in its place
        cell = at - offset + layout.CHUNK_SLOTS + 4 * (offset - layout.CHUNK_STATES)
        layout.CHECK.pack_into(memory, cell, slot)
        memory[at] = layout.ANSWERED
        failpoints.here("after_mark_answered")

    def free_stored(self, calls: Iterable[PermittedCall]) -> None:
        """Note that the answers have been committed. A place without other messages is free again."""
        failpoints.here("before_mark_stored")
        memory, left = self._map, self._left
        for call in calls:
            message = call.message.id
            if (at := self._states.pop(message, 0)) == 0:
                continue
            memory[at] = layout.STORED
            place = at - (at - layout.CHUNKS_AT) % layout.CHUNK_BYTES
            left[place] -= 1
            if not left[place]:
                memory[place + layout.CHUNK_VALID] = 0
                del left[place]
                self._journal.free_chunks.append(place)
            if slot := self._slots.pop(message, 0):
                self._free_slots.append(slot)
        failpoints.here("after_mark_stored")

    def give_up_places(self) -> None:
        """Give up all places: the job has another sender, or waits for one."""
        if self._place:
            self._map[self._place + layout.STREAM_VALID] = 0
            self._journal.free_streams.append(self._place)
            self._place = 0
        for place in self._left:
            self._map[place + layout.CHUNK_VALID] = 0
        self._journal.free_chunks.extend(self._left)
        self._free_slots.extend(self._slots.values())
        self._left, self._states, self._slots = {}, {}, {}


def _strip_texts(answer: MarkedAnswer) -> MarkedAnswer:
    """Return the answer without texts of the vendor: they often repeat the recipient's address."""
    match answer.kind:
        case "r":
            code = answer.code if answer.code and PLAIN.fullmatch(answer.code) else "refused"
            note = answer.note if answer.note and PLAIN.fullmatch(answer.note) else None
            return answer._replace(code=code, note=note)
        case "d":
            return answer._replace(note=LOST)
    return answer._replace(note=None)


class CallJournal:
    """The journal of this process. Raises OSError if it cannot be made, such as on a full or read-only disk."""

    def __init__(self, folder: Path, identity: StoreIdentity) -> None:
        self.adoptions = identity.adoptions
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = secrets.token_hex(8)
        draft = folder / f".{name}"  # readers see it only once it is locked and complete
        self._lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._lock, 0, layout.FILE_BYTES)  # a full disk shows now, and not at a mark
            self.map = _map_file(draft)
            known = layout.header_of(self._lock, identity)
            header = layout.pack_header({**known, "process": layout.name_own_process()})
            self.map[: len(header)] = header
            self.path = folder / f"{name}{layout.SUFFIX}"
            draft.rename(self.path)
        except BaseException:
            os.close(self._lock)
            draft.unlink(missing_ok=True)
            raise
        self.free_streams = [layout.STREAMS_AT + number * layout.STREAM_BYTES for number in range(layout.STREAMS)]
        self.free_chunks = [layout.CHUNKS_AT + number * layout.CHUNK_BYTES for number in range(layout.CHUNKS)]
        self.free_slots = [layout.SLOTS_AT + number * layout.SLOT_BYTES for number in range(layout.SLOTS)]
        for free in (self.free_streams, self.free_chunks, self.free_slots):
            free.reverse()  # the first ones are used first, again and again
        _open.add(self)

    def marks_of(self, lease: Lease, adoptions: int | None) -> CallMarks:
        """Return the marks of a stream. adoptions: the store's number of them as its job started; None: unknown."""
        return CallMarks(self, lease, TAKEN_OVER if adoptions is None else adoptions)

    def close(self) -> None:
        """Remove the file, unless it still knows something that no row says. Then the next reader takes it."""
        if self._lock < 0:
            return
        if len(self.free_streams) == layout.STREAMS and len(self.free_chunks) == layout.CHUNKS:
            self.path.unlink(missing_ok=True)
        self.map.close()
        self.leave_in_child()

    def leave_in_child(self) -> None:
        """Close the locked file: in a forked child, so that the child does not keep the lock of a dead parent."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)
        _open.discard(self)


def _map_file(path: Path) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, layout.FILE_BYTES)
    finally:
        os.close(file)


def _leave_all() -> None:
    for one in list(_open):
        one.leave_in_child()


os.register_at_fork(after_in_child=_leave_all)


def read_identity() -> StoreIdentity:
    with connection.cursor() as cursor:
        cursor.execute(IDENTITY)
        return StoreIdentity(*(cursor.fetchone() or ("", 0, TAKEN_OVER)))


def open_journal() -> CallJournal | None:
    """Return a new journal for this process, or None if it has none: a kill then leaves all claimed messages in doubt.

    Raises the database's error.
    """
    if not settings.JOURNAL:
        return None
    identity = read_identity()
    try:
        return CallJournal(layout.journal_folder(), identity)
    except OSError as error:
        alarms.NO_JOURNAL.log(log, layout.journal_folder(), error)
        return None


def find_trouble() -> str:
    """Return the reason that would deny a sender in this home a journal, or empty. Reads only, writes nothing."""
    if not settings.JOURNAL:
        return ""
    folder = layout.journal_folder()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written"
    known = os.statvfs(folder)
    if known.f_bavail * known.f_frsize < layout.FILE_BYTES:
        return f"{folder} has no {layout.FILE_BYTES // 1_000_000} MB left"
    return ""
