"""Reads returned mails from a mailbox, by IMAP (RFC 9051).

A mail is marked as read, or moved, after its event was committed. After a crash in between it is read again, which
changes nothing, because each event is stored once.

Sponsors take turns, so one sponsor's flood does not delay the bounces of another. A mail that cannot be stored is
flagged and put away like the others, so it holds nobody up.
"""

import imaplib
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from django.db import InterfaceError, OperationalError, ProgrammingError

from campaigns.audience.bounces import inbound
from campaigns.audience.bounces.inbound import InboundMail, TakenMail
from campaigns.audience.bounces.parser import MOST, read_mail
from vendors import alarms
from vendors.not_now import is_not_now

log = logging.getLogger(__name__)

PATIENCE = 60.0  # seconds to wait for the server's answer
AT_ONCE = 500  # mails of one run; the next one takes the rest
CANDIDATES = 4_000  # mails among which sponsors take turns: half of them the oldest, half the newest
HEADS = 500  # mails in one command; servers limit the length of a line
MOST_FLAGGED = 10  # mails of one run that cannot be stored; more are no fault of theirs
SEARCHED = 50_000  # mails in one search: imaplib accepts at most a million bytes in an answer
ENVELOPE = ("Delivered-To", "X-Original-To", "Envelope-To", "X-Envelope-To", "To")
UID = re.compile(rb"\bUID (\d+)")
# Faults of the store or of the release. Another error is the mail's own.
NOT_OF_THE_MAIL = (OSError, OperationalError, InterfaceError, ProgrammingError)


class MailboxError(Exception):
    """The mailbox cannot be read. The text says why, without the password."""


@dataclass(frozen=True, slots=True)
class MailboxAddress:
    """The location of the mailbox. secure: TLS from the start."""

    host: str
    port: int
    user: str
    password: str
    folder: str
    secure: bool


def parse_address(url: str) -> MailboxAddress:
    """Parse imaps://user:password@host/folder. Raises MailboxError."""
    parts = urlsplit(url)
    secure = parts.scheme == "imaps"
    if parts.scheme not in ("imap", "imaps") or not parts.hostname or parts.username is None or parts.password is None:
        raise MailboxError("write the mailbox as imaps://user:password@host/INBOX; %40 stands for an @ in the user")
    folder = unquote(parts.path.strip("/")) or "INBOX"
    port = parts.port or (993 if secure else 143)
    return MailboxAddress(parts.hostname, port, unquote(parts.username), unquote(parts.password), folder, secure)


def read_mails(where: MailboxAddress, move_to: str, taken: Callable[[TakenMail], None]) -> int:
    """Take mails of the folder, oldest first, sponsors in turns; return their number. taken: called for each.

    move_to: an existing folder for read mails; empty: unread mails are taken, and marked as read. If the server can
    neither move a mail nor remove a single one, it stays in the folder, marked as deleted. Raises MailboxError and the
    database's errors.
    """
    with _open_folder(where) as server:
        mails = int(_check_answer(server.select(_quote_folder(where.folder)))[0] or 0)
        numbers = _search_uids(server, mails, "UNDELETED" if move_to else "UNSEEN")
        count = flagged = 0
        for number in _uids_in_turns(server, numbers)[:AT_ONCE]:
            mail = _fetch_mail(server, number)
            if mail is not None:
                one = _take_mail(mail, number, can_be_flagged=flagged < MOST_FLAGGED)
                if one is None:
                    flagged += 1
                    _check_answer(server.uid("STORE", number, "+FLAGS.SILENT", "(\\Flagged)"))
                else:
                    taken(one)
                count += 1
            _put_away(server, number, move_to)
        return count


def _take_mail(mail: InboundMail, number: str, can_be_flagged: bool) -> TakenMail | None:
    """Take a mail. Returns None if it cannot be stored, which the alarm and the day's counts tell."""
    try:
        return inbound.store_mail(mail, "mailbox")
    except Exception as error:
        if isinstance(error, NOT_OF_THE_MAIL) or is_not_now(error):
            raise
        alarms.MAIL_FLAGGED.log(log, number, type(error).__name__, error)
        if not can_be_flagged:
            raise MailboxError(f"more than {MOST_FLAGGED} mails could not be stored, the last one: {error}") from error
    inbound.count_mails("flagged")
    return None


@contextmanager
def _open_folder(where: MailboxAddress) -> Iterator[imaplib.IMAP4]:
    try:
        tls = ssl.create_default_context()
        server: imaplib.IMAP4
        if where.secure:
            server = imaplib.IMAP4_SSL(where.host, where.port, ssl_context=tls, timeout=PATIENCE)
        else:
            server = imaplib.IMAP4(where.host, where.port, timeout=PATIENCE)
    except OSError as error:
        raise MailboxError(f"{where.host} cannot be reached: {error}") from None
    except imaplib.IMAP4.error as error:
        raise MailboxError(f"{where.host} does not speak IMAP: {error}") from None
    try:
        server.login(where.user, where.password)
        known = _check_answer(server.capability())  # many servers announce their capabilities only after login
        server.capabilities = tuple(b" ".join(known).decode("ascii", "replace").upper().split())
        yield server
    except (imaplib.IMAP4.error, OSError) as error:
        raise MailboxError(f"{where.host}: {_mask_password(str(error), where.password)}") from None
    finally:
        with suppress(imaplib.IMAP4.error, OSError):
            server.logout()


def _search_uids(server: imaplib.IMAP4, mails: int, which: str) -> list[str]:
    """Return the UIDs of at most CANDIDATES matching mails, the oldest and the newest. mails: number in the folder."""
    pieces = [(first, min(first + SEARCHED - 1, mails)) for first in range(1, mails + 1, SEARCHED)]
    half, oldest, newest = CANDIDATES // 2, list[str](), list[str]()
    while pieces and len(oldest) < half:
        oldest += _search_piece(server, pieces.pop(0), which)
    while pieces and len(newest) < half:
        newest = _search_piece(server, pieces.pop(), which) + newest
    found = oldest + newest
    return found if len(found) <= CANDIDATES else found[:half] + found[-half:]


def _search_piece(server: imaplib.IMAP4, piece: tuple[int, int], which: str) -> list[str]:
    rows = _check_answer(server.uid("SEARCH", "{}:{}".format(*piece), which))
    return [number.decode("ascii") for number in (rows[0] or b"").split()]


def _uids_in_turns(server: imaplib.IMAP4, numbers: list[str]) -> list[str]:
    """Return the mails of all sponsors in turns. Mails that name no message of ours have a turn, too."""
    if len(numbers) <= AT_ONCE:
        return numbers
    addresses = dict[str, str]()
    for first in range(0, len(numbers), HEADS):
        addresses |= _fetch_recipients(server, numbers[first : first + HEADS])
    sponsors = inbound.find_sponsors(addresses)
    earlier = Counter[int | None]()
    turns = dict[str, int]()
    for number in numbers:
        turns[number] = earlier[sponsors.get(number)]
        earlier[sponsors.get(number)] += 1
    return sorted(numbers, key=turns.__getitem__)


def _fetch_recipients(server: imaplib.IMAP4, numbers: Sequence[str]) -> dict[str, str]:
    """Return the recipients that the heads of these mails name, by UID."""
    fields = " ".join(ENVELOPE)
    rows = _check_answer(server.uid("FETCH", ",".join(numbers), f"(UID BODY.PEEK[HEADER.FIELDS ({fields})])"))
    found = dict[str, str]()
    for row, after in zip(rows, [*rows[1:], b""], strict=True):
        if isinstance(row, tuple):  # some servers name the UID after the head
            uid = UID.search(row[0]) or (UID.search(after) if isinstance(after, bytes) else None)
            if uid:
                found[uid[1].decode("ascii")] = row[1].decode("latin-1")
    return found


def _fetch_mail(server: imaplib.IMAP4, number: str) -> InboundMail | None:
    """Return the beginning of a mail, or None if it has gone."""
    rows = _check_answer(server.uid("FETCH", number, f"(INTERNALDATE BODY.PEEK[]<0.{MOST}>)"))
    whole = next((row for row in rows if isinstance(row, tuple)), None)
    if whole is None:
        return None
    facts, content = whole
    head = read_mail(content.partition(b"\r\n\r\n")[0])
    to = tuple(str(value) for name in ENVELOPE for value in head.get_all(name, []))
    return InboundMail(content, to, str(head.get("Return-Path", "")).strip() == "<>", _arrival_time(facts))


def _arrival_time(facts: bytes) -> datetime:
    """Return the mail's time of arrival; now, if the server gives none or an impossible one."""
    with suppress(ValueError, OverflowError, OSError):
        if stamp := imaplib.Internaldate2tuple(facts):
            return datetime.fromtimestamp(time.mktime(stamp), UTC)  # imaplib returns local time
    return datetime.now(UTC)


def _put_away(server: imaplib.IMAP4, number: str, move_to: str) -> None:
    if not move_to:
        _check_answer(server.uid("STORE", number, "+FLAGS.SILENT", "(\\Seen)"))
    elif "MOVE" in server.capabilities:
        _check_answer(server.uid("MOVE", number, _quote_folder(move_to)))
    else:  # a crash in between moves and reads the mail twice
        _check_answer(server.uid("COPY", number, _quote_folder(move_to)))
        _check_answer(server.uid("STORE", number, "+FLAGS.SILENT", "(\\Deleted)"))
        if "UIDPLUS" in server.capabilities:  # a plain EXPUNGE would remove everything marked as deleted by anybody
            _check_answer(server.uid("EXPUNGE", number))


def _check_answer(answer: tuple[str, list[Any]]) -> list[Any]:
    status, rows = answer
    if status != "OK":
        raise imaplib.IMAP4.error(" ".join(str(row) for row in rows)[:200])
    return rows


def _quote_folder(folder: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", folder):
        raise MailboxError("the name of the folder is not one line")
    return '"' + folder.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _mask_password(text: str, password: str) -> str:
    return text.replace(password, "***") if password else text
