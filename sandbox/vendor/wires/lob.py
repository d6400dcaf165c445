"""Lob's letters: JSON with the page as HTML, found again by its metadata, events signed with the webhook's secret.

`login`: the API key and a colon. An `address_line1` that begins with "undeliverable" is refused; a letter to one that
begins with "returned" comes back.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import orjson

from sandbox.vendor.wires.base import JSON, AnswerContent, Asked, Call, Fate, NamedVendor, PostedReport, Wrong

LETTERS = b"/v1/letters"
CODES = {
    401: "unauthorized", 404: "not_found", 422: "invalid", 429: "rate_limit_exceeded", 500: "internal_server_error",
    503: "service_unavailable",
}  # fmt: skip
ODD_ADDRESSES = {"undeliverable": "reject", "returned": "returned"}


class Lob(NamedVendor):
    dedupes = True

    def read(self, call: Call) -> Sequence[Asked] | Wrong:
        if call.path != LETTERS:
            return Wrong(404, "not found")
        try:
            letter = orjson.loads(call.body)
            to, metadata = letter["to"], letter.get("metadata") or {}
            whole = bool(letter["file"] and letter["from"] and letter["use_type"] and to["address_line1"])
            name = str(to.get("name") or to["company"])
            reference = str(metadata.get("reference") or call.header(b"idempotency-key") or uuid4().hex)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            return Wrong(422, f"{error} is required")
        if not whole or not name:
            return Wrong(422, "to, from, use_type and file are required")
        line = str(to["address_line1"])
        word = next((word for start, word in ODD_ADDRESSES.items() if line.lower().startswith(start)), "")
        said = {side: _address(letter[side]) for side in ("to", "from")} | {"use_type": letter["use_type"]}
        return [Asked(reference, f"{name}, {line}", word, repeated=said)]

    def looked_up(self, call: Call) -> str:
        asked = parse_qs(call.query.decode("latin-1")) if call.path == LETTERS else {}
        return asked.get("metadata[reference]", [""])[0]

    def found(self, id: str, reference: str) -> tuple[int, AnswerContent]:
        letters = [_letter(id, reference)] if id else []
        return 200, {"data": letters, "object": "list", "count": len(letters)}

    def id(self, seq: int) -> str:
        return f"ltr_{seq:016x}"

    def accepted(self, id: str, asked: Asked) -> AnswerContent:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        own = {"date_created": at, "date_modified": at, "return_envelope": False}
        return _letter(id, asked.reference) | own | asked.repeated

    def repeated(self, id: str, asked: Asked) -> tuple[int, AnswerContent]:
        return 200, self.accepted(id, asked)

    def refused(self, status: int, code: str, sub_type: str, asked: Asked) -> tuple[int, AnswerContent]:
        return 422, _error(422, "failed_deliverability_strictness", "to address is undeliverable")

    def problem(self, status: int, code: str, sub_type: str = "") -> AnswerContent:
        return _error(status, CODES.get(status, "bad_request"), code)

    def waits(self, seconds: float) -> dict[str, str]:
        return {"ratelimit-remaining": "0", "ratelimit-reset": str(int(time.time() + seconds) + 1)}

    def reports(self, fates: Sequence[Fate], to: str, secret: str) -> PostedReport:
        [fate] = fates
        stamp = str(int(time.time() * 1000))
        kind = f"letter.{'delivered' if fate.kind == 'delivered' else 'returned_to_sender'}"
        event = {
            "id": f"evt_{uuid4().hex[:16]}", "event_type": {"id": kind, "resource": "letters"}, "object": "event",
            "reference_id": fate.entry.id, "date_created": datetime.now(UTC).isoformat(),
            "body": _letter(fate.entry.id, fate.entry.reference),
        }  # fmt: skip
        body = orjson.dumps(event)
        signature = hmac.digest(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hex()
        return PostedReport(to, {"Lob-Signature": signature, "Lob-Signature-Timestamp": stamp} | JSON, body)


def _address(given: Any) -> dict[str, Any]:
    """Return an address; stored ones are given by their id."""
    known = (
        given if isinstance(given, dict) else {"id": str(given), "name": "A sponsor", "address_line1": "1 High Street"}
    )
    at = {"date_created": "2026-01-01T00:00:00.000Z", "date_modified": "2026-01-01T00:00:00.000Z"}
    return {"id": f"adr_{uuid4().hex[:16]}", "object": "address"} | at | known


def _letter(id: str, reference: str) -> dict[str, Any]:
    page = f"https://lob-assets.com/letters/{id}.pdf"
    return {"id": id, "object": "letter", "url": page, "metadata": {"reference": reference}}


def _error(status: int, code: str, text: str) -> dict[str, Any]:
    return {"error": {"message": text, "status_code": status, "code": code}}
