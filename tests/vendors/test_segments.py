"""An SMS of several segments is counted as its vendors count it."""

import pytest

from vendors.adapters.base import Attachment, Letter, one_unit
from vendors.adapters.segments import cost_by_size, segments


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("a" * 160, 1),
        ("a" * 161, 2),
        ("a" * 306, 2),
        ("a" * 307, 3),
        ("€" * 80, 1),
        ("€" * 81, 2),
        ("€" * 153, 3),  # none is cut in two: each part holds 76 of them
        ("ж" * 70, 1),
        ("ж" * 71, 2),
        ("ж" * 134, 2),
        ("ж" * 135, 3),
        ("😀" * 35, 1),
        ("😀" * 36, 2),
        ("😀" * 67, 3),  # 33 in a part of 67 units
        ("ç" + "a" * 69, 1),  # not in the alphabet, though Ç is
        ("ç" + "a" * 70, 2),
    ],
)
def test_a_text_takes_as_many_segments_as_the_standard_says(text: str, count: int) -> None:
    assert segments(text) == count


@pytest.mark.parametrize(
    ("body", "file", "units"),
    [
        ("", b"", 1),
        ("a" * 2000, b"", 1),
        ("a" * 2001, b"", 2),
        ("ж" * 1001, b"", 2),
        ("a" * 2000, b"x", 2),
        ("", b"x" * 1501, 2),
    ],
)
def test_a_size_class_counts_texts_and_files_and_every_one_begun(body: str, file: bytes, units: int) -> None:
    files = (Attachment("a", "text/plain", file),) if file else ()
    assert cost_by_size(2)(Letter("1-0", "ann@example.org", "", body, attachments=files)) == units


def test_without_a_size_each_mail_costs_one() -> None:
    assert cost_by_size(0) is one_unit
