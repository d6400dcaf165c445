"""Delivery reports: the types that an adapter's reader works with, and the JSON of the adapter `http`.

A reader (`Adapter.read_report`) gets the vendor's request and the secrets that can prove its origin. It verifies the
vendor's signature first, then returns a `Reported` for each event. It need not care about duplicates, delays, order or
reports that precede the call's answer. Our JSON is signed by Standard Webhooks.
"""

from __future__ import annotations

import base64
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from standardwebhooks import Webhook as Signer
from standardwebhooks import WebhookVerificationError
from standardwebhooks.webhooks import EmptyWebhookSecretError

from vendors.causes.services import ServiceCodes
from vendors.instants import Instant

MOST = 1000  # receipts in one report of our JSON
SECRET_BYTES = 16  # at least
MOST_FIELDS = 1000  # in a query or a form
Bounce = Literal["hard", "soft", "blocked"]
ReportedKind = Literal[
    "accepted",
    "refused",
    "delivered",
    "deferred",
    "bounced",
    "complained",
    "unsubscribed",
    "failed",
    "opened",
    "clicked",
]
ReportText = Annotated[str, StringConstraints(max_length=255)]


@dataclass(frozen=True, slots=True)
class Reported:
    """An event that a vendor reports for a letter.

    `reference`: ours, or "" if the vendor cannot carry it; then `vendor_id`, its own id, names the letter. `at`: the
    time of the event, with a time zone. `note`: the vendor's text. `code`: the enhanced status (RFC 3463) or the
    vendor's code, or "".

    `kind`: accepted and refused settle a doubt, for vendors that say so later; deferred: the receiver's server put the
    letter off, and the vendor tries again; failed: the vendor has given up for a reason other than a bounce. `bounce`,
    if bounced: hard: the recipient does not exist; soft: not this time, or no reason given; blocked: because of us or
    of the content. Words about us or a rate overrule it. `cause`: the AnswerCause that the vendor's code means, or "".

    `timed`: the vendor gave the time. Otherwise `at` is the time of arrival, which orders nothing; then a bounce counts
    over other events of its sending.
    """

    reference: str
    kind: ReportedKind
    at: datetime
    vendor_id: str = ""
    note: str = ""
    bounce: Bounce = "soft"
    code: str = ""
    timed: bool = True
    cause: str = ""


@dataclass(frozen=True, slots=True)
class InboundText:
    """An SMS sent to one of our numbers. `vendor_id`: the vendor's id for it.

    `sender` and `to`: the other number and ours, as the vendor writes them, with or without +. `at`: the time of
    writing, if the vendor gives it.
    """

    vendor_id: str
    sender: str
    to: str
    text: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FetchedReports:
    """Reports from one source at the vendor, such as a file.

    `strange`: sentences about the first unreadable entries; `left_out`: the number of all of them. `settled`: to be
    awaited once everything is stored.
    """

    name: str
    reported: Sequence[Reported]
    settled: Callable[[], Awaitable[None]]
    strange: Sequence[str] = ()
    left_out: int = 0


class FetchesReports(ABC):
    """An adapter whose vendor keeps reports until they are fetched."""

    @classmethod
    def fetches_reports(cls, settings: Mapping[str, Any]) -> bool:
        """Return True if these settings provide reports to fetch. Raises ValueError."""
        return True

    @abstractmethod
    def fetch_reports(self) -> AsyncIterator[FetchedReports]:
        """Yield waiting reports for about a minute. Each may come again until settled.

        Raises OSError with a sentence.
        """


ReportEntry = TypeVar("ReportEntry", bound=Reported | InboundText)


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """An unreadable entry of a report with several: (path into the body, code, sentence) of each mistake."""

    errors: Sequence[tuple[tuple[int | str, ...], str, str]]


class NotTheVendor(Exception):
    """The report lacks a valid signature of the vendor."""


class BadReport(ValueError):
    """The report is not valid. `errors`: (path into the body, code, sentence), or a sentence about the whole."""

    def __init__(self, errors: str | Sequence[tuple[tuple[int | str, ...], str, str]]) -> None:
        self.errors = [((), "invalid", errors)] if isinstance(errors, str) else errors
        super().__init__("; ".join(sentence for _, _, sentence in self.errors))


class ToConfirm(Exception):
    """The vendor, already verified, wants this URL called before it reports. The reader vouches for the URL."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A report as received, at most 5 MB.

    `url`: as the vendor called it, with the query, and below PUBLIC_URL if that is set, even behind a proxy. `headers`:
    lower-case names, original values.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    def query(self) -> list[tuple[str, str]]:
        """Return the query's names and values in order. Raises BadReport."""
        return _parse_fields(urlsplit(self.url).query)

    def form(self) -> list[tuple[str, str]]:
        """Return names and values of an application/x-www-form-urlencoded body. Raises BadReport."""
        try:
            return _parse_fields(self.body.decode())
        except UnicodeDecodeError:
            raise bad_report("not_utf8", "The body is not UTF-8.") from None

    def json(self) -> Any:
        """Return the body's JSON. Raises BadReport."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise bad_report("json_invalid", "The body is not JSON.") from None


@dataclass(frozen=True, slots=True, repr=False)
class ReportSource:
    """The vendor that the report claims to come from.

    `settings`: the vendor's. `secrets`: its signing secrets, newest first; several during a rotation, none if it signs
    with a credential. `credentials`: the secrets of its credentials.
    """

    settings: Mapping[str, Any]
    secrets: Sequence[str]
    credentials: Sequence[Mapping[str, str]] = ()


def bad_report(code: str, sentence: str, *where: int | str) -> BadReport:
    """Return a BadReport with one mistake. `where`: the path into the body."""
    return BadReport([(where, code, sentence)])


def _parse_fields(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise bad_report("too_many_fields", f"There are more than {MOST_FIELDS:,} fields.") from None


class ReceiptIn(BaseModel):
    """What became of a letter that the vendor had accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reference: str = Field(default="", max_length=255, description="The letter's, as it was sent to the vendor; or id")
    status: ReportedKind
    at: Instant = Field(description="When it happened, by the vendor's clock: of two receipts the later counts")
    id: ReportText = Field(default="", description="The vendor's own name of the letter")
    reason: ReportText = Field(default="", description="The vendor's text")
    bounce: Bounce = Field(
        default="soft", description="hard: there is no such recipient, who is suppressed; blocked: our fault"
    )
    code: str = Field(default="", max_length=20, description="Of a bounce, such as 5.1.1")

    @model_validator(mode="after")
    def _check_named(self) -> ReceiptIn:
        if not self.reference and not self.id:
            raise ValueError("a reference or an id is needed")
        return self


class ReceiptsIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    receipts: list[ReceiptIn] = Field(min_length=1, max_length=MOST)


def verify_signature(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """Check that the body was signed with one of the secrets within the last five minutes. Raises NotTheVendor."""
    if "webhook-signature" not in headers:
        raise NotTheVendor("there is no signature")
    for secret in secrets:
        # ValueError: malformed headers or an unusable secret; the next secret may be the right one
        with contextlib.suppress(WebhookVerificationError, EmptyWebhookSecretError, ValueError):
            Signer(secret).verify(body.decode(), dict(headers), json_parse=False)
            return
    raise NotTheVendor("the signature is not this vendor's")


def check_webhook_secret(secret: str) -> None:
    """Check that this is a Standard Webhooks secret: base64 of at least SECRET_BYTES. Raises ValueError."""
    text = secret.removeprefix("whsec_").rstrip("=")
    try:
        size = len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except ValueError:
        size = 0
    if size < SECRET_BYTES:
        raise ValueError(f"it is no secret of Standard Webhooks: base64 of at least {SECRET_BYTES} bytes")


class _Envelope(BaseModel):
    model_config = ReceiptsIn.model_config
    receipts: list[Any] = Field(min_length=1, max_length=MOST)


def read_receipts(body: bytes, service: ServiceCodes | None = None) -> list[Reported | UnreadableEntry]:
    """Parse the body of a report. Raises BadReport if the whole body is unreadable.

    `service`: the table of the vendor's codes, if it has one.
    """
    try:
        return [_convert_receipt(one, service) for one in ReceiptsIn.model_validate_json(body).receipts]
    except ValidationError:
        return _read_each(body, service)


def _read_each(body: bytes, service: ServiceCodes | None) -> list[Reported | UnreadableEntry]:
    """Read each entry separately, so that a mistake spoils only its own entry."""
    try:
        entries = _Envelope.model_validate_json(body).receipts
    except ValidationError as why:
        raise BadReport(_list_mistakes(why)) from None
    return readable_entries([_read_one(index, entry, service) for index, entry in enumerate(entries)])


def readable_entries(entries: Sequence[ReportEntry | UnreadableEntry]) -> list[ReportEntry | UnreadableEntry]:
    """Return the entries of a report. Raises BadReport if there are some and none can be read."""
    mistakes = [mistake for one in entries if isinstance(one, UnreadableEntry) for mistake in one.errors]
    if mistakes and all(isinstance(one, UnreadableEntry) for one in entries):
        raise BadReport(mistakes)
    return list(entries)


def _read_one(index: int, entry: Any, service: ServiceCodes | None) -> Reported | UnreadableEntry:
    try:
        return _convert_receipt(ReceiptIn.model_validate(entry), service)
    except ValidationError as why:
        return UnreadableEntry([(("receipts", index, *where), code, said) for where, code, said in _list_mistakes(why)])


def _convert_receipt(one: ReceiptIn, service: ServiceCodes | None) -> Reported:
    cause = service.find_cause(one.code, reported=True) if service else ""
    return Reported(one.reference, one.status, one.at, one.id, one.reason, one.bounce, one.code, cause=cause)


def _list_mistakes(why: ValidationError) -> list[tuple[tuple[int | str, ...], str, str]]:
    found = why.errors(include_url=False, include_context=False, include_input=False)
    return [(one["loc"], one["type"], one["msg"]) for one in found]
