"""The contract that every adapter keeps. tests/contracts/ holds each of them to it.

Settings of an adapter: read from text, with sentences for what is wrong.
"""

from __future__ import annotations

import ipaddress
import math
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from vendors.adapters.reports import NotTheVendor, Reported
from vendors.outcomes import Accepted, NotSent, Outcome, Refused


class InvalidSettings(ValueError):
    """Settings that cannot be used; `errors` holds one sentence for each fault."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `parse` takes text or its own result and raises ValueError with the end of "NAME ...".

    `destination`: it says where the secret goes, or how well it is hidden on the way.
    """

    parse: Callable[[Any], Any]
    default: Any = None
    required: bool = False
    destination: bool = False


def clean(options: Mapping[str, Option], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every option parsed or its default. Raises InvalidSettings."""
    errors = [
        f"{name} is not a setting; the settings are {', '.join(options)}" for name in settings if name not in options
    ]
    cleaned: dict[str, Any] = {}
    for name, option in options.items():
        value = settings.get(name, option.default)
        try:
            cleaned[name] = value if value == option.default else option.parse(value)
        except ValueError as error:
            errors.append(f"{name} {error}")
        if option.required and value is None:
            errors.append(f"{name} is missing")
    if errors:
        raise InvalidSettings(errors)
    return cleaned


def is_this_machine(host: str) -> bool:
    """Does what is sent to that host stay on this machine?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def text(value: Any) -> str:
    """Any non-empty text on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("must be a text on one line")
    return value.strip()


def certificates(value: Any) -> str:
    """A file with the authorities that a TLS vendor's certificate may come from."""
    path = text(value)
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # also what is no certificate
        raise ValueError(f"must be a file with certificates (PEM): {error.strerror or error}") from None
    return path


def seconds(value: Any) -> float:
    """A positive, finite number of seconds."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError("must be a number of seconds above 0")
    return number


def whole(least: int, most: int) -> Callable[[Any], int]:
    """A whole number between `least` and `most`."""

    def parse(value: Any) -> int:
        digits = str(value).strip()
        if not (digits.isascii() and digits.isdigit() and least <= int(digits[:12]) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(digits)

    return parse


def flag(value: Any) -> bool:
    """True or false, also as yes/no, on/off, 1/0."""
    word = str(value).strip().lower()
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise ValueError("must be true or false")


def choice(*words: str, **meanings: str) -> Callable[[Any], str]:
    """One of `words`, or a key of `meanings` that stands for one of them."""

    def parse(value: Any) -> str:
        word = str(value).strip().lower()
        word = meanings.get(word, word)
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return parse


def smtp_codes(value: Any) -> tuple[str, ...]:
    """SMTP's codes of a refusal, basic or enhanced, separated by commas."""
    words = value.split(",") if isinstance(value, str) else value
    found = tuple(sorted({str(word).strip() for word in words})) if isinstance(words, list | tuple) else ("",)
    if not all(re.fullmatch(r"5[0-9]{2}|5\.[0-9]{1,3}\.[0-9]{1,3}", code) for code in found):
        raise ValueError("must be codes such as 550 or 5.7.1, separated by commas")
    return found


def statuses(value: Any) -> tuple[int, ...]:
    """HTTP statuses from 500 to 599, separated by commas."""
    words = value.split(",") if isinstance(value, str) else value
    try:
        found = tuple(sorted({int(word) for word in words}))
    except (TypeError, ValueError):
        found = (0,)
    if not all(500 <= status <= 599 for status in found):
        raise ValueError("must be statuses from 500 to 599, separated by commas")
    return found


WIND_UP = 1.0
"""Seconds between an adapter's own limit, which knows whether anything was written, and its `deadline`."""

LookUp = Literal["none", "weak", "strong"]


class Letter(NamedTuple):
    """One message, ready to be called. `reference` is its idempotency key, the same for every attempt."""

    reference: str
    recipient: str
    subject: str
    body: str
    params: Mapping[str, Any] = MappingProxyType({})
    html: bool = False


def one_unit(letter: Letter) -> int:
    """The usual price: every letter takes one place in the vendor's window."""
    return 1


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a vendor can be relied on for. The defaults are the pessimistic ones.

    dedupe: a second call with the same reference is never a second acceptance, for `dedupe_ttl` seconds
    after the first (None = for ever). lookup: `strong` means that "not found" proves that the vendor does
    not have it; `weak` that only "found" proves something. settle_delay: seconds to wait after a lost
    answer before looking it up. receipts: the vendor reports deliveries by itself. batch_max: letters per
    call. cost: places that a letter takes in the vendor's window, at least 1; asked before each call, and the same for
    the same letter.
    """

    dedupe: bool = False
    dedupe_ttl: float | None = None
    lookup: LookUp = "none"
    settle_delay: float = 0.0
    receipts: bool = False
    batch_max: int = 1
    cost: Callable[[Letter], int] = one_unit


class Adapter(ABC):
    """One credential's way to its vendor. Lives in one event loop, between `open` and `close`."""

    options: ClassVar[Mapping[str, Option]]
    """The settings that the adapter knows, by name."""

    capabilities: Capabilities
    concurrency: int
    """Calls that may run at once."""
    deadline: float
    """Seconds after which a call has surely ended, connecting and waiting for a connection included."""

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings as they may be typed (`KEY=VALUE`) → the same with right types and defaults.

        Raises InvalidSettings with one sentence for each fault. Its own result passes unchanged.
        """
        return clean(cls.options, settings)

    @classmethod
    def destination(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Where the secret goes under these settings: if any of it changes, it is forgotten (vendors/configuration.py).

        An adapter that marks no option is not trusted to have only harmless ones: all count. Raises InvalidSettings.
        """
        known = cls.validate(settings)
        marked = [name for name, option in cls.options.items() if option.destination]
        return {name: known[name] for name in marked or cls.options}

    @classmethod
    def reported(cls, secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> list[Reported]:
        """What the vendor posted to us, in its own form; only if it is signed with one of the secrets.

        Called where `capabilities.receipts` says that the vendor reports at all. headers: names in lower case.
        Raises NotTheVendor, BadReport.
        """
        raise NotTheVendor("this vendor sends no receipts")

    @abstractmethod
    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        """Raises InvalidSettings; opens nothing."""

    @abstractmethod
    async def open(self) -> None:
        """Makes ready to send; connects only when needed."""

    @abstractmethod
    async def close(self) -> None:
        """Closes every connection; what is in flight ends in doubt."""

    @abstractmethod
    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        """Calls the vendor once for at most `batch_max` letters; one outcome for each, in their order.

        Never raises for anything that the vendor or the network does, and never calls twice by itself.
        Cancelled, it closes its connection: the caller must then treat the letters as in doubt.
        """

    def is_good(self, outcome: Outcome) -> bool | None:
        """Does this answer speak for the vendor's health (document 002)? None: it says nothing about it.

        A refused message is a good answer, for the service works; a lost answer, a failed connection or a refused
        login is a bad one. Being asked to wait is neither: that is the throttle's matter.
        """
        if isinstance(outcome, NotSent) and outcome.retry_after is not None and not outcome.pause:
            return None
        return isinstance(outcome, Accepted | Refused)

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        """Asks for a reference: found, not found (None), or no answer to the question (NotSent).

        What "not found" proves, `capabilities.lookup` says.
        """
        return NotSent("this vendor offers no look-up")
