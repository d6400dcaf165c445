"""What a test file says of its adapter, and how the tests bring it together with a server."""

from __future__ import annotations

import asyncio
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import uvloop

from vendors.adapters.base import Adapter, InvalidSettings, Letter
from vendors.adapters.reports import ReportRequest
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.testing.cases import Expected, Trial
from vendors.testing.servers import MisbehavingServer

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CONCURRENCY = 4
OUTCOMES = (Accepted, Refused, NotSent, InDoubt)


class Subject(ABC):
    """One adapter, a server to test it with, and how to bring them together.

    adapter: the class. secret: of a credential; texts that occur nowhere else. patient: settings with which no deadline
    ends a call of a test; impatient: with which a call ends soon. trust: the setting that names a file with the
    authorities of the vendor's certificate; "": it has none. reuses_connections: calls follow each other on one
    connection. differs: where the vendor's contract gives an answer another meaning: the name of the case, and the
    outcome. report_key: what signs its delivery reports. exact: outcomes are compared with their texts. patience:
    seconds to wait for what must happen.
    """

    adapter: ClassVar[type[Adapter]]
    report_key: ClassVar[str] = "a-signing-secret-of-the-tests"
    secret: ClassVar[Mapping[str, str]] = {}
    patient: ClassVar[Mapping[str, str]] = {"timeout": "60"}
    impatient: ClassVar[Mapping[str, str]] = {"timeout": "0.3"}
    trust: ClassVar[str] = "ca_file"
    reuses_connections: ClassVar[bool] = True
    differs: ClassVar[Mapping[str, Expected]] = {}
    exact: ClassVar[bool] = False
    patience: ClassVar[float] = 60.0

    hang: Any
    good_and_close: Any

    @abstractmethod
    def server(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> MisbehavingServer:
        """A server with a misbehaviour, or a good one."""

    @abstractmethod
    def cases(self) -> Iterable[Trial]:
        """The misbehaviours."""

    @abstractmethod
    def settings_at(self, port: int, *, secure: bool = False) -> dict[str, Any]:
        """Settings for the server at a port of 127.0.0.1; secure: with TLS from the first byte."""

    def letter(self, reference: str) -> Letter:
        """A letter that the vendor would take."""
        return Letter(reference, "somebody@example.org", "Hello", "Dear somebody,\n.\nbye", {"amount": 3})

    def report(self, reference: str, vendor_id: str) -> ReportRequest | None:
        """A report that this letter was delivered, as the vendor makes it with `report_key` or the `secret`."""
        return None

    def injections(self) -> list[Letter]:
        """Letters that try to smuggle in a line."""
        ends = [f"{end}X-Injected: yes" for end in ("\r\n", "\n", "\r", "\0")]
        fair = self.letter("a-1")
        return [
            fair._replace(**{name: getattr(fair, name) + end})
            for end in ends
            for name in ("reference", "recipient", "subject")
        ]

    def unsendable(self) -> list[Letter]:
        """Those of which nothing may leave."""
        return []

    def injected(self, server: Any) -> bool:
        """Whether the server has seen a line that was smuggled in."""
        return False

    # --- for the tests ----------------------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "loop" in metafunc.fixturenames:
            metafunc.parametrize("loop", LOOPS)
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", [pytest.param(case, id=case.name) for case in self._judged()])

    def _judged(self) -> list[Trial]:
        """The cases, with what the vendor's contract says."""
        found = {case.name: case for case in self.cases()}
        wrong = [name for name in self.differs if name not in found or not found[name].answered]
        if wrong:
            free = ", ".join(repr(case.name) for case in found.values() if case.answered) or "none"
            raise pytest.UsageError(f"differs names {wrong[0]!r}; a vendor's contract can only speak of {free}")
        return [replace(case, expected=self.differs.get(case.name, case.expected)) for case in found.values()]

    def full_settings(self, port: int, more: Mapping[str, Any] | None = None, *, secure: bool = False) -> Any:
        """The settings with which the tests make the adapter: patient, and with few connections."""
        found = {**self.settings_at(port, secure=secure), **self.patient}
        if "concurrency" in self.adapter.options:
            found["concurrency"] = str(CONCURRENCY)
        return found | dict(more or {})

    @asynccontextmanager
    async def opened_at(
        self, port: int, more: Mapping[str, Any] | None = None, *, secure: bool = False
    ) -> AsyncIterator[Adapter]:
        adapter = self.made(self.full_settings(port, more, secure=secure))
        await adapter.open()
        try:
            yield adapter
        finally:
            await adapter.close()

    def made(self, settings: Mapping[str, Any]) -> Adapter:
        """Settings that the tests have chosen and the adapter does not take end the test with a sentence."""
        try:
            return self.adapter(settings, self.secret)
        except InvalidSettings as why:
            pytest.fail(f"{self.adapter.__name__} does not take the settings of its test: {why}")

    async def sends(self, adapter: Adapter, letter: Letter) -> Outcome:
        """Its outcome, by a call that keeps the form of a call."""
        [outcome] = await self.called(adapter, [letter])
        return outcome

    async def called(self, adapter: Adapter, letters: Sequence[Letter]) -> list[Outcome]:
        try:
            async with asyncio.timeout(adapter.deadline + self.patience):
                outcomes = await adapter.send(letters)
        except TimeoutError:
            pytest.fail(f"send went on for {self.patience:g} s after its deadline of {adapter.deadline:g} s")
        except Exception as error:
            raise AssertionError(f"send must return an outcome whatever happens; it raised {error!r}") from error
        assert isinstance(outcomes, list) and len(outcomes) == len(letters), "send returns one outcome for each letter"
        assert all(isinstance(one, OUTCOMES) for one in outcomes), f"{outcomes!r} are no outcomes"
        return outcomes

    async def accepts(self, adapter: Adapter, reference: str) -> bool:
        return isinstance(await self.sends(adapter, self.letter(reference)), Accepted)

    async def eventually(self, condition: Callable[[], Awaitable[Any]], what: str) -> None:
        """Wait until the condition is true."""
        end = time.monotonic() + self.patience
        while not await condition():
            assert time.monotonic() < end, f"not within {self.patience:g} s: {what}"
            await asyncio.sleep(0.01)


def run(loop: str, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a story to its end on the named kind of loop."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(story())
