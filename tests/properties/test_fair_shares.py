"""The model of the shares: held against a plain step by step one, and against turns unit by unit."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from campaigns.reporting.forecast.fair_shares import Claimant, FairShares, split_all, split_rate
from vendors.mail_classes import MailClass

QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
RATE = 60.0
caps = st.one_of(st.just(math.inf), st.floats(0.5, 80.0))


@st.composite
def sponsors(draw: st.DrawFn, cap: st.SearchStrategy[float] = caps) -> list[Claimant]:
    many = draw(st.integers(1, 6))
    return [
        Claimant(number, draw(st.integers(1, 10)), float(draw(st.integers(1, 3_000))), draw(cap))
        for number in range(many)
    ]


def played(rate: float, of: list[Claimant]) -> dict[int, float]:
    """Return when each sponsor ends: from one end to the next at the shares of those who are left."""
    left, now, ends = {one.sponsor: one.units for one in of}, 0.0, dict[int, float]()
    while left:
        shares = split_rate(rate, [one for one in of if one.sponsor in left])
        step = min(left[key] / share for key, share in shares.items())
        now += step
        for key, share in shares.items():
            left[key] -= step * share
            if left[key] <= 1e-6:
                del left[key]
                ends[key] = now
    return ends


@QUIET
@given(of=sponsors())
def test_nobody_gets_more_than_his_cap_and_all_together_no_more_than_the_limit(of: list[Claimant]) -> None:
    shares = split_rate(RATE, of)
    assert sum(shares.values()) <= RATE * (1 + 1e-9)
    assert all(shares[one.sponsor] <= one.cap for one in of)
    at_cap = all(shares[one.sponsor] == one.cap for one in of)
    assert at_cap or sum(shares.values()) == pytest.approx(RATE), "nothing is left over while somebody wants it"
    levels = {shares[one.sponsor] / one.weight for one in of if shares[one.sponsor] < one.cap}
    assert not levels or max(levels) == pytest.approx(min(levels)), "those who are not at their caps get by weight"


@QUIET
@given(of=sponsors())
def test_every_end_is_that_of_the_plain_model(of: list[Claimant]) -> None:
    shares, ends = FairShares(RATE, of), played(RATE, of)
    for one in of:
        assert shares.seconds_until(one.sponsor, one.units) == pytest.approx(ends[one.sponsor], rel=1e-6, abs=1e-4)


@QUIET
@given(of=sponsors())
def test_what_is_given_by_then_never_exceeds_the_limit(of: list[Claimant]) -> None:
    """A later unit never comes before an earlier one, and no sponsor faster than the vendor allows it."""
    shares = FairShares(RATE, of)
    for one in of:
        times = [shares.seconds_until(one.sponsor, one.units * part / 10) for part in range(11)]
        for earlier, later in pairwise(times):
            assert later - earlier >= one.units / 10 / min(RATE, one.cap) * (1 - 1e-6) - 1e-6
    last = max(shares.seconds_until(one.sponsor, one.units) for one in of)
    assert last >= sum(one.units for one in of) / RATE * (1 - 1e-9)


@QUIET
@given(of=sponsors(), more=st.integers(1, 2_000))
def test_who_else_waits_makes_nobody_earlier_and_a_weight_makes_nobody_later(of: list[Claimant], more: int) -> None:
    first, others = of[0], of[1:]

    def end(*claimants: Claimant) -> float:
        return FairShares(RATE, claimants).seconds_until(first.sponsor, first.units)

    alone = end(first)
    beside = end(*of)
    heavier = FairShares(RATE, [Claimant(0, first.weight + 1, first.units, first.cap), *others])
    assert alone <= beside * (1 + 1e-9) <= end(*of, Claimant(9, 1, float(more))) * (1 + 1e-6)
    assert heavier.seconds_until(0, first.units) <= beside * (1 + 1e-6)


@QUIET
@given(of=sponsors(st.just(math.inf)))
def test_it_is_what_turns_give_unit_by_unit(of: list[Claimant]) -> None:
    """Start-time fair queueing of single units: the least virtual time first."""
    assume(sum(one.units for one in of) <= 3_000)
    given_units, ends = {one.sponsor: 0.0 for one in of}, dict[int, int]()
    for number in range(int(sum(one.units for one in of))):
        waiting = [one for one in of if given_units[one.sponsor] < one.units]
        turn = min(waiting, key=lambda one: (given_units[one.sponsor] / one.weight, one.sponsor))
        given_units[turn.sponsor] += 1
        if given_units[turn.sponsor] == turn.units:
            ends[turn.sponsor] = number + 1
    shares = FairShares(RATE, of)
    for one in of:
        expected = RATE * shares.seconds_until(one.sponsor, one.units)
        assert abs(expected - ends[one.sponsor]) <= len(of) + sum(each.weight for each in of) / one.weight


def test_two_equal_sponsors_get_half_of_the_rate_each_until_one_is_done() -> None:
    shares = FairShares(60.0, [Claimant(1, 1, 5_640.0), Claimant(2, 1, 200.0)])
    assert shares.seconds_until(2, 200.0) == pytest.approx(400 / 60)
    assert shares.seconds_until(1, 5_640.0) == pytest.approx(5_840 / 60)
    assert FairShares(60.0, [Claimant(2, 1, 200.0)]).seconds_until(2, 200.0) == pytest.approx(200 / 60)


def test_who_is_held_by_his_own_limit_leaves_the_rest_to_the_others() -> None:
    shares = FairShares(60.0, [Claimant(1, 1, 1_000.0, cap=5.0), Claimant(2, 1, 550.0)])
    assert split_rate(60.0, [Claimant(1, 1, 1_000.0, cap=5.0), Claimant(2, 1, 550.0)]) == {1: 5.0, 2: 55.0}
    assert shares.seconds_until(2, 550.0) == pytest.approx(10)
    assert shares.seconds_until(1, 1_000.0) == pytest.approx(200)


def test_a_vendor_without_a_limit_and_one_that_is_paused() -> None:
    assert FairShares(math.inf, [Claimant(1, 1, 10.0)]).seconds_until(1, 10.0) == 0
    assert FairShares(0.0, [Claimant(1, 1, 10.0)]).seconds_until(1, 10.0) == math.inf
    assert FairShares(60.0, []).seconds_until(1, 0.0) == 0


@st.composite
def of_classes(draw: st.DrawFn) -> list[Claimant]:
    found = draw(sponsors())
    return [replace(one, mail_class=draw(st.sampled_from(MailClass))) for one in found]


floors = st.sampled_from([0.0, 0.1, 0.4])


def played_by_classes(rate: float, floor: float, of: list[Claimant]) -> dict[int, float]:
    """Return when each sponsor ends: from one end to the next at the shares of those who are left."""
    left, now, ends = {one.sponsor: one.units for one in of}, 0.0, dict[int, float]()
    while left:
        shares = {
            key: share for (_, key), share in split_all(rate, floor, [o for o in of if o.sponsor in left]).items()
        }
        step = min(left[key] / share for key, share in shares.items() if share > 1e-9)
        now += step
        for key, share in shares.items():
            left[key] -= step * share
            if left[key] <= 1e-6:
                del left[key]
                ends[key] = now
    return ends


@QUIET
@given(of=of_classes(), floor=floors)
def test_each_class_gets_its_floor_and_a_higher_one_the_rest(of: list[Claimant], floor: float) -> None:
    shares = split_all(RATE, floor, of)
    by_class = {one: sum(share for (key, _), share in shares.items() if key == one) for one in MailClass}
    caps = {one: sum(each.cap for each in of if each.mail_class == one) for one in MailClass}
    there = sorted({one.mail_class for one in of})
    assert sum(shares.values()) == pytest.approx(min(RATE, sum(caps.values()))), "nothing is left over"
    for one in there[1:]:
        assert by_class[one] >= min(floor * RATE, caps[one]) * (1 - 1e-9)
    for higher, lower in pairwise(there):
        hungry = by_class[higher] < caps[higher] * (1 - 1e-9)
        assert not hungry or by_class[lower] <= floor * RATE * (1 + 1e-9), "above its floor while a higher one waits"


@QUIET
@given(of=of_classes(), floor=floors)
def test_with_classes_every_end_is_that_of_the_plain_model(of: list[Claimant], floor: float) -> None:
    shares, ends = FairShares(RATE, of, floor), played_by_classes(RATE, floor, of)
    for one in of:
        found = shares.seconds_until(one.sponsor, one.units, one.mail_class)
        assert found == pytest.approx(ends[one.sponsor], rel=1e-6, abs=1e-4)


def test_an_urgent_job_ends_beside_a_bulk_million_as_if_alone_but_for_the_floor() -> None:
    beside = [
        Claimant(1, 1, 1_000_000.0, mail_class=MailClass.BULK),
        Claimant(2, 1, 540.0, mail_class=MailClass.URGENT),
    ]
    shares = FairShares(60.0, beside, 0.1)
    assert shares.seconds_until(2, 540.0, MailClass.URGENT) == pytest.approx(10)
    assert shares.seconds_until(1, 60.0, MailClass.BULK) == pytest.approx(10), "a tenth of 60 a second"
    assert shares.seconds_until(1, 1_000_000.0, MailClass.BULK) == pytest.approx(1_000_540 / 60)
    without = FairShares(60.0, beside, 0.0)
    assert without.seconds_until(2, 540.0, MailClass.URGENT) == pytest.approx(9)
    assert without.seconds_until(1, 0.0, MailClass.BULK) == pytest.approx(9), "bulk begins when the codes are out"
    assert without.seconds_until(1, 60.0, MailClass.BULK) == pytest.approx(10)


def test_a_sponsor_may_have_mail_of_two_classes() -> None:
    shares = FairShares(10.0, [Claimant(1, 1, 90.0, mail_class=one) for one in MailClass], 0.1)
    ends = [shares.seconds_until(1, 90.0, one) for one in MailClass]
    assert ends == pytest.approx([90 / 8, 90 / 8 + (90 - 90 / 8) / 9, 27])
