"""How many segments an SMS takes: what its vendors count, limit and charge for (3GPP TS 23.038)."""

_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENDED = frozenset("^{}\\[~]|€\f")  # two septets each


def segments(text: str) -> int:
    """160 septets fit in one, 153 in each of several; of other alphabets 70 and 67 UTF-16 units; at least 1."""
    if _BASIC.union(_EXTENDED).issuperset(text):
        widths, alone, each = [1 + (character in _EXTENDED) for character in text], 160, 153
    else:
        widths, alone, each = [1 + (ord(character) > 0xFFFF) for character in text], 70, 67
    if sum(widths) <= alone:
        return 1
    count, left = 1, each
    for width in widths:  # no character is cut in two
        if width > left:
            count, left = count + 1, each
        left -= width
    return count
