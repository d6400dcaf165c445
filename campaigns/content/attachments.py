"""Attachments for senders: a process reads each file once and shares it among all letters that carry it."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import psycopg

from campaigns.models import Campaign
from campaigns.models.files import file_names, shown_name
from vendors.adapters.base import Attachment, Letter
from vendors.adapters.letter_faults import LetterPart, refuse_letter
from vendors.outcomes import NotSent, Outcome

KEPT = 50_000_000  # bytes of files kept in memory that no letter carries at the moment
AGAIN = 1.0  # seconds until a letter with an unreadable file is tried again

TO_ALL = "SELECT id FROM campaigns_campaignfile WHERE campaign_id = %s AND to_all ORDER BY id"
NAMED = "SELECT name, id FROM campaigns_campaignfile WHERE campaign_id = %s AND name = ANY(%s)"
CONTENT = """
SELECT f.name, f.content_type, s.content, f.cid
FROM campaigns_campaignfile f JOIN campaigns_storedfile s ON s.sha256 = f.file_id WHERE f.id = %s
"""


class AttachmentCache:
    """The attachments of a process, for one event loop. rows: its `one` lends a connection for a block (SharedRows)."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._known: WeakValueDictionary[int, Attachment] = WeakValueDictionary()
        self._last: OrderedDict[int, Attachment] = OrderedDict()
        self._size = 0  # of the kept files
        self._reading: dict[int, asyncio.Lock] = {}

    async def get_attachment(self, file: int) -> Attachment:
        """Return the attachment for this id of a campaign's file. Raises psycopg.Error, LookupError."""
        found = self._known.get(file)
        if found is None:
            async with self._reading.setdefault(file, asyncio.Lock()):  # many streams may begin together
                found = self._known.get(file) or await self._read_attachment(file)
            self._reading.pop(file, None)
        self._keep_attachment(file, found)
        return found

    async def _read_attachment(self, file: int) -> Attachment:
        async with self.rows.lend_connection() as connection:
            # In binary format: as text, a file takes twice its size.
            cursor = await connection.cursor(binary=True).execute(CONTENT, [file])
            row = await cursor.fetchone()
        if row is None:
            raise LookupError(file)
        name, content_type, content, cid = row
        self._known[file] = made = Attachment(shown_name(name), content_type, bytes(content), cid)
        return made

    def _keep_attachment(self, file: int, attachment: Attachment) -> None:
        if file in self._last:
            self._last.move_to_end(file)
            return
        self._last[file] = attachment
        self._size += _memory_size(attachment)
        while self._size > KEPT and len(self._last) > 1:
            self._size -= _memory_size(self._last.popitem(last=False)[1])


def _memory_size(attachment: Attachment) -> int:
    """Return the bytes of memory used: the content itself, and its base64 form after it has been sent."""
    return int(len(attachment.content) * 2.4)


class LetterFiles:
    """Adds files to the letters of one campaign."""

    def __init__(self, campaign: Campaign, cache: AttachmentCache) -> None:
        self._campaign, self._cache = campaign, cache
        self._fields: Sequence[str] = campaign.file_fields or ()
        self._to_all: tuple[Attachment, ...] | None = None

    async def enclose(self, letters: Sequence[Letter | Outcome]) -> list[Letter | Outcome]:
        """Return the letters with their files: NotSent if a file cannot be read now, Refused if it is gone."""
        return [await self._enclose_in_letter(one) if isinstance(one, Letter) else one for one in letters]

    async def _enclose_in_letter(self, letter: Letter) -> Letter | Outcome:
        try:
            if self._to_all is None:
                self._to_all = tuple(
                    [await self._cache.get_attachment(file) for (file,) in await self._read_file_ids(TO_ALL)]
                )
            names = file_names(letter.params, self._fields)
            found = dict(await self._read_file_ids(NAMED, names)) if names else {}
            own = [await self._cache.get_attachment(found[name]) for name in names]
        except LookupError:
            return refuse_letter("one of its files is gone", LetterPart.FILE)
        except (psycopg.Error, OSError) as error:
            await asyncio.sleep(AGAIN)
            return NotSent(f"its files cannot be read: {error}")
        return letter._replace(attachments=(*self._to_all, *own))

    async def _read_file_ids(self, statement: str, *more: Any) -> list[Any]:
        async with self._cache.rows.lend_connection() as connection:
            result = await connection.execute(statement, [self._campaign.pk, *more])
            rows: list[Any] = await result.fetchall()
            return rows
