"""How many segments an SMS takes (3GPP TS 23.038 and 23.040), which SMS vendors count, limit and charge for.

A text that the alphabet of SMS can write takes septets: one for a character of its basic set, two for one of its
extension table (an escape, then the character). Any other text is sent in UCS-2: two bytes for a character, four for
one beyond the basic plane (a pair of surrogates). A message has 140 bytes, which are 160 septets or 70 UTF-16 units;
each segment of a longer one begins with six bytes that say which it is, and has 153 or 67. Neither an escape and its
character nor a pair of surrogates is cut in two, so that a segment may be a unit short.

`by_size` is for vendors of e-mail that charge by the size of a mail.
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
    """How many units a message has if it is the only one, and each of several."""

    alone: int
    each: int


SEPTETS = Capacity(160, 153)
UTF_16 = Capacity(70, 67)


def in_gsm(text: str) -> bool:
    """Whether the alphabet of SMS has all its characters."""
    return _GSM.issuperset(text)


def segments(text: str) -> int:
    """The number of segments that the text takes; an empty one takes one."""
    if in_gsm(text):
        capacity, wide = SEPTETS, sum(map(text.count, EXTENDED))
    else:
        capacity, wide = UTF_16, sum(character > "\uffff" for character in text)
    units = len(text) + wide
    if units <= capacity.alone:
        return 1
    if not wide:
        return -(-units // capacity.each)
    return _filled([2 if _is_wide(character, capacity) else 1 for character in text], capacity.each)


def _is_wide(character: str, capacity: Capacity) -> bool:
    return character in EXTENDED if capacity is SEPTETS else character > "\uffff"


def _filled(widths: list[int], each: int) -> int:
    """How many segments of `each` units hold these characters in their order, none of them cut in two."""
    count, left = 1, each
    for width in widths:
        if width > left:
            count, left = count + 1, each
        left -= width
    return count


def by_size(kilobytes: int) -> Callable[[Letter], int]:
    """A cost of one unit for every so many kilobytes (of 1,000 bytes) begun; 0: one for each letter.

    What counts is what a letter says, in UTF-8, and its files in base64; not what is written around them on the way.
    """

    def units(letter: Letter) -> int:
        texts = (letter.subject, letter.body, letter.text, *(part for pair in letter.headers for part in pair))
        size = sum(len(text.encode("utf-8", "replace")) for text in texts)
        size += sum(4 * -(-len(one.content) // 3) for one in letter.attachments)
        return max(1, -(-size // (1000 * kilobytes)))

    return units if kilobytes else one_unit
