"""Checks a whole list of recipients before any is stored: addresses, duplicates, fields.

Memory hardly grows with the list: finding duplicates takes 8 bytes a recipient, leaving out a row another 8. Problems
name the row as a spreadsheet numbers it.

Functions that normalise an address return its stored form, or raise ValueError with a sentence for the user.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NoReturn

from email_validator import EmailNotValidError, validate_email

from campaigns.lists.intake.fields import MAX_CELL, looked_closely, nul_fault
from campaigns.lists.intake.left_out import LeftOut
from campaigns.texts.bad_input import BadInput, RowError
from campaigns.texts.given_texts import given_address
from campaigns.texts.phone_numbers import mobile_e164, parse_e164
from campaigns.texts.templates import Budget, Content, shorten_fault
from vendors.said import Said, gettext_noop

# Matches most addresses, and nothing else; any other text goes through the slower library. No group repeats
# possessively: Python 3.11.2 gets that wrong.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]++"
_LABEL = r"(?![^.]{64})[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*"
_RESERVED = r"(?i:arpa|invalid|local|localhost|onion|test)"
PLAIN_EMAIL = re.compile(
    rf"(?!.{{255}})(?=[^@]{{1,64}}@)({_ATOM}(?:\.{_ATOM})*)@((?:{_LABEL}\.)+(?!{_RESERVED}\Z)[A-Za-z]{{2,63}})",
    re.ASCII,
)

FULL_WIDTH = {0xFF00 + code: 0x20 + code for code in range(1, 0x5F)}  # as Asian keyboards write ASCII
LOCAL_PART_MAX = 64  # bytes before the @ (RFC 5321, 4.5.3.1.1)
Normal = Callable[[str], str]


def normal_email(text: str) -> str:
    """Normalise an e-mail address: RFC 5322 without comments and quotes, or internationalised; no DNS look-up.

    The domain becomes lower-case, the whole address NFC.
    """
    if not text.isascii():
        text = text.translate(FULL_WIDTH)
    plain = PLAIN_EMAIL.fullmatch(text)
    if plain:
        return f"{plain[1]}@{plain[2].lower()}"
    try:
        found = validate_email(text, check_deliverability=False, strict=True).normalized
    except EmailNotValidError as error:
        why = _explain_library_fault(str(error))
        raise ValueError(
            Said("%(address)s is not an e-mail address: %(why)s", address=quote_text(text), why=why)
        ) from error
    if len(found.rpartition("@")[0].encode()) > LOCAL_PART_MAX:
        raise ValueError(Said("%(address)s has more than 64 bytes before the @", address=quote_text(text)))
    return found


# email_validator's sentences that a person may cause
OF_ADDRESSES = frozenset(
    (
        gettext_noop("An email address must have an @-sign."),
        gettext_noop("There must be something before the @-sign."),
        gettext_noop("There must be something after the @-sign."),
        gettext_noop("The part after the @-sign is not valid. It should have a period."),
        gettext_noop("The part after the @-sign is a special-use or reserved name that cannot be used with email."),
        gettext_noop("An email address cannot end with a period."),
        gettext_noop("An email address cannot have two periods in a row."),
        gettext_noop("An email address cannot start with a period."),
        gettext_noop("An email address cannot have a period immediately before the @-sign."),
        gettext_noop("An email address cannot have a period immediately after the @-sign."),
        gettext_noop("The email address contains invalid characters before the @-sign: %(what)s."),
        gettext_noop("The part after the @-sign contains invalid characters: %(what)s."),
        gettext_noop("A display name and angle brackets around the email address are not permitted here."),
        gettext_noop("A bracketed IP address after the @-sign is not allowed here."),
        gettext_noop("Quoting the part before the @-sign is not allowed here."),
        gettext_noop("An email address cannot have a hyphen immediately after the @-sign."),
        gettext_noop("An email address cannot have a period and a hyphen next to each other."),
        gettext_noop("The part after the @-sign is not valid. It is not within a valid top-level domain."),
    )
)


def _explain_library_fault(library: str) -> str:
    """Return a sentence of email_validator with its form, if it is one of OF_ADDRESSES."""
    head, _, what = library.partition(": ")
    form = f"{head}: %(what)s." if what else library
    return Said(form, **({"what": what.removesuffix(".")} if what else {})) if form in OF_ADDRESSES else library


def print_address(text: str) -> str:
    """Normalise a postal address as printed on the envelope, or the key of one; any text is valid."""
    return unicodedata.normalize("NFC", text)


class AddressReader:
    """Reads the addresses of a channel (of vendors.models.Vendor.Channel). Call it with an address as written.

    same: maps the stored addresses of one recipient to one key. An e-mail goes out as written, with its domain in lower
    case; but no provider gives Ann@ and ann@ to two people, so both are one recipient. Dots and +tags count, because
    some providers tell people apart by them. Print addresses are compared unchanged, as they may be keys.

    region: the country of phone numbers without a country code; empty: a number must have its code. is_for_sending:
    refuse phone numbers of a kind that gets no messages.
    """

    __slots__ = ("_read", "same")

    def __init__(self, channel: str, region: str = "", is_for_sending: bool = False) -> None:
        self._read, self.same = _BY_CHANNEL[channel]
        if channel == "sms":
            self._read = partial(mobile_e164 if is_for_sending else parse_e164, region=region)

    def __call__(self, text: str) -> str:
        """Return the stored form, without surrounding spaces. Raises ValueError."""
        text = given_address(text)
        if not text:
            raise ValueError(Said("there is no recipient"))
        if text.startswith("\0"):
            raise ValueError(nul_fault("recipient", text))
        return self._read(text)


_BY_CHANNEL: dict[str, tuple[Normal, Normal]] = {
    "email": (normal_email, str.lower),
    "sms": (parse_e164, str),
    "print": (print_address, str),
}


def quote_text(text: str) -> str:
    """Quote a text, cut after 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


SHOWN = 50  # problems reported one by one; the rest are counted


class RowErrors:
    """Collects problems: keeps the first 50 by row and counts all of them."""

    def __init__(self) -> None:
        self.first: list[RowError] = []
        self.total = 0

    def add_error(self, row: int, text: str) -> None:
        self.total += 1
        if len(self.first) < SHOWN or row < self.first[-1].row:
            insort(self.first, RowError(row, text))
            del self.first[SHOWN:]

    def add_errors(self, more: BadInput) -> None:
        for problem in more.problems:
            self.add_error(problem.row, problem.text)

    def raise_if_any(self) -> None:
        """Raise BadInput if there was a problem."""
        if self.total:
            self.raise_all()

    def raise_all(self) -> NoReturn:
        raise BadInput(self.first, self.total)


Digest = Callable[[str], int]  # signed 64 bits


class DuplicateFinder:
    """Digests of the recipients so far, in 256 heaps by first byte, so that only one heap is sorted at a time."""

    def __init__(self, digest: Digest = hash) -> None:
        self.digest = digest
        self.heaps = [array("q") for _ in range(256)]

    def add_address(self, key: str) -> None:
        value = self.digest(key)
        self.heaps[value >> 56].append(value)  # -128 .. 127

    def find_repeated(self) -> "array[int]":
        """Return the sorted digests that occur more than once. Each is a duplicate or a collision."""
        found = array("q")
        for heap in self.heaps[128:] + self.heaps[:128]:
            found.extend(sorted({one for one, following in pairwise(sorted(heap)) if one == following}))
        return found


def report_duplicates(
    suspects: "array[int]", recipients: Iterable[tuple[int, str]], problems: RowErrors | LeftOut, digest: Digest
) -> None:
    """Add a problem for each recipient (row number, key) that occurred in an earlier row. This is the second pass.

    It keeps 16 bytes for each suspect digest, the first row and a second digest. Collisions are rare and kept
    separately.
    """
    firsts, checks = array("q", bytes(8 * len(suspects))), array("q", bytes(8 * len(suspects)))
    others: dict[tuple[int, int], int] = {}
    for number, key in recipients:
        value = digest(key)
        at = bisect_left(suspects, value)
        if at == len(suspects) or suspects[at] != value:
            continue
        second = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), signed=True)
        if not firsts[at]:
            firsts[at], checks[at] = number, second
            continue
        first = firsts[at] if checks[at] == second else others.setdefault((value, second), number)
        if first != number:
            problems.add_error(number, Said("the same recipient as in row %(row)s: %(name)s", row=str(first), name=key))


STEP = 5_000  # rows between two calls of `progress`

InputRow = tuple[int, str, Mapping[str, Any]]  # number, recipient as written, fields
InputRows = Iterable[InputRow | RowError]
OnProgress = Callable[[], None]


def check_rows(
    rows: InputRows,
    normal: AddressReader,
    content: Content,
    progress: OnProgress = lambda: None,
    digest: Digest = hash,
    left_out: LeftOut | None = None,
) -> int:
    """Count the recipients if all rows are good; otherwise raise BadInput with the faults of each row.

    rows: iterated a second time if two recipients have the same digest. left_out: if given, collects the bad and
    duplicate rows instead, and only the remaining rows are counted.
    """
    problems, seen = RowErrors(), DuplicateFinder(digest)
    found = problems if left_out is None else left_out
    count = 0
    try:
        for count, row in enumerate(rows, start=1):
            _check_row(row, normal, content, seen, found)
            if count % STEP == 0:
                progress()
    except BadInput as broken:  # the file cannot be read any further
        problems.add_errors(broken)
        problems.raise_all()
    if not count:
        problems.add_error(0, Said("there are no recipients"))
    if left_out is not None:
        left_out.end_pass()
        rows = left_out.skip_left_out(rows, number_of)
    suspects = seen.find_repeated()
    if suspects:
        report_duplicates(suspects, _address_keys(rows, normal), found, digest)
    problems.raise_if_any()
    return count if left_out is None else _count_kept(count, left_out)


def _count_kept(count: int, left_out: LeftOut) -> int:
    left_out.end_pass()
    if len(left_out) == count:
        raise BadInput(Said("there are no recipients: every row would be left out"))
    return count - len(left_out)


def number_of(row: InputRow | RowError) -> int:
    """Return the row's number, as a spreadsheet counts."""
    return row.row if isinstance(row, RowError) else row[0]


def _check_row(
    row: InputRow | RowError,
    normal: AddressReader,
    content: Content,
    seen: DuplicateFinder,
    problems: RowErrors | LeftOut,
) -> None:
    if isinstance(row, RowError):
        problems.add_error(row.row, row.text)
        return
    number, recipient, fields = row
    try:
        address = normal(recipient)
    except ValueError as error:
        address = ""
        problems.add_error(number, str(error))
    good = True
    for text in field_faults(address, fields, content):
        problems.add_error(number, text)
        good = False
    if address and (good or isinstance(problems, RowErrors)):  # a row left out is not the first of its recipient
        seen.add_address(normal.same(address))


def _address_keys(rows: InputRows, normal: AddressReader) -> Iterator[tuple[int, str]]:
    for row in rows:
        if not isinstance(row, RowError):
            try:
                yield row[0], normal.same(normal(row[1]))
            except ValueError:
                continue  # reported by the first pass


def field_faults(
    recipient: str, fields: Mapping[str, Any], content: Content, budget: Budget | None = None
) -> Iterator[str]:
    """Yield the faults of one recipient's fields, as short sentences. May raise OverBudget if a budget is given."""
    if not _is_sound(recipient, fields, content):
        yield from map(shorten_fault, looked_closely(recipient, fields, content, budget))
    if content.further:
        yield from map(shorten_fault, content.further(recipient, fields, budget))


def _is_sound(recipient: str, fields: Mapping[str, Any], content: Content) -> bool:
    """Return True for most good rows, quickly: short printable texts for a template that only shows fields."""
    try:
        text = "".join(fields.values()) + recipient
    except TypeError:
        return False
    short = len(text) <= content.safe and len(text) <= MAX_CELL
    return short and text.isprintable() and all(map(fields.get, content.required))
