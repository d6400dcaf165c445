"""Letters that cost several units get their turn beside streams that take each unit as it comes free."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from django.conf import settings
from redis import Redis

from tests.virtual import HOLD, VirtualVendor
from vendors.limits.values import Grant, Never, Scope, Wait


@pytest.fixture
def vendor() -> Iterator[VirtualVendor]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        vendor = VirtualVendor(redis, reach=600)
        yield vendor
        vendor.clear()


@dataclass
class Stream:
    """Asks every second; its calls take no time. granted: when, and how many units."""

    name: str
    scope: Scope
    want: int
    least: int = 1
    granted: list[tuple[float, int]] = field(default_factory=list)

    @property
    def units(self) -> int:
        return sum(units for _, units in self.granted)

    def longest_wait(self, until: float) -> float:
        times = [0.0, *(at for at, _ in self.granted), until]
        return max(later - before for before, later in pairwise(times))


def ask(vendor: VirtualVendor, stream: Stream) -> Grant | Wait:
    answer = vendor.throttle.acquire(stream.scope, stream.want, HOLD, stream.least, waiter=stream.name)
    assert isinstance(answer, Grant | Wait)
    if isinstance(answer, Grant):
        vendor.throttle.done(stream.scope, answer.places())
    return answer


def lived(vendor: VirtualVendor, seconds: int, *streams: Stream) -> None:
    """They ask in this order every second."""
    for second in range(seconds):
        for stream in streams:
            answer = ask(vendor, stream)
            if isinstance(answer, Grant):
                stream.granted.append((second, answer.units))
        vendor.clock.advance(1)


def fullest(seconds: int, *streams: Stream) -> int:
    at = Counter[float]()
    for stream in streams:
        for second, units in stream.granted:
            at[second] += units
    return max(sum(at[since + n] for n in range(seconds)) for since in at)


def used(vendor: VirtualVendor, scope: Scope, every: int) -> None:
    """The window is full, and from now on a unit comes free every so many seconds."""
    for _ in range(10):
        vendor.throttle.done(scope, vendor.get(scope))
        vendor.clock.advance(every)


def test_a_dear_letter_is_not_kept_from_its_units_by_small_ones_nor_they_by_it(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    used(vendor, scope, 6)
    small = [Stream("", scope, 3) for _ in range(3)]
    dear = Stream("7", scope, 5, least=5)
    lived(vendor, 1200, *small, dear)
    assert dear.longest_wait(1200) <= 2 * 60, "five units for the others, five for itself, one every six seconds"
    assert sum(one.units for one in small) >= dear.units >= 60
    assert fullest(60, *small, dear) <= 10


def test_who_has_waited_longest_is_the_first_and_all_go_on(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    used(vendor, scope, 6)
    small, dear, dearer = Stream("", scope, 10), Stream("7", scope, 20, least=4), Stream("8", scope, 8, least=8)
    lived(vendor, 2400, small, dear, dearer)
    for stream in (small, dear, dearer):
        assert stream.longest_wait(2400) <= 4 * 60 and stream.units >= 50, stream
    assert fullest(60, small, dear, dearer) <= 10


@pytest.mark.slow("time")
def test_a_dearer_letter_has_its_turn_beside_dear_ones_too(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    used(vendor, scope, 6)
    dear, dearer = [Stream(name, scope, 20, least=2) for name in "123"], Stream("7", scope, 8, least=8)
    lived(vendor, 2400, *dear, dearer)
    assert dearer.longest_wait(2400) <= 5 * 60
    for stream in dear:
        assert stream.longest_wait(2400) <= 5 * 60, stream


def test_a_letter_that_a_lowered_limit_does_not_allow_any_more_keeps_nothing(vendor: VirtualVendor) -> None:
    wide, lowered = vendor.scope((10, 600)), vendor.scope((4, 60))
    used(vendor, wide, 60)
    dear, small = Stream("7", wide, 5, least=5), Stream("", wide, 1)
    lived(vendor, 350, dear, small)
    assert small.units == 5, "and it is the turn of the other one"
    assert vendor.ask(lowered, 5, least=5, waiter="7") == Never(4)
    small = Stream("", lowered, 1)
    lived(vendor, 61, small)
    assert small.units >= 4


def test_the_limit_of_another_credential_takes_nobodys_turn(vendor: VirtualVendor) -> None:
    wide, tight = vendor.scope((10, 60)), vendor.scope((10, 60), credential=((5, 60),), credential_id=2)
    used(vendor, wide, 6)
    dear, small = Stream("7", wide, 8, least=8), Stream("", tight, 1)
    lived(vendor, 600, dear, small)
    assert dear.longest_wait(600) <= 3 * 60


def test_nor_do_those_who_wait_for_the_first_one_of_their_credential(vendor: VirtualVendor) -> None:
    tight = vendor.scope((10, 60), credential=((10, 600),))
    other = vendor.scope((10, 60), credential_id=2)
    used(vendor, tight, 60)
    small, first = Stream("", tight, 1), Stream("7", tight, 10, least=10)
    lived(vendor, 601, first, small)
    assert small.units >= 10, "and it is the turn of the first one"
    behind, free = [Stream(name, tight, 2, least=2) for name in "12345"], Stream("", other, 10)
    lived(vendor, 300, first, *behind, free)
    assert free.units == 10 * 5


def test_a_dear_letter_that_waits_for_its_credential_keeps_nothing_from_other_credentials(
    vendor: VirtualVendor,
) -> None:
    tight = vendor.scope((10, 60), credential=((5, 600),))
    other = vendor.scope((10, 60), credential_id=2)
    lived(vendor, 1, Stream("", tight, 1))
    small, dear = Stream("", other, 10), Stream("7", tight, 5, least=5)
    lived(vendor, 500, dear, small)
    assert dear.units == 0 and small.units == 9 + 8 * 10
    vendor.clock.advance(100)
    lived(vendor, 120, small, dear)
    assert dear.units == 0, "first the others get as much as it needs"
    lived(vendor, 60, small, dear)
    assert dear.units == 5


def test_of_one_credential_a_dear_letter_has_its_turn_under_the_credentials_limit(vendor: VirtualVendor) -> None:
    tight = vendor.scope(credential=((10, 60),))
    used(vendor, tight, 6)
    small, dear = Stream("", tight, 1), Stream("7", tight, 5, least=5)
    lived(vendor, 600, small, dear)
    assert dear.longest_wait(600) <= 2 * 60 and small.longest_wait(600) <= 60


def test_what_is_kept_for_one_that_does_not_come_back_is_free_again(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    used(vendor, scope, 6)
    vendor.clock.advance(18)
    small, gone = Stream("", scope, 1), Stream("7", scope, 5, least=5)
    assert ask(vendor, gone) == Wait(6)
    lived(vendor, 20, small)
    assert small.granted == [(0, 1), (1, 1), (2, 1), (3, 1), (6, 1), (13, 1), (18, 1)], "what came free at 12 was kept"


def test_who_is_kept_waiting_for_another_one_looks_again_soon(vendor: VirtualVendor) -> None:
    """For only the throttle knows when that one has come."""
    scope = vendor.scope((10, 600))
    vendor.throttle.done(scope, vendor.get(scope, 6))
    small, dear = Stream("", scope, 10), Stream("7", scope, 5, least=5)
    assert ask(vendor, dear) == Wait(600)
    vendor.clock.advance(1)
    answer = ask(vendor, small)
    assert isinstance(answer, Grant) and answer.units == 4
    vendor.clock.advance(1)
    small.want = 1
    assert ask(vendor, small) == Wait(598)
    vendor.clock.advance(598)
    answer = ask(vendor, small)
    assert isinstance(answer, Grant) and answer.units == 1, "four more than it needs were let go before"


def test_who_is_kept_waiting_for_long_is_told_so_and_keeps_no_mailcaster(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 600))
    used(vendor, scope, 60)
    small, dear = Stream("", scope, 1), Stream("7", scope, 5, least=5)
    lived(vendor, 301, dear, small)
    assert small.units == 5, "and it is the turn of the other one"
    assert ask(vendor, dear) == ask(vendor, small) == Wait(239)


def test_letters_of_one_unit_wait_in_no_line(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    lived(vendor, 100, *(Stream("", scope, 3) for _ in range(3)))
    assert not vendor.redis.exists(f"mailhub:{{v{vendor.vendor_id}}}:turns")


def test_no_more_turns_are_kept_than_can_be_read_each_time(vendor: VirtualVendor) -> None:
    scope = vendor.scope((10, 60))
    used(vendor, scope, 6)
    lived(vendor, 1, *(Stream(str(number), scope, 10, least=10) for number in range(120)))
    assert vendor.redis.hlen(f"mailhub:{{v{vendor.vendor_id}}}:turns") == 100
