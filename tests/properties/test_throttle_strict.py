"""P4: whatever senders, network, people and Redis do, no window at the vendor holds more than the limit."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as project
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.throttle_world import HOLD_MS, Call, StampedAtTheGrant, World
from tests.windows import worst_window
from vendors.throttle import Limit, Throttle, Wait

QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
# (of the vendor, of the credential); edits go from one to another, several times a window (fault 53)
LIMITS = [
    ((Limit(5, 1),), ()),
    ((Limit(3, 1), Limit(4, 2.5)), (Limit(2, 1),)),
    ((Limit(0, 1),), ()),
    ((), (Limit(2, 1), Limit(3, 2.5))),
    ((Limit(50, 2.5),), (Limit(1, 1),)),
]
outward = st.integers(0, HOLD_MS)
calls = outward.flatmap(
    lambda out: st.builds(
        Call,
        st.just(out),
        st.integers(0, HOLD_MS - out),
        st.sampled_from(["done", "done", "done", "silent", "cancelled"]),
    )
)
sending = st.tuples(st.just("send"), st.sampled_from([1, 2]), st.lists(calls, min_size=1, max_size=6))
passing = st.tuples(st.just("advance"), st.sampled_from([1, 50, 399, 400, 600, 999, 1000]))
waiting = st.just(("wait",))
editing = st.tuples(st.just("edit"), st.sampled_from(LIMITS))
losing = st.tuples(st.just("lose"), st.integers(0, 2))
plans = st.lists(st.one_of(sending, sending, passing, waiting, editing, losing), max_size=40)


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis.from_url(project.REDIS_URL) as client:
        yield client


def lived(redis: Redis, plan: list[tuple[Any, ...]], kind: type[Throttle] = Throttle) -> World:
    world = World(redis, kind)
    world.limits = LIMITS[0]
    for step in plan:
        match step:
            case ("send", credential_id, some):
                world.send(credential_id, some)
            case ("advance", ms):
                world.advance(ms)
            case ("wait",):
                world.advance(world.wait)
            case ("edit", limits):
                world.limits = limits
            case ("lose", which):
                world.lose(which)
    world.finish()
    return world


@settings(QUIET, max_examples=300)
@given(plan=plans)
def test_no_window_at_the_vendor_ever_holds_more_than_the_limit(redis: Redis, plan: list[tuple[Any, ...]]) -> None:
    assert lived(redis, plan).overfull() is None


SLOW_THEN_FAST = [
    ("send", 1, [Call(out=300, back=0)] * 5),
    ("advance", 1000),
    ("send", 1, [Call(out=0, back=0)] * 5),
]


def test_the_judge_catches_a_throttle_that_stamps_at_the_grant(redis: Redis) -> None:
    assert len(lived(redis, SLOW_THEN_FAST, StampedAtTheGrant).overfull() or []) == 10
    assert lived(redis, SLOW_THEN_FAST).overfull() is None


def test_the_search_finds_the_throttle_that_stamps_at_the_grant(redis: Redis) -> None:
    def broken(plan: list[tuple[Any, ...]]) -> bool:
        return lived(redis, plan, StampedAtTheGrant).overfull() is not None

    assert find(
        st.lists(st.one_of(sending, passing), max_size=40),
        broken,
        settings=settings(QUIET, phases=[Phase.generate], max_examples=3000),
        random=random.Random(1),
    )


def test_a_thousand_jobs_at_five_a_minute_end_after_11940_seconds(redis: Redis) -> None:
    world = World(redis)
    desk, sent, waits = world.desk, list[float](), 0
    desk.generation = 2
    desk.throttle.rebuild(desk.vendor_id, 2, 60, [])
    scope, start = desk.scope((5, 60)), desk.clock()
    while len(sent) < 1000:
        answer = desk.ask(scope)
        if isinstance(answer, Wait):
            waits += 1
            desk.clock.advance(answer.seconds)
        else:
            sent.append(desk.clock() - start)
            desk.throttle.done(scope, answer.places())
    assert sent[-1] == 11_940
    assert waits == 199
    assert worst_window(sent, 60) == 5
    desk.clear()


def test_with_slow_calls_the_throttle_gives_the_limit_once_in_window_and_latency(redis: Redis) -> None:
    """The price of strictness, and no more than it: a throttle that never sends would be strict too."""
    world = World(redis)
    world.limits = ((Limit(5, 1),), ())
    while len(world.arrivals) < 100:
        world.wait = 0
        world.send(1, [Call(out=100, back=100)] * 5)
        world.advance(world.wait or 200)
    assert world.arrivals[-1].at == 19 * 1200 + 100
    world.finish()
