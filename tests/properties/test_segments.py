"""Segments of an SMS against the standard's tables and a search for the smallest number, for any text."""

from hypothesis import example, given
from hypothesis import strategies as st

from vendors.adapters.segments import BASIC, EXTENDED, fits_gsm, segments

# 3GPP TS 23.038, 6.2.1 and 6.2.1.1, by rows of sixteen codes; the escape is no character.
TABLE = (
    "@£$¥èéùìòÇ\nØø\rÅå" "Δ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ" " !\"#¤%&'()*+,-./" "0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNO" "PQRSTUVWXYZÄÖÑÜ§" "¿abcdefghijklmno" "pqrstuvwxyzäöñüà"
)  # fmt: skip
EXTENSION = {
    0x0A: "\f",
    0x14: "^",
    0x28: "{",
    0x29: "}",
    0x2F: "\\",
    0x3C: "[",
    0x3D: "~",
    0x3E: "]",
    0x40: "|",
    0x65: "€",
}

CODES = {character: [code] for code, character in enumerate(TABLE) if code != 0x1B}
CODES |= {character: [0x1B, code] for code, character in EXTENSION.items()}

gsm = st.text(st.sampled_from(sorted(CODES)), max_size=700)
dear = st.text(st.sampled_from("a€{"), min_size=150, max_size=330)
edges = st.builds(  # about as long as a whole number of segments
    lambda before, wide, behind: before + wide * (behind - len(before)),
    st.text(st.sampled_from("aж"), max_size=3),
    st.sampled_from("€😀"),
    st.sampled_from([67, 68, 134, 135, 153, 154, 229, 230]),
)
anything = st.text(st.sampled_from("aж😀é€"), max_size=300) | st.text(max_size=300)


def pieces(text: str) -> tuple[list[int], int, int]:
    """The length of each character as it is coded, and the capacity of a message that is alone or one of several."""
    if all(character in CODES for character in text):
        return [len(CODES[character]) for character in text], 160, 153
    return [len(character.encode("utf-16-be", "surrogatepass")) // 2 for character in text], 70, 67


def fewest(lengths: list[int], capacity: int) -> int:
    """The smallest number of segments that hold the pieces in order, none of them cut: every cut is tried."""
    best = [0] + [len(lengths)] * len(lengths)
    for end in range(1, len(lengths) + 1):
        begin, filled = end, 0
        while begin and filled + lengths[begin - 1] <= capacity:
            begin -= 1
            filled += lengths[begin]
            best[end] = min(best[end], best[begin] + 1)
    return best[-1]


@given(gsm | dear | edges | anything)
@example("€" * 153)  # 306 septets, but 152 is the most that a segment can hold of them
@example("a" * 152 + "€" + "a" * 152)
@example("ж" * 66 + "😀" * 34)
def test_a_text_takes_the_fewest_segments_that_cut_no_character(text: str) -> None:
    lengths, alone, each = pieces(text)
    assert segments(text) == (1 if sum(lengths) <= alone else fewest(lengths, each))


@given(gsm | anything, st.sampled_from(["a", "€", "ж", "😀"]))
def test_a_longer_text_never_takes_fewer_segments(text: str, more: str) -> None:
    assert segments(text + more) >= segments(text) >= 1


def test_the_alphabet_is_that_of_the_standard() -> None:
    assert len(TABLE) == 128 and set(TABLE) - {"\x1b"} == BASIC and set(EXTENSION.values()) == EXTENDED
    assert not fits_gsm("\x1b") and not fits_gsm("ç") and fits_gsm("Ç€")
