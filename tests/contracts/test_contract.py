"""The contract that every adapter keeps with a vendor that does not keep its own; the kit is vendors/testing."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook

from tests import waiting
from vendors.adapters.anymail import Anymail
from vendors.adapters.base import Adapter, Letter, Origin
from vendors.adapters.http import Http
from vendors.adapters.reports import ReportRequest
from vendors.adapters.smtp import Smtp
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused
from vendors.testing import HttpContract, SmtpContract, Trial, VendorAnswer
from vendors.testing.http_server import answer
from vendors.testing.subject import Subject

DEDUPES = {"dedupe": "true"}


class Ours(Subject):
    """All of an outcome is compared, and a deadline that a slow machine misses is tried again."""

    exact = True

    async def eventually(self, condition: Callable[[], Awaitable[Any]], what: str) -> None:
        await waiting.eventually(condition, what)


class JsonVendor(Ours, HttpContract):
    """The vendor of the adapter `http`; those of the others understand the same."""

    secret = {"Authorization": "Bearer sesame-51d0"}
    refused = VendorAnswer(400, {"code": "bounce", "sub_type": "mailbox_unknown"})

    def settings(self, url: str) -> dict[str, Any]:
        return {"url": f"{url}/letters", "safe_statuses": "599"}

    def accepted(self, vendor_id: Any) -> VendorAnswer:
        return VendorAnswer(200, {"id": vendor_id})

    def cases(self) -> Iterable[Trial]:
        yield from super().cases()
        reason = answer(400, '{"code": "bounce", "sub_type": "mailbox_unknown"}')
        yield Trial("a 400 with a reason", reason, Refused("bounce", "mailbox_unknown"))
        yield Trial("a 202 with a numeric id", answer(202, '{"id": 17}'), Accepted("17"))
        yield Trial("a 409 on our key with the id", answer(409, '{"id": "first"}'), Accepted("first"), DEDUPES)
        yield Trial("a 409 on our key without an id", answer(409, '{"message": "twice"}'), (InDoubt,), DEDUPES)
        wait = NotSent("http 599", retry_after=3.0, scope="credential")
        yield Trial("a 599 that the contract calls safe", answer(599, b"", "Retry-After: 3"), wait)

    def unsendable(self) -> list[Letter]:
        ends = ("\r\n", "\n", "\r", "\0")
        return [Letter(f"a{end}Host: elsewhere", "somebody@example.org", "Hello", "") for end in ends]


class TestHttp(JsonVendor):
    adapter = Http
    report_key = "whsec_" + base64.b64encode(b"a signing secret of the tests").decode()

    def settings(self, url: str) -> dict[str, Any]:
        return super().settings(url) | {"receipts": "true"}

    def report(self, reference: str, vendor_id: str) -> ReportRequest:
        at = datetime.now(UTC).replace(microsecond=0)
        one = {"reference": reference, "id": vendor_id, "status": "delivered", "at": at.isoformat()}
        body = json.dumps({"receipts": [one]})
        signature = Webhook(self.report_key).sign("msg-1", at, body)
        headers = {"webhook-id": "msg-1", "webhook-timestamp": f"{at.timestamp():.0f}", "webhook-signature": signature}
        return ReportRequest("POST", "https://mail.example/api/v1/receipts/http", headers, body.encode())


class TestHttpBySegments(JsonVendor):
    adapter = Http

    def settings(self, url: str) -> dict[str, Any]:
        return super().settings(url) | {"unit": "segment"}

    def cases(self) -> Iterable[Trial]:
        return []


DESCRIPTION = """
[vendor]
name = "one that speaks as the adapter http does"
channel = "print"
documents = "vendors/testing/http_cases.py"
[secret]
token = "of the team"
[request]
url = "http://127.0.0.1/letters"
[request.auth]
scheme = "bearer"
token = "{secret.token}"
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


class TestDescribed(JsonVendor):
    """The vendor of `http`, by a description."""

    adapter = Described
    secret = {"token": "sesame-51d0"}

    def settings(self, url: str) -> dict[str, Any]:
        return {"description": DESCRIPTION, "server": url}

    def opened_at(
        self, port: int, more: Mapping[str, Any] | None = None, *, secure: bool = False
    ) -> AbstractAsyncContextManager[Adapter]:
        given = {"description": DESCRIPTION + DEDUPE} if more == DEDUPES else more
        return super().opened_at(port, given, secure=secure)


class TestAnymail(JsonVendor):
    """The same vendor, which answers as Resend does."""

    adapter = Anymail
    secret = {"api_key": "sesame-51d0"}

    def letter(self, reference: str) -> Letter:
        return super().letter(reference)._replace(origin=Origin("us@example.org", "Us"))

    def settings(self, url: str) -> dict[str, Any]:
        return super().settings(url) | {"service": "resend", "url": url}

    def unsendable(self) -> list[Letter]:
        ends = ("\r\nBcc: all@example.org", "\nBcc: all@example.org", "\0", ",all@example.org")
        fair = self.letter("a-1")
        return super().unsendable() + [fair._replace(recipient=fair.recipient + end) for end in ends]


class TestSmtp(Ours, SmtpContract):
    adapter = Smtp

    def settings(self, host: str, port: int, *, secure: bool) -> dict[str, Any]:
        return {"host": host, "port": port, "tls": "implicit" if secure else "none", "sender": "Us <us@example.org>"}

    def unsendable(self) -> list[Letter]:
        return self.injections()


class TestSmtpPipelined(TestSmtp):
    pipelining = True
