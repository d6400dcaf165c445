"""Windows of receivers: one question takes places of vendor, credential and receiver, or of none."""

import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from redis import Redis

from campaigns.engine.claiming.receiving import ByReceiver, Queued
from tests.virtual import HOLD, VirtualVendor
from vendors.limits.throttle import Grant, Limit, Lost, ReceiversFull, Scope, Wait
from vendors.limits.values import AT_A_TIME

GMAIL, YAHOO, REST = ("gmail", 1), ("yahoo", 1), ("", 1)


class Vendor(VirtualVendor):
    """Counts the places that each receiver's window has."""

    def of(self, *vendor: tuple[int, float], version: int = 1, **receivers: int) -> Scope:
        """So many calls a minute to each receiver; its window is made if there is none."""
        limits = {name: ((Limit(units, 60),), ()) for name, units in receivers.items()}
        for name in receivers:
            self.throttle.rebuild(self.vendor_id, self.generation, 60, [], name, version)
        return replace(self.scope(*vendor), receivers=limits, receivers_version=version)

    def asks(self, scope: Scope, *letters: tuple[str, int], waiter: str = "") -> Any:
        want, least = sum(cost for _, cost in letters), min(cost for _, cost in letters)
        return self.throttle.acquire(scope, want, HOLD, least, waiter=waiter, letters=letters)

    def taken(self, *receivers: str) -> list[set[str]]:
        """The places in the window of the vendor, or of each receiver, by name."""
        parts = [f":r:{name}" for name in receivers] or [""]
        keys = [f"mailhub:{{v{self.vendor_id}}}{part}:window" for part in parts]
        return [{name.decode() for name in self.redis.zrangebyscore(key, "(0", "(+inf")} for key in keys]


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        made = Vendor(redis)
        yield made
        for key in redis.scan_iter(f"mailhub:{{v{made.vendor_id}}}*"):
            redis.delete(key)


def test_who_has_room_is_called_and_nobody_behind_one_of_the_same_receiver_overtakes(vendor: Vendor) -> None:
    scope = vendor.of((4, 60), gmail=2)
    grant = vendor.asks(scope, GMAIL, GMAIL, GMAIL, REST, GMAIL, REST, REST)
    assert isinstance(grant, Grant)
    assert (grant.units, grant.receivers) == (4, {"gmail": 2}) and grant.full == {"gmail": 60}
    assert vendor.taken() == [{f"{grant.id}:{n}" for n in range(1, 5)}]
    assert vendor.taken("gmail") == [{f"{grant.id}:1", f"{grant.id}:2"}]


def test_without_a_place_of_the_vendor_no_place_of_a_receiver_is_taken(vendor: Vendor) -> None:
    scope = vendor.of((1, 60), gmail=5)
    vendor.get(scope)
    assert vendor.asks(scope, GMAIL, REST) == Wait(60)
    assert vendor.taken("gmail") == [set()]


def test_without_room_at_any_receiver_the_vendor_keeps_all_places(vendor: Vendor) -> None:
    scope = vendor.of((5, 60), gmail=1, yahoo=1)
    assert isinstance(vendor.asks(scope, GMAIL, YAHOO), Grant)
    assert vendor.asks(scope, GMAIL, YAHOO, GMAIL) == ReceiversFull({"gmail": 60, "yahoo": 60})
    assert len(vendor.taken()[0]) == 2


def test_a_dear_letter_that_waits_for_its_receiver_is_not_overtaken_there(vendor: Vendor) -> None:
    scope = vendor.of((9, 60), gmail=3)
    grant = vendor.asks(scope, ("gmail", 2), ("gmail", 2), ("", 3), ("gmail", 1))
    assert isinstance(grant, Grant) and (grant.units, grant.receivers) == (5, {"gmail": 2})


def test_a_dear_letter_waits_for_the_vendor_with_its_turn(vendor: Vendor) -> None:
    """Its receiver has no room for the first one, so the turn is for the second."""
    scope = vendor.of((4, 60), gmail=1, yahoo=4)
    vendor.get(scope, 2)
    assert isinstance(vendor.asks(scope, ("gmail", 2), ("yahoo", 3), waiter="dear"), Wait)
    assert vendor.taken("gmail", "yahoo") == [set(), set()]


def test_places_go_back_to_all_windows_and_calls_count_in_all_until_they_are_over(vendor: Vendor) -> None:
    scope = vendor.of((9, 60), gmail=3)
    grant = vendor.asks(scope, GMAIL, REST, GMAIL, GMAIL)
    assert isinstance(grant, Grant)
    first, _, third, last = grant.places()
    vendor.throttle.cancel(scope, [last])
    assert vendor.taken("gmail") == [{first, third}]
    vendor.clock.advance(2)
    vendor.throttle.done(scope, [first], {"gmail": [first]})
    vendor.throttle.done(scope, [third])
    vendor.clock.advance(60)
    again = vendor.asks(scope, *[GMAIL] * 4)
    assert isinstance(again, Grant) and again.receivers == {"gmail": 3}


def test_a_window_that_was_kept_under_other_limits_is_lost(vendor: Vendor) -> None:
    scope = vendor.of((9, 60), gmail=3)
    assert vendor.asks(replace(scope, receivers_version=2), GMAIL) == Lost()
    assert vendor.asks(replace(scope, generation=2), GMAIL) == Lost()
    assert len(vendor.taken()[0]) == 0
    assert vendor.throttle.rebuild(vendor.vendor_id, 1, 60, [], "gmail", 2) == Lost(), "a generation begins once"
    assert isinstance(vendor.asks(scope, GMAIL), Grant)


def test_letters_to_others_need_no_window_of_a_receiver(vendor: Vendor) -> None:
    scope = replace(vendor.of((9, 60), gmail=1), receivers_version=7)
    assert isinstance(vendor.asks(scope, REST, REST), Grant)


def test_a_letter_dearer_than_the_calls_at_a_time_is_called_alone(vendor: Vendor) -> None:
    hour = vendor.of((20, 60), gmail=9)
    scope = replace(hour, receivers={"gmail": (*hour.receivers["gmail"][:1], (Limit(2, AT_A_TIME),))})
    dear = ("gmail", 3)
    first = vendor.asks(scope, dear, GMAIL, REST)
    assert isinstance(first, Grant) and first.receivers == {"gmail": 3} and first.units == 4
    assert vendor.asks(scope, GMAIL) == vendor.asks(scope, dear) == ReceiversFull({"gmail": AT_A_TIME})
    vendor.throttle.done(scope, first.places())
    vendor.clock.advance(AT_A_TIME)
    second = vendor.asks(scope, GMAIL, dear)
    assert isinstance(second, Grant) and second.receivers == {"gmail": 1}
    assert vendor.asks(scope, dear) == ReceiversFull({"gmail": AT_A_TIME})
    vendor.throttle.done(scope, second.places())
    vendor.clock.advance(AT_A_TIME)
    assert isinstance(vendor.asks(scope, dear), Grant)
    assert len(vendor.taken("gmail")[0]) == 7, "the minute counts units"


def test_a_letter_dearer_than_a_limit_of_today_finds_no_room_and_others_go_on(vendor: Vendor) -> None:
    scope = vendor.of((9, 60), gmail=2)
    grant = vendor.asks(scope, ("gmail", 3), GMAIL, REST)
    assert isinstance(grant, Grant) and grant.units == 1 and grant.full == {"gmail": 60}


@pytest.mark.parametrize("seed", range(30))
def test_the_claimer_chooses_the_letters_for_which_the_throttle_took_places(vendor: Vendor, seed: int) -> None:
    """Whatever the costs, the rooms and the order."""
    chance = random.Random(seed)
    limits = {name: chance.randint(3, 9) for name in ("gmail", "yahoo", "gmx")}
    scope = vendor.of((chance.randint(3, 20), 60), **limits)
    calls = (Limit(chance.randint(1, 3), AT_A_TIME),)
    scope = replace(scope, receivers={**scope.receivers, "gmx": (scope.receivers["gmx"][0], calls)})
    for _ in range(6):
        claimer, costs = ByReceiver(0, 0), dict[int, int]()
        groups = [chance.choice(["gmail", "yahoo", "gmx", "*"]) for _ in range(chance.randint(1, 12))]
        claimer._next = [Queued(number, group, group) for number, group in enumerate(groups)]
        claimer._limits, claimer._pricing = scope.receivers, SimpleNamespace()  # type: ignore[assignment]
        costs = {number: chance.randint(0 if number else 1, 3) for number in range(len(groups))}
        claimer._priced = {number: SimpleNamespace(units=cost) for number, cost in costs.items()}  # type: ignore[misc]
        need = claimer.need(99)
        answer = vendor.throttle.acquire(scope, need.want, HOLD, need.least, letters=need.letters)
        claimer.note_answer(answer)
        if not isinstance(answer, Grant):
            continue
        number, units = claimer.fit_messages(answer.units)
        assert units is not None and number == len(units) and sum(units.values()) == answer.units
        places = answer.places()
        for name in limits:
            mine = {places[k] for one, uses in claimer._uses.items() if groups[one] == name for k in uses}
            assert mine == {place for place in vendor.taken(name)[0] if place in places}
            assert len(vendor.taken(name)[0]) <= limits[name]
        if need.letters:
            ledger = claimer.receivers()
            assert ledger and {name: ledger[name] for name in answer.receivers} == answer.receivers
