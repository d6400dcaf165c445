"""Reads a described vendor's delivery reports and inbound messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from vendors.adapters import reports
from vendors.adapters.reports import (
    BadReport,
    Bounce,
    InboundText,
    NotTheVendor,
    Reported,
    ReportRequest,
    ReportSource,
    UnreadableEntry,
    bad_report,
)
from vendors.causes import AnswerCause
from vendors.causes.gone import says_unknown
from vendors.causes.scopes import is_about_us
from vendors.causes.services import ServiceCodes, find_service
from vendors.described import reading, signatures
from vendors.described.answers import Steps, derive_id, parse_steps, value_at
from vendors.described.placeholders import value_as_text
from vendors.described.schema import InboundKeys, ReportKeys
from vendors.described.signatures import parse_unix_time
from vendors.instants import convert_to_utc, drop_leap_second

_LONGEST = 255  # characters of an id, a code or a note
_MOST_CODE = 20
_LONGEST_SMS = 1600
_MOST_FIELDS = 65_536  # bytes of a body other than JSON, or with its signature inside


@lru_cache(maxsize=256)
def reader_of(source: str) -> ReportReader | None:
    """Return the reader for vendors with this description; None if it describes no reports."""
    keys = reading.read_description(source).keys
    service = find_service(keys.vendor.name, keys.request.url)
    return ReportReader(keys.reports, one_id=keys.answer.one_id, service=service) if keys.reports else None


class ReportReader:
    """Reads a description's delivery reports.

    `one_id`: a vendor id belongs to a call, perhaps of several letters. `service`: the table of the vendor's codes.
    """

    def __init__(self, keys: ReportKeys, *, one_id: bool = False, service: ServiceCodes | None = None) -> None:
        self._keys = keys
        self._service = service
        self._one_id = one_id
        self._kinds = [parse_steps(path) for path in keys.kind]
        self._times = [parse_steps(path) for path in keys.time]
        self._events = parse_steps(keys.events) if keys.events else ()
        paths = {"reference": keys.reference, "id": keys.id, "code": keys.code, "note": keys.note}
        self._paths: dict[str, Steps] = {name: parse_steps(path) for name, path in paths.items() if path}

    def check_key(self, key: str) -> None:
        """Check that this key can verify signatures. Raises ValueError."""
        if self._keys.signature.scheme == "standard-webhooks":
            reports.check_webhook_secret(key)

    def read_reports(self, request: ReportRequest, source: ReportSource) -> list[Reported | UnreadableEntry]:
        """Read the reports. Raises NotTheVendor, and BadReport if the whole body is unreadable."""
        self._check_request(request, source)
        return reports.readable_entries(list(self._convert_events(request)))

    def _check_request(self, request: ReportRequest, source: ReportSource) -> None:
        small = self._keys.body != "json" or self._keys.signature.path is not None
        if small and len(request.body) > _MOST_FIELDS:
            raise NotTheVendor("nobody reports so much in this form")
        signatures.prove_origin(self._keys, request, source)

    def read_inbound_texts(
        self, keys: InboundKeys, request: ReportRequest, source: ReportSource
    ) -> Iterator[InboundText | UnreadableEntry]:
        """Read inbound messages. Raises NotTheVendor, and BadReport if the whole body is unreadable."""
        self._check_request(request, source)
        paths = [parse_steps(path) for path in (keys.id, keys.sender, keys.to, keys.text)]
        times = [parse_steps(path) for path in keys.time]
        for index, entry in enumerate(self._find_entries(request, dict(request.query()))):
            id, sender, to, text = (value_at(entry, path) for path in paths)
            try:
                if not (_short_text(id) and _short_text(sender) and _short_text(to)):
                    raise bad_report("missing", "A message has no id, or no numbers.", index)
                at = _event_time(entry, times, index)
                yield InboundText(
                    _short_text(id), _short_text(sender), _short_text(to), value_as_text(text)[:_LONGEST_SMS], at
                )
            except BadReport as bad:  # go on: another message may be a STOP
                yield UnreadableEntry(bad.errors)

    def _convert_events(self, request: ReportRequest) -> Iterator[Reported | UnreadableEntry]:
        query = dict(request.query())
        for index, event in enumerate(self._find_entries(request, query)):
            kind = self._kind_of(event)
            if kind == "ignored":
                continue
            try:
                yield self._convert_event(event, kind, query, index)
            except BadReport as bad:  # accept the others: a vendor repeats a refused request unchanged, for ever
                yield UnreadableEntry(bad.errors)

    def _convert_event(self, event: Any, kind: str, query: Mapping[str, str], index: int) -> Reported:
        reference = _short_text(value_at(event, self._paths.get("reference", ("",))))
        reference = reference or query.get(self._keys.reference_query or "", "")[:_LONGEST]
        vendor_id = _short_text(value_at(event, self._paths.get("id", ("",))))
        if not reference and not vendor_id:
            raise bad_report("missing", "An event names no letter.", index)
        if self._one_id and reference and vendor_id:
            vendor_id = derive_id(vendor_id, reference)
        note = _short_text(value_at(event, self._paths.get("note", ("",))))
        code = _short_text(value_at(event, self._paths.get("code", ("",))))
        bounce, cause = self._blame_for(_soften_bounce(kind, note), code)
        at = _event_time(event, self._times, index)
        return Reported(
            reference,
            "bounced" if bounce else kind,  # type: ignore[arg-type]
            at or datetime.now(UTC),
            vendor_id,
            note,
            bounce or "soft",
            code[:_MOST_CODE],
            timed=at is not None,
            cause=cause,
        )

    def _blame_for(self, kind: str, code: str) -> tuple[Bounce | None, str]:
        """Return the bounce that a kind stands for, and the cause by the description, else by the service's table."""
        bounce, cause = _BOUNCES.get(kind, (None, ""))
        if cause or self._service is None or not (bounce or kind in ("failed", "deferred")):
            return bounce, cause
        listed = self._service.find_cause(code, reported=True)
        replaced = listed in _BOUNCES and kind in ("failed", "blocked", "soft bounce")
        return _BOUNCES[listed][0] if replaced else bounce, listed

    def _find_entries(self, request: ReportRequest, query: Mapping[str, str]) -> Sequence[Any]:
        if self._keys.body == "query":
            return [query]
        if self._keys.body == "form":
            return [dict(request.form())]
        found = value_at(request.json(), self._events)
        entries = found if isinstance(found, list) else [found]
        if not all(isinstance(entry, dict) for entry in entries):
            raise bad_report("type", "The body has not the form of the vendor's description.")
        return entries

    def _kind_of(self, event: Any) -> str:
        """Return the kind of event, from the vendor's word for it; a code may give the cause of a failed delivery."""
        found = (value_as_text(value_at(event, path)) for path in self._kinds)
        kind = next((self._keys.kinds[one] for one in found if one in self._keys.kinds), "ignored")
        if kind in ("ignored", "delivered", "deferred", "opened", "clicked") or "code" not in self._paths:
            return kind
        return self._keys.codes.get(value_as_text(value_at(event, self._paths["code"])), kind)


def read_inbound(source: str, request: ReportRequest, of: ReportSource) -> list[InboundText | UnreadableEntry]:
    """Read messages that recipients sent to us through this vendor. Raises NotTheVendor and BadReport."""
    keys, reader = reading.read_description(source).keys.inbound, reader_of(source)
    if keys is None or reader is None:
        raise NotTheVendor("this vendor hands on no messages")
    return reports.readable_entries(list(reader.read_inbound_texts(keys, request, of)))


def _event_time(event: Any, paths: Sequence[Steps], index: int) -> datetime | None:
    """Return the time of the event; None if the vendor does not say."""
    found = next((at for path in paths if (at := value_at(event, path)) not in (None, "")), None)
    if found is None:
        return None
    try:
        return _parse_moment(found)
    except (ValueError, TypeError, OverflowError, OSError):
        raise bad_report("time", "The time of an event cannot be read.", index) from None


def _soften_bounce(kind: str, note: str) -> str:
    """Downgrade a hard bounce, which suppresses the recipient, if the receiver's words contradict it."""
    if kind not in ("hard bounce", "gone"):
        return kind
    if is_about_us("", note):
        return "blocked"
    return "soft bounce" if says_unknown(note) is False else kind


# The meaning of a kind or a code: the bounce, and the cause if the vendor's code tells it.
_BOUNCES: dict[str, tuple[Bounce, str]] = {
    "gone": ("hard", AnswerCause.RECIPIENT),
    "recipient": ("soft", AnswerCause.RECIPIENT),
    "content": ("blocked", AnswerCause.CONTENT),
    "us": ("blocked", AnswerCause.US),
    "capacity": ("blocked", AnswerCause.CAPACITY),
    "vendor": ("soft", AnswerCause.VENDOR),
    "hard bounce": ("hard", ""),
    "soft bounce": ("soft", ""),
    "blocked": ("blocked", ""),
}


def _short_text(value: Any) -> str:
    return value_as_text(value)[:_LONGEST] if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _parse_moment(value: Any) -> datetime:
    """Parse ISO 8601, an RFC 5322 date or a Unix time in seconds or milliseconds. UTC without a zone."""
    try:
        number = parse_unix_time(value)
    except ValueError:
        text = drop_leap_second(str(value))
        found = parsedate_to_datetime(text) if "," in text[:5] else datetime.fromisoformat(text)
        return convert_to_utc(found if found.tzinfo else found.replace(tzinfo=UTC))
    return datetime.fromtimestamp(number, UTC)
