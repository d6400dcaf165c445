"""What a wire is asked, and the one of the `http` adapter: a letter is a JSON object, reports are Standard Webhooks."""

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
    """One request. headers: names in lower case."""

    method: bytes
    path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    body: bytes

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True)
class Asked:
    """One letter of a call. word: a magic one, where the recipient itself has none; report_to: where it is reported.

    repeated: what the answer says again of it.
    """

    reference: str
    recipient: str
    word: str = ""
    report_to: str = ""
    repeated: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Wrong:
    """A call that cannot be a letter: the answer's status, and what it says."""

    status: int
    code: str
    sub_type: str = ""


@dataclass(slots=True)
class PostedReport:
    """A report as it is posted."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Fate:
    """What became of a letter later."""

    entry: BookEntry
    kind: FateKind
    report_to: str = ""


class VendorWire:
    """JSON. login: USER:PASSWORD of basic authentication."""

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
        """Whether the call has the right login."""
        return not self._login or hmac.compare_digest(call.header(b"authorization").encode(), self._login.encode())

    def credential(self, call: Call) -> str:
        """By which name the books have the login."""
        return call.header(b"authorization")

    def read(self, call: Call) -> Sequence[Asked] | Wrong:
        """The letters of a call to send, at least one."""
        try:
            content = orjson.loads(call.body)
            reference, recipient = content["reference"], content["recipient"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            reference = recipient = None
        if isinstance(reference, str) and isinstance(recipient, str) and reference and recipient:
            return [Asked(reference, recipient)]
        return Wrong(400, "malformed", "no reference or recipient")

    def looked_up(self, call: Call) -> str:
        """The reference that a GET asks for."""
        return unquote(call.path.rpartition(b"/")[2].decode("latin-1"))

    def id(self, seq: int) -> str:
        return f"sb-{seq}"

    def accepted(self, id: str, asked: Asked) -> AnswerContent:
        return {"id": id}

    def repeated(self, id: str, asked: Asked) -> tuple[int, AnswerContent]:
        """The answer to a known idempotency key."""
        return 409, {"id": id}

    def found(self, id: str, reference: str) -> tuple[int, AnswerContent]:
        """The answer to a look-up; id: empty if there is none."""
        return (200, {"id": id}) if id else (404, {"code": "not_found"})

    def refused(self, status: int, code: str, sub_type: str, asked: Asked) -> tuple[int, AnswerContent]:
        """A letter that it does not take, for good; status, code, sub_type: as the JSON has it."""
        return status, self.problem(status, code, sub_type)

    def problem(self, status: int, code: str, sub_type: str = "") -> AnswerContent:
        """Whatever else is wrong: the login, the speed, the call, the vendor itself."""
        return {"code": code, "sub_type": sub_type} if sub_type else {"code": code}

    def waits(self, seconds: float) -> dict[str, str]:
        """Headers that say when to call again."""
        return {"Retry-After": str(max(1, math.ceil(seconds)))}

    def reports(self, fates: Sequence[Fate], to: str, secret: str) -> PostedReport:
        """At most `together`. to, secret: the settings receipts_to and receipts_secret."""
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
    """One of the real world. Each of its letters is reported alone, and it always asks for a login."""

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
