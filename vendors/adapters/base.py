"""The contract that every adapter keeps. tests/contracts/ holds each of them to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from vendors.adapters.options import Option, clean
from vendors.outcomes import Accepted, NotSent, Outcome, Refused

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


@dataclass(frozen=True, slots=True)
class Reported:
    """What the vendor says later of a letter that it accepted. at: when it happened, with a time zone.

    vendor_id: its own name of the letter, if it says it. note: why it bounced.
    """

    reference: str
    kind: Literal["delivered", "bounced"]
    at: datetime
    vendor_id: str = ""
    note: str = ""


class NotTheVendor(Exception):
    """Whoever reports here cannot prove that it is the vendor."""


class BadReport(ValueError):
    """The vendor's report cannot be read. errors: (where, code, sentence), where: the way into its body."""

    def __init__(self, errors: Sequence[tuple[tuple[int | str, ...], str, str]]) -> None:
        super().__init__("; ".join(sentence for _, _, sentence in errors))
        self.errors = errors


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
