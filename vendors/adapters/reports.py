"""Delivery reports: what an adapter's reader is given and answers with, and the JSON of the adapter `http`.

A reader (`Adapter.read_report`) gets the request as the vendor made it, and what may prove whose it is. First it checks
the vendor's own signature, then it answers with a `Reported` for each event. Whether an event comes twice, late, out of
order or before the answer of the call is no concern of it. The JSON is signed by Standard Webhooks.
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

from vendors.instants import Instant

MOST = 1000  # receipts in one report of our JSON
SECRET_BYTES = 16  # at least
MOST_FIELDS = 1000  # of a query or a form
Bounce = Literal["hard", "soft", "blocked"]
ReportedKind = Literal[
    "accepted", "refused", "delivered", "bounced", "complained", "unsubscribed", "failed", "opened", "clicked"
]
ReportText = Annotated[str, StringConstraints(max_length=255)]


@dataclass(frozen=True, slots=True)
class Reported:
    """What a vendor reports of a letter.

    reference: ours, or "" where the vendor cannot carry it: then vendor_id, its own id of the letter, names the letter.
    at: when it happened, with a time zone. note: the vendor's text. bounce, of bounced: hard: the recipient does not
    exist; soft: not this time, or no reason is given; blocked: because of us or of the content. failed: the vendor has
    given it up for another reason. accepted, refused: it has taken the letter, or not: what settles a doubt of a vendor
    that says so later. code: the enhanced status (RFC 3463) or the vendor's code, or "". timed: whether the
    vendor says when; else `at` is when it came here, which orders nothing: of one sending a bounce counts then.
    """

    reference: str
    kind: ReportedKind
    at: datetime
    vendor_id: str = ""
    note: str = ""
    bounce: Bounce = "soft"
    code: str = ""
    timed: bool = True


@dataclass(frozen=True, slots=True)
class InboundText:
    """An SMS that somebody has written to one of our numbers. vendor_id: the vendor's own id of it.

    sender: the number of whoever wrote it; to: ours; both as the vendor writes them, with or without +. at: when it was
    written, if the vendor says it.
    """

    vendor_id: str
    sender: str
    to: str
    text: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FetchedReports:
    """Reports of one source at the vendor, such as a file. strange: sentences about what says nothing, the first of it;
    left_out: how much that is. settled: to be awaited when all of it is stored for good.
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
        """Whether there are such, by these settings. Raises ValueError."""
        return True

    @abstractmethod
    def fetch_reports(self) -> AsyncIterator[FetchedReports]:
        """What waits at the vendor, as much as fits in a minute or so; each may be given again until it is settled.

        Raises OSError with a sentence.
        """


ReportEntry = TypeVar("ReportEntry", bound=Reported | InboundText)


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """One entry of a report of several that cannot be read: (path into the body, code, sentence) of each mistake."""

    errors: Sequence[tuple[tuple[int | str, ...], str, str]]


class NotTheVendor(Exception):
    """The report has no valid signature of the vendor."""


class BadReport(ValueError):
    """The report is not valid. errors: (path into the body, code, sentence); or a sentence about the whole of it."""

    def __init__(self, errors: str | Sequence[tuple[tuple[int | str, ...], str, str]]) -> None:
        self.errors = [((), "invalid", errors)] if isinstance(errors, str) else errors
        super().__init__("; ".join(sentence for _, _, sentence in self.errors))


class ToConfirm(Exception):
    """The vendor, who has proved to be it, wants this URL to be called before it reports. The reader vouches for it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A report as it came: at most 5 MB. url: as the vendor called it, with the query; below PUBLIC_URL where that is
    set, so also behind a proxy. headers: names in lower case, values as they came.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    def query(self) -> list[tuple[str, str]]:
        """The query's names and values, in their order. Raises BadReport."""
        return _fields(urlsplit(self.url).query)

    def form(self) -> list[tuple[str, str]]:
        """The names and values of a body as of a form (application/x-www-form-urlencoded). Raises BadReport."""
        try:
            return _fields(self.body.decode())
        except UnicodeDecodeError:
            raise bad_report("not_utf8", "The body is not UTF-8.") from None

    def json(self) -> Any:
        """The body's JSON. Raises BadReport."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise bad_report("json_invalid", "The body is not JSON.") from None


@dataclass(frozen=True, slots=True, repr=False)
class ReportSource:
    """The vendor whose report it may be. settings: of the vendor; secrets: with which it signs reports, the newest
    first, several during a rotation, none if it signs with a login; credentials: the secrets of its logins.
    """

    settings: Mapping[str, Any]
    secrets: Sequence[str]
    credentials: Sequence[Mapping[str, str]] = ()


def bad_report(code: str, sentence: str, *where: int | str) -> BadReport:
    """One mistake; where: the path into the body."""
    return BadReport([(where, code, sentence)])


def _fields(text: str) -> list[tuple[str, str]]:
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
    def _named(self) -> ReceiptIn:
        if not self.reference and not self.id:
            raise ValueError("a reference or an id is needed")
        return self


class ReceiptsIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    receipts: list[ReceiptIn] = Field(min_length=1, max_length=MOST)


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """Check that it was signed with one of the secrets within the last five minutes. Raises NotTheVendor."""
    if "webhook-signature" not in headers:
        raise NotTheVendor("there is no signature")
    for secret in secrets:
        # ValueError: malformed headers, or a secret that cannot be used; the next one may be the vendor's
        with contextlib.suppress(WebhookVerificationError, EmptyWebhookSecretError, ValueError):
            Signer(secret).verify(body.decode(), dict(headers), json_parse=False)
            return
    raise NotTheVendor("the signature is not this vendor's")


def check_secret(secret: str) -> None:
    """Check that it is a secret of Standard Webhooks: base64 of SECRET_BYTES at least. Raises ValueError."""
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


def read(body: bytes) -> list[Reported | UnreadableEntry]:
    """Parse the body of a report. Raises BadReport about the whole of it."""
    try:
        return [_reported(one) for one in ReceiptsIn.model_validate_json(body).receipts]
    except ValidationError:
        return _read_each(body)


def _read_each(body: bytes) -> list[Reported | UnreadableEntry]:
    """Each entry by itself, so that a mistake in one costs no other."""
    try:
        entries = _Envelope.model_validate_json(body).receipts
    except ValidationError as why:
        raise BadReport(_mistakes(why)) from None
    return readable([_read_one(index, entry) for index, entry in enumerate(entries)])


def readable(entries: Sequence[ReportEntry | UnreadableEntry]) -> list[ReportEntry | UnreadableEntry]:
    """The entries of a report. Raises BadReport if there are some and none can be read."""
    mistakes = [mistake for one in entries if isinstance(one, UnreadableEntry) for mistake in one.errors]
    if mistakes and all(isinstance(one, UnreadableEntry) for one in entries):
        raise BadReport(mistakes)
    return list(entries)


def _read_one(index: int, entry: Any) -> Reported | UnreadableEntry:
    try:
        return _reported(ReceiptIn.model_validate(entry))
    except ValidationError as why:
        return UnreadableEntry([(("receipts", index, *where), code, said) for where, code, said in _mistakes(why)])


def _reported(one: ReceiptIn) -> Reported:
    return Reported(one.reference, one.status, one.at, one.id, one.reason, one.bounce, one.code)


def _mistakes(why: ValidationError) -> list[tuple[tuple[int | str, ...], str, str]]:
    found = why.errors(include_url=False, include_context=False, include_input=False)
    return [(one["loc"], one["type"], one["msg"]) for one in found]
