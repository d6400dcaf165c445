"""The contract that every adapter keeps with a vendor that does not keep its own."""

from __future__ import annotations

import asyncio

import pytest

from tests.contracts.certificates import authority, server_tls
from tests.contracts.kinds import CONCURRENCY, KINDS, Kind
from tests.contracts.wild import LOOPS, Case, Silent, run
from tests.waiting import eventually
from vendors.adapters.base import Adapter
from vendors.outcomes import Accepted, InDoubt, NotSent

pytestmark = pytest.mark.parametrize("loop", LOOPS)
TABLE = [pytest.param(kind, case, id=f"{kind.title}-{case.name}") for kind in KINDS for case in kind.cases]
EACH = pytest.mark.parametrize("kind", KINDS, ids=[kind.title for kind in KINDS])


async def accepts(adapter: Adapter, kind: Kind, reference: str) -> bool:
    [outcome] = await adapter.send([kind.letter(reference)])
    return isinstance(outcome, Accepted)


@pytest.mark.parametrize(("kind", "case"), TABLE)
def test_each_misbehaviour_comes_to_its_outcome_with_one_request_at_most(loop: str, kind: Kind, case: Case) -> None:
    async def story() -> None:
        async with kind.vendor(case.behaviour) as vendor, kind.adapter(vendor, case.limits) as adapter:
            await eventually(lambda: accepts(adapter, kind, "good-before"), "the vendor accepts")
            if case.fresh:
                await eventually(vendor.is_deserted, "its connections have closed")
            [outcome] = await adapter.send([kind.letter("wild")])
            assert case.matches(outcome), outcome
            assert vendor.taken["wild"] <= 1
            if isinstance(outcome, Accepted):
                assert vendor.taken["wild"] == 1
            await eventually(lambda: accepts(adapter, kind, "good-after"), "the vendor accepts again")

    run(loop, story)


@EACH
def test_each_letter_costs_at_least_one_place_and_always_the_same(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.adapter_at(kind.nowhere()) as adapter:
            cost = adapter.capabilities.cost
            for letter in (kind.letter("wild"), kind.letter("wild")._replace(body=""), *kind.injections()):
                units = cost(letter)
                assert isinstance(units, int) and units >= 1 and cost(letter) == units

    run(loop, story)


@EACH
def test_a_vendor_that_is_not_there_has_not_got_it(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.adapter_at(kind.nowhere()) as adapter:
            [outcome] = await adapter.send([kind.letter("wild")])
            assert isinstance(outcome, NotSent)

    run(loop, story)


@EACH
def test_a_certificate_that_nobody_vouches_for_gets_no_letter(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor(tls=server_tls()) as vendor, kind.adapter_at(kind.secure(vendor.port)) as adapter:
            [outcome] = await adapter.send([kind.letter("wild")])
            assert isinstance(outcome, NotSent) and outcome.pause and outcome.scope == "credential"
            assert "CERTIFICATE_VERIFY_FAILED" in outcome.reason
            assert not vendor.taken

    run(loop, story)


@EACH
@pytest.mark.parametrize(("flaw", "pauses"), [("another host", True), ("expired", False)])
def test_a_certificate_of_another_host_pauses_and_an_expired_one_waits(
    loop: str, kind: Kind, flaw: str, pauses: bool
) -> None:
    """Time, or the vendor, mends what is expired; a wrong address is mended by a person."""
    tls = server_tls("192.0.2.1") if pauses else server_tls(days=-1)

    async def story() -> None:
        async with kind.vendor(tls=tls) as vendor:
            settings = kind.secure(vendor.port) | {"ca_file": str(authority())}
            async with kind.adapter_at(settings) as adapter:
                [outcome] = await adapter.send([kind.letter("wild")])
                assert isinstance(outcome, NotSent) and outcome.pause is pauses, outcome
                assert not vendor.taken

    run(loop, story)


@EACH
def test_a_certificate_of_the_trusted_authority_gets_the_letter(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor(tls=server_tls()) as vendor:
            settings = kind.secure(vendor.port) | {"ca_file": str(authority())}
            async with kind.adapter_at(settings) as adapter:
                for number in range(2):
                    assert await accepts(adapter, kind, f"good-{number}")
                assert vendor.connections == 1

    run(loop, story)


@EACH
def test_a_vendor_that_hangs_before_the_letter_has_not_got_it(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with Silent() as silent:
            settings = kind.secure(silent.port) | dict(kind.short)
            async with kind.adapter_at(settings) as adapter:
                [outcome] = await adapter.send([kind.letter("wild")])
                assert isinstance(outcome, NotSent)

    run(loop, story)


@EACH
def test_a_connection_that_was_closed_while_idle_costs_no_doubt(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor(kind.good_and_close) as vendor, kind.adapter(vendor) as adapter:
            for round_ in range(3):
                reference = f"round-{round_}"
                assert await accepts(adapter, kind, reference)
                assert vendor.taken[reference] == 1
                await eventually(vendor.is_deserted, "its connections have closed")
            assert vendor.connections == 3

    run(loop, story)


@EACH
def test_calls_follow_each_other_on_one_connection(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor() as vendor, kind.adapter(vendor) as adapter:
            for number in range(5):
                assert await accepts(adapter, kind, f"good-{number}")
            assert vendor.connections == 1

    run(loop, story)


@EACH
def test_never_more_connections_than_the_setting_says(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor() as vendor, kind.adapter(vendor) as adapter:
            adapter_calls = (accepts(adapter, kind, f"good-{number}") for number in range(40))
            assert all(await asyncio.gather(*adapter_calls))
            assert vendor.connections <= adapter.concurrency == CONCURRENCY
            assert sum(vendor.taken.values()) == 40

    run(loop, story)


@EACH
def test_a_cancelled_call_closes_its_connection_and_no_other(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor(kind.hang) as vendor, kind.adapter(vendor) as adapter:
            call = asyncio.ensure_future(adapter.send([kind.letter("wild")]))

            async def taken() -> bool:
                return vendor.taken["wild"] == 1

            await eventually(taken, "the vendor has the call")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await eventually(vendor.is_deserted, "its connections have closed")
            assert await accepts(adapter, kind, "good-after")
            assert vendor.connections == 2

    run(loop, story)


@EACH
def test_closing_ends_calls_in_flight_in_doubt_and_later_ones_unsent(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor(kind.hang) as vendor, kind.adapter(vendor) as adapter:
            call = asyncio.ensure_future(adapter.send([kind.letter("wild")]))

            async def taken() -> bool:
                return vendor.taken["wild"] == 1

            await eventually(taken, "the vendor has the call")
            await adapter.close()
            [outcome] = await call
            assert isinstance(outcome, InDoubt)
            [outcome] = await adapter.send([kind.letter("late")])
            assert isinstance(outcome, NotSent)

    run(loop, story)


@EACH
def test_a_letter_that_would_inject_a_header_never_leaves(loop: str, kind: Kind) -> None:
    async def story() -> None:
        async with kind.vendor() as vendor, kind.adapter(vendor) as adapter:
            for letter in kind.injections():
                [outcome] = await adapter.send([letter])
                assert outcome.code == "unsendable"  # type: ignore[union-attr]
            assert not vendor.taken

    run(loop, story)
