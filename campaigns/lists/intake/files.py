"""The files of a campaign: found by name, checked before anything is stored, stored one at a time.

A recipient's own files come from a folder or a ZIP archive, and nowhere else. Archives are never unpacked to disk, and
no file is read beyond its permitted size.
"""

import mimetypes
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Protocol

import psycopg
from django.db import connection

from campaigns.models.files import LARGEST_MAIL, file_names, shown_name
from campaigns.texts.bad_input import BadInput
from campaigns.texts.given_texts import given_name
from vendors.said import Said

LONGEST_NAME = 200
MOST_FILES = 100_000  # of one campaign
MOST_BYTES = 2_000_000_000  # of all files of a campaign together
TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,48}/[a-z0-9][a-z0-9!#$&^_.+-]{0,48}", re.IGNORECASE)
UTF8_FLAG = 0x800  # of an entry of a ZIP archive: its name is UTF-8
UNREADABLE = OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to store. read: returns its whole content. cid: of an image within the HTML.

    to_all: every letter carries it.

    digest: the SHA-256 of a content stored before, which is not read again.
    """

    name: str
    size: int
    read: Callable[[], bytes]
    content_type: str = ""
    cid: str = ""
    to_all: bool = True
    digest: bytes | None = None

    @property
    def kind(self) -> str:
        return self.content_type or mimetypes.guess_type(self.name)[0] or "application/octet-stream"


class FileSource(Protocol):
    """A place with recipients' own files."""

    def size(self, name: str) -> int:
        """Return the size in bytes. Raises ValueError with a sentence if the file is missing or may not be sent."""

    def read_named(self, name: str) -> bytes:
        """Return the content. Raises one of UNREADABLE."""

    def digest(self, name: str) -> bytes | None:
        """Return the SHA-256 if the content is stored already and need not be read, else None."""


class Folder:
    """Files of a folder and its subfolders; links that lead outside do not count."""

    def __init__(self, path: Path) -> None:
        self._root = path.resolve()
        self._composed: dict[Path, dict[str, str]] = {}

    def size(self, name: str) -> int:
        path = self._find_composed(name)
        if not path.is_relative_to(self._root):
            raise ValueError(Said("%(name)s is outside the folder", name=repr(name)))
        if not path.is_file():
            raise ValueError(Said("there is no file %(name)s", name=repr(name)))
        return path.stat().st_size

    def read_named(self, name: str) -> bytes:
        with self._find_composed(name).open("rb") as file:
            return file.read(LARGEST_MAIL + 1)

    def digest(self, name: str) -> None:
        return None

    def _find_composed(self, name: str) -> Path:
        """Return the file of this name, whose letters the folder may write decomposed, as Macs do."""
        path = self._root / name
        if not name.isascii() and not path.exists():
            path = self._root
            for part in name.split("/"):
                path /= self._names_in(path).get(part, part)
        return path.resolve()

    def _names_in(self, folder: Path) -> dict[str, str]:
        """Return the names in a folder, by the names that lists use for them."""
        if folder not in self._composed:
            names = os.listdir(folder) if folder.is_dir() else []
            self._composed[folder] = {given_name(name): name for name in names if not name.isascii()}
        return self._composed[folder]


class Archive:
    """Files of a ZIP archive. Raises BadInput if it cannot be read."""

    def __init__(self, file: IO[bytes] | Path) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except UNREADABLE as error:
            raise BadInput(Said("the archive cannot be read: %(why)s", why=error)) from error
        self._entries = {
            name: entry for entry in self._zip.infolist() if not entry.is_dir() for name in _names_of(entry)
        }

    def size(self, name: str) -> int:
        entry = self._entries.get(name)
        if entry is None:
            raise ValueError(Said("there is no file %(name)s", name=repr(name)))
        if entry.flag_bits & 1:
            raise ValueError(Said("%(name)s is encrypted", name=repr(name)))
        return entry.file_size

    def read_named(self, name: str) -> bytes:
        with self._zip.open(self._entries[name]) as file:
            return file.read(LARGEST_MAIL + 1)  # limited even if the archive states a smaller size

    def digest(self, name: str) -> None:
        return None


def _names_of(entry: zipfile.ZipInfo) -> set[str]:
    """Return the names by which lists may call an entry. Finder writes UTF-8 without the flag that says so."""
    name = entry.filename
    if not entry.flag_bits & UTF8_FLAG and not name.isascii():
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return {entry.filename, given_name(name)}


def open_source(path: Path) -> FileSource:
    """Return the folder or archive at this path. Raises BadInput."""
    if path.is_dir():
        return Folder(path)
    if not path.is_file():
        raise BadInput(Said("there is no folder or archive %(path)s", path=path))
    return Archive(path)


@dataclass(slots=True)
class CampaignFiles:
    """All files of a campaign. Raises BadInput for files that no letter can carry.

    to_all: in every letter. fields: name each recipient's own files, which are in `found_in`. own: those found so far.
    """

    to_all: Sequence[NewFile] = ()
    fields: Sequence[str] = ()
    found_in: FileSource | None = None
    own: dict[str, int] = field(default_factory=dict)  # names of recipients' own files, with their sizes
    _bytes: int = 0

    def __post_init__(self) -> None:
        names: set[str] = set()
        for file in self.to_all:
            if file.name in names:
                raise BadInput(Said("two files are called %(name)s", name=repr(file.name)))
            names.add(file.name)
            if problem := _name_unfit_reason(file.name, file.size) or _type_unfit_reason(file):
                raise BadInput(problem)
        self._bytes = sum(file.size for file in self.to_all)
        if self._bytes > LARGEST_MAIL:
            raise BadInput(
                Said(
                    "the files of each letter have %(size)s bytes; %(most)s are the most",
                    size=self._bytes,
                    most=LARGEST_MAIL,
                )
            )

    def faults(self, fields: Mapping[str, Any]) -> Iterator[str]:
        """Yield the faults of the files that a recipient's fields name, as sentences; remember good files in `own`."""
        if not self.fields:
            return
        size = sum(file.size for file in self.to_all)
        for name in file_names(fields, self.fields):
            try:
                size += self._find_or_keep(name)
            except ValueError as error:
                yield str(error)
        if size > LARGEST_MAIL:
            yield Said("its files have %(size)s bytes together; %(most)s are the most", size=size, most=LARGEST_MAIL)

    def size_of(self, fields: Mapping[str, Any]) -> int:
        """Return the bytes of all files of a recipient's letter; those that cannot be sent do not count."""
        own = sum(self.own.get(name, 0) for name in file_names(fields, self.fields)) if self.fields else 0
        return own + sum(file.size for file in self.to_all)

    def _find_or_keep(self, name: str) -> int:
        if name in self.own:
            return self.own[name]
        assert self.found_in is not None, "fields name files of a folder"
        if problem := _name_unfit_reason(name, 0):
            raise ValueError(problem)
        if any(file.name == name for file in self.to_all):
            raise ValueError(Said("%(name)s is the name of a file that all get", name=repr(name)))
        size = self.found_in.size(name)
        if problem := _name_unfit_reason(name, size):
            raise ValueError(problem)
        self._bytes += size
        if len(self.own) >= MOST_FILES or self._bytes > MOST_BYTES:
            raise BadInput(
                Said(
                    "a campaign may have %(number)s files, and %(size)s bytes of them",
                    number=MOST_FILES,
                    size=MOST_BYTES,
                )
            )
        self.own[name] = size
        return size

    def of(self, recipients: Iterable[tuple[str, Mapping[str, Any]]]) -> "CampaignFiles":
        """Return a copy with only the own files of these recipients, who must have been checked."""
        named = {name for _, fields in recipients for name in file_names(fields, self.fields)}
        return replace(self, own={name: size for name, size in self.own.items() if name in named})

    def all(self) -> Iterator[NewFile]:
        """Yield every file that a letter carries, recipients' own files after the common ones."""
        yield from self.to_all
        source = self.found_in
        for name, size in self.own.items():
            assert source is not None, "fields name files of a folder"
            yield NewFile(name, size, partial(source.read_named, name), to_all=False, digest=source.digest(name))


def _name_unfit_reason(name: str, size: int) -> str:
    """Return why no letter can carry a file of this name and size, or '' if one can."""
    parts = name.split("/")
    if not name.isprintable() or len(name) > LONGEST_NAME or "\\" in name or not shown_name(name):
        return Said(
            "%(name)s cannot be the name of a file: up to %(most)s signs on a line, without \\",
            name=repr(name[:LONGEST_NAME]),
            most=LONGEST_NAME,
        )
    if any(part in ("", ".", "..") for part in parts) or re.match("[A-Za-z]:", name):
        return Said("%(name)s does not name a file within the folder", name=repr(name))
    return (
        Said("%(name)s has %(size)s bytes; %(most)s are the most", name=repr(name), size=size, most=LARGEST_MAIL)
        if size > LARGEST_MAIL
        else ""
    )


def _type_unfit_reason(file: NewFile) -> str:
    if not TYPE.fullmatch(file.kind):
        return Said("%(kind)s is not the type of a file, like application/pdf", kind=repr(file.kind))
    if file.cid and not re.fullmatch(r"[A-Za-z0-9!#$%&'*+=?^_`{|}~.@-]{1,100}", file.cid):
        return Said("%(name)s cannot name an image within HTML: letters, digits and dots", name=repr(file.cid))
    return ""


KEEP = """
INSERT INTO campaigns_storedfile (sha256, size, content, asked_at) VALUES (%s, %s, %s, clock_timestamp())
ON CONFLICT (sha256) DO UPDATE SET asked_at = clock_timestamp()
"""
KNOWN = "UPDATE campaigns_storedfile SET asked_at = clock_timestamp() WHERE sha256 = %s"
UNUSED = """
DELETE FROM campaigns_storedfile s WHERE asked_at < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT FROM campaigns_campaignfile f WHERE f.file_id = s.sha256)
    AND NOT EXISTS (SELECT FROM campaigns_uploadedfile u WHERE u.file_id = s.sha256)
    AND NOT EXISTS (SELECT FROM campaigns_draftfile d WHERE d.file_id = s.sha256)
"""
NAME = """
INSERT INTO campaigns_campaignfile (campaign_id, file_id, name, content_type, cid, to_all)
VALUES (%s, %s, %s, %s, %s, %s)
"""


def keep_content(content: bytes, rows: Any) -> bytes:
    """Store a content unless it is stored already; return its SHA-256. rows: a psycopg connection."""
    digest = sha256(content).digest()
    with psycopg.Cursor(rows) as cursor:  # Django's cursor would write the content into the statement as text
        if not cursor.execute(KNOWN, [digest]).rowcount:
            cursor.execute(KEEP, [digest, len(content), content])
    return digest


def keep_all(files: CampaignFiles) -> list[tuple[NewFile, bytes]]:
    """Store the contents one at a time; return each file with its SHA-256. Raises BadInput.

    Call it before the campaign's transaction: within it, others storing the same content would wait for its end.
    """
    connection.ensure_connection()
    kept = []
    for file in files.all():
        if file.digest is not None:
            kept.append((file, file.digest))
            continue
        try:
            content = file.read()
        except UNREADABLE as error:
            raise BadInput(Said("%(name)s cannot be read: %(why)s", name=repr(file.name), why=error)) from error
        if len(content) != file.size:
            raise BadInput(
                Said(
                    "%(name)s had %(size)s bytes when it was checked, and others after",
                    name=repr(file.name),
                    size=file.size,
                )
            )
        kept.append((file, keep_content(content, connection.connection)))
    return kept


def name_kept_files(campaign_id: int, kept: Iterable[tuple[NewFile, bytes]]) -> None:
    """Link stored contents to the campaign, under the names of its files."""
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.executemany(
            NAME, [(campaign_id, digest, one.name, one.kind, one.cid, one.to_all) for one, digest in kept]
        )


def delete_unused() -> int:
    """Delete contents that have not been used for a day; return their number."""
    with connection.cursor() as cursor:
        cursor.execute(UNUSED)
        number: int = cursor.rowcount
        return number
