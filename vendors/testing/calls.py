"""Tests of an adapter's calls, against a vendor that breaks its contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from vendors.outcomes import Accepted, InDoubt, NotSent, Refused
from vendors.testing.cases import Trial
from vendors.testing.certificates import authority, server_tls
from vendors.testing.servers import MisbehavingServer, SilentServer, closed_port
from vendors.testing.subject import CONCURRENCY, Subject, run


class CallContract(Subject):
    """Whatever the vendor does, the outcome of a call says exactly what is known of the letter."""

    def test_each_misbehaviour_comes_to_its_outcome_with_one_request_at_most(self, loop: str, case: Trial) -> None:
        async def story() -> None:
            async with self.server(case.behaviour) as server, self.opened_at(server.port, case.limits) as adapter:
                await self.eventually(lambda: self.accepts(adapter, "good-before"), "a good answer is Accepted")
                if case.fresh:
                    await self.eventually(server.is_deserted, "its connections have closed")
                outcome = await self.sends(adapter, self.letter("wild"))
                assert case.matches(outcome, self.exact), case.complaint(outcome)
                assert server.taken["wild"] <= 1, "a call was repeated: only mailhub decides about a second one"
                if isinstance(outcome, Accepted):
                    assert server.taken["wild"] == 1
                await self.eventually(lambda: self.accepts(adapter, "good-after"), "a good answer is Accepted again")

        run(loop, story)

    def test_a_vendor_that_is_not_there_has_not_got_it(self, loop: str) -> None:
        async def story() -> None:
            async with self.opened_at(closed_port()) as adapter:
                for letters in ([self.letter("wild")], self._full(adapter.capabilities.batch_max)):
                    for outcome in await self.called(adapter, letters):
                        assert isinstance(outcome, NotSent), f"nothing was written; it is {outcome!r}"
                        assert not outcome.pause, "a vendor that is away comes back; nobody has to mend anything"

        run(loop, story)

    def test_a_certificate_that_nobody_vouches_for_gets_no_letter(self, loop: str) -> None:
        async def story() -> None:
            async with (
                self.server(tls=server_tls()) as server,
                self.opened_at(server.port, secure=True) as adapter,
            ):
                outcome = await self.sends(adapter, self.letter("wild"))
                assert isinstance(outcome, NotSent) and outcome.pause and outcome.scope == "credential", outcome
                assert not self.exact or "CERTIFICATE_VERIFY_FAILED" in outcome.reason
                assert not server.taken

        run(loop, story)

    @pytest.mark.parametrize(("flaw", "pauses"), [("another host", True), ("expired", False)])
    def test_a_certificate_of_another_host_pauses_and_an_expired_one_waits(
        self, loop: str, flaw: str, pauses: bool
    ) -> None:
        """An expired certificate gets fixed in time or by the vendor; a wrong address needs a person."""
        tls = server_tls("192.0.2.1") if pauses else server_tls(days=-1)

        async def story() -> None:
            async with (
                self.server(tls=tls) as server,
                self.opened_at(server.port, self._trusting(), secure=True) as adapter,
            ):
                outcome = await self.sends(adapter, self.letter("wild"))
                assert isinstance(outcome, NotSent) and outcome.pause is pauses, outcome
                assert not server.taken

        run(loop, story)

    def test_a_certificate_of_an_authority_that_is_trusted_is_good(self, loop: str) -> None:
        async def story() -> None:
            async with (
                self.server(tls=server_tls()) as server,
                self.opened_at(server.port, self._trusting(), secure=True) as adapter,
            ):
                for number in range(2):
                    assert await self.accepts(adapter, f"good-{number}")
                assert server.connections == 1 or not self.reuses_connections

        run(loop, story)

    def test_a_vendor_that_hangs_before_the_letter_has_not_got_it(self, loop: str) -> None:
        async def story() -> None:
            async with (
                SilentServer() as silent,
                self.opened_at(silent.port, self.impatient, secure=True) as adapter,
            ):
                outcome = await self.sends(adapter, self.letter("wild"))
                assert isinstance(outcome, NotSent), f"no byte of the letter had left; it is {outcome!r}"

        run(loop, story)

    def test_a_connection_that_was_closed_while_idle_costs_no_doubt(self, loop: str) -> None:
        async def story() -> None:
            async with self.server(self.good_and_close) as server, self.opened_at(server.port) as adapter:
                for round_ in range(3):
                    reference = f"round-{round_}"
                    outcome = await self.sends(adapter, self.letter(reference))
                    assert isinstance(outcome, Accepted), outcome
                    assert server.taken[reference] == 1
                    await self.eventually(server.is_deserted, "its connections have closed")
                assert server.connections == 3

        run(loop, story)

    def test_calls_follow_each_other_on_one_connection(self, loop: str) -> None:
        if not self.reuses_connections:
            pytest.skip("it makes a connection for each call")

        async def story() -> None:
            async with self.server() as server, self.opened_at(server.port) as adapter:
                for number in range(5):
                    assert await self.accepts(adapter, f"good-{number}")
                assert server.connections == 1

        run(loop, story)

    def test_never_more_connections_than_the_setting_says(self, loop: str) -> None:
        async def story() -> None:
            async with self.server() as server, self.opened_at(server.port) as adapter:
                calls = (self.accepts(adapter, f"good-{number}") for number in range(40))
                assert all(await asyncio.gather(*calls))
                if "concurrency" in self.adapter.options:
                    assert adapter.concurrency == CONCURRENCY
                if self.reuses_connections:
                    assert server.connections <= adapter.concurrency
                assert sum(server.taken.values()) == 40

        run(loop, story)

    def test_a_cancelled_call_closes_its_connection_and_no_other(self, loop: str) -> None:
        async def story() -> None:
            async with self.server(self.hang) as server, self.opened_at(server.port) as adapter:
                call = asyncio.ensure_future(adapter.send([self.letter("wild")]))
                await self.eventually(self._has(server, "wild"), "the vendor has the call")
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await self.eventually(server.is_deserted, "the connection of a cancelled call has closed")
                assert await self.accepts(adapter, "good-after")
                assert server.connections == 2

        run(loop, story)

    def test_closing_ends_calls_in_flight_in_doubt_and_later_ones_unsent(self, loop: str) -> None:
        async def story() -> None:
            async with self.server(self.hang) as server, self.opened_at(server.port) as adapter:
                call = asyncio.ensure_future(self.sends(adapter, self.letter("wild")))
                await self.eventually(self._has(server, "wild"), "the vendor has the call")
                await adapter.close()
                outcome = await call
                assert isinstance(outcome, InDoubt), f"the vendor has the letter and has not answered: {outcome!r}"
                outcome = await self.sends(adapter, self.letter("late"))
                assert isinstance(outcome, NotSent), f"the adapter was closed before: {outcome!r}"
                assert not server.taken["late"]

        run(loop, story)

    def test_it_can_be_made_outside_a_loop_and_leaves_nothing_running_in_one(self, loop: str) -> None:
        """One adapter lives in one loop; each process and each job makes its own."""

        async def story() -> None:
            async with self.server() as server:
                before = asyncio.all_tasks()
                adapter = await asyncio.to_thread(self.made, self.full_settings(server.port))
                await adapter.open()
                assert await self.accepts(adapter, "good-1")
                await adapter.close()
                await self.eventually(server.is_deserted, "close() has closed all connections")

                async def alone() -> bool:
                    return not {task for task in asyncio.all_tasks() - before if task not in server._tasks}

                await self.eventually(alone, "close() has ended the adapter's tasks")

        for _ in range(2):
            run(loop, story)

    def test_a_letter_that_would_inject_a_line_never_does(self, loop: str) -> None:
        async def story() -> None:
            async with self.server() as server, self.opened_at(server.port) as adapter:
                for letter in self.injections():
                    before = sum(server.taken.values())
                    await self.called(adapter, [letter])
                    assert not self.injected(server), f"a line of {letter!r} came to the vendor as one of its own"
                    assert sum(server.taken.values()) <= before + 1

        run(loop, story)

    def test_a_letter_of_which_nothing_may_leave_is_unsendable(self, loop: str) -> None:
        async def story() -> None:
            async with self.server() as server, self.opened_at(server.port) as adapter:
                for letter in self.unsendable():
                    outcome = await self.sends(adapter, letter)
                    assert isinstance(outcome, Refused) and outcome.code == "unsendable", outcome
                assert not server.taken

        run(loop, story)

    def _full(self, most: int) -> list[Any]:
        return [self.letter(f"wild-{number}") for number in range(min(most, 20))]

    def _trusting(self) -> dict[str, str]:
        if not self.trust:
            pytest.skip("it trusts the system's authorities only")
        return {self.trust: str(authority())}

    def _has(self, server: MisbehavingServer, reference: str) -> Callable[[], Any]:
        async def taken() -> bool:
            return server.taken[reference] == 1

        return taken
