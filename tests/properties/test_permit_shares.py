"""Permits among sponsors: lists arrive and end, weights are edited, processes come late and die."""

import random
from collections.abc import Iterator

import pytest
from django.conf import settings as project
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.shared_vendor import LATE, Process, SharedVendor, Sponsor
from tests.windows import worst_window

pytestmark = pytest.mark.slow("many")
COUNTED = 12  # seconds, and so many windows: one may fall into them for one sponsor and not for another
SETTLED = 2.0  # seconds after an event before shares are counted


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis.from_url(project.REDIS_URL) as client:
        yield client


QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
WEIGHTS = st.lists(st.integers(1, 10), min_size=2, max_size=5)


@settings(QUIET, max_examples=25)
@given(
    weights=WEIGHTS, limit=st.sampled_from([20, 60, 200]), several=st.lists(st.integers(1, 3), min_size=5, max_size=5),
    together=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_sponsors_with_endless_lists_get_shares_by_their_weights_and_no_place_is_left_free(
    redis: Redis, weights: list[int], limit: int, several: list[int], together: bool, seed: int
) -> None:
    """Whatever the number of their processes, and after an edit of a weight in between."""
    sponsors = [Sponsor(weight, 1e9) for weight in weights]
    if together:
        processes = [Process(f"p{n}", dict.fromkeys(range(len(weights)), limit), LATE) for n in range(3)]
    else:
        processes = [
            Process(f"p{key}.{n}", {key: limit}, LATE) for key in range(len(weights)) for n in range(several[key])
        ]
    shared = SharedVendor(redis, limit, sponsors, processes, seed)
    for key, weight in ((0, weights[0]), (0, 11 - weights[0])):
        sponsors[key].weight = weight
        shared.live(SETTLED)
        before, idle = [one.got for one in sponsors], shared.idle
        shared.live(COUNTED)
        got = [one.got - former for one, former in zip(sponsors, before, strict=True)]
        for one, units in zip(sponsors, got, strict=True):
            fair = sum(got) * one.weight / sum(other.weight for other in sponsors)
            assert abs(units - fair) <= 0.02 * fair + fair / COUNTED + 2, (got, [other.weight for other in sponsors])
        assert shared.idle - idle <= 0.03 * COUNTED * limit
    assert worst_window(shared.calls, 1) <= limit
    shared.vendor.clear()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.3, 1.0, 2.5]), st.integers(0, 4), st.sampled_from(["list", "list", "die", "edit"]),
        st.sampled_from([1, 1, 30, 1000]),
    ),
    min_size=3, max_size=12,
)  # fmt: skip


@settings(QUIET, max_examples=40)
@given(
    weights=WEIGHTS, limit=st.sampled_from([5, 20, 60]), connections=st.sampled_from([1, 8, 64]), events=EVENTS,
    seed=st.integers(0, 99),
)  # fmt: skip
def test_no_sponsor_waits_longer_than_its_bound_whoever_comes_and_dies(
    redis: Redis, weights: list[int], limit: int, connections: int, events: list[tuple[float, int, str, int]], seed: int
) -> None:
    sponsors = [Sponsor(weight) for weight in weights]
    processes = [
        Process(f"p{key}.{n}", {key: connections}, LATE) for key in range(len(weights)) for n in range(1 + key % 2)
    ]
    processes.append(Process("all", dict.fromkeys(range(len(weights)), connections), LATE))
    shared = SharedVendor(redis, limit, sponsors, processes, seed)
    for seconds, which, what, units in events:
        key = which % len(weights)
        if what == "list":
            shared.hand_in(key, units)
        elif what == "edit":
            sponsors[key].weight = 1 + units % 7
        else:
            processes[which % (len(processes) - 1)].is_alive = False  # the last one goes on
        shared.live(seconds)
    shared.live(10)
    for one in sponsors:
        waits = max(one.longest, shared.now - one.waits if one.waits is not None and one.backlog >= 1 else 0.0)
        others = sum(other.weight for other in sponsors)
        assert waits <= 2.5 + 2 * others / one.weight / limit, [vars(other) for other in sponsors]
    assert worst_window(shared.calls, 1) <= limit
    assert shared.idle <= 0.05 * limit * shared.now + 0.2 * limit * sum(what == "die" for _, _, what, _ in events)
    shared.vendor.clear()


@pytest.mark.parametrize("limit", [20, 60])
@pytest.mark.parametrize("others", [(3,), (2, 3), (2, 2, 3, 3)])
def test_a_letter_of_the_first_class_waits_hardly_longer_than_a_window(
    redis: Redis, limit: int, others: tuple[int, ...]
) -> None:
    """Beside endless lists of lower classes: their floors do not take the last places of window after window."""
    sponsors = [Sponsor(1, rank=1), *(Sponsor(1, 1e9, rank) for rank in others)]
    processes = [Process(f"p{key}", {key: limit}, LATE) for key in range(len(sponsors))]
    shared, moments = SharedVendor(redis, limit, sponsors, processes, 1, floor=10), random.Random(1)
    shared.live(SETTLED)
    began, calls = shared.now, len(shared.calls)
    for _ in range(60):
        shared.live(moment := moments.random())
        shared.hand_in(0, 1)
        shared.live(1 - moment)
    took = sorted(sponsors[0].took)
    assert len(took) >= 59 and took[-3] <= 1.1 and took[-1] <= 2, took
    assert (len(shared.calls) - calls) / (shared.now - began) >= 0.97 * limit * (1 - LATE)
    assert worst_window(shared.calls, 1) <= limit
    shared.vendor.clear()
