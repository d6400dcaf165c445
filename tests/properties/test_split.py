"""What holds for every child size, whatever the numbers."""

from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns.engine.casting.mailcaster import child_size

# a loaded machine is slow, not wrong
calm = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
counts = st.integers(min_value=1, max_value=10_000_000)
bounds = st.tuples(counts, counts).map(sorted)
percentages = st.floats(min_value=0, max_value=100, exclude_min=True, allow_subnormal=False)


@calm
@given(counts, bounds, percentages)
def test_a_child_is_within_its_bounds_or_the_whole_rest(remaining: int, sizes: list[int], percentage: float) -> None:
    minimum, maximum = sizes
    size = child_size(remaining, minimum, maximum, percentage)
    assert 1 <= size <= min(remaining, maximum)
    assert size == remaining or size >= minimum


@calm
@given(counts, bounds, st.integers(min_value=1, max_value=10_000))
def test_between_the_bounds_it_is_exactly_the_percentage(remaining: int, sizes: list[int], hundredths: int) -> None:
    minimum, maximum = sizes
    share = remaining * hundredths // 10_000
    size = child_size(remaining, minimum, maximum, hundredths / 100)
    if minimum <= share <= maximum:
        assert size == share


@calm
@given(counts, counts, bounds, percentages)
def test_more_that_remains_never_gives_a_smaller_child(one: int, other: int, sizes: list[int], share: float) -> None:
    less, more = sorted((one, other))
    assert child_size(less, *sizes, share) <= child_size(more, *sizes, share)


@calm
@given(st.integers(min_value=1, max_value=200_000), bounds, percentages)
def test_cutting_ends_and_the_children_are_the_whole(total: int, sizes: list[int], percentage: float) -> None:
    minimum = max(sizes[0], total // 500)  # keeps the number of children, and the test, small
    maximum = max(sizes[1], minimum)
    children, remaining = [], total
    while remaining:
        children.append(child_size(remaining, minimum, maximum, percentage))
        remaining -= children[-1]
    assert sum(children) == total
    assert all(size >= minimum for size in children[:-1])
    assert len(children) <= Fraction(total, minimum) + 1
