"""Checks by its signature, as the description defines it, that a delivery report comes from the vendor."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from vendors.adapters import reports
from vendors.adapters.reports import BadReport, NotTheVendor, ReportRequest, ReportSource
from vendors.described.answers import parse_steps, value_at
from vendors.described.placeholders import Placeholder, split_text, value_as_text
from vendors.described.schema import ReportKeys, Signature

_PORTS = {"https": 443, "http": 80}


def prove_origin(keys: ReportKeys, request: ReportRequest, source: ReportSource) -> None:
    """Check the signature. Raises NotTheVendor, at little cost if nothing in the request could be a signature."""
    signature = keys.signature
    match signature.scheme:
        case "standard-webhooks":
            reports.verify_signature(_signing_keys(signature, source), request.headers, request.body)
            return
        case "hmac":
            given, expected = _hmac_signatures(keys, request, source)
        case scheme:
            name = "authorization" if scheme == "basic" else (signature.header or "")
            given = [_header_value(request, name)]
            expected = [key.encode() for key in _signing_keys(signature, source)]
            if scheme == "basic":
                expected = [b"Basic " + base64.b64encode(key) for key in expected]
    if not any(hmac.compare_digest(one, other) for one in given if one for other in expected):
        raise NotTheVendor("the signature is not this vendor's")


def parse_unix_time(value: Any) -> float:
    """Parse a Unix time into seconds; milliseconds are recognised by their size. Raises ValueError."""
    number = float(value)
    if not abs(number) < 1e300:
        raise ValueError("not a time")
    return number / 1000 if abs(number) > 1e11 else number


def _hmac_signatures(keys: ReportKeys, request: ReportRequest, source: ReportSource) -> tuple[list[bytes], list[bytes]]:
    """Return the signatures given and those that would be valid. Raises NotTheVendor."""
    signature = keys.signature
    try:
        there = _body_fields(keys, request) if signature.path or "{fields}" in signature.over else {}
        found = value_at(there, parse_steps(signature.path)) if signature.path else None
        given = (
            [value_as_text(found).encode()]
            if signature.path
            else _header_elements(request, signature.header, signature)
        )
        given = [one.removeprefix(signature.prefix.encode()) for one in given]
        given = [
            one.lower() if signature.encoding == "hex" else one
            for one in given
            if len(one) == _signature_length(signature)
        ]
        if not given:
            raise NotTheVendor("there is no signature")
        texts = _signed_texts(signature, request, there)
    except BadReport as error:
        raise NotTheVendor("what is signed cannot be read") from error
    except UnicodeEncodeError:
        raise NotTheVendor("there is no signature") from None
    secrets = [key.encode() for key in _signing_keys(signature, source)]
    return given, [_sign_text(signature, key, text) for text in texts for key in secrets]


def _body_fields(keys: ReportKeys, request: ReportRequest) -> Mapping[str, Any]:
    """Return the body as an object. Raises BadReport."""
    if keys.body == "query":
        return dict(request.query())
    if keys.body == "form":
        return dict(request.form())
    found = request.json()
    return found if isinstance(found, dict) else {}


def _header_value(request: ReportRequest, name: str) -> bytes:
    return request.headers.get(name.lower(), "").encode("utf-8", "replace")


def _header_elements(request: ReportRequest, name: str | None, signature: Signature) -> list[bytes]:
    """Return the header's value, or the signatures in a list such as `t=...,v1=...`."""
    value = _header_value(request, name or "")
    if signature.timestamp_prefix is None:
        return [value]
    return [one for part in value.split(b",")[:20] if (one := part.strip()).startswith(signature.prefix.encode())]


def _signature_length(signature: Signature) -> int:
    """Return the length of a signature without its prefix."""
    size = hashlib.new(signature.algorithm).digest_size
    return 2 * size if signature.encoding == "hex" else 4 * -(-size // 3)


def _signing_keys(signature: Signature, source: ReportSource) -> list[str]:
    """Return the candidate signing secrets: those entered for reports, or one from each credential."""
    if signature.key is None:
        return [key for key in source.secrets if key]
    [part] = split_text(signature.key)
    assert isinstance(part, Placeholder)
    return [key for login in source.credentials if (key := login.get(part.name, ""))]


def _sign_text(signature: Signature, key: bytes, text: bytes) -> bytes:
    digest = hmac.digest(key, text, signature.algorithm)
    return base64.b64encode(digest) if signature.encoding == "base64" else digest.hex().encode()


def _signed_texts(signature: Signature, request: ReportRequest, there: Mapping[str, Any]) -> list[bytes]:
    """Return the texts that may have been signed: with and without the default port in the URL."""
    parts = {"body": request.body, "timestamp": _signing_time(signature, request, there)}
    if signature.token:
        parts["token"] = _header_value(request, signature.token)
    elif signature.token_path:
        parts["token"] = value_as_text(value_at(there, parse_steps(signature.token_path))).encode()
    if "{form}" in signature.over:
        fields = sorted(set(request.form()))
        parts["form"] = "".join(name + value for name, value in fields).encode()
    if "{fields}" in signature.over:
        others = sorted((name, value_as_text(value)) for name, value in there.items() if name != signature.path)
        safe = ((name, value.replace("&", "_").replace("=", "_")) for name, value in others)
        parts["fields"] = "".join(f"&{name}={value}" for name, value in safe).encode()
    urls = [request.url, _add_port(request.url)] if "{url}" in signature.over else [""]
    return [
        b"".join(one.encode() if isinstance(one, str) else of[one.name] for one in split_text(signature.over))
        for of in ({**parts, "url": url.encode()} for url in dict.fromkeys(urls))
    ]


def _add_port(url: str) -> str:
    place = urlsplit(url)
    if place.port is not None or place.scheme not in _PORTS:
        return url
    return urlunsplit(place._replace(netloc=f"{place.netloc}:{_PORTS[place.scheme]}"))


def _signing_time(signature: Signature, request: ReportRequest, there: Mapping[str, Any]) -> bytes:
    """Return the time of signing as it was signed. Raises NotTheVendor unless it is recent."""
    if signature.timestamp is None and signature.timestamp_path is None:
        return b""
    if signature.timestamp_path:
        text = value_as_text(value_at(there, parse_steps(signature.timestamp_path)))
    else:
        text = request.headers.get((signature.timestamp or "").lower(), "")
    if start := signature.timestamp_prefix:
        found = (one.strip() for one in text.split(",")[:20])
        text = next((one.removeprefix(start) for one in found if one.startswith(start)), "")
    try:
        apart = abs(parse_unix_time(text) - time.time())
    except ValueError:
        raise NotTheVendor("there is no time of signing") from None
    if apart > signature.tolerance:
        raise NotTheVendor("it was signed too long ago")
    return text.encode()
