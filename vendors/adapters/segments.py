"""Number of segments in an SMS (3GPP TS 23.038 and 23.040), which SMS vendors count, limit and charge for.

A text within the GSM alphabet takes septets: one for each character of the basic set, two for each of the extension
table (an escape and the character). Any other text is sent in UCS-2: two bytes a character, four beyond the basic plane
(a surrogate pair). A single message has 140 bytes: 160 septets or 70 UTF-16 units. Each segment of a longer one begins
with a header of six bytes, which leaves 153 or 67. An escape and its character, or a surrogate pair, are never split,
so a segment may be a unit short.

`by_size` is for e-mail vendors that charge by size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vendors.adapters.base import Letter, one_unit

BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENDED = frozenset("^{}\\[~]|€\f")  # two septets each
_GSM = BASIC | EXTENDED


class Capacity(NamedTuple):
    """Units in a message of one segment, and in each segment of a longer one."""

    alone: int
    each: int


SEPTETS = Capacity(160, 153)
UTF_16 = Capacity(70, 67)


def fits_gsm(text: str) -> bool:
    """Return True if all characters are in the GSM alphabet."""
    return _GSM.issuperset(text)


def segments(text: str) -> int:
    """Return the number of segments; an empty text takes one."""
    if fits_gsm(text):
        capacity, wide = SEPTETS, sum(map(text.count, EXTENDED))
    else:
        capacity, wide = UTF_16, sum(character > "\uffff" for character in text)
    units = len(text) + wide
    if units <= capacity.alone:
        return 1
    if not wide:
        return -(-units // capacity.each)
    return _count_filled([2 if _is_wide(character, capacity) else 1 for character in text], capacity.each)


def _is_wide(character: str, capacity: Capacity) -> bool:
    return character in EXTENDED if capacity is SEPTETS else character > "\uffff"


def _count_filled(widths: list[int], each: int) -> int:
    """Return the number of segments of `each` units that hold these characters in order, none split."""
    count, left = 1, each
    for width in widths:
        if width > left:
            count, left = count + 1, each
        left -= width
    return count


def cost_by_size(kilobytes: int) -> Callable[[Letter], int]:
    """Return a cost function: one unit per `kilobytes` (of 1,000 bytes) begun; with 0, one per letter.

    It counts the letter's texts in UTF-8 and its files in base64, without what transport adds.
    """

    def count_units(letter: Letter) -> int:
        texts = (letter.subject, letter.body, letter.text, *(part for pair in letter.headers for part in pair))
        size = sum(len(text.encode("utf-8", "replace")) for text in texts)
        size += sum(4 * -(-len(one.content) // 3) for one in letter.attachments)
        return max(1, -(-size // (1000 * kilobytes)))

    return count_units if kilobytes else one_unit
