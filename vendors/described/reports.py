"""Delivery reports of a described vendor: whether it made them, and what they say."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from vendors.adapters import reports
from vendors.adapters.reports import BadReport, NotTheVendor, Reported, ReportRequest, ReportSource, bad_report
from vendors.described import reading
from vendors.described.answers import Steps, steps, value_at
from vendors.described.placeholders import Placeholder, as_text, split
from vendors.described.schema import ReportKeys, Signature

_PORTS = {"https": 443, "http": 80}
_LONGEST = 255  # characters of an id, a code or a note
_MOST_CODE = 20
_MOST_FIELDS = 65_536  # bytes of a body that is no JSON, or in which nothing stands


@lru_cache(maxsize=256)
def reader_of(source: str) -> ReportReader | None:
    """What reads the reports of vendors with this description; None: it describes none."""
    keys = reading.read(source).keys.reports
    return ReportReader(keys) if keys else None


class ReportReader:
    """Made once for a description."""

    def __init__(self, keys: ReportKeys) -> None:
        self._keys = keys
        self._times = [steps(path) for path in keys.time]
        self._events = steps(keys.events) if keys.events else ()
        paths = {"kind": keys.kind, "reference": keys.reference, "id": keys.id, "code": keys.code, "note": keys.note}
        self._paths: dict[str, Steps] = {name: steps(path) for name, path in paths.items() if path}

    def check_key(self, key: str) -> None:
        """Check that reports can be signed with this key. Raises ValueError."""
        if self._keys.signature.scheme == "standard-webhooks":
            reports.check_secret(key)

    def read(self, request: ReportRequest, source: ReportSource) -> list[Reported]:
        """Raises NotTheVendor, BadReport."""
        if self._keys.body != "json" and len(request.body) > _MOST_FIELDS:
            raise NotTheVendor("nobody reports so much in this form")
        _prove(self._keys.signature, request, source)
        return list(self._reported(request))

    def _reported(self, request: ReportRequest) -> Iterator[Reported]:
        query = dict(request.query())
        for index, event in enumerate(self._entries(request, query)):
            kind = self._kind(event)
            if kind == "ignored":
                continue
            reference = _text(value_at(event, self._paths.get("reference", ("",))))
            reference = reference or query.get(self._keys.reference_query or "", "")[:_LONGEST]
            vendor_id = _text(value_at(event, self._paths.get("id", ("",))))
            if not reference and not vendor_id:
                raise bad_report("missing", "An event names no letter.", index)
            at = self._time(event, index)
            yield Reported(
                reference,
                "bounced" if kind in _BOUNCES else kind,  # type: ignore[arg-type]
                at or datetime.now(UTC),
                vendor_id,
                _text(value_at(event, self._paths.get("note", ("",)))),
                _BOUNCES.get(kind, "soft"),  # type: ignore[arg-type]
                _text(value_at(event, self._paths.get("code", ("",))))[:_MOST_CODE],
                timed=at is not None,
            )

    def _entries(self, request: ReportRequest, query: Mapping[str, str]) -> Sequence[Any]:
        if self._keys.body == "query":
            return [query]
        if self._keys.body == "form":
            return [dict(request.form())]
        found = value_at(request.json(), self._events)
        entries = found if isinstance(found, list) else [found]
        if not all(isinstance(entry, dict) for entry in entries):
            raise bad_report("type", "The body has not the form of the vendor's description.")
        return entries

    def _kind(self, event: Any) -> str:
        """By the vendor's word for it; a code may say more of what did not arrive."""
        kind = self._keys.kinds.get(as_text(value_at(event, self._paths["kind"])), "ignored")
        if kind in ("ignored", "delivered", "opened", "clicked") or "code" not in self._paths:
            return kind
        return self._keys.codes.get(as_text(value_at(event, self._paths["code"])), kind)

    def _time(self, event: Any, index: int) -> datetime | None:
        """When it happened, if the vendor says it."""
        found = next((at for path in self._times if (at := value_at(event, path)) not in (None, "")), None)
        if found is None:
            return None
        try:
            return _moment(found)
        except (ValueError, TypeError, OverflowError, OSError):
            raise bad_report("time", "The time of an event cannot be read.", index) from None


_BOUNCES = {"hard bounce": "hard", "soft bounce": "soft", "blocked": "blocked"}


def _text(value: Any) -> str:
    return as_text(value)[:_LONGEST] if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _moment(value: Any) -> datetime:
    """A time in ISO 8601, as in mails, or as a Unix time in seconds or milliseconds; without a zone it is in UTC."""
    try:
        number = float(value)
    except ValueError:
        text = str(value)
        found = parsedate_to_datetime(text) if "," in text[:5] else datetime.fromisoformat(text)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return datetime.fromtimestamp(_in_seconds(number), UTC)


def _in_seconds(number: float) -> float:
    """A Unix time in seconds; milliseconds are known by their size."""
    if not math.isfinite(number):
        raise ValueError("not a time")
    return number / 1000 if abs(number) > 1e11 else number


# --- whose it is ------------------------------------------------------------------------------------------------------


def _prove(signature: Signature, request: ReportRequest, source: ReportSource) -> None:
    """Raises NotTheVendor. Who sends no signature that could be one costs nothing more."""
    if signature.scheme == "standard-webhooks":
        reports.verify(_keys(signature, source), request.headers, request.body)
        return
    name = "authorization" if signature.scheme == "basic" else (signature.header or "").lower()
    given = request.headers.get(name, "").encode("utf-8", "replace")
    if signature.scheme == "hmac":
        given = given.removeprefix(signature.prefix.encode())
    if not given or (signature.scheme == "hmac" and len(given) != _length(signature)):
        raise NotTheVendor("there is no signature")
    keys = [key.encode() for key in _keys(signature, source)]
    match signature.scheme:
        case "basic":
            expected = [b"Basic " + base64.b64encode(key) for key in keys]
        case "header":
            expected = keys
        case _:
            try:
                expected = [_signed(signature, key, text) for text in _texts(signature, request) for key in keys]
            except BadReport as error:
                raise NotTheVendor("what is signed cannot be read") from error
    if not any(hmac.compare_digest(given, one) for one in expected):
        raise NotTheVendor("the signature is not this vendor's")


def _length(signature: Signature) -> int:
    """Of a header, without its prefix."""
    size = hashlib.new(signature.algorithm).digest_size
    return 2 * size if signature.encoding == "hex" else 4 * -(-size // 3)


def _keys(signature: Signature, source: ReportSource) -> list[str]:
    """The secrets of which one has signed: those that were entered for reports, or one of the logins'."""
    if signature.key is None:
        return [key for key in source.secrets if key]
    [part] = split(signature.key)
    assert isinstance(part, Placeholder)
    return [key for login in source.credentials if (key := login.get(part.name, ""))]


def _signed(signature: Signature, key: bytes, text: bytes) -> bytes:
    digest = hmac.new(key, text, getattr(hashlib, signature.algorithm)).digest()
    return base64.b64encode(digest) if signature.encoding == "base64" else digest.hex().encode()


def _texts(signature: Signature, request: ReportRequest) -> list[bytes]:
    """What may have been signed: vendors write the default port into the URL, or do not."""
    parts = {"body": request.body, "timestamp": _timestamp(signature, request)}
    if "{form}" in signature.over:
        fields = sorted(set(request.form()))
        parts["form"] = "".join(name + value for name, value in fields).encode()
    urls = [request.url, _with_port(request.url)] if "{url}" in signature.over else [""]
    return [
        b"".join(one.encode() if isinstance(one, str) else of[one.name] for one in split(signature.over))
        for of in ({**parts, "url": url.encode()} for url in dict.fromkeys(urls))
    ]


def _with_port(url: str) -> str:
    place = urlsplit(url)
    if place.port is not None or place.scheme not in _PORTS:
        return url
    return urlunsplit(place._replace(netloc=f"{place.netloc}:{_PORTS[place.scheme]}"))


def _timestamp(signature: Signature, request: ReportRequest) -> bytes:
    """The header with the time of signing, which must be near. Raises NotTheVendor."""
    if signature.timestamp is None:
        return b""
    text = request.headers.get(signature.timestamp.lower(), "")
    try:
        apart = abs(_in_seconds(float(text)) - time.time())
    except ValueError:
        raise NotTheVendor("there is no time of signing") from None
    if apart > signature.tolerance:
        raise NotTheVendor("it was signed too long ago")
    return text.encode()
