"""When programs hear that a vendor is in trouble (document 002, step 1): the exact rule, and the way back."""

from uuid import uuid4

import pytest
from django.conf import settings

from tests.programs import wait_until
from vendors import health
from vendors.health import HealthPolicy

POLICY = HealthPolicy(min_requests=10, min_ratio=0.5, ttl=600, retry_after=60)
SHORT = HealthPolicy(min_requests=10, min_ratio=0.5, ttl=600, retry_after=1)


@pytest.fixture
def store():
    return health.health_store(settings.REDIS_URL)


@pytest.fixture
def vendor(store):
    """The id of a vendor that nobody has called yet."""
    number = uuid4().int >> 65  # below 2 ** 63
    yield number
    store.reset(number)


def test_a_vendor_without_answers_is_open(store, vendor):
    status = store.admit(vendor, POLICY)
    assert (status.state, status.good, status.bad, status.ratio) == ("open", 0, 0, None)


def test_fewer_answers_than_the_minimum_say_nothing(store, vendor):
    store.note(vendor, POLICY, 0, 9)
    assert store.admit(vendor, POLICY).accepting
    store.note(vendor, POLICY, 0, 1)
    assert not store.admit(vendor, POLICY).accepting


def test_equal_to_the_threshold_is_not_under_it(store, vendor):
    store.note(vendor, POLICY, 10, 10)
    assert store.admit(vendor, POLICY).accepting
    store.note(vendor, POLICY, 0, 1)
    status = store.admit(vendor, POLICY)
    assert (status.state, status.good, status.bad) == ("closed", 10, 11) and 30 < status.seconds <= 60


@pytest.mark.parametrize(("ratio", "good", "bad"), [(0.7, 7, 3), (0.1, 1, 9), (0.8, 800, 200), (0.3, 3, 7)])
def test_a_threshold_in_decimals_is_met_exactly(store, vendor, ratio, good, bad):
    terms = HealthPolicy(10, ratio, 600, 60)
    store.note(vendor, terms, good, bad)
    assert store.admit(vendor, terms).accepting
    store.note(vendor, terms, 0, 1)
    assert not store.admit(vendor, terms).accepting


def test_the_terms_are_those_of_now(store, vendor):
    store.note(vendor, POLICY, 5, 5)
    assert not store.admit(vendor, HealthPolicy(10, 0.9, 600, 60)).accepting
    assert store.admit(vendor, POLICY).accepting
    assert store.admit(vendor, HealthPolicy(11, 0.9, 600, 60)).accepting


def test_looking_changes_nothing(store, vendor):
    store.note(vendor, SHORT, 0, 20)
    assert [store.look(vendor, SHORT).seconds for _ in range(2)] == [1, 1]
    assert store.admit(vendor, SHORT).state == "closed"
    wait_until(lambda: store.look(vendor, SHORT).state == "half-open", "the pause is over")
    assert store.look(vendor, SHORT).state == "half-open"
    assert store.admit(vendor, SHORT).state == "probe"


def half_open(store, vendor):
    """One probe is out, the others wait."""
    store.note(vendor, SHORT, 0, 20)
    assert store.admit(vendor, SHORT).state == "closed"
    wait_until(lambda: store.look(vendor, SHORT).state == "half-open", "the pause is over")
    patient = HealthPolicy(10, 0.5, 600, 600)
    assert [store.admit(vendor, patient).state for _ in range(3)] == ["probe", "closed", "closed"]
    return patient


def test_after_the_pause_one_batch_is_the_probe_and_good_answers_open_the_vendor(store, vendor):
    terms = half_open(store, vendor)
    store.note(vendor, terms, 1, 0)
    status = store.admit(vendor, terms)
    assert (status.state, status.good, status.bad) == ("open", 1, 0), "what was before the trouble is forgotten"


def test_bad_answers_of_the_probe_close_the_vendor_for_as_long_again(store, vendor):
    terms = half_open(store, vendor)
    store.note(vendor, terms, 0, 1)
    status = store.admit(vendor, terms)
    assert status.state == "closed" and 590 < status.seconds <= 600


def test_a_probe_of_which_nothing_is_heard_is_followed_by_another(store, vendor):
    store.note(vendor, SHORT, 0, 20)
    store.admit(vendor, SHORT)
    wait_until(lambda: store.admit(vendor, SHORT).state == "probe", "the first probe")
    wait_until(lambda: store.admit(vendor, SHORT).state == "probe", "the second")


def test_campaigns_that_go_on_may_open_the_vendor_as_well(store, vendor):
    store.note(vendor, POLICY, 0, 20)
    assert not store.admit(vendor, POLICY).accepting
    store.note(vendor, POLICY, 20, 0)
    assert store.admit(vendor, POLICY).state == "open"


def test_the_counts_are_forgotten_when_their_time_is_over(store, vendor):
    brief = HealthPolicy(10, 0.5, 1, 60)
    store.note(vendor, brief, 0, 20)
    wait_until(lambda: store.look(vendor, brief).ratio is None, "the counts are forgotten")
    assert store.admit(vendor, brief).accepting


def test_reset_opens_at_once(store, vendor):
    store.note(vendor, POLICY, 0, 20)
    assert not store.admit(vendor, POLICY).accepting
    store.reset(vendor)
    assert store.admit(vendor, POLICY).state == "open"


def test_a_status_store_that_is_away_is_no_good_news():
    away = health.health_store("redis://127.0.0.1:1/0")
    for ask in (lambda: away.admit(1, POLICY), lambda: away.note(1, POLICY, 1, 0), lambda: away.reset(1)):
        with pytest.raises(health.HealthStoreUnreachable):
            ask()
