"""Finds likely secrets in a description, and hides known ones in displayed texts.

A description is stored in the open, shown to everybody who sees the vendor, and passed on. Secrets belong to the
credential.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from vendors.said import Said

_FORMS = re.compile(
    r"-----BEGIN|\bwhsec_\w{8,}|\b(?:sk|rk|pk|live|test|key|token|secret)[-_](?:live_|test_|pub_)?[0-9A-Za-z]{16,}"
    r"|\bSG\.[\w-]{10,}|\beyJ[\w-]{8,}\.[\w-]{4,}|\bxox[a-z]-\w{8,}|\bAKIA[0-9A-Z]{12,}|\bxkeysib-\w{8,}|\bre_\w{16,}"
    r"|\b(?i:bearer|basic)\s+[\w+/=.-]{8,}|://[^/\s{}]*:[^/\s{}@]+@"
    r"|(?<![\w/.-])(?:SK)?[0-9a-f]{32,}(?![\w-])|(?<![\w/.-])(?=[\w+/]*[0-9])(?=[\w+/]*[a-z])(?=[\w+/]*[A-Z])[\w+]{32,}=*"
)
_NAMES = re.compile(r"(?i)(^|[_.-])(password|passwd|secret|token|api[_-]?key|apikey|authorization|auth[_-]?key|pwd)$")
HIDDEN = "***"


def find_suspects(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path of each text that looks like a secret, with a sentence that does not show it."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from find_suspects(value, (*path, str(name)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from find_suspects(value, (*path, index))
    elif (
        isinstance(node, str) and path[-1] not in ("about", "contract", "documents", "pattern") and path[0] != "secret"
    ):
        bare = re.sub(r"\{[^{}]*\}", "", node)
        if _FORMS.search(bare):
            yield path, Said("looks like a secret; write {secret.NAME} and enter it with manage.py credential set")
        elif path[0] == "request" and _is_secret_name(path) and len(bare) > 7 and "{" not in node:
            yield path, Said("has the name of a secret and a value in the file; write {secret.NAME}")


def _is_secret_name(path: tuple[str | int, ...]) -> bool:
    return bool(_NAMES.search(str(path[-1])))


def hiding_pattern(secret: Mapping[str, str]) -> re.Pattern[str] | None:
    """Return a pattern for each value of the secret, also URL-quoted, in JSON, or base64 as in basic authentication."""
    values = {value for value in secret.values() if value}
    forms = {form for value in values for form in (value, quote(value, safe=""), quote_plus(value), quote(value))}
    forms |= {orjson.dumps(value).decode()[1:-1] for value in values}
    forms |= {base64.b64encode(value.encode()).decode().rstrip("=") for value in values}
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None


def hide_secret(text: str, secret: Mapping[str, str]) -> str:
    """Return the text without the secret and without the value of an Authorization header."""
    pattern = hiding_pattern(secret)
    shown = pattern.sub(HIDDEN, text) if pattern else text
    return re.sub(r"(?im)^(authorization: \w+).*$", rf"\1 {HIDDEN}", shown)
