"""The sandbox vendor keeps its word: what it answers to whom, and how it ends."""

import re
import socket
from urllib.parse import urlsplit

import pytest

from tests.sandbox import DEADLINE, Caller, Sandbox, letter
from tests.waiting import exit_of


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


def test_moved_is_accepted_and_answered_with_a_redirect(sandbox: Sandbox, caller: Caller) -> None:
    assert caller.send("r1", "moved@sandbox.example")[0] == 303
    assert sandbox.books().missing(["moved@sandbox.example"]) == []


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


def test_it_ends_cleanly_when_asked_to(sandbox: Sandbox) -> None:
    assert sandbox.stop() == 0


def test_it_ends_with_whoever_started_it(sandbox: Sandbox) -> None:
    assert sandbox.process.stdin is not None
    sandbox.process.stdin.close()
    assert exit_of(sandbox.process) == 0
