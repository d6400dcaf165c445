"""What the throttle does when clocks lie: it may send too little, never too much (faults 11, 12 and 43)."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from redis import Redis

from tests.virtual import HOLD, VirtualClock, VirtualVendor
from vendors.limits.throttle import Skewed, SteadyClock, Wait
from vendors.limits.values import Grant

LIMIT = (1, 60)
US = 0.000001


class Machine:
    """Redis's clock, ours, and a clock that nobody can set; time goes by for all three."""

    def __init__(self, redis: Redis) -> None:
        self.wall, self.ticks = VirtualClock(), VirtualClock()
        self.vendor = VirtualVendor(redis, clock=SteadyClock(wall=self.wall, ticks=self.ticks))
        self.server = self.vendor.clock

    def live(self, seconds: float) -> None:
        for clock in (self.server, self.wall, self.ticks):
            clock.advance(seconds)

    def step(self, seconds: float) -> None:
        """Somebody sets the clock of the one machine on which Redis and we run."""
        self.server.advance(seconds)
        self.wall.advance(seconds)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        machine = Machine(redis)
        yield machine
        machine.vendor.clear()


def contents(machine: Machine) -> list[object]:
    vendor = machine.vendor
    return [(key, vendor.redis.zrange(key, 0, -1, withscores=True)) for key in vendor.stored()]


@pytest.mark.parametrize("seconds", [2.5, 120, -2.5, -120])
def test_a_clock_that_differs_by_more_than_two_seconds_grants_and_forgets_nothing(
    machine: Machine, seconds: float
) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    vendor.throttle.done(scope, vendor.get(scope))
    before = contents(machine)
    machine.server.advance(seconds)
    assert vendor.ask(scope) == Skewed(seconds)
    assert vendor.throttle.rebuild(vendor.vendor_id, 2, 60, []) == Skewed(seconds)
    assert contents(machine) == before


def test_a_small_difference_is_no_matter(machine: Machine) -> None:
    machine.server.advance(1.9)
    assert isinstance(machine.vendor.ask(machine.vendor.scope(LIMIT)), Grant)


def test_a_leap_ahead_and_back_frees_no_place_early_and_holds_none_beyond_its_hold(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    places = vendor.get(scope, hold=HOLD)
    machine.server.advance(120)
    assert isinstance(vendor.ask(scope), Skewed)
    vendor.throttle.done(scope, places)
    machine.server.advance(-120)
    machine.live(60 + HOLD - US)
    assert vendor.ask(scope) == Wait(US)
    machine.live(US)
    vendor.get(scope)


@pytest.mark.parametrize("step", [1.5, -1.5])
def test_a_small_step_of_redis_clock_and_back_frees_no_place_early(machine: Machine, step: float) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    places = vendor.get(scope)
    machine.server.advance(step)
    vendor.throttle.done(scope, places)
    machine.live(60 - US)
    for back in (0, -step):
        machine.server.advance(back)
        assert isinstance(vendor.ask(scope), Wait)


def test_a_hold_ends_by_the_later_clock(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    machine.server.advance(-1.5)
    vendor.get(scope, hold=HOLD)
    machine.server.advance(1.5)
    machine.live(HOLD + 60 - US)
    assert vendor.ask(scope) == Wait(US)


def test_a_place_leaves_redis_by_the_earlier_clock(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope((2, 60))
    vendor.throttle.done(scope, vendor.get(scope))
    machine.live(59)
    machine.server.advance(1.5)
    vendor.get(scope)
    machine.server.advance(-1.5)
    assert vendor.ask(scope) == Wait(1)


def test_a_ledger_is_written_by_the_later_clock(machine: Machine) -> None:
    vendor = machine.vendor
    machine.server.advance(-1.5)
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 60, [(1, 0, 1)])
    machine.server.advance(1.5)
    assert vendor.ask(vendor.scope(LIMIT)) == Wait(60)


def test_the_end_of_a_call_is_stamped_by_our_clock_if_redis_clock_is_behind(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    places = vendor.get(scope, hold=HOLD)
    machine.server.advance(-5)
    machine.live(4)
    vendor.throttle.done(scope, places)
    machine.server.advance(5)
    machine.live(60 - US)
    assert vendor.ask(scope) == Wait(US)
    machine.live(US)
    vendor.get(scope)


def test_a_step_of_the_clock_that_redis_and_we_share_is_seen(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    vendor.get(scope, hold=HOLD)
    machine.step(120)
    assert vendor.ask(scope) == Skewed(120)


@pytest.mark.parametrize("step", [120, -120])
def test_after_a_step_of_a_shared_clock_sending_resumes_once_all_older_places_have_truly_expired(
    machine: Machine, step: float
) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    machine.step(step)
    assert vendor.ask(scope, hold=HOLD) == Skewed(step)
    machine.live(60 + HOLD)
    assert vendor.ask(scope, hold=HOLD) == Skewed(step)
    machine.live(1)
    vendor.get(scope)


def test_a_second_step_begins_the_patience_anew(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope(LIMIT)
    for _ in range(2):
        machine.step(100)
        assert isinstance(vendor.ask(scope), Skewed)
        machine.live(60)
    machine.live(9)
    assert vendor.ask(scope) == Skewed(200)
    machine.live(2)
    vendor.get(scope)


def test_a_clock_that_is_set_right_again_ends_the_patience(machine: Machine) -> None:
    vendor = machine.vendor
    scope = vendor.scope((9, 60))
    machine.step(120)
    assert vendor.ask(scope) == Skewed(120)
    machine.step(-120)
    vendor.get(scope)
    machine.live(1000)
    machine.step(120)
    assert vendor.ask(scope) == Skewed(120)
    assert vendor.ask(scope) == Skewed(120)


def test_the_steady_clock_does_not_follow_a_wall_clock_that_is_set() -> None:
    wall, ticks = VirtualClock(), VirtualClock()
    clock = SteadyClock(wall=wall, ticks=ticks)
    wall.advance(500)
    ticks.advance(3)
    assert clock() == VirtualClock()() + 3
