"""The fullest window, as the sandbox vendor counts it."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.vendor.books import WorstWindow, worst_window

quarters = st.lists(st.integers(0, 200).map(lambda number: number / 4), max_size=60).map(sorted)
lengths = st.integers(1, 80).map(lambda number: number / 4)


@given(quarters, lengths)
def test_it_is_what_counting_from_every_arrival_gives(times: list[float], seconds: float) -> None:
    assert worst_window(times, seconds) == max(
        (sum(start <= time < start + seconds for time in times) for start in times), default=0
    )


@given(quarters, lengths, st.integers(0, 60))
def test_asked_in_between_it_comes_to_the_same(times: list[float], seconds: float, asked_at: int) -> None:
    window = WorstWindow(seconds)
    window.update(times[:asked_at])
    assert window.update(times) == worst_window(times, seconds)


def test_the_end_of_a_window_is_not_part_of_it() -> None:
    assert worst_window([0.0, 60.0], 60.0) == 1
    assert worst_window([0.0, 59.75], 60.0) == 2
