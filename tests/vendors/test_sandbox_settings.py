"""The sandbox vendor misbehaves exactly as told, from the moment it is told."""

from itertools import pairwise
from typing import Any

import pytest

from tests.sandbox import Caller, Sandbox, running
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("setting", "status", "accepted"),
    [
        ({"error_rate": 1.0}, 500, 0),
        ({"error_after_rate": 1.0}, 500, 1),
        ({"reject_rate": 1.0}, 422, 0),
        ({"unauthorized": True}, 401, 0),
        ({"down": "503"}, 503, 0),
        ({"throttle": "0/60"}, 429, 0),
        ({"latency_ms": 5.0, "latency": "exponential", "jitter_ms": 2.0}, 200, 1),
    ],
)
def test_a_setting_counts_from_the_next_call_until_it_is_taken_back(
    sandbox: Sandbox, caller: Caller, setting: dict[str, Any], status: int, accepted: int
) -> None:
    before = sandbox.settings()
    assert sandbox.settings(**setting).items() >= setting.items()
    assert caller.send("r1")[0] == status
    assert sandbox.ledger()["accepted"] == accepted
    assert sandbox.settings(**{name: before[name] for name in setting}) == before
    assert caller.send("r2")[0] == 200


def test_a_connection_is_reset_after_the_acceptance(sandbox: Sandbox, caller: Caller) -> None:
    sandbox.settings(reset_rate=1.0)
    with pytest.raises(ConnectionResetError):
        caller.send("r1")
    assert list(sandbox.books().accepted) == ["r1"]


def test_a_lost_answer_never_comes_although_the_letter_is_accepted(sandbox: Sandbox) -> None:
    sandbox.settings(lost_rate=1.0)
    caller = Caller(sandbox.url)
    caller.connection.timeout = 0.2
    with pytest.raises(TimeoutError):
        caller.send("r1")
    wait_until(lambda: sandbox.books().accepted, "it is booked")  # maybe only after the caller's patience ended
    assert list(sandbox.books().accepted) == ["r1"]


def test_slow_by_chance_is_late(sandbox: Sandbox, caller: Caller) -> None:
    sandbox.settings(slow_rate=1.0, slow_s=0.3)
    caller.send("r1")
    caller.send("r2")
    first, second = sandbox.books().arrivals()
    assert second - first >= 0.29


def test_a_vendor_that_is_down_refuses_connections_and_comes_back_at_its_port(sandbox: Sandbox, caller: Caller) -> None:
    caller.send("r1")
    sandbox.settings(down="closed")
    with pytest.raises(ConnectionError):  # the connection that it had is gone
        caller.send("r2")
    with pytest.raises(ConnectionRefusedError):
        caller.send("r2")
    sandbox.settings(down="")
    assert caller.send("r3")[0] == 200
    assert list(sandbox.books().accepted) == ["r1", "r3"]


def test_a_vendor_may_be_down_from_the_start() -> None:
    with running(down="closed") as vendor:
        caller = Caller(vendor.url)
        with pytest.raises(ConnectionRefusedError):
            caller.send("r1")
        vendor.settings(down="")
        assert caller.send("r1")[0] == 200
        caller.connection.close()


def test_a_stale_look_up_does_not_know_what_was_accepted(sandbox: Sandbox, caller: Caller) -> None:
    sandbox.settings(lookup_delay=3600.0)
    caller.send("r1")
    assert caller.look_up("r1")[0] == 404
    sandbox.settings(lookup_delay=0.0)
    assert caller.look_up("r1")[0] == 200


def test_more_than_the_limit_is_throttled_and_counted_at_the_vendors_own_clock(
    sandbox: Sandbox, caller: Caller
) -> None:
    sandbox.settings(throttle="3/3600")
    assert [caller.send(f"r{number}")[0] for number in range(5)] == [200, 200, 200, 429, 429]
    assert 1 <= int(caller.response.headers["Retry-After"]) <= 3600
    error = sandbox.ledger(3600)
    assert (error["violations"], error["accepted"], error["worst_window"]) == (2, 3, {"3600": 5})
    assert sandbox.books().worst_window(3600) == 5


def test_a_place_is_free_again_when_the_window_has_passed(sandbox: Sandbox, caller: Caller) -> None:
    sandbox.settings(throttle="1/0.2")
    number = 0
    while len(sandbox.books().accepted) < 3:  # each call follows the one before it at once
        caller.send(f"r{number}")
        number += 1
    times = [entry.t for entry in sandbox.books().accepted.values()]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 0.2


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"speed": 1}, "no setting 'speed'"),
        ({"error_rate": 0.7, "reset_rate": 0.7}, "together are more than 1"),
        ({"error_rate": -1}, "must not be below 0"),
        ({"error_rate": True}, "must be a float"),
        ({"dedupe": 1}, "must be a bool"),
        ({"down": "perhaps"}, "must be one of"),
        ({"throttle": "fast"}, "must look like 5/60"),
    ],
)
def test_an_impossible_setting_is_declined_with_a_sentence_and_changes_nothing(
    sandbox: Sandbox, values: dict[str, Any], complaint: str
) -> None:
    before = sandbox.settings()
    with pytest.raises(ValueError, match=complaint):
        sandbox.settings(**values)
    assert sandbox.settings() == before
