"""When Redis forgets, the throttle says so, and the ledger gives it its memory back (faults 15 to 21)."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from redis import Redis

from tests.private_redis import PrivateRedis
from tests.virtual import HOLD, VirtualVendor
from vendors.limits.throttle import Grant, Lost, ThrottleUnreachable, Wait

pytestmark = pytest.mark.slow("servers")

LIMIT = (5, 60)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    server = PrivateRedis()
    yield server
    server.end()


@pytest.fixture
def vendor(server: PrivateRedis) -> Iterator[VirtualVendor]:
    with server.client() as redis:
        redis.flushall()
        yield VirtualVendor(redis)


def flush(server: PrivateRedis, vendor: VirtualVendor) -> None:
    vendor.redis.flushall()


def lose_the_vendors_set(server: PrivateRedis, vendor: VirtualVendor) -> None:
    vendor.redis.delete(f"mailhub:{{v{vendor.vendor_id}}}:window")


def lose_a_credentials_set(server: PrivateRedis, vendor: VirtualVendor) -> None:
    vendor.redis.delete(f"mailhub:{{v{vendor.vendor_id}}}:c1")


def restart_empty(server: PrivateRedis, vendor: VirtualVendor) -> None:
    server.restart(keep=False)


def restart_with_what_was_written_in_time(server: PrivateRedis, vendor: VirtualVendor) -> None:
    server.restart(keep=True)
    assert vendor.redis.exists(f"mailhub:{{v{vendor.vendor_id}}}:window")


Loss = Callable[[PrivateRedis, VirtualVendor], None]
LOSSES = [
    flush,
    lose_the_vendors_set,
    lose_a_credentials_set,
    restart_empty,
    restart_with_what_was_written_in_time,
]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda loss: loss.__name__)
def test_after_a_loss_nothing_is_granted_until_the_ledger_has_told_what_was_called(
    server: PrivateRedis, vendor: VirtualVendor, lose: Loss
) -> None:
    scope = vendor.scope(LIMIT)
    vendor.throttle.done(scope, vendor.get(scope, 3))
    vendor.clock.advance(4)
    vendor.get(scope, 2)  # in flight
    lose(server, vendor)
    assert vendor.ask(scope) == Lost()

    vendor.generation = 2
    entries = [(1, -4, 3), (1, HOLD, 2)]
    assert vendor.throttle.rebuild(vendor.vendor_id, 2, 60, entries) is None
    scope = vendor.scope(LIMIT)
    assert vendor.ask(scope) == Wait(56)
    vendor.clock.advance(56)
    vendor.get(scope, 3)
    vendor.clock.advance(4 + HOLD - 0.000001)
    assert isinstance(vendor.ask(scope), Wait)
    vendor.clock.advance(0.000001)
    vendor.get(scope, 2)


def test_a_forgotten_script_is_loaded_again(vendor: VirtualVendor) -> None:
    scope = vendor.scope(LIMIT)
    places = vendor.get(scope, 5)
    vendor.redis.script_flush()
    vendor.throttle.done(scope, places)
    vendor.redis.script_flush()
    assert vendor.ask(scope) == Wait(60)


@pytest.mark.parametrize(("known", "cut"), [(4_999, False), (25_000, True)])
def test_every_grant_that_the_trail_can_hold_is_returned(vendor: VirtualVendor, known: int, cut: bool) -> None:
    scope = vendor.scope(LIMIT)
    vendor.get(scope)
    trail = f"mailhub:{{v{vendor.vendor_id}}}:trail"
    vendor.redis.delete(trail)
    vendor.redis.zadd(trail, {f"grant{n} 1 note": n for n in range(known)})
    vendor.get(scope)
    found = vendor.throttle.granted(vendor.vendor_id, vendor.generation)
    assert found is not None and (len(found.grants), found.cut) == (min(known + 1, 20_000), cut)
    assert [one.id for one in found.grants[:-1]] == [f"grant{n}" for n in range(known)][-19_999:]


def test_redis_without_memory_grants_nothing_that_it_does_not_count(vendor: VirtualVendor) -> None:
    scope, granted = vendor.scope(LIMIT), 0
    vendor.redis.config_set("maxmemory", 1)
    try:
        with suppress(ThrottleUnreachable):
            granted = len(vendor.get(scope, 3))
    finally:
        vendor.redis.config_set("maxmemory", 0)
    vendor.get(scope, 5 - granted)
    assert vendor.ask(scope) == Wait(60)


def test_a_replica_that_may_not_write_grants_nothing(vendor: VirtualVendor) -> None:
    vendor.redis.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(ThrottleUnreachable):
            vendor.ask(vendor.scope(LIMIT))
    finally:
        vendor.redis.replicaof("NO", "ONE")


def test_a_redis_that_may_not_tell_its_run_still_counts(server: PrivateRedis, vendor: VirtualVendor) -> None:
    vendor.redis.acl_setuser("shy", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    with Redis(unix_socket_path=str(server.folder / "redis.sock"), username="shy", password="") as shy:
        vendor = VirtualVendor(shy)
        vendor.get(vendor.scope(LIMIT), 5)
        assert vendor.ask(vendor.scope(LIMIT)) == Wait(60)


def test_a_vendor_never_seen_before_is_built_from_the_ledger_too(vendor: VirtualVendor) -> None:
    vendor.vendor_id += 1
    assert vendor.ask(vendor.scope(LIMIT)) == Lost()
    assert vendor.stored() == []
    vendor.throttle.rebuild(vendor.vendor_id, 1, 60, [])
    vendor.get(vendor.scope(LIMIT), 5)


def test_a_grant_of_an_older_generation_is_refused_and_a_newer_log_is_never_replaced(vendor: VirtualVendor) -> None:
    old = vendor.scope(LIMIT)
    vendor.throttle.rebuild(vendor.vendor_id, 3, 60, [])
    assert vendor.ask(old) == Lost()
    assert vendor.throttle.rebuild(vendor.vendor_id, 2, 60, []) == Lost()
    assert vendor.throttle.rebuild(vendor.vendor_id, 3, 60, []) == Lost()
    vendor.generation = 3
    vendor.get(vendor.scope(LIMIT), 5)


def test_a_call_from_before_the_loss_that_ends_after_it_frees_nothing_early(vendor: VirtualVendor) -> None:
    old = vendor.scope(LIMIT)
    places = vendor.get(old, 5, hold=HOLD)
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 60, [(1, HOLD, 5)])
    vendor.clock.advance(2)
    vendor.throttle.done(old, places)
    vendor.throttle.cancel(old, places)
    vendor.clock.advance(60)
    assert vendor.ask(vendor.scope(LIMIT)) == Wait(HOLD - 2)


def test_a_window_longer_than_the_log_goes_back_is_answered_from_the_ledger(vendor: VirtualVendor) -> None:
    minute, hour = vendor.scope((5, 60)), vendor.scope((5, 60), (6, 3600))
    vendor.throttle.done(minute, vendor.get(minute, 5))
    vendor.clock.advance(100)
    assert vendor.ask(hour) == Lost()
    vendor.get(minute, 5)  # who does not know of the new window yet goes on as before
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 3600, [(1, -100, 5)])
    grant = vendor.ask(vendor.scope((5, 60), (6, 3600)), want=5)
    assert isinstance(grant, Grant) and grant.units == 1


def test_the_ledger_fills_the_sets_of_all_credentials_and_of_the_vendor(vendor: VirtualVendor) -> None:
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 60, [(1, 0, 2), (2, 0, 1), (1, -30, 1)])
    one, two, new = (vendor.scope((9, 60), credential=[(3, 60)], credential_id=n) for n in (1, 2, 3))
    assert vendor.ask(one) == Wait(30)
    vendor.get(two, 2)
    vendor.get(new, 3)  # a credential that the ledger does not know starts empty
    assert vendor.ask(two) == Wait(60)
    assert vendor.ask(vendor.scope((9, 60), credential_id=2)) == Wait(30)


def test_what_a_credential_left_behind_under_an_older_generation_does_not_count(vendor: VirtualVendor) -> None:
    scope = vendor.scope(credential=[LIMIT])
    vendor.get(scope, 5)
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 60, [])
    scope = vendor.scope(credential=[LIMIT])
    vendor.get(scope, 3)
    vendor.get(scope, 2)


def test_a_rebuilt_window_says_when_calls_that_nobody_hands_back_have_ended(vendor: VirtualVendor) -> None:
    """Else whoever waits asks again and again, and nobody knows until when."""
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 60, [(1, 600, 3), (1, 300, 1), (1, -30, 1)])
    scope = vendor.scope(LIMIT)
    assert vendor.ask(scope) == Wait(30)
    assert vendor.ask(scope, want=2, least=2) == Wait(360)
    assert vendor.ask(scope, want=3, least=3) == Wait(660)
    vendor.clock.advance(30)
    vendor.get(scope, 1)
    assert vendor.ask(scope) == Wait(60), "a call in flight may end at once"
    assert vendor.ask(scope, want=2, least=2) == Wait(330)
    vendor.clock.advance(570)
    assert vendor.ask(scope, want=3, least=3) == Wait(60)


def test_the_windows_of_other_credentials_say_so_too(vendor: VirtualVendor) -> None:
    vendor.generation = 2
    vendor.throttle.rebuild(vendor.vendor_id, 2, 60, [(1, 600, 2), (2, -10, 1)])
    assert vendor.ask(vendor.scope(credential=[(2, 60)], credential_id=1)) == Wait(660)
    assert isinstance(vendor.ask(vendor.scope(credential=[(2, 60)], credential_id=2)), Grant)
