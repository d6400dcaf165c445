"""How many messages a child gets (document 003)."""

import pytest

from campaigns.engine.casting.mailcaster import child_size


@pytest.mark.parametrize(
    ("remaining", "minimum", "maximum", "size"),
    [
        (11_000, 2000, 5000, 2000),  # 440 is below the minimum
        (9000, 2000, 5000, 2000),
        (3000, 200, 2000, 200),  # 4 % of 3000 is 120
        (2800, 200, 2000, 200),
        (2600, 2000, 5000, 2000),
        (600, 2000, 5000, 600),  # the rest, although below the minimum
        (200_000, 2000, 5000, 5000),
        (200_000, 200, 2000, 2000),
        (100_000, 2000, 5000, 4000),  # between the bounds the percentage decides
    ],
)
def test_children_have_the_sizes_of_the_document(remaining: int, minimum: int, maximum: int, size: int) -> None:
    assert child_size(remaining, minimum, maximum, 4) == size


def test_a_percentage_counts_as_it_is_written_down() -> None:
    assert child_size(11_000, 1, 11_000, 4.0) == 440
    assert int(0.29 / 100 * 10_000) == 28  # what floats make of 29
    assert child_size(10_000, 1, 10_000, 0.29) == 29


def test_one_large_caster_cuts_job_103_into_63_children() -> None:
    sizes, remaining = [], 200_000
    while remaining:
        sizes.append(child_size(remaining, 2000, 5000, 4))
        remaining -= sizes[-1]
    assert len(sizes) == 63
    assert sizes[:16] == [5000] * 16 and sizes[16] == 4800
    assert sizes.count(2000) == 24 and sizes[-1] == 888
