"""P4: whatever senders, network, operators and Redis do, no window at the vendor holds more than the limit."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as project
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.throttle_simulation import HOLD_MS, Call, Simulation, StampedAtTheGrant
from tests.windows import worst_window
from vendors.limits.throttle import Limit, Throttle, Wait

QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
# (of the vendor, of the credential); edits go from one to another, several times a window (fault 53)
LIMITS = [
    ((Limit(5, 1),), ()),
    ((Limit(3, 1), Limit(4, 2.5)), (Limit(2, 1),)),
    ((Limit(0, 1),), ()),
    ((), (Limit(2, 1), Limit(3, 2.5))),
    ((Limit(50, 2.5),), (Limit(1, 1),)),
    ((), ()),
]
moments = st.sampled_from([0, 1, 150, 399, HOLD_MS])
calls = st.builds(Call, moments, moments, st.sampled_from(["done", "done", "done", "silent", "cancelled"]))
STEPS = {
    "send": st.tuples(st.just("send"), st.sampled_from([1, 2]), st.lists(calls, min_size=2, max_size=6)),
    "dear": st.tuples(
        st.just("send"), st.sampled_from([1, 2]), st.lists(calls, min_size=2, max_size=5), st.sampled_from("abc")
    ),
    "advance": st.tuples(st.just("advance"), st.sampled_from([1, 150, 400, 600, 999, 1000, 1500])),
    "wait": st.just(("wait",)),
    "edit": st.tuples(st.just("edit"), st.sampled_from(LIMITS)),
    "set clock": st.tuples(st.just("set clock"), st.sampled_from([-1900, -700, 0, 700, 1900])),
    "lose": st.tuples(st.just("lose"), st.integers(0, 2)),
}


def plans(**weights: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Lives of a vendor; one_of would make every kind of step as likely as every other."""
    kinds = [kind for kind, weight in weights.items() for _ in range(weight)]
    return st.lists(st.sampled_from(kinds).flatmap(STEPS.__getitem__), min_size=15, max_size=50)


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis.from_url(project.REDIS_URL) as client:
        yield client


def lived(redis: Redis, plan: list[tuple[Any, ...]], kind: type[Throttle] = Throttle) -> Simulation:
    simulation = Simulation(redis, kind)
    simulation.limits = LIMITS[0]
    for step in plan:
        match step:
            case ("send", credential_id, some, *waiter):
                simulation.send(credential_id, some, *waiter)
            case ("advance", ms):
                simulation.advance(ms)
            case ("wait",):
                simulation.advance(simulation.wait)
            case ("edit", limits):
                simulation.limits = limits
            case ("set clock", skew):
                simulation.skew = skew
            case ("lose", which):
                simulation.lose(which)
    simulation.finish()
    return simulation


@settings(QUIET, max_examples=225)
@given(
    plan=plans(send=12, advance=7, wait=5, edit=2, lose=1)
    | plans(send=8, dear=8, advance=7, wait=5, edit=1)
    | plans(**{"send": 12, "wait": 8, "set clock": 4})
)
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
        plans(send=1, advance=1),
        broken,
        settings=settings(QUIET, phases=[Phase.generate], max_examples=1500),
        random=random.Random(1),
    )


def test_a_thousand_jobs_at_five_a_minute_end_after_11940_seconds(redis: Redis) -> None:
    simulation = Simulation(redis)
    caller, sent, waits = simulation.vendor, list[float](), 0
    caller.generation = 2
    caller.throttle.rebuild(caller.vendor_id, 2, 60, [])
    scope, start = caller.scope((5, 60)), caller.clock()
    while len(sent) < 1000:
        answer = caller.ask(scope)
        if isinstance(answer, Wait):
            waits += 1
            caller.clock.advance(answer.seconds)
        else:
            sent.append(caller.clock() - start)
            caller.throttle.done(scope, answer.places())
    assert sent[-1] == 11_940
    assert waits == 199
    assert worst_window(sent, 60) == 5
    caller.clear()


def test_with_slow_calls_the_throttle_gives_the_limit_once_in_window_and_latency(redis: Redis) -> None:
    """Strictness costs exactly this and no more: a throttle that never grants would be strict, too."""
    simulation = Simulation(redis)
    simulation.limits = ((Limit(5, 1),), ())
    while len(simulation.arrivals) < 100:
        simulation.wait = 0
        simulation.send(1, [Call(out=100, back=100)] * 5)
        simulation.advance(simulation.wait or 200)
    assert simulation.arrivals[-1].at == 19 * 1200 + 100
    simulation.finish()
