"""The adapters under contract, each with a vendor of its kind that misbehaves."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.contracts import wild_http, wild_smtp
from tests.contracts.wild import PATIENCE, Case, Wild, closed_port
from vendors.adapters import load
from vendors.adapters.base import Adapter, Letter, Origin

CONCURRENCY = 4


class Kind(ABC):
    """One adapter, a misbehaving vendor to test it with, and how to bring them together."""

    name: str
    """Of the adapter."""
    title: str
    """Of the kind, for the names of the tests."""
    cases: Sequence[Case]
    hang: Any
    good_and_close: Any
    short: Mapping[str, str]
    """Settings that end what comes before the letter leaves soon."""

    @abstractmethod
    def vendor(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> Wild:
        """A vendor with a misbehaviour, or a good one."""

    @abstractmethod
    def plain(self, port: int) -> dict[str, Any]:
        """Settings for a vendor at a port."""

    @abstractmethod
    def secure(self, port: int) -> dict[str, Any]:
        """The same with TLS from the first byte."""

    @abstractmethod
    def injections(self) -> list[Letter]:
        """Letters that try to smuggle in a line."""

    def letter(self, reference: str) -> Letter:
        return Letter(reference, "somebody@example.org", "Hello", "Dear somebody,\n.\nbye", {"amount": 3})

    @asynccontextmanager
    async def adapter(self, vendor: Wild, limits: Mapping[str, str] | None = None) -> AsyncIterator[Adapter]:
        async with self.adapter_at(self.plain(vendor.port) | dict(limits or {})) as adapter:
            yield adapter

    @asynccontextmanager
    async def adapter_at(self, settings: dict[str, Any]) -> AsyncIterator[Adapter]:
        adapter = load(self.name)(settings | {"concurrency": str(CONCURRENCY)}, self.secret())
        await adapter.open()
        try:
            yield adapter
        finally:
            await adapter.close()

    def secret(self) -> dict[str, str]:
        return {}

    def nowhere(self) -> dict[str, Any]:
        return self.plain(closed_port())


class HttpKind(Kind):
    name = title = "http"
    cases = wild_http.CASES
    short = wild_http.SHORT
    hang = staticmethod(wild_http.hang)
    good_and_close = staticmethod(wild_http.good_and_close)

    def vendor(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> Wild:
        return wild_http.WildHttp(behaviour, tls)

    def plain(self, port: int) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{port}/letters", "safe_statuses": "599", "timeout": str(PATIENCE)}

    def secure(self, port: int) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{port}/letters", "timeout": str(PATIENCE)}

    def injections(self) -> list[Letter]:
        return [
            Letter(f"a{end}Host: elsewhere", "somebody@example.org", "Hello", "") for end in ("\r\n", "\n", "\r", "\0")
        ]


class SegmentKind(HttpKind):
    """Its limits count segments."""

    title = "http by segments"
    cases = ()

    def plain(self, port: int) -> dict[str, Any]:
        return super().plain(port) | {"unit": "segment"}


DESCRIPTION = """
[vendor]
name = "one that speaks as the adapter http does"
channel = "print"
documents = "tests/contracts/wild_http.py"
[request]
url = "http://127.0.0.1/letters"
[request.headers]
Idempotency-Key = "{reference}"
[request.content]
reference = "{reference}"
recipient = "{recipient}"
body = "{body}"
params = "{params}"
[answer]
id = "id"
[[answer.rules]]
status = 599
is = "throttled"
contract = "a 599 was not taken"
"""
DEDUPE = """
[dedupe]
contract = "a repeat is taken once"
"""


class DescribedKind(HttpKind):
    """The vendor of `http`, by a description."""

    name = title = "described"

    def plain(self, port: int) -> dict[str, Any]:
        return {"description": DESCRIPTION, "server": f"http://127.0.0.1:{port}", "timeout": str(PATIENCE)}

    def secure(self, port: int) -> dict[str, Any]:
        return self.plain(port) | {"server": f"https://127.0.0.1:{port}"}

    @asynccontextmanager
    async def adapter(self, vendor: Wild, limits: Mapping[str, str] | None = None) -> AsyncIterator[Adapter]:
        settings = self.plain(vendor.port) | dict(limits or {})
        if settings.pop("dedupe", ""):
            settings["description"] += DEDUPE
        async with self.adapter_at(settings) as adapter:
            yield adapter


class AnymailKind(HttpKind):
    """The same vendor, which answers as Resend does."""

    name = title = "anymail"

    def letter(self, reference: str) -> Letter:
        return super().letter(reference)._replace(origin=Origin("us@example.org", "Us"))

    def plain(self, port: int) -> dict[str, Any]:
        return super().plain(port) | {"service": "resend", "url": f"http://127.0.0.1:{port}"}

    def secure(self, port: int) -> dict[str, Any]:
        return self.plain(port) | {"url": f"https://127.0.0.1:{port}"}

    def secret(self) -> dict[str, str]:
        return {"api_key": "sesame"}

    def injections(self) -> list[Letter]:
        ends = ("\r\nBcc: all@example.org", "\nBcc: all@example.org", "\0", ",all@example.org")
        fair = self.letter("a-1")
        return super().injections() + [fair._replace(recipient=fair.recipient + end) for end in ends]


class SmtpKind(Kind):
    name = "smtp"
    short = wild_smtp.EARLY
    hang = {"dot": wild_smtp.hang}
    good_and_close = {"dot": wild_smtp.say("250 Ok: queued as EVIDENCE", close=True)}

    def __init__(self, pipelining: bool) -> None:
        self.title = "smtp pipelined" if pipelining else "smtp"
        self._pipelining = pipelining
        # Pipelining changes nothing before the first mail, nor any deadline.
        self.cases = [case for case in wild_smtp.CASES if not (pipelining and (case.fresh or case.limits))]

    def vendor(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> Wild:
        return wild_smtp.WildSmtp(behaviour, tls, pipelining=self._pipelining)

    def plain(self, port: int) -> dict[str, Any]:
        waits = {"timeout": str(PATIENCE), "connect_timeout": str(PATIENCE)}
        return {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "Us <us@example.org>"} | waits

    def secure(self, port: int) -> dict[str, Any]:
        return self.plain(port) | {"tls": "implicit"}

    def letter(self, reference: str) -> Letter:
        return Letter(reference, f"{reference}@example.org", "Hello", "Dear somebody,\n.\nbye")

    def injections(self) -> list[Letter]:
        ends = [f"{end}Bcc: all@example.org" for end in ("\r\n", "\n", "\r", "\0")]
        fair = self.letter("a-1")
        return [
            fair._replace(**{name: getattr(fair, name) + end})
            for end in ends
            for name in ("reference", "recipient", "subject")
        ]


KINDS: list[Kind] = [HttpKind(), SegmentKind(), DescribedKind(), AnymailKind(), SmtpKind(False), SmtpKind(True)]
