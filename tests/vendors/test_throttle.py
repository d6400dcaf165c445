"""The throttle's promises, one by one, on a clock that the test moves (documents 000 and 001)."""

import asyncio
from collections.abc import Iterator

import pytest
from django.conf import settings
from redis import Redis

from tests.virtual import HOLD, VirtualVendor
from vendors import redis_clients
from vendors.limits.throttle import (
    AsyncThrottle,
    Grant,
    Limit,
    Never,
    Paused,
    Scope,
    Throttle,
    ThrottleUnreachable,
    Wait,
)

US = 0.000001


@pytest.fixture
def vendor() -> Iterator[VirtualVendor]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        vendor = VirtualVendor(redis)
        yield vendor
        vendor.clear()


def test_five_go_and_the_sixth_waits_until_the_first_has_been_over_for_a_window(vendor: VirtualVendor) -> None:
    scope = vendor.scope((5, 60))
    vendor.throttle.done(scope, vendor.get(scope, 5))
    assert vendor.ask(scope) == Wait(60)
    vendor.clock.advance(60 - US)
    assert vendor.ask(scope) == Wait(US)
    vendor.clock.advance(US)
    assert len(vendor.get(scope, 5)) == 5


def test_more_than_is_free_is_asked_for_and_what_is_free_is_granted(vendor: VirtualVendor) -> None:
    scope = vendor.scope((5, 60))
    vendor.get(scope, 3)
    grant = vendor.ask(scope, want=4)
    assert isinstance(grant, Grant) and grant.units == 2 and len(grant.places()) == 2


def test_who_is_granted_less_than_is_wanted_is_told_when_there_can_be_more(vendor: VirtualVendor) -> None:
    """At the earliest: by all windows, and as if what is in flight ended at once."""
    scope = vendor.scope((4, 60), (9, 50), credential=((5, 30),))
    vendor.throttle.done(scope, vendor.get(scope, 3))
    vendor.clock.advance(20)
    grant = vendor.ask(scope, want=3)
    assert isinstance(grant, Grant) and (grant.units, grant.more_after) == (1, 40)
    assert vendor.ask(scope) == Wait(40)
    vendor.clock.advance(40)
    grant = vendor.ask(scope, want=3, least=2)
    assert isinstance(grant, Grant) and (grant.units, grant.more_after) == (3, 0)
    vendor.clock.advance(60 + HOLD)
    grant = vendor.ask(scope, want=9, least=3)
    assert isinstance(grant, Grant) and (grant.units, grant.more_after) == (4, 60)


def test_a_place_is_held_while_its_call_is_in_flight_and_a_window_longer(vendor: VirtualVendor) -> None:
    scope = vendor.scope((1, 60))
    places = vendor.get(scope)
    vendor.clock.advance(7)
    vendor.throttle.done(scope, places)
    vendor.clock.advance(60 - US)
    assert vendor.ask(scope) == Wait(US)
    vendor.clock.advance(US)
    vendor.get(scope)


def test_the_place_of_a_dead_sender_comes_free_a_window_after_its_hold_ran_out(vendor: VirtualVendor) -> None:
    scope = vendor.scope((1, 60))
    vendor.get(scope, hold=HOLD)
    vendor.clock.advance(HOLD + 60 - US)
    assert vendor.ask(scope) == Wait(US)
    vendor.clock.advance(US)
    vendor.get(scope)


def test_waiting_as_long_as_told_never_sleeps_past_the_moment_a_call_in_flight_makes_room(
    vendor: VirtualVendor,
) -> None:
    scope = vendor.scope((1, 60))
    places = vendor.get(scope, hold=30)
    assert vendor.ask(scope) == Wait(60)  # not 90: it may be over at once
    vendor.clock.advance(2)
    vendor.throttle.done(scope, places)
    vendor.clock.advance(58)
    assert vendor.ask(scope) == Wait(2)


def test_one_call_ends_many_calls_of_many_grants(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    first, second = vendor.get(scope, 6), vendor.get(scope, 4)
    vendor.throttle.done(scope, first[1:] + second[:1])
    vendor.clock.advance(60)
    grant = vendor.ask(scope, 10)
    assert isinstance(grant, Grant) and grant.units == 6


def test_a_late_or_repeated_end_can_only_lengthen(vendor: VirtualVendor) -> None:
    scope = vendor.scope((1, 60))
    places = vendor.get(scope, hold=HOLD)
    vendor.throttle.done(scope, places)
    vendor.clock.advance(HOLD + 20)
    vendor.throttle.done(scope, places)
    assert vendor.ask(scope) == Wait(60)


def test_an_end_told_after_its_place_is_gone_takes_no_place(vendor: VirtualVendor) -> None:
    scope = vendor.scope((1, 60))
    old = vendor.get(scope)
    vendor.clock.advance(HOLD + 60)
    vendor.throttle.done(scope, vendor.get(scope))
    vendor.throttle.done(scope, old)
    vendor.clock.advance(60)
    vendor.get(scope)


def test_places_for_which_no_call_was_started_are_free_at_once(vendor: VirtualVendor) -> None:
    scope = vendor.scope((5, 60), credential=[(5, 60)])
    places = vendor.get(scope, 5)
    vendor.throttle.cancel(scope, places[:2])
    vendor.get(scope, 2)
    assert isinstance(vendor.ask(scope), Wait)


@pytest.mark.parametrize("limits", [[(2, 1), (3, 60)], [(3, 60), (2, 1)]])
def test_all_windows_hold_at_once_and_the_longest_wait_counts(
    vendor: VirtualVendor, limits: list[tuple[int, float]]
) -> None:
    scope = vendor.scope(*limits)
    vendor.throttle.done(scope, vendor.get(scope, 2))
    assert vendor.ask(scope) == Wait(1)
    vendor.clock.advance(1)
    vendor.throttle.done(scope, vendor.get(scope, 1))
    assert vendor.ask(scope, want=2) == Wait(59)
    assert vendor.ask(scope, want=2, least=2) == Wait(59)
    vendor.clock.advance(59)
    vendor.get(scope, 2)


def test_windows_of_fractions_of_a_second_hold_too(vendor: VirtualVendor) -> None:
    scope = vendor.scope((1, 0.05))
    vendor.throttle.done(scope, vendor.get(scope))
    vendor.clock.advance(0.03)
    assert vendor.ask(scope) == Wait(0.02)


def test_credentials_share_the_vendors_limit_and_have_their_own(vendor: VirtualVendor) -> None:
    one, two = (vendor.scope((5, 60), credential=[(3, 60)], credential_id=n) for n in (1, 2))
    vendor.get(one, 3)
    assert vendor.ask(one) == Wait(60)
    grant = vendor.ask(two, 3)
    assert isinstance(grant, Grant) and grant.units == 2


def test_a_message_that_costs_three_waits_for_three_places(vendor: VirtualVendor) -> None:
    scope = vendor.scope((4, 60))
    vendor.throttle.done(scope, vendor.get(scope, 1))
    vendor.clock.advance(10)
    vendor.throttle.done(scope, vendor.get(scope, 1))
    assert vendor.ask(scope, want=9, least=3) == Wait(50)
    grant = vendor.ask(scope, want=9, least=2)
    assert isinstance(grant, Grant) and grant.units == 2


def test_a_message_dearer_than_the_limit_can_never_go(vendor: VirtualVendor) -> None:
    assert vendor.ask(vendor.scope((4, 60), credential=[(2, 1)]), want=3, least=3) == Never(2)


def test_a_limit_of_nothing_is_a_pause(vendor: VirtualVendor) -> None:
    assert vendor.ask(vendor.scope((5, 60), credential=[(0, 60)])) == Paused()


@pytest.mark.parametrize(("want", "least"), [(0, 1), (1, 0), (2, 3)])
def test_who_asks_for_less_than_he_needs_is_told(vendor: VirtualVendor, want: int, least: int) -> None:
    with pytest.raises(ValueError, match="ask for"):
        vendor.ask(vendor.scope((5, 60)), want=want, least=least)


@pytest.mark.parametrize(("units", "seconds"), [(-1, 60), (5, 0), (5, -1), (5, float("inf")), (5, float("nan"))])
def test_a_limit_that_means_nothing_is_refused(units: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="a limit needs"):
        Limit(units, seconds)


def test_without_limits_all_is_granted_and_remembered_for_a_limit_to_come(vendor: VirtualVendor) -> None:
    free = vendor.scope()
    vendor.throttle.done(free, vendor.get(free, 7))
    assert vendor.ask(vendor.scope((7, 60))) == Wait(60)


def test_a_vendor_that_never_had_a_limit_keeps_only_what_is_in_flight(vendor: VirtualVendor) -> None:
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 0, [])
    free = vendor.scope()
    for _ in range(3):
        vendor.throttle.done(free, vendor.get(free, 2))
        vendor.clock.advance(1)
    places = vendor.get(free, 2, hold=HOLD)
    assert vendor.throttle.places(free) == ([vendor.clock() + HOLD] * 2,) * 2
    vendor.throttle.done(free, places)


def test_an_edited_limit_holds_from_the_next_grant_on_and_counts_what_went_before(vendor: VirtualVendor) -> None:
    five, three, fifty = vendor.scope((5, 60)), vendor.scope((3, 60)), vendor.scope((50, 60))
    for _ in range(5):
        vendor.throttle.done(five, vendor.get(five))
        vendor.clock.advance(1)
    assert vendor.ask(vendor.scope((0, 60))) == Paused()
    assert vendor.ask(three) == Wait(57)  # three of the five must have left
    vendor.clock.advance(57)
    vendor.get(three)
    grant = vendor.ask(fifty, 100)
    assert isinstance(grant, Grant) and grant.units == 47


def test_thousands_of_places_are_granted_and_ended_in_one_call_each(vendor: VirtualVendor) -> None:
    scope = vendor.scope((20_000, 60))
    places = vendor.get(scope, 20_000)
    assert len(set(places)) == 20_000
    vendor.throttle.done(scope, places)
    assert vendor.ask(scope) == Wait(60)


def test_no_two_grants_share_a_name(vendor: VirtualVendor) -> None:
    scope = vendor.scope((100, 60))
    names = [name for _ in range(20) for name in vendor.get(scope, 5)]
    assert len(set(names)) == 100


def test_places_past_the_longest_window_leave_redis(vendor: VirtualVendor) -> None:
    scope = vendor.scope((50, 60))
    vendor.throttle.done(scope, vendor.get(scope, 50))
    full = [vendor.redis.zcard(key) for key in vendor.stored()]
    vendor.clock.advance(60)
    vendor.get(scope)
    assert [vendor.redis.zcard(key) for key in vendor.stored()] == [size - 49 for size in full]


def test_all_keys_of_a_vendor_share_one_cluster_slot(vendor: VirtualVendor) -> None:
    for credential_id in (1, 2):
        vendor.get(vendor.scope((5, 60), credential_id=credential_id))
    tags = {key.split("}")[0] for key in vendor.stored()}
    assert len(vendor.stored()) == 3 and tags == {f"mailhub:{{v{vendor.vendor_id}"}


def test_a_meter_sees_the_moment_each_call_was_over_or_will_be_at_the_latest(vendor: VirtualVendor) -> None:
    one, two = (vendor.scope((9, 60), credential_id=n) for n in (1, 2))
    start = vendor.clock()
    vendor.throttle.done(one, vendor.get(one, 2))
    vendor.clock.advance(1)
    vendor.get(two, hold=HOLD)
    assert vendor.throttle.places(one) == ([start, start, start + 1 + HOLD], [start, start])
    assert vendor.throttle.places(one, most=1) == ([start + 1 + HOLD], [start])


def test_every_window_is_a_little_longer_than_the_limit_says_for_clocks_that_drift() -> None:
    with Redis.from_url(settings.REDIS_URL) as redis:
        vendor = VirtualVendor(redis, reach=86_400, drift=0.001)
        for seconds, margin in ((60, 0.06), (3600, 0.25)):
            scope = vendor.scope((1, seconds))
            vendor.throttle.done(scope, vendor.get(scope))
            assert vendor.ask(scope) == Wait(seconds + margin)
            vendor.clock.advance(86_401)
        vendor.clear()


def test_the_senders_loop_has_the_same_throttle(vendor: VirtualVendor) -> None:
    scope = vendor.scope((5, 60))

    async def send() -> None:
        redis = redis_clients.connect_async(settings.REDIS_URL)
        try:
            throttle = AsyncThrottle(redis, **vendor.clocks)
            grant = await throttle.acquire(scope, 9, HOLD)
            assert isinstance(grant, Grant) and grant.units == 5
            await throttle.cancel(scope, grant.places()[:1])
            await throttle.done(scope, grant.places()[1:])
            assert await throttle.acquire(vendor.scope((0, 60)), 1, HOLD) == Paused()
        finally:
            await redis.aclose()

    asyncio.run(send())
    assert [len(of) for of in vendor.throttle.places(scope)] == [4, 4]


def test_without_redis_there_is_no_grant() -> None:
    redis = redis_clients.make_client("unix:///nonexistent/redis.sock")
    throttle = Throttle(redis)
    for verb in (
        lambda: throttle.acquire(Scope(1, 1, 1), 1, HOLD),
        lambda: throttle.done(Scope(1, 1, 1), ["a:1"]),
        lambda: throttle.places(Scope(1, 1, 1)),
    ):
        with pytest.raises(ThrottleUnreachable):
            verb()
    redis.close()


def test_without_redis_the_senders_loop_gets_no_grant_either() -> None:
    async def ask() -> None:
        redis = redis_clients.connect_async("unix:///nonexistent/redis.sock")
        try:
            with pytest.raises(ThrottleUnreachable):
                await AsyncThrottle(redis).acquire(Scope(1, 1, 1), 1, HOLD)
        finally:
            await redis.aclose()

    asyncio.run(ask())
