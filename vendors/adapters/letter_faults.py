"""Letters that cannot be made for their vendor: which part is at fault, and the refusal before the call.

The part begins the refusal's sub type, as in "header: it has more than one line". Reports, pages and the API have
PART_SENTENCES.
"""

from enum import StrEnum

from vendors.causes import AnswerCause
from vendors.outcomes import TEXT_MAX, Refused
from vendors.said import gettext_noop

UNSENDABLE = "unsendable"


class LetterPart(StrEnum):
    """The part of a letter for which it cannot be made."""

    FILE = "file"  # a file or image is missing, or of a wrong kind
    CHARACTER = "character"  # the vendor cannot take or print one
    ADDRESS = "address"
    HEADER = "header"
    FIELD = "field"  # the recipient has none that the vendor needs
    SENDER = "sender"
    SIZE = "size"  # too many pages, or too large for its making
    TEXT = "text"  # anything else in subject or body


PART_SENTENCES = {  # in English; pages translate them
    LetterPart.FILE: gettext_noop("One of its files or images is missing or cannot be used."),
    LetterPart.CHARACTER: gettext_noop("It has a character that cannot be sent or printed."),
    LetterPart.ADDRESS: gettext_noop("The vendor cannot use the recipient's address as it is written."),
    LetterPart.HEADER: gettext_noop("Its subject or one of its headers cannot be sent."),
    LetterPart.FIELD: gettext_noop("The recipient lacks a field that the vendor needs."),
    LetterPart.SENDER: gettext_noop("It has no sender that the vendor can use."),
    LetterPart.SIZE: gettext_noop("It is too long or too large, or has another size than the vendor takes."),
    LetterPart.TEXT: gettext_noop("The vendor cannot take its text as it is written."),
}
_AT_FAULT = {LetterPart.ADDRESS: AnswerCause.RECIPIENT, LetterPart.SENDER: AnswerCause.US}


class LetterFault(ValueError):
    """A part of a letter that its vendor cannot take; the message says why."""

    def __init__(self, part: LetterPart, why: str) -> None:
        super().__init__(why)
        self.part = part


def refuse_letter(why: Exception | str, part: LetterPart = LetterPart.TEXT) -> Refused:
    """Return the refusal of a letter before its call. `part`: if `why` is no LetterFault."""
    part = why.part if isinstance(why, LetterFault) else part
    return Refused(UNSENDABLE, f"{part}: {why}"[:TEXT_MAX], _AT_FAULT.get(part, AnswerCause.CONTENT))


def part_of_refusal(code: str | None, sub_type: str | None) -> LetterPart | None:
    """Return the part at fault of a stored refusal; None if it names none, as those of before."""
    named, colon, _ = (sub_type or "").partition(": ")
    return LetterPart(named) if code == UNSENDABLE and colon and named in list(LetterPart) else None
