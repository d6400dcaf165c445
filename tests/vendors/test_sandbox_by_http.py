"""The `http` adapter and the sandbox vendor speak the same language."""

import asyncio

import pytest

from tests.sandbox import Sandbox, running
from vendors.adapters.base import Letter
from vendors.adapters.http import Http
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

Found = Accepted | NotSent | None


def send_and_look_up(vendor: Sandbox, recipient: str, times: int = 1) -> tuple[list[Outcome], Found]:
    """The outcomes of sending the same letter so often, and what the vendor then says about it."""

    async def conversation() -> tuple[list[Outcome], Found]:
        can = {"lookup": "weak", "dedupe": True, "timeout": 60}
        adapter = Http({"url": f"{vendor.url}/letters", **can}, {"Authorization": "Bearer x"})
        await adapter.open()
        try:
            letter = Letter("r1", recipient, "Hi", "...")
            return [(await adapter.send([letter]))[0] for _ in range(times)], await adapter.look_up("r1")
        finally:
            await adapter.close()

    return asyncio.run(conversation())


def test_an_accepted_letter_has_the_id_of_the_books(sandbox: Sandbox) -> None:
    [outcome], found = send_and_look_up(sandbox, "delivered@sandbox.example")
    entry = sandbox.books().accepted["r1"]
    assert outcome == found == Accepted(entry.id)
    assert entry.credential == "Bearer x"


def test_a_known_key_is_an_acceptance_with_the_earlier_id() -> None:
    with running(dedupe=True) as vendor:
        (first, second), _ = send_and_look_up(vendor, "ann@example.org", times=2)
        assert first == second == Accepted("sb-1")
        assert not vendor.books().duplicates()


def test_a_bounce_is_refused_with_its_code(sandbox: Sandbox) -> None:
    assert send_and_look_up(sandbox, "bounce@sandbox.example") == ([Refused("bounce", "mailbox_unknown")], None)


@pytest.mark.parametrize("recipient", ["lost@sandbox.example", "garbage@sandbox.example", "errorafter@sandbox.example"])
def test_an_acceptance_without_evidence_is_in_doubt_and_found_by_look_up(sandbox: Sandbox, recipient: str) -> None:
    [outcome], found = send_and_look_up(sandbox, recipient)
    assert isinstance(outcome, InDoubt)
    assert found == Accepted("sb-1")


def test_an_error_before_the_acceptance_is_in_doubt_and_not_found(sandbox: Sandbox) -> None:
    [outcome], found = send_and_look_up(sandbox, "error@sandbox.example")
    assert isinstance(outcome, InDoubt)
    assert found is None


def test_a_throttled_letter_waits_with_its_credential_and_is_then_accepted(sandbox: Sandbox) -> None:
    (first, second), _ = send_and_look_up(sandbox, "tempfail@sandbox.example", times=2)
    assert isinstance(first, NotSent)
    assert (first.scope, first.retry_after) == ("credential", 1.0)
    assert isinstance(second, Accepted)


def test_a_vendor_that_is_down_has_got_nothing(sandbox: Sandbox) -> None:
    sandbox.settings(down="closed")
    [outcome], _ = send_and_look_up(sandbox, "ann@example.org")
    assert isinstance(outcome, NotSent)
    assert not sandbox.books().entries
