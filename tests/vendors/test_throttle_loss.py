"""When Redis forgets, the throttle says so, and the ledger gives it its memory back (faults 15 to 21)."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from redis import Redis

from tests.private_redis import PrivateRedis
from tests.virtual import HOLD, Desk
from vendors.limits.throttle import Grant, Lost, ThrottleUnreachable, Wait

LIMIT = (5, 60)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    server = PrivateRedis()
    yield server
    server.end()


@pytest.fixture
def desk(server: PrivateRedis) -> Iterator[Desk]:
    with server.client() as redis:
        redis.flushall()
        yield Desk(redis)


def flush(server: PrivateRedis, desk: Desk) -> None:
    desk.redis.flushall()


def lose_the_vendors_set(server: PrivateRedis, desk: Desk) -> None:
    desk.redis.delete(f"mailhub:{{v{desk.vendor_id}}}:window")


def lose_a_credentials_set(server: PrivateRedis, desk: Desk) -> None:
    desk.redis.delete(f"mailhub:{{v{desk.vendor_id}}}:c1")


def restart_empty(server: PrivateRedis, desk: Desk) -> None:
    server.restart(keep=False)


def restart_with_what_was_written_in_time(server: PrivateRedis, desk: Desk) -> None:
    server.restart(keep=True)
    assert desk.redis.exists(f"mailhub:{{v{desk.vendor_id}}}:window")


Loss = Callable[[PrivateRedis, Desk], None]
LOSSES = [
    flush,
    lose_the_vendors_set,
    lose_a_credentials_set,
    restart_empty,
    restart_with_what_was_written_in_time,
]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda loss: loss.__name__)
def test_after_a_loss_nothing_is_granted_until_the_ledger_has_told_what_was_called(
    server: PrivateRedis, desk: Desk, lose: Loss
) -> None:
    scope = desk.scope(LIMIT)
    desk.throttle.done(scope, desk.get(scope, 3))
    desk.clock.advance(4)
    desk.get(scope, 2)  # in flight
    lose(server, desk)
    assert desk.ask(scope) == Lost()

    desk.generation = 2
    entries = [(1, -4, 3), (1, HOLD, 2)]
    assert desk.throttle.rebuild(desk.vendor_id, 2, 60, entries) is None
    scope = desk.scope(LIMIT)
    assert desk.ask(scope) == Wait(56)
    desk.clock.advance(56)
    desk.get(scope, 3)
    desk.clock.advance(4 + HOLD - 0.000001)
    assert isinstance(desk.ask(scope), Wait)
    desk.clock.advance(0.000001)
    desk.get(scope, 2)


def test_a_forgotten_script_is_loaded_again(desk: Desk) -> None:
    scope = desk.scope(LIMIT)
    places = desk.get(scope, 5)
    desk.redis.script_flush()
    desk.throttle.done(scope, places)
    desk.redis.script_flush()
    assert desk.ask(scope) == Wait(60)


def test_redis_without_memory_grants_nothing_that_it_does_not_count(desk: Desk) -> None:
    scope, granted = desk.scope(LIMIT), 0
    desk.redis.config_set("maxmemory", 1)
    try:
        with suppress(ThrottleUnreachable):
            granted = len(desk.get(scope, 3))
    finally:
        desk.redis.config_set("maxmemory", 0)
    desk.get(scope, 5 - granted)
    assert desk.ask(scope) == Wait(60)


def test_a_replica_that_may_not_write_grants_nothing(desk: Desk) -> None:
    desk.redis.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(ThrottleUnreachable):
            desk.ask(desk.scope(LIMIT))
    finally:
        desk.redis.replicaof("NO", "ONE")


def test_a_redis_that_may_not_tell_its_run_still_counts(server: PrivateRedis, desk: Desk) -> None:
    desk.redis.acl_setuser("shy", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    with Redis(unix_socket_path=str(server.folder / "redis.sock"), username="shy", password="") as shy:
        desk = Desk(shy)
        desk.get(desk.scope(LIMIT), 5)
        assert desk.ask(desk.scope(LIMIT)) == Wait(60)


def test_a_vendor_never_seen_before_is_built_from_the_ledger_too(desk: Desk) -> None:
    desk.vendor_id += 1
    assert desk.ask(desk.scope(LIMIT)) == Lost()
    assert desk.stored() == []
    desk.throttle.rebuild(desk.vendor_id, 1, 60, [])
    desk.get(desk.scope(LIMIT), 5)


def test_a_grant_of_an_older_generation_is_refused_and_a_newer_log_is_never_replaced(desk: Desk) -> None:
    old = desk.scope(LIMIT)
    desk.throttle.rebuild(desk.vendor_id, 3, 60, [])
    assert desk.ask(old) == Lost()
    assert desk.throttle.rebuild(desk.vendor_id, 2, 60, []) == Lost()
    assert desk.throttle.rebuild(desk.vendor_id, 3, 60, []) == Lost()
    desk.generation = 3
    desk.get(desk.scope(LIMIT), 5)


def test_a_call_from_before_the_loss_that_ends_after_it_frees_nothing_early(desk: Desk) -> None:
    old = desk.scope(LIMIT)
    places = desk.get(old, 5, hold=HOLD)
    desk.generation = 2
    desk.throttle.rebuild(desk.vendor_id, 2, 60, [(1, HOLD, 5)])
    desk.clock.advance(2)
    desk.throttle.done(old, places)
    desk.throttle.cancel(old, places)
    desk.clock.advance(60)
    assert desk.ask(desk.scope(LIMIT)) == Wait(HOLD - 2)


def test_a_window_longer_than_the_log_goes_back_is_answered_from_the_ledger(desk: Desk) -> None:
    minute, hour = desk.scope((5, 60)), desk.scope((5, 60), (6, 3600))
    desk.throttle.done(minute, desk.get(minute, 5))
    desk.clock.advance(100)
    assert desk.ask(hour) == Lost()
    desk.get(minute, 5)  # who does not know of the new window yet goes on as before
    desk.generation = 2
    desk.throttle.rebuild(desk.vendor_id, 2, 3600, [(1, -100, 5)])
    grant = desk.ask(desk.scope((5, 60), (6, 3600)), want=5)
    assert isinstance(grant, Grant) and grant.units == 1


def test_the_ledger_fills_the_sets_of_all_credentials_and_of_the_vendor(desk: Desk) -> None:
    desk.generation = 2
    desk.throttle.rebuild(desk.vendor_id, 2, 60, [(1, 0, 2), (2, 0, 1), (1, -30, 1)])
    one, two, new = (desk.scope((9, 60), credential=[(3, 60)], credential_id=n) for n in (1, 2, 3))
    assert desk.ask(one) == Wait(30)
    desk.get(two, 2)
    desk.get(new, 3)  # a credential that the ledger does not know starts empty
    assert desk.ask(two) == Wait(60)
    assert desk.ask(desk.scope((9, 60), credential_id=2)) == Wait(30)


def test_what_a_credential_left_behind_under_an_older_generation_does_not_count(desk: Desk) -> None:
    scope = desk.scope(credential=[LIMIT])
    desk.get(scope, 5)
    desk.generation = 2
    desk.throttle.rebuild(desk.vendor_id, 2, 60, [])
    scope = desk.scope(credential=[LIMIT])
    desk.get(scope, 3)
    desk.get(scope, 2)
