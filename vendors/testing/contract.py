"""Contracts for test files to inherit: one for vendors over HTTP, one for SMTP relays."""

from __future__ import annotations

import json
import ssl
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from vendors.adapters.base import Letter
from vendors.adapters.options import InvalidSettings
from vendors.testing.calls import CallContract
from vendors.testing.cases import Trial
from vendors.testing.declared import DeclarationContract
from vendors.testing.http_cases import VendorAnswer, http_cases
from vendors.testing.http_server import Behaviour, HttpRequest, MisbehavingHttp, answer, hang, raw
from vendors.testing.servers import MisbehavingServer, closed_port
from vendors.testing.smtp_cases import EARLY, SMTP_CASES
from vendors.testing.smtp_relay import MisbehavingSmtp, say
from vendors.testing.smtp_relay import hang as hang_on
from vendors.testing.subject import run


class AdapterContract(CallContract, DeclarationContract):
    """All tests of the contract."""


class HttpContract(AdapterContract):
    """The contract for a vendor over HTTP. A test file defines at least `adapter`, `settings` and `accepted`.

    `refused`: the vendor's answer for a recipient it does not accept.
    """

    refused: ClassVar[VendorAnswer | None] = None
    hang = staticmethod(hang)

    @abstractmethod
    def settings(self, url: str) -> dict[str, Any]:
        """Return settings for a vendor at this URL, which lacks a path."""

    @abstractmethod
    def accepted(self, vendor_id: Any) -> VendorAnswer:
        """Return the vendor's acceptance of a letter, with this id of any type."""

    def cases(self) -> Iterable[Trial]:
        return http_cases(self.accepted, self.refused, self.impatient)

    def server(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> MisbehavingHttp:
        good = self.accepted("evidence").behaviour()
        return MisbehavingHttp(behaviour, tls, good=good, reference_of=self.reference_of)

    def settings_at(self, port: int, *, secure: bool = False) -> dict[str, Any]:
        return self.settings(f"{'https' if secure else 'http'}://127.0.0.1:{port}")

    @property
    def good_and_close(self) -> Behaviour:
        return self.accepted("evidence").behaviour(close=True)

    def letter(self, reference: str) -> Letter:
        self.sent.pop(reference, None)
        self.sent[reference] = None
        return super().letter(reference)

    def reference_of(self, request: HttpRequest) -> str:
        """Return the reference that occurs in the request, else the newest one."""
        text = f"{request.line} {request.headers} {request.body.decode('latin-1')}"
        found = [reference for reference in self.sent if reference in text]
        return max(found, key=len) if found else next(reversed(self.sent), "")

    def injected(self, server: Any) -> bool:
        return any("x-injected" in request.headers for request in server.requests)

    def echoes(self) -> list[Any]:
        shown = " and ".join(self.secret.values())
        bodies = (f"wrong login: {shown}", json.dumps({"message": f"wrong login: {shown}"}))
        return [answer(status, body) for status in (400, 401, 422, 429, 500) for body in bodies]

    def unanswered(self) -> list[Any]:
        broken = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", close=True)
        return [hang, broken, answer(200, "<html>"), answer(500), answer(401), answer(429)]

    def test_what_says_that_the_reference_travels_is_true(self, loop: str) -> None:
        async def story() -> None:
            async with self.server() as server, self.opened_at(server.port) as adapter:
                await self.sends(adapter, self.letter("good-4f1d8a"))
                request = server.requests[0]
                travels = "good-4f1d8a" in f"{request.line} {request.headers} {request.body.decode('latin-1')}"
            settings = self.full_settings(closed_port())
            by_reference = self.adapter.sends_reports(settings) and not self.adapter.reports_by_id(settings)
            can = adapter.capabilities
            for needs, what in (
                (by_reference, "reports name letters by our reference"),
                (can.dedupe, "the vendor recognises a repeat by our reference"),
                (can.lookup != "none", "a look-up asks by our reference"),
            ):
                assert travels or not needs, f"it says that {what}, and the call does not carry it"

        run(loop, story)

    def test_a_secret_goes_over_https_alone(self) -> None:
        """Plain http is only for a server on this machine."""
        if self.secret:
            with pytest.raises(InvalidSettings):
                self.adapter({**self.full_settings(1), **self.settings("http://vendor.example")}, self.secret)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.sent = {}

    sent: ClassVar[dict[str, None]] = {}
    """The references of the letters that were made, the newest last."""


class SmtpContract(AdapterContract):
    """The contract for an SMTP relay. A test file defines `adapter` and `settings`.

    Letters are identified by recipient or Message-ID. `pipelining`: the relay offers PIPELINING.
    """

    pipelining: ClassVar[bool] = False
    impatient = EARLY
    patient = {"timeout": "60", "connect_timeout": "60"}
    hang = {"dot": hang_on}
    good_and_close = {"dot": say("250 Ok: queued as EVIDENCE", close=True)}

    @abstractmethod
    def settings(self, host: str, port: int, *, secure: bool) -> dict[str, Any]:
        """Return settings for a relay at this address. `secure`: TLS from the first byte."""

    def cases(self) -> Iterable[Trial]:
        # Pipelining affects neither deadlines nor anything before the first mail.
        return [case for case in SMTP_CASES if not (self.pipelining and (case.fresh or case.limits))]

    def server(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> MisbehavingServer:
        return MisbehavingSmtp(behaviour, tls, pipelining=self.pipelining)

    def settings_at(self, port: int, *, secure: bool = False) -> dict[str, Any]:
        return self.settings("127.0.0.1", port, secure=secure)

    def letter(self, reference: str) -> Letter:
        return Letter(reference, f"{reference}@example.org", "Hello", "Dear somebody,\n.\nbye")

    def injected(self, server: Any) -> bool:
        heads = [mail.partition(b"\r\n\r\n")[0] for mail in server.mails]
        return any(b"\nX-Injected:" in head for head in heads)
