"""Sponsors share a vendor's permits by their weights, however many streams and processes ask for each of them."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from django.conf import settings
from redis import Redis

from tests.virtual import HOLD, VirtualVendor
from vendors.limits.values import AcquireResult, Grant, Scope, SharedAsk, SponsorShare, Wait

ANTON, VELMA, CARLA = 1, 2, 3


@pytest.fixture
def vendor() -> Iterator[VirtualVendor]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        vendor = VirtualVendor(redis, reach=600)
        yield vendor
        vendor.clear()


def ask(
    vendor: VirtualVendor,
    scope: Scope,
    name: str,
    *wants: tuple[int, ...],
    least: int = 1,
    waiter: str = "",
    floor: int = 0,
) -> AcquireResult:
    """wants: (sponsor, units, weight, rank), the last two if they are not usual. Calls take no time."""
    shares = {SponsorShare(sponsor, *more): units for sponsor, units, *more in wants}
    want = sum(shares.values())
    answer = vendor.throttle.acquire(
        scope, want, HOLD, least, waiter=waiter, asker=SharedAsk(name, shares, floor=floor)
    )
    if isinstance(answer, Grant):
        vendor.throttle.done(scope, answer.places())
    return answer


def units(answer: AcquireResult) -> int:
    assert isinstance(answer, Grant | Wait), answer
    return answer.units if isinstance(answer, Grant) else 0


def shared_keys(vendor: VirtualVendor) -> list[str]:
    found: dict[bytes, bytes] = vendor.redis.hgetall(f"mailhub:{{v{vendor.vendor_id}}}:shares")
    return sorted(name.decode() for name in found)


def lived(
    vendor: VirtualVendor,
    scope: Scope,
    windows: int,
    asks: dict[str, list[tuple[int, ...]]],
    step: float = 1.0,
    floor: int = 0,
) -> Counter[int]:
    """Return the units of each sponsor. All ask as each window opens, in this order, and again right after."""
    got = Counter[int]()
    for _ in range(windows):
        for _ in range(2):
            for name, wants in asks.items():
                answer = ask(vendor, scope, name, *wants, floor=floor)
                if isinstance(answer, Grant):
                    got += Counter({of.sponsor: part for of, part in answer.parts.items()})
        vendor.clock.advance(step)
    return got


def test_a_sponsor_with_one_stream_gets_as_much_as_one_with_many_in_other_processes(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    asks = {f"a{n}": [(ANTON, 64)] for n in range(4)} | {"b": [(VELMA, 32)]}
    lived(vendor, scope, 1, asks)
    got = lived(vendor, scope, 10, asks)
    assert got == {ANTON: 300, VELMA: 300}


def test_shares_follow_the_weights_and_their_edits(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    asks = {"a": [(ANTON, 60)], "b": [(VELMA, 60, 3)], "c": [(CARLA, 60, 2)]}
    lived(vendor, scope, 1, asks)
    assert lived(vendor, scope, 10, asks) == {ANTON: 100, VELMA: 300, CARLA: 200}
    asks["b"] = [(VELMA, 60, 1)]
    lived(vendor, scope, 1, asks)
    assert lived(vendor, scope, 8, asks) == {ANTON: 120, VELMA: 120, CARLA: 240}


def test_sponsors_of_one_process_share_what_it_is_granted(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    answer = ask(vendor, scope, "p", (ANTON, 100), (VELMA, 20), (CARLA, 100, 3))
    assert isinstance(answer, Grant)
    assert list(answer.parts.values()) == [12, 12, 36]


def test_what_a_sponsor_does_not_want_goes_to_the_others(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    asks = {"a": [(ANTON, 100)], "b": [(VELMA, 5)]}
    lived(vendor, scope, 1, asks)
    assert lived(vendor, scope, 10, asks) == {ANTON: 550, VELMA: 50}


def test_what_is_kept_for_one_who_does_not_come_goes_to_those_who_wait(vendor: VirtualVendor) -> None:
    """Its process was killed."""
    scope = vendor.scope((60, 1))
    lived(vendor, scope, 1, {"a": [(ANTON, 60)], "b": [(VELMA, 60)]})
    first = ask(vendor, scope, "a", (ANTON, 60))
    assert isinstance(first, Grant)
    assert units(first) == 30
    assert 0 < first.more_after < 0.2, "as soon as nobody can come for the rest any more"
    vendor.clock.advance(first.more_after + 0.001)
    assert units(ask(vendor, scope, "a", (ANTON, 30))) == 30


def test_an_idle_sponsor_saves_nothing_up_and_owes_nothing(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    asks = {"a": [(ANTON, 60)], "b": [(VELMA, 60)]}
    lived(vendor, scope, 5, asks)
    lived(vendor, scope, 100, {"a": [(ANTON, 60)]})
    lived(vendor, scope, 1, asks)
    assert lived(vendor, scope, 5, asks) == {ANTON: 150, VELMA: 150}


def test_one_that_trickles_has_its_letter_first_but_saves_nothing_up(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    lived(vendor, scope, 100, {"a": [(ANTON, 100)], "b": [(VELMA, 1)]})
    lived(vendor, scope, 1, {"a": [(ANTON, 100)], "b": [(VELMA, 100)]})
    got = lived(vendor, scope, 3, {"a": [(ANTON, 100)], "b": [(VELMA, 100)]})
    assert got[VELMA] <= 90 + 1


def test_one_that_is_late_a_moment_gets_the_missed_part_with_the_next(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    both = {"a": [(ANTON, 100)], "b": [(VELMA, 60)]}
    lived(vendor, scope, 2, both)
    vendor.clock.advance(0.2)
    assert units(ask(vendor, scope, "a", (ANTON, 100))) == 60, "Velma is late"
    assert units(ask(vendor, scope, "b", (VELMA, 60))) == 0
    vendor.clock.advance(1)
    assert units(ask(vendor, scope, "a", (ANTON, 100))) == 0
    assert units(ask(vendor, scope, "b", (VELMA, 60))) == 60


def test_a_lower_rank_is_served_before_any_weight(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    lived(vendor, scope, 1, {"a": [(ANTON, 100, 1000, 1)], "b": [(VELMA, 40, 1, 0)]})
    assert units(ask(vendor, scope, "a", (ANTON, 100, 1000, 1))) == 20
    assert units(ask(vendor, scope, "b", (VELMA, 40, 1, 0))) == 40


def test_one_that_waits_for_its_own_credential_keeps_nothing_of_the_vendor(vendor: VirtualVendor) -> None:
    tight = vendor.scope((60, 1), credential=((5, 600),), credential_id=2)
    wide = vendor.scope((60, 1))
    lived(vendor, tight, 1, {"b": [(VELMA, 30)]})
    vendor.clock.advance(1)
    assert units(ask(vendor, tight, "b", (VELMA, 30))) == 0
    assert units(ask(vendor, wide, "a", (ANTON, 100))) == 60


def test_of_two_credentials_their_sponsors_share_the_vendor(vendor: VirtualVendor) -> None:
    one, other = vendor.scope((60, 1)), vendor.scope((60, 1), credential_id=2)
    for _ in range(2):
        found = [units(ask(vendor, one, "a", (ANTON, 100))), units(ask(vendor, other, "b", (VELMA, 100)))]
        vendor.clock.advance(1)
    assert found == [30, 30]


def test_a_dear_letter_has_its_turn_beside_a_sponsor_of_cheap_ones(vendor: VirtualVendor) -> None:
    """A place comes free every second; the letter needs five together."""
    scope, got = vendor.scope((10, 10)), Counter[str]()
    for _ in range(10):
        vendor.throttle.done(scope, vendor.get(scope))
        vendor.clock.advance(1)
    for _ in range(1200):
        for _ in range(4):
            got["cheap"] += units(ask(vendor, scope, "a", (ANTON, 3)))
            got["dear"] += units(ask(vendor, scope, "b", (VELMA, 5), least=5, waiter="7"))
            vendor.clock.advance(0.25)
    assert abs(got["cheap"] - got["dear"]) <= 0.1 * 1200
    assert sum(got.values()) >= 0.9 * 1200


def test_a_sponsor_alone_leaves_nothing_behind(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    assert units(ask(vendor, scope, "a", (ANTON, 10))) == 10
    assert not shared_keys(vendor)
    assert units(ask(vendor, scope, "a", (ANTON, 60))) == 50
    assert shared_keys(vendor) == ["aa"], "what it still wants"
    vendor.clock.advance(1)
    assert units(ask(vendor, scope, "a", (ANTON, 10))) == 10
    assert not shared_keys(vendor)


def test_virtual_times_are_kept_only_while_others_are_there(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    lived(vendor, scope, 5, {"a": [(ANTON, 60)], "b": [(VELMA, 60)], "c": [(CARLA, 1)]})
    assert {f"s0:{ANTON}", f"s0:{VELMA}", f"s0:{CARLA}", "clock0"} < {*shared_keys(vendor)}
    lived(vendor, scope, 10, {"a": [(ANTON, 60)]})
    assert shared_keys(vendor) == ["aa", "clock0"]


def test_who_asks_for_nobody_takes_what_is_free(vendor: VirtualVendor) -> None:
    """As processes of the former release do, and single calls that settle doubts."""
    scope = vendor.scope((60, 1))
    lived(vendor, scope, 1, {"a": [(ANTON, 60)], "b": [(VELMA, 60)]})
    assert units(vendor.ask(scope, 60)) == 60


def test_a_clock_that_was_set_back_keeps_nothing_for_long(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    lived(vendor, scope, 1, {"a": [(ANTON, 60)], "b": [(VELMA, 60)]})
    late = f"{round(vendor.clock.now + 3600)}000000 0 1 0:{VELMA}:1:60:0"
    vendor.redis.hset(f"mailhub:{{v{vendor.vendor_id}}}:shares", "ab", late)
    assert units(ask(vendor, scope, "a", (ANTON, 60))) == 60


@pytest.mark.parametrize(("floor", "got"), [(0, 0), (10, 60), (25, 150), (40, 240)])
def test_a_floor_keeps_a_higher_rank_alive_while_a_lower_one_wants_all(
    floor: int, got: int, vendor: VirtualVendor
) -> None:
    scope = vendor.scope((60, 1))
    asks = {"a": [(ANTON, 100, 1, 1)], "b": [(VELMA, 100, 1, 3)]}
    lived(vendor, scope, 3, asks, floor=floor)
    assert lived(vendor, scope, 10, asks, floor=floor) == Counter({ANTON: 600 - got}) + Counter({VELMA: got})


def test_a_floor_holds_where_places_come_one_by_one(vendor: VirtualVendor) -> None:
    scope = vendor.scope((1, 1))
    asks = {"a": [(ANTON, 9, 1, 1)], "b": [(VELMA, 9, 1, 3)], "c": [(CARLA, 9, 1, 2)]}
    lived(vendor, scope, 20, asks, floor=10)
    got = lived(vendor, scope, 200, asks, floor=10)
    assert got.total() == 200
    assert abs(got[VELMA] - 20) <= 2 and abs(got[CARLA] - 20) <= 2


def test_the_last_letter_of_the_first_rank_waits_for_the_next_window_at_most(vendor: VirtualVendor) -> None:
    """The others save up with each place that they are given, and took what was left before it was looked at."""
    scope, got = vendor.scope((60, 1)), list[int]()
    others = {"b": [(ANTON, 100, 1, 3)], "c": [(VELMA, 100, 2, 2)], "d": [(CARLA, 100, 1, 2)]}
    lived(vendor, scope, 10, {**others, "a": [(ANTON, 100, 1, 1)]}, floor=10)
    for _ in range(40):
        got.append(lived(vendor, scope, 1, {**others, "a": [(ANTON + 3, 1, 1, 1)]}, floor=10)[ANTON + 3])
    assert all(sum(pair) for pair in pairwise(got)), got


def test_a_dear_letter_of_a_higher_rank_has_its_floor_too(vendor: VirtualVendor) -> None:
    scope, got = vendor.scope((10, 1)), Counter[str]()
    for _ in range(400):
        for _ in range(2):
            got["urgent"] += units(ask(vendor, scope, "a", (ANTON, 20, 1, 1), floor=10))
            got["dear"] += units(ask(vendor, scope, "b", (VELMA, 5, 1, 3), least=5, waiter="7", floor=10))
        vendor.clock.advance(0.25)
    assert 70 <= got["dear"] <= 110 and got["urgent"] >= 850, got


def test_who_comes_to_a_rank_starts_beside_those_who_are_there(vendor: VirtualVendor) -> None:
    """Though a sponsor of another rank waits, whose virtual time hardly grows."""
    scope = vendor.scope((60, 1))
    asks = {"a": [(ANTON, 100, 1, 1)], "b": [(VELMA, 100, 1, 3)]}
    lived(vendor, scope, 30, asks, floor=10)
    asks["c"] = [(CARLA, 100, 1, 1)]
    lived(vendor, scope, 2, asks, floor=10)
    got = lived(vendor, scope, 10, asks, floor=10)
    assert abs(got[ANTON] - got[CARLA]) <= 6 and abs(got[VELMA] - 60) <= 6


def test_a_sponsor_with_two_ranks_in_one_process_has_a_part_for_each(vendor: VirtualVendor) -> None:
    scope = vendor.scope((60, 1))
    answer = ask(vendor, scope, "p", (ANTON, 40, 1, 1), (ANTON, 100, 1, 3), (VELMA, 100, 1, 3))
    assert isinstance(answer, Grant)
    assert list(answer.parts.values()) == [40, 10, 10]
