"""The sandbox vendor keeps its word: what it answers, what it books, and what survives."""

import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.sandbox import PROJECT, Sandbox, running
from vendors.sandbox import books
from vendors.sandbox.ledger import PAGE

DEADLINE = 60.0


class Caller:
    """One keep-alive connection to the vendor."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any]:
        try:
            self.connection.request(method, path, body, headers)
            self.response = self.connection.getresponse()
            content = self.response.read()
        except OSError:
            self.connection.close()  # the next call makes a new one
            raise
        is_json = self.response.headers["Content-Type"] == "application/json"
        return self.response.status, json.loads(content) if is_json else content

    def send(self, reference: str, recipient: str = "ann@example.org", key: str | None = None) -> tuple[int, Any]:
        headers = {"Idempotency-Key": reference if key is None else key, "Authorization": "Bearer one"}
        return self.ask("POST", "/v1/letters", letter(reference, recipient), **headers)

    def look_up(self, reference: str) -> tuple[int, Any]:
        return self.ask("GET", f"/v1/letters/{reference}")


def letter(reference: str, recipient: str = "ann@example.org") -> str:
    return json.dumps({"reference": reference, "recipient": recipient, "subject": "Hi", "body": "...", "params": {}})


@pytest.fixture
def caller(sandbox: Sandbox) -> Iterator[Caller]:
    caller = Caller(sandbox.url)
    yield caller
    caller.connection.close()


def test_a_letter_is_accepted_and_found_again(sandbox: Sandbox, caller: Caller) -> None:
    status, answer = caller.send("r/1", "delivered@sandbox.example")
    assert (status, caller.ask("GET", "/v1/letters/r%2F1")) == (200, (200, answer))
    assert caller.look_up("r2") == (404, {"code": "not_found"})
    [entry] = sandbox.books().entries
    assert (entry.reference, entry.recipient, entry.verdict, entry.status) == (
        "r/1",
        "delivered@sandbox.example",
        "accepted",
        200,
    )
    assert (entry.key, entry.credential, entry.id) == ("r/1", "Bearer one", answer["id"])


@pytest.mark.parametrize(
    "recipient", ["bounce@sandbox.example", "bounce17@sandbox.example", "Bounce+x1@sandbox.example"]
)
def test_bounce_is_refused_as_an_unknown_mailbox(sandbox: Sandbox, caller: Caller, recipient: str) -> None:
    assert caller.send("r1", recipient) == (400, {"code": "bounce", "sub_type": "mailbox_unknown"})
    assert caller.look_up("r1")[0] == 404
    assert sandbox.books().verdicts == {"refused": 1}


def test_reject_is_refused(sandbox: Sandbox, caller: Caller) -> None:
    assert caller.send("r1", "reject@sandbox.example")[0] == 422
    assert sandbox.ledger()["refused"] == 1


def test_a_word_of_magic_means_nothing_at_another_domain(caller: Caller) -> None:
    assert caller.send("r1", "bounce@example.org")[0] == 200
    assert caller.send("r2", "+44 7700 900003")[0] == 200


def test_tempfail_is_put_off_once_for_each_reference_also_over_a_restart(sandbox: Sandbox, caller: Caller) -> None:
    assert caller.send("r1", "tempfail@sandbox.example")[0] == 429
    assert caller.response.headers["Retry-After"] == "1"
    sandbox.kill()
    sandbox.start()
    caller.connection.close()
    assert caller.send("r1", "tempfail@sandbox.example")[0] == 200
    assert caller.send("r2", "tempfail@sandbox.example")[0] == 429
    assert sandbox.ledger()["violations"] == 0


def test_slow_is_stamped_when_it_comes_not_when_it_is_answered(sandbox: Sandbox, caller: Caller) -> None:
    sandbox.settings(slow_s=0.5)
    caller.send("r1", "slow@sandbox.example")
    caller.send("r2")
    slow, quick = sandbox.books().entries
    assert quick.t - slow.t >= 0.49  # the event loop's timers are rough to a millisecond


def test_lost_is_accepted_and_the_connection_reset(sandbox: Sandbox, caller: Caller) -> None:
    with pytest.raises(ConnectionResetError):
        caller.send("r1", "lost@sandbox.example")
    assert caller.look_up("r1")[0] == 200
    assert sandbox.books().accepted["r1"].status is None


def test_garbage_is_accepted_and_answered_with_a_web_page(sandbox: Sandbox, caller: Caller) -> None:
    status, content = caller.send("r1", "garbage@sandbox.example")
    assert status == 200
    assert content.startswith(b"<!doctype html>")
    assert list(sandbox.books().accepted) == ["r1"]


def test_error_is_not_accepted_and_errorafter_is(sandbox: Sandbox, caller: Caller) -> None:
    assert caller.send("r1", "error@sandbox.example")[0] == 500
    assert caller.send("r2", "errorafter@sandbox.example")[0] == 500
    assert (caller.look_up("r1")[0], caller.look_up("r2")[0]) == (404, 200)
    assert sandbox.books().missing(["error@sandbox.example", "errorafter@sandbox.example"]) == ["error@sandbox.example"]


def test_a_second_acceptance_is_booked_as_a_duplicate(sandbox: Sandbox, caller: Caller) -> None:
    first = caller.send("r1", "ann@example.org")
    second = caller.send("r1", "ann@example.org")
    assert (first[0], second[0]) == (200, 200)
    assert first[1] != second[1]
    assert caller.look_up("r1") == first
    assert sandbox.books().duplicates() == {"r1": 2, "ann@example.org": 2}
    assert sandbox.ledger()["duplicates"] == 2


def test_the_same_person_under_two_references_is_a_duplicate_too(sandbox: Sandbox, caller: Caller) -> None:
    caller.send("r1", "ann@example.org")
    caller.send("r2", "ann@example.org")
    caller.send("r3", "bob@example.org")
    assert sandbox.books().duplicates() == {"ann@example.org": 2}
    assert sandbox.ledger()["duplicates"] == 1


def test_a_vendor_that_deduplicates_knows_its_keys_after_a_kill() -> None:
    with running(dedupe=True) as vendor:
        caller = Caller(vendor.url)
        _, answer = caller.send("r1")
        assert caller.send("r1") == (409, answer)
        vendor.kill()
        vendor.start()
        caller.connection.close()
        assert caller.send("r1") == (409, answer)
        assert caller.send("r1", key="another key")[0] == 200  # a key is not a reference
        caller.connection.close()
        assert vendor.books().verdicts == {"accepted": 1, "repeat": 2, "duplicate": 1}


def test_whatever_was_answered_stands_in_the_books_after_a_kill(sandbox: Sandbox, caller: Caller) -> None:
    answered = []
    for number in range(50):
        answered.append(caller.send(f"r{number}", f"p{number}@example.org")[1]["id"])
        if number == 30:
            sandbox.kill()
            sandbox.start()
            caller.connection.close()
    sandbox.kill()
    kept = sandbox.books()
    assert [entry.id for entry in kept.entries] == answered
    assert kept.arrivals() == sorted(kept.arrivals())


def test_a_line_cut_by_a_kill_does_not_count_and_is_not_continued(sandbox: Sandbox, caller: Caller) -> None:
    caller.send("r1")
    sandbox.kill()
    with sandbox.books_path.open("ab") as file:
        file.write(b'{"seq":2,"t":1')
    assert list(sandbox.books().accepted) == ["r1"]
    sandbox.start()
    caller.connection.close()
    caller.send("r2")
    assert [(entry.seq, entry.reference) for entry in sandbox.books().entries] == [(1, "r1"), (2, "r2")]


def test_two_vendors_do_not_write_in_one_book(sandbox: Sandbox) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "vendors.sandbox", f"--books={sandbox.books_path}"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE,
    )
    assert second.returncode == 1
    assert b"BlockingIOError" in second.stderr


def test_calls_sent_in_one_piece_are_answered_in_their_order(sandbox: Sandbox) -> None:
    recipients = ["slow@sandbox.example", "bounce@sandbox.example", "ann@example.org"]
    sandbox.settings(slow_s=0.2)
    calls = []
    for number, recipient in enumerate(recipients):
        body = letter(f"r{number}", recipient)
        calls.append(f"POST / HTTP/1.1\r\nHost: v\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    calls.append("GET /r2 HTTP/1.1\r\nHost: v\r\nConnection: close\r\n\r\n")
    address = urlsplit(sandbox.url)
    with socket.create_connection((address.hostname, address.port), timeout=DEADLINE) as connection:
        connection.sendall("".join(calls).encode())
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"400", b"200", b"200"]
    assert [entry.reference for entry in sandbox.books().entries] == ["r0", "r1", "r2"]


@pytest.mark.parametrize("body", ["", "{", "[]", '{"reference": "r1"}', '{"reference": 1, "recipient": "a"}'])
def test_a_call_without_sense_is_refused(sandbox: Sandbox, caller: Caller, body: str) -> None:
    assert caller.ask("POST", "/", body)[0] == 400
    assert sandbox.ledger()["refused"] == 1


def test_what_is_not_http_is_answered_and_cut_off(sandbox: Sandbox) -> None:
    address = urlsplit(sandbox.url)
    with socket.create_connection((address.hostname, address.port), timeout=DEADLINE) as connection:
        connection.sendall(b"EHLO me\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")


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
    deadline = time.monotonic() + DEADLINE  # a busy machine may book it only after the caller's patience ended
    while not sandbox.books().accepted and time.monotonic() < deadline:
        time.sleep(0.01)
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
    told = sandbox.ledger(3600)
    assert (told["violations"], told["accepted"], told["worst_window"]) == (2, 3, {"3600": 5})
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


def test_the_ledger_tells_its_entries_page_by_page(sandbox: Sandbox) -> None:
    sandbox.kill()
    entries = [
        books.Entry(n, n / 4, n / 4, f"r{n}", "", f"p{n}@example.org", "accepted", 200, "", f"sb-{n}")
        for n in range(1, 2 * PAGE + 8)
    ]
    sandbox.books_path.write_bytes(b"".join(entry.line() for entry in entries))
    sandbox.start()
    told, after = [], 3
    while page := sandbox.entries(after)["entries"]:
        assert len(page) <= PAGE
        told += [entry["seq"] for entry in page]
        after = told[-1]
    assert told == list(range(4, 2 * PAGE + 8))
    assert sandbox.ledger(1)["worst_window"] == {"1": 4}
    assert sandbox.ledger()["first"] == {"t": 0.25, "wall": 0.25}


def test_it_ends_cleanly_when_asked_to(sandbox: Sandbox) -> None:
    assert sandbox.stop() == 0


def test_it_ends_with_whoever_started_it(sandbox: Sandbox) -> None:
    assert sandbox.process.stdin is not None
    sandbox.process.stdin.close()
    assert sandbox.process.wait(DEADLINE) == 0
