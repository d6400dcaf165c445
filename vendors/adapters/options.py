"""Options of an adapter's settings, and parsers that read their values from text."""

from __future__ import annotations

import ipaddress
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vendors.said import Said


class InvalidSettings(ValueError):
    """Unusable settings; `errors` holds one sentence for each fault."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(Said.join_parts("; ", errors))
        self.errors = errors


class NoSecret(InvalidSettings):
    """The secret lacks what the adapter requires."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `parse` takes text or its own result; its ValueError has a text that follows the setting's name.

    `destination`: it says where the secret goes, or how it is protected on the way. `tuning`: whatever its value, calls
    reach the same account of the same server, so later look-ups still prove something about earlier calls. Examples:
    time limits, numbers of connections, promises of the vendor, the look of letters.

    `about`: what to enter, in Markdown, for docs/reference/adapters.md.
    """

    parse: Callable[[Any], Any]
    default: Any = None
    required: bool = False
    destination: bool = False
    tuning: bool = False
    about: str = ""


def parse_settings(options: Mapping[str, Option], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Parse every option or use its default. Raises InvalidSettings."""
    errors: list[str] = [
        Said("%(name)s is not a setting; the settings are %(known)s", name=name, known=", ".join(options))
        for name in settings
        if name not in options
    ]
    cleaned: dict[str, Any] = {}
    for name, option in options.items():
        value = settings.get(name, option.default)
        try:
            cleaned[name] = value if value == option.default else option.parse(value)
        except ValueError as error:
            errors.append(Said.join_parts(" ", (name, str(error))))
        if option.required and value is None:
            errors.append(Said("%(name)s is missing", name=name))
    if errors:
        raise InvalidSettings(errors)
    return cleaned


def is_this_machine(host: str) -> bool:
    """Return True if this host is the machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_protected(url: str, secret: Mapping[str, str]) -> None:
    """Check that a secret uses https; http is only for a server on this machine. Raises InvalidSettings."""
    parts = urlsplit(url)
    if secret and parts.scheme == "http" and not is_this_machine(parts.hostname or ""):
        raise InvalidSettings(
            [Said("a secret goes over https alone: http is for a sandbox on this machine, not %(url)s", url=url)]
        )


def text(value: Any) -> str:
    """Parse a non-empty text on one line. Raises ValueError."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(Said("must be a text on one line"))
    return value.strip()


def certificates(value: Any) -> str:
    """Check the path of a PEM file with authorities that may sign the vendor's certificate. Raises ValueError."""
    path = text(value)
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # also if it holds no certificate
        raise ValueError(
            Said("must be a file with certificates (PEM): %(error)s", error=error.strerror or error)
        ) from None
    return path


def seconds(value: Any) -> float:
    """Parse a positive, finite number of seconds. Raises ValueError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(Said("must be a number of seconds above 0"))
    return number


def whole(least: int, most: int) -> Callable[[Any], int]:
    """Return a parser for a whole number between `least` and `most`."""

    def parse_whole(value: Any) -> int:
        digits = str(value).strip()
        if not (digits.isascii() and digits.isdigit() and least <= int(digits[:12]) <= most):
            raise ValueError(
                Said("must be a whole number from %(least)s to %(most)s", least=str(least), most=str(most))
            )
        return int(digits)

    return parse_whole


def flag(value: Any) -> bool:
    """Parse true or false, also as yes/no, on/off, 1/0. Raises ValueError."""
    word = str(value).strip().lower()
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise ValueError(Said("must be true or false"))


def choice(*allowed: str, **meanings: str) -> Callable[[Any], str]:
    """Return a parser for one of `allowed`, or a key of `meanings`, which maps other spellings to them."""

    def parse_choice(value: Any) -> str:
        word = str(value).strip().lower()
        word = meanings.get(word, word)
        if word not in allowed:
            raise ValueError(Said("must be one of %(either)s", either=", ".join(allowed)))
        return word

    return parse_choice
