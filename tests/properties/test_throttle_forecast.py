"""A forecast says when the throttle will let the last call go: held against the plain rule, call by call."""

import math
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns.reporting.forecast.eta import forecast_seconds
from vendors.limits.values import Limit

QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
NOW = 1_000_000
limits = st.builds(Limit, st.integers(1, 6), st.integers(1, 60))
overs = st.lists(st.integers(NOW - 70, NOW + 20), max_size=12)
latencies = st.sampled_from([0, 1, 7])


def played(waiting: int, limits: list[Limit], in_window: list[int], latency: int) -> float:
    """Call after call starts as soon as every window has a free permit; what is in flight takes the latency too."""
    overs, start = [min(over, NOW + latency) for over in in_window], float(NOW)
    for _ in range(waiting):
        start = max([start, *(_next_free(limit, overs) for limit in limits)])
        overs.append(start + latency)
    return start + latency - NOW


def _next_free(limit: Limit, overs: list[float]) -> float:
    """When the window has a free permit: once all but units - 1 calls have left it."""
    return sorted(overs)[-limit.units] + limit.seconds if len(overs) >= limit.units else -math.inf


@QUIET
@given(waiting=st.integers(1, 60), limit=limits, in_window=overs, latency=latencies)
def test_with_one_limit_the_forecast_is_exact(waiting: int, limit: Limit, in_window: list[int], latency: int) -> None:
    assert forecast_seconds(waiting, [limit], in_window, NOW, latency) == played(waiting, [limit], in_window, latency)


@QUIET
@given(waiting=st.integers(1, 60), some=st.lists(limits, min_size=2, max_size=3), in_window=overs, latency=latencies)
def test_with_several_limits_it_is_never_too_late_and_too_early_by_less_than_the_windows_together(
    waiting: int, some: list[Limit], in_window: list[int], latency: int
) -> None:
    found, truth = forecast_seconds(waiting, some, in_window, NOW, latency), played(waiting, some, in_window, latency)
    assert found is not None
    cycles = [limit.seconds + latency for limit in some]
    assert truth - sum(cycles) < found <= truth


@QUIET
@given(limit=limits, in_window=overs, latency=latencies)
def test_the_longer_the_queue_the_later_its_end(limit: Limit, in_window: list[int], latency: int) -> None:
    ends = [forecast_seconds(waiting, [limit], in_window, NOW, latency) or 0 for waiting in range(30)]
    assert all(sooner <= later for sooner, later in pairwise(ends))


def test_a_thousand_jobs_at_five_a_minute_end_after_3_hours_and_19_minutes() -> None:
    assert forecast_seconds(1000, [Limit(5, 60)], [], NOW) == 11_940


def test_latency_is_paid_once_a_round_and_once_at_the_end() -> None:
    assert forecast_seconds(11, [Limit(5, 60)], [], NOW, latency=0.5) == 60.5 * 2 + 0.5


def test_what_is_in_the_window_goes_first_also_when_the_limit_was_lowered() -> None:
    assert forecast_seconds(1, [Limit(2, 60)], [NOW - 50, NOW - 40, NOW - 30], NOW) == 20


@pytest.mark.parametrize("limits", [[Limit(0, 60)], [Limit(5, 60), Limit(0, 1)]])
def test_while_paused_there_is_no_end(limits: list[Limit]) -> None:
    assert forecast_seconds(1, limits, [], NOW) is None


def test_nothing_waiting_is_over_at_once_and_without_limits_one_call_takes_its_latency() -> None:
    assert forecast_seconds(0, [Limit(0, 60)], [], NOW) == 0
    assert forecast_seconds(1000, [], [], NOW, latency=0.25) == 0.25
