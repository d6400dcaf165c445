"""The interface of a wire, and the one of the `http` adapter: letters as JSON objects, Standard Webhooks reports."""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal
from urllib.parse import unquote
from uuid import uuid4

import orjson
from standardwebhooks import Webhook as Signer

from sandbox.vendor.books import BookEntry

AnswerContent = dict[str, Any] | str
FateKind = Literal["delivered", "bounced", "complained"]


@dataclass(slots=True)
class Call:
    """One request. `headers`: names in lower case."""

    method: bytes
    path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    body: bytes

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True)
class Asked:
    """One letter of a call. `word`: a magic one, if the recipient has none. `report_to`: the URL for its reports.

    `repeated`: what the answer repeats about it.
    """

    reference: str
    recipient: str
    word: str = ""
    report_to: str = ""
    repeated: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Wrong:
    """A call that cannot be a letter: the answer's status and content."""

    status: int
    code: str
    sub_type: str = ""


@dataclass(slots=True)
class PostedReport:
    """A report, ready to be posted."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Fate:
    """The later fate of a letter."""

    entry: BookEntry
    kind: FateKind
    report_to: str = ""


class VendorWire:
    """The JSON wire, and the base of the others. `login`: USER:PASSWORD of basic authentication."""

    together: ClassVar[int] = 500
    """Letters of one report."""
    submitted: ClassVar[int] = 200
    """The status of an acceptance."""
    looks: ClassVar[bool] = True
    """Whether it looks at recipients before it takes a letter; else bad ones are reported later."""
    dedupes: ClassVar[bool] = False
    """Whether an idempotency key always counts."""

    def __init__(self, login: str) -> None:
        self.user, _, self.password = login.partition(":")
        self._login = "Basic " + base64.b64encode(login.encode()).decode() if login else ""

    def check(self, receipts_to: str, secret: str) -> None:
        """Check that reports can be signed. Raises ValueError with one sentence."""
        if receipts_to and not secret.startswith("whsec_"):
            raise ValueError("reports are signed: give receipts_secret, whsec_...")

    def knows(self, call: Call) -> bool:
        """Return True if the call has the right credential."""
        return not self._login or hmac.compare_digest(call.header(b"authorization").encode(), self._login.encode())

    def credential(self, call: Call) -> str:
        """Return the credential's name in the books."""
        return call.header(b"authorization")

    def read(self, call: Call) -> Sequence[Asked] | Wrong:
        """Return the letters of a call to send, at least one."""
        try:
            content = orjson.loads(call.body)
            reference, recipient = content["reference"], content["recipient"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            reference = recipient = None
        if isinstance(reference, str) and isinstance(recipient, str) and reference and recipient:
            return [Asked(reference, recipient)]
        return Wrong(400, "malformed", "no reference or recipient")

    def looked_up(self, call: Call) -> str:
        """Return the reference that a GET asks for."""
        return unquote(call.path.rpartition(b"/")[2].decode("latin-1"))

    def id(self, seq: int) -> str:
        return f"sb-{seq}"

    def accepted(self, id: str, asked: Asked) -> AnswerContent:
        return {"id": id}

    def repeated(self, id: str, asked: Asked) -> tuple[int, AnswerContent]:
        """Return the answer to a known idempotency key."""
        return 409, {"id": id}

    def found(self, id: str, reference: str) -> tuple[int, AnswerContent]:
        """Return the answer to a look-up. `id`: empty if there is no such letter."""
        return (200, {"id": id}) if id else (404, {"code": "not_found"})

    def refused(self, status: int, code: str, sub_type: str, asked: Asked) -> tuple[int, AnswerContent]:
        """Return a final refusal of a letter. `status`, `code`, `sub_type`: as in the JSON."""
        return status, self.problem(status, code, sub_type)

    def problem(self, status: int, code: str, sub_type: str = "") -> AnswerContent:
        """Return the content for any other error: credential, speed, the call, the vendor itself."""
        return {"code": code, "sub_type": sub_type} if sub_type else {"code": code}

    def waits(self, seconds: float) -> dict[str, str]:
        """Return headers that say when to call again."""
        return {"Retry-After": str(max(1, math.ceil(seconds)))}

    def reports(self, fates: Sequence[Fate], to: str, secret: str) -> PostedReport:
        """Write at most `together` reports. `to`, `secret`: the settings receipts_to and receipts_secret."""
        name, moment = f"msg_{uuid4().hex}", datetime.now(UTC)
        body = orjson.dumps({"receipts": [self._receipt(fate, moment) for fate in fates]})
        headers = {
            "webhook-id": name,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Signer(secret).sign(name, moment, body.decode()),
        }
        return PostedReport(to, headers | JSON, body)

    @staticmethod
    def _receipt(fate: Fate, moment: datetime) -> dict[str, Any]:
        facts = {"reference": fate.entry.reference, "at": moment.isoformat(), "id": fate.entry.id, "status": fate.kind}
        return facts | ({"reason": "mailbox unknown"} if fate.kind == "bounced" else {})


JSON = {"Content-Type": "application/json"}


class NamedVendor(VendorWire):
    """A real vendor. Each letter is reported separately, and calls always need a credential."""

    together = 1

    def __init__(self, login: str) -> None:
        super().__init__(login)
        if not self.user or ":" not in login:
            raise ValueError("give login, USER:PASSWORD, as the vendor it looks like asks for one")

    def check(self, receipts_to: str, secret: str) -> None:
        if receipts_to and not secret:
            raise ValueError("reports are signed: give receipts_secret")

    def looked_up(self, call: Call) -> str:
        return ""

    def found(self, id: str, reference: str) -> tuple[int, AnswerContent]:
        return 404, self.problem(404, "not found")
