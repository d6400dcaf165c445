"""The description of an adapter by its test file, and how the tests connect it to a server."""

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

from vendors.adapters.base import Adapter, Letter
from vendors.adapters.options import InvalidSettings
from vendors.adapters.reports import ReportRequest
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.testing.cases import Expected, Trial
from vendors.testing.servers import MisbehavingServer

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CONCURRENCY = 4
OUTCOMES = (Accepted, Refused, NotSent, InDoubt)


class Subject(ABC):
    """One adapter, a server to test it with, and the settings that connect them."""

    adapter: ClassVar[type[Adapter]]
    """The class to test."""
    report_key: ClassVar[str] = "a-signing-secret-of-the-tests"
    """The key that signs its delivery reports."""
    secret: ClassVar[Mapping[str, str]] = {}
    """A credential's secret with unique texts: none may show up in outcomes or logs."""
    patient: ClassVar[Mapping[str, str]] = {"timeout": "60"}
    """Settings under which no deadline ends a test's call."""
    impatient: ClassVar[Mapping[str, str]] = {"timeout": "0.3"}
    """Settings under which a call ends soon."""
    trust: ClassVar[str] = "ca_file"
    """The setting for a file with the authorities of the vendor's certificate; "": there is none."""
    reuses_connections: ClassVar[bool] = True
    """False if each call has a connection of its own."""
    differs: ClassVar[Mapping[str, Expected]] = {}
    """Outcomes of answers with another meaning by contract, by the name of the case, as `{"a 402": (Refused,)}`."""
    exact: ClassVar[bool] = False
    """True if outcomes are compared with their texts."""
    patience: ClassVar[float] = 60.0
    """Seconds to wait for what must happen."""

    hang: Any
    good_and_close: Any

    @abstractmethod
    def server(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> MisbehavingServer:
        """Return a server with a misbehaviour, or a good one."""

    @abstractmethod
    def cases(self) -> Iterable[Trial]:
        """Return the misbehaviours."""

    @abstractmethod
    def settings_at(self, port: int, *, secure: bool = False) -> dict[str, Any]:
        """Return settings for a server at this port of 127.0.0.1. `secure`: TLS from the first byte."""

    def letter(self, reference: str) -> Letter:
        """Return a letter that the vendor would accept."""
        return Letter(reference, "somebody@example.org", "Hello", "Dear somebody,\n.\nbye", {"amount": 3})

    def report(self, reference: str, vendor_id: str) -> ReportRequest | None:
        """Return a delivery report for this letter, as the vendor builds it with `report_key` or the `secret`."""
        return None

    def injections(self) -> list[Letter]:
        """Return letters that try to inject a line."""
        ends = [f"{end}X-Injected: yes" for end in ("\r\n", "\n", "\r", "\0")]
        fair = self.letter("a-1")
        return [
            fair._replace(**{name: getattr(fair, name) + end})
            for end in ends
            for name in ("reference", "recipient", "subject")
        ]

    def unsendable(self) -> list[Letter]:
        """Return letters that must not be sent at all."""
        return []

    def injected(self, server: Any) -> bool:
        """Return True if the server has seen an injected line."""
        return False

    # --- for the tests ----------------------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "loop" in metafunc.fixturenames:
            metafunc.parametrize("loop", LOOPS)
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", [pytest.param(case, id=case.name) for case in self._judged()])

    def _judged(self) -> list[Trial]:
        """Return the cases with the outcomes of the vendor's contract."""
        found = {case.name: case for case in self.cases()}
        wrong = [name for name in self.differs if name not in found or not found[name].answered]
        if wrong:
            free = ", ".join(repr(case.name) for case in found.values() if case.answered) or "none"
            raise pytest.UsageError(f"differs names {wrong[0]!r}; a vendor's contract can only speak of {free}")
        return [replace(case, expected=self.differs.get(case.name, case.expected)) for case in found.values()]

    def full_settings(self, port: int, more: Mapping[str, Any] | None = None, *, secure: bool = False) -> Any:
        """Return the settings of the tested adapter: patient, and with few connections."""
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
        """Make the adapter. If it does not accept the tests' settings, fail with a sentence."""
        try:
            return self.adapter(settings, self.secret)
        except InvalidSettings as why:
            pytest.fail(f"{self.adapter.__name__} does not take the settings of its test: {why}")

    async def sends(self, adapter: Adapter, letter: Letter) -> Outcome:
        """Send a letter and return its outcome, checking the form of the call's answer."""
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
    """Run a story to its end on the named kind of loop."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(story())
