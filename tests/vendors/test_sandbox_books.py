"""What stands in the sandbox vendor's books, and what survives a kill."""

import subprocess
import sys

import pytest

from sandbox.vendor import books
from sandbox.vendor.ledger import PAGE
from tests.forks import PROJECT
from tests.sandbox import DEADLINE, Caller, Sandbox, running

pytestmark = pytest.mark.slow("processes")


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
        [sys.executable, "-m", "sandbox.vendor", f"--books={sandbox.books_path}"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE,
    )
    assert second.returncode == 1
    assert b"BlockingIOError" in second.stderr


def test_the_ledger_tells_its_entries_page_by_page(sandbox: Sandbox) -> None:
    sandbox.kill()
    entries = [
        books.BookEntry(n, n / 4, n / 4, f"r{n}", "", f"p{n}@example.org", "accepted", 200, "", f"sb-{n}")
        for n in range(1, 2 * PAGE + 8)
    ]
    sandbox.books_path.write_bytes(b"".join(entry.line() for entry in entries))
    sandbox.start()
    summary, after = [], 3
    while page := sandbox.entries(after)["entries"]:
        assert len(page) <= PAGE
        summary += [entry["seq"] for entry in page]
        after = summary[-1]
    assert summary == list(range(4, 2 * PAGE + 8))
    assert sandbox.ledger(1)["worst_window"] == {"1": 4}
    assert sandbox.ledger()["first"] == {"t": 0.25, "wall": 0.25}
