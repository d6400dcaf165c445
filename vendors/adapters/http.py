"""The adapter `http`: a vendor that accepts letters as JSON, one POST each."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from vendors.adapters import options, reports
from vendors.adapters.base import MAKING, PARTS, WIND_UP, Adapter, Attachment, Capabilities, Letter, one_unit
from vendors.adapters.http_client import Client, header
from vendors.adapters.letter_faults import refuse_letter
from vendors.adapters.options import InvalidSettings, Option, check_protected
from vendors.adapters.reports import Reported, ReportRequest, ReportSource, UnreadableEntry
from vendors.adapters.segments import segments
from vendors.causes.services import find_service
from vendors.outcomes import (
    WRONG_ADDRESS,
    Accepted,
    CallError,
    InDoubt,
    NotSent,
    Outcome,
    classify_error,
    classify_http,
)
from vendors.said import Said

_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "idempotency-key"})
_FIXED = (
    header("Content-Type", "application/json")
    + header("Accept", "application/json")
    + header("Accept-Encoding", "identity")
)


def url(value: Any) -> str:
    """Parse an http(s) URL without user info, query or fragment. Raises ValueError."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(Said("must be an ASCII http or https URL"))
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  the parser looks at the port only when asked
        (parts.hostname or "").encode("idna")
    except ValueError as error:  # also UnicodeError
        raise ValueError(Said("is not a URL: %(error)s", error=error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(Said("must be an http or https URL with a host"))
    if "@" in parts.netloc:
        raise ValueError(Said("must not hold a login; put it into the credential's secret as a header"))
    if parts.query or parts.fragment:
        raise ValueError(Said("must not have a query or a fragment"))
    return value.rstrip("/")


def parse_parts(value: Any) -> tuple[str, ...]:
    """Parse some of PARTS, separated by commas. Raises ValueError."""
    chosen = value.split(",") if isinstance(value, str) else value
    found = tuple(sorted({str(word).strip() for word in chosen})) if isinstance(chosen, list | tuple) else ("",)
    if not set(found) <= set(PARTS):
        raise ValueError(Said("must be some of %(known)s, separated by commas", known=", ".join(PARTS)))
    return found


def parse_statuses(value: Any) -> tuple[int, ...]:
    """Parse HTTP statuses from 500 to 599, separated by commas. Raises ValueError."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        found = tuple(sorted({int(word) for word in parts}))
    except (TypeError, ValueError):
        found = (0,)
    if not all(500 <= status <= 599 for status in found):
        raise ValueError(Said("must be statuses from 500 to 599, separated by commas"))
    return found


def secret_headers(secret: Mapping[str, str]) -> bytes:
    """Return the credential's secret as header lines. Raises InvalidSettings, which never shows a value."""
    errors: list[str] = [
        Said("the secret must not set the header %(name)s", name=name) for name in secret if name.lower() in _OURS
    ]
    lines = []
    for name, value in secret.items():
        try:
            lines.append(header(name, value))
        except ValueError as error:
            errors.append(Said("secret: %(why)s", why=error))
    if errors:
        raise InvalidSettings(errors)
    return b"".join(lines)


class Http(Adapter):
    """Sends POST {"reference", "recipient", "subject", "body", "params"} with the reference as Idempotency-Key.

    With a sender identity it adds {"from": {"name", "address"}, "reply_to"}. `carries`: which of text, headers and
    attachments the vendor takes as further members.

    Answers: 2xx {"id"} accepted; 409 {"id"} accepted before, with `dedupe`; 4xx {"code", "sub_type"} refused, unless it
    concerns the credential or the address; 429 with Retry-After not sent; others as in vendors/outcomes.py. Look-up:
    GET <url>/<reference> → 200 {"id"} or 404.

    `timeout` (seconds) should be a little longer than the vendor's own; a shorter one leaves letters in doubt.
    `receipts`: the vendor posts delivery reports (vendors/adapters/reports.py).
    """

    options = {
        "url": Option(url, required=True, destination=True, about="Address for letters"),
        "timeout": Option(
            options.seconds,
            10.0,
            tuning=True,
            about="Seconds until an unanswered call is in doubt; slightly more than the vendor's own",
        ),
        "concurrency": Option(
            options.whole(1, 1000), 32, tuning=True, about="Connections of a sender, hence concurrent calls"
        ),
        "dedupe": Option(options.flag, False, tuning=True, about="The vendor accepts each reference once"),
        "dedupe_ttl": Option(options.seconds, 86400.0, tuning=True, about="Seconds for which it remembers references"),
        "lookup": Option(
            options.choice("none", "weak", "strong", true="weak", false="none"),
            "none",
            tuning=True,
            about="Proof by look-up: `strong`: absence and presence; `weak`: presence only",
        ),
        "settle_delay": Option(options.seconds, 5.0, tuning=True, about="Seconds until a look-up is up to date"),
        "receipts": Option(options.flag, False, tuning=True, about="It reports results later"),
        "receipts_by_id": Option(
            options.flag,
            False,
            tuning=True,
            about="Its reports carry only its own `id`. An id of two letters matches neither, unless their "
            "credentials [sign reports separately](../how-to/add-a-vendor.md#several-accounts)",
        ),
        "unit": Option(
            options.choice("message", "segment"),
            "message",
            tuning=True,
            about="Unit of its limits: `message`, or `segment` of an SMS",
        ),
        "carries": Option(
            parse_parts,
            (),
            tuning=True,
            about="Comma-separated from `text`, `headers`, `attachments`; campaigns that need more are refused",
        ),
        "safe_statuses": Option(
            parse_statuses, (), tuning=True, about='Comma-separated 5xx statuses that by contract mean "not accepted"'
        ),
        "ca_file": Option(
            options.certificates,
            "",
            destination=True,
            about="File with the authorities of its certificate, instead of the system's",
        ),
    }

    report_status = 202

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        known = self.validate(settings)
        self._url: str = known["url"]
        parts = urlsplit(self._url)
        check_protected(self._url, secret)
        self._service = find_service(url=self._url)
        self._ca_file: str = known["ca_file"]
        self._safe: tuple[int, ...] = known["safe_statuses"]
        self._target = parts.path or "/"
        self._headers = _FIXED + secret_headers(secret)
        self._timeout: float = known["timeout"]
        self.deadline = self._timeout + WIND_UP + (MAKING if "attachments" in known["carries"] else 0.0)
        self.concurrency = known["concurrency"]
        self.capabilities = Capabilities(
            dedupe=known["dedupe"],
            dedupe_ttl=known["dedupe_ttl"] if known["dedupe"] else None,
            lookup=known["lookup"],
            settle_delay=known["settle_delay"],
            cost=_count_segments if known["unit"] == "segment" else one_unit,
        )

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(parse_parts(settings.get("carries", ())))

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        return options.flag(settings.get("receipts", False))

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        return options.flag(settings.get("receipts_by_id", False))

    @classmethod
    def check_report_key(cls, settings: Mapping[str, Any], key: str) -> None:
        reports.check_webhook_secret(key)

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> list[Reported | UnreadableEntry]:
        reports.verify_signature(source.secrets, request.headers, request.body)
        return reports.read_receipts(request.body, find_service(url=str(source.settings.get("url", ""))))

    async def open(self) -> None:
        self._client = Client(self._url, connections=self.concurrency, deadline=self._timeout, ca_file=self._ca_file)
        self._head = self._client.head("POST", self._target, self._headers)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        outcomes = []
        for letter in letters:  # a comprehension would cost another coroutine
            outcomes.append(await self._post_letter(letter))  # noqa: PERF401
        return outcomes

    async def _post_letter(self, letter: Letter) -> Outcome:
        try:
            headers = header("Idempotency-Key", letter.reference)
            body = _pack_letter(letter)
        except (ValueError, TypeError) as error:
            return refuse_letter(error)
        try:
            answer = await self._client.call(self._head, headers, body)
        except CallError as error:
            return classify_error(error, now=time.time(), safe_statuses=self._safe)
        return classify_http(
            answer.status,
            answer.headers if answer.status >= 300 else {},  # an acceptance needs only its id
            answer.body,
            now=time.time(),
            safe_statuses=self._safe,
            dedupe=self.capabilities.dedupe,
            service=self._service,
        )

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        if self.capabilities.lookup == "none":
            return await super().look_up(reference)
        target = f"{self._target.rstrip('/')}/{quote(reference, safe='')}"
        headers: Mapping[str, str]
        try:
            answer = await self._client.call(self._client.head("GET", target, self._headers))
            status, headers, body = answer.status, answer.headers, answer.body
            if status == 404:
                return None
        except CallError as error:
            if error.status is None:
                return NotSent(error.reason, scope="credential" if error.pause else "message", pause=error.pause)
            status, headers, body = error.status, error.headers, b""
        # A look-up changes nothing, so Retry-After is safe to follow with any status.
        safe = (status,) if "retry-after" in headers else ()
        found = classify_http(status, headers, body, now=time.time(), safe_statuses=safe)
        if isinstance(found, Accepted) and status == 200:
            return found
        if isinstance(found, NotSent) and status not in WRONG_ADDRESS:  # WRONG_ADDRESS concerns only the look-up's URL
            return found
        return _judge_lookup_failure(found, status)


def _count_segments(letter: Letter) -> int:
    return segments(letter.body)


def _pack_letter(letter: Letter) -> bytes:
    content: dict[str, Any] = {
        "reference": letter.reference,
        "recipient": letter.recipient,
        "subject": letter.subject,
        "body": letter.body,
        "params": letter.params,
    }
    if letter.text:
        content["text"] = letter.text
    if letter.headers:
        content["headers"] = [{"name": name, "value": value} for name, value in letter.headers]
    if letter.attachments:
        content["attachments"] = [_pack_file(one) for one in letter.attachments]
    if origin := letter.origin:
        content["from"] = {"name": origin.name, "address": origin.address}
        content["reply_to"] = origin.reply_to
    if letter.return_path:
        content["return_path"] = letter.return_path
    return orjson.dumps(content, default=dict)  # for mappings other than dict


def _pack_file(one: Attachment) -> dict[str, str]:
    if not one.part:
        one.part = base64.b64encode(one.content)
    return {"name": one.name, "type": one.content_type, "cid": one.cid, "content": one.part.decode()}


def _judge_lookup_failure(found: Outcome, status: int) -> NotSent:
    if not isinstance(found, InDoubt):
        return NotSent(f"http {status}")
    return NotSent(found.reason, scope="credential" if found.pause else "message", pause=found.pause)
