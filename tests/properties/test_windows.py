"""The judge is judged: the quick way to find the fullest window agrees with the plain one."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.windows import worst_window

QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@QUIET
@given(times=st.lists(st.integers(0, 60)), length=st.integers(1, 20))
def test_the_fullest_window_is_the_one_that_counting_every_window_finds(times: list[int], length: int) -> None:
    plain = max((sum(start <= time < start + length for time in times) for start in times), default=0)
    assert worst_window(times, length) == plain


def test_a_window_does_not_hold_its_own_end() -> None:
    assert worst_window([0, 30, 60], 60) == 2
