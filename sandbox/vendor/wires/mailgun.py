"""Mailgun's messages: one form for up to 1,000 recipients and one id for all, events signed with the signing key.

`login`: `api` and the API key. It accepts every address and reports bad ones as failed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from email import message_from_bytes, policy
from typing import Any
from uuid import uuid4

import orjson

from sandbox.vendor.wires.base import JSON, AnswerContent, Asked, Call, Fate, NamedVendor, PostedReport, Wrong

MOST = 1000
VARIABLE = re.compile(r"%recipient\.([^%]+)%")
EVENTS: dict[str, dict[str, Any]] = {
    "delivered": {"event": "delivered", "delivery-status": {"code": 250, "message": "OK"}},
    "bounced": {
        "event": "failed", "severity": "permanent", "reason": "bounce",
        "delivery-status": {"code": 550, "message": "5.1.1 no such user"},
    },
    "complained": {"event": "complained"},
}  # fmt: skip


class Mailgun(NamedVendor):
    looks = False

    def read(self, call: Call) -> Sequence[Asked] | Wrong:
        if not re.fullmatch(rb"/v3/[a-z0-9.-]+/messages", call.path):
            return Wrong(404, "Domain not found")
        fields = _fields(call)
        once, to = dict(fields), [value for name, value in fields if name == "to"]
        if not 1 <= len(to) <= MOST or "from" not in once:
            return Wrong(400, "from, and to of 1 to 1,000 recipients, are required")
        if not (once.get("text") or once.get("html")):
            return Wrong(400, "Need at least one of 'text', 'html', 'amp-html' or 'template' parameters")
        if not all(re.fullmatch(r"[^@\s]+@[^@\s]+", one) for one in to):
            return Wrong(400, "'to' parameter is not a valid address. please check documentation")
        try:
            variables = orjson.loads(once.get("recipient-variables", "{}"))
            return [_asked(one, once.get("v:reference", ""), variables.get(one, {})) for one in to]
        except (orjson.JSONDecodeError, AttributeError):
            return Wrong(400, "recipient-variables is not a valid JSON object")

    def id(self, seq: int) -> str:
        return f"<{seq:016d}@sandbox.mailgun.example>"

    def accepted(self, id: str, asked: Asked) -> AnswerContent:
        return {"id": id, "message": "Queued. Thank you."}

    def problem(self, status: int, code: str, sub_type: str = "") -> AnswerContent:
        return "Forbidden" if status == 401 else {"message": code}

    def reports(self, fates: Sequence[Fate], to: str, secret: str) -> PostedReport:
        [fate] = fates
        entry, stamp, token = fate.entry, str(int(time.time())), uuid4().hex + uuid4().hex[:18]
        event = EVENTS[fate.kind] | {
            "id": uuid4().hex[:22], "timestamp": time.time(), "recipient": entry.recipient,
            "message": {"headers": {"message-id": entry.id.strip("<>"), "to": entry.recipient}},
            "user-variables": {"reference": entry.reference},
        }  # fmt: skip
        signature = hmac.digest(secret.encode(), f"{stamp}{token}".encode(), hashlib.sha256).hex()
        signed = {"timestamp": stamp, "token": token, "signature": signature}
        return PostedReport(to, JSON, orjson.dumps({"signature": signed, "event-data": event}))


def _fields(call: Call) -> list[tuple[str, str]]:
    """Return the fields of multipart/form-data, without files; Python's mail parser reads them."""
    head = b"Content-Type: " + call.headers.get(b"content-type", b"") + b"\r\n\r\n"
    found: list[tuple[str, str]] = []
    for part in message_from_bytes(head + call.body, policy=policy.HTTP).iter_parts():
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes) and part.get_filename() is None:
            found.append((name, content.decode("utf-8", "replace")))
    return found


def _asked(to: str, reference: str, own: Mapping[str, Any]) -> Asked:
    return Asked(VARIABLE.sub(lambda named: str(own.get(named[1], "")), reference) or uuid4().hex, to)
