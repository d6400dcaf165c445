"""The contract of an adapter, which vendors/testing tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

from vendors.adapters.dkim import DkimKey
from vendors.adapters.options import (  # noqa: F401  adapters import them from here
    InvalidSettings,
    NoSecret,
    Option,
    certificates,
    choice,
    clean,
    flag,
    is_this_machine,
    seconds,
    text,
    whole,
)
from vendors.adapters.reports import InboundText, NotTheVendor, Reported, ReportRequest, ReportSource, UnreadableEntry
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

PARTS = ("text", "headers", "attachments")
"""What a letter may have beside subject and body, if its adapter carries it; see Letter."""

WIND_UP = 1.0
"""Seconds between an adapter's own time limit, after which it still knows what was written, and its `deadline`."""

MAKING = 10.0
"""Seconds within `deadline` in which requests with files are written, before the call's own time limit begins."""

LookUp = Literal["none", "weak", "strong"]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Attachment:
    """A file that letters carry; one object serves all of them. content_type: as image/png.

    cid: of an image within the HTML, which shows it as `cid:...`; empty: a file beside it. part: as the adapter sends
    it, once it has been made.
    """

    name: str
    content_type: str
    content: bytes
    cid: str = ""
    part: bytes = b""


@dataclass(frozen=True, slots=True)
class Origin:
    """As whom a letter goes out. address: of an e-mail; of an SMS the sender id, or a number in E.164.

    reply_to: an address or a name with an address in <>; empty: none. return_path: where bounces go; empty: to
    `address`. dkim: with which its mails are signed.
    """

    address: str
    name: str = ""
    reply_to: str = ""
    return_path: str = ""
    dkim: DkimKey | None = None


class Letter(NamedTuple):
    """One rendered message. reference: its idempotency key, the same for every attempt.

    text: beside an HTML body. headers: further ones, each a name and a value. Those two and attachments are given only
    to an adapter that `carries` them. origin: of e-mail and SMS only. return_path: where this letter's bounces go;
    empty: where those of its origin go.
    """

    reference: str
    recipient: str
    subject: str
    body: str
    params: Mapping[str, Any] = MappingProxyType({})
    html: bool = False
    text: str = ""
    headers: Sequence[Sequence[str]] = ()
    attachments: tuple[Attachment, ...] = ()
    origin: Origin | None = None
    return_path: str = ""


def one_unit(letter: Letter) -> int:
    """The default cost: one place in the vendor's window for every letter."""
    return 1


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a vendor's contract promises. The defaults are the pessimistic ones.

    dedupe: a second call with the same reference is never a second acceptance, for dedupe_ttl seconds after the first
    (None: for ever). lookup: `strong`: "not found" proves that the vendor does not have the letter; `weak`: only
    "found" proves something. settle_delay: seconds to wait after a lost answer before looking it up. batch_max: letters
    per call, fewer where they are large together. cost: the places that a letter takes in the vendor's window, at least
    1, always the same for that letter.
    """

    dedupe: bool = False
    dedupe_ttl: float | None = None
    lookup: LookUp = "none"
    settle_delay: float = 0.0
    batch_max: int = 1
    cost: Callable[[Letter], int] = one_unit


class Adapter(ABC):
    """Calls a vendor with one credential. It is used in one event loop, between `open` and `close`."""

    options: ClassVar[Mapping[str, Option]]
    """The settings that the adapter knows, by name."""

    report_status: ClassVar[int] = 200
    """With which a report is answered once it is stored: 200 or 202."""

    needs_origin: ClassVar[bool] = False
    """Whether it writes the mail itself, so that a letter needs an origin."""

    needs_secret: ClassVar[Sequence[str]] = ()
    """The names in a credential's secret without which no call can be made."""

    capabilities: Capabilities
    concurrency: int
    """Calls that may run at once, each of at most `capabilities.batch_max` letters."""
    deadline: float
    """Seconds after which a call has surely ended, including the wait for a connection."""

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, parsed from text (`KEY=VALUE`), with defaults. Its own result passes unchanged.

        Raises InvalidSettings with one sentence for each error.
        """
        return clean(cls.options, settings)

    @classmethod
    def destination(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that say where the secret goes; if one changes it is deleted (vendors/configuration.py).
        If an adapter marks no option as destination, all of them count. Raises InvalidSettings.
        """
        known = cls.validate(settings)
        marked = [name for name, option in cls.options.items() if option.destination]
        return {name: known[name] for name in marked or cls.options}

    @classmethod
    def calls_at(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that say where and as whom calls are made: all that are not marked as tuning.

        If one changes, what is asked of the vendor proves nothing about earlier calls (vendors/destinations.py).
        Raises InvalidSettings.
        """
        known = cls.validate(settings)
        return {name: known[name] for name, option in cls.options.items() if not option.tuning}

    @classmethod
    def asks_origin(cls, settings: Mapping[str, Any]) -> bool:
        """Whether letters need an origin, by these settings; asked as `carries` is. Raises ValueError."""
        return cls.needs_origin

    @classmethod
    def asks_secret(cls, settings: Mapping[str, Any]) -> Sequence[str]:
        """Which names a credential's secret must have, by these settings. Raises ValueError."""
        return cls.needs_secret

    @classmethod
    def for_credential(cls, settings: Mapping[str, Any], secret: Mapping[str, str]) -> Self:
        """The adapter with a credential's secret. Raises InvalidSettings, also where it lacks what calls need."""
        wanted = cls.asks_secret(settings)
        if missing := [name for name in wanted if not secret.get(name)]:
            raise NoSecret([f"the secret must have {' and '.join(wanted)}; there is no {' and no '.join(missing)}"])
        try:
            return cls(settings, secret)
        except InvalidSettings as error:
            if secret:
                raise
            cls.validate(settings)  # what is wrong with them is said first
            raise NoSecret(error.errors) from None

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """Which of PARTS a letter may have, asked without a secret: more is refused at intake. Raises ValueError."""
        return frozenset()

    @classmethod
    def shows_images(cls, settings: Mapping[str, Any]) -> bool:
        """Whether an attachment may be an image within the HTML, if attachments are carried; asked as `carries` is."""
        return True

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the vendor sends delivery reports, by these settings, without a secret. Raises ValueError."""
        return False

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the reports name letters by the vendor's id alone, as ours cannot travel along. Raises ValueError."""
        return False

    @classmethod
    def check_report_key(cls, settings: Mapping[str, Any], key: str) -> None:
        """Check that reports can be signed with this key, when it is entered. Raises ValueError."""
        if not key:
            raise ValueError("it is empty")

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> Sequence[Reported | UnreadableEntry]:
        """Check that the vendor made this request, then parse it; calls nobody. Raises NotTheVendor, BadReport.

        Of several entries those that cannot be read are UnreadableEntry; BadReport is about the whole of it.
        """
        raise NotTheVendor("this vendor sends no reports")

    @classmethod
    def read_inbound(cls, request: ReportRequest, source: ReportSource) -> Sequence[InboundText | UnreadableEntry]:
        """The same for an SMS that somebody has written to us."""
        raise NotTheVendor("this vendor hands on no messages")

    @abstractmethod
    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        """Raises InvalidSettings; opens nothing."""

    @abstractmethod
    async def open(self) -> None:
        """Prepare to send. Connections are made when they are needed."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections; calls in flight end in doubt."""

    @abstractmethod
    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        """Call the vendor once for at most `batch_max` letters; returns one outcome for each, in their order.

        It never raises for anything that the vendor or the network does, and never repeats a call. If it is cancelled
        it closes its connection, and the caller must treat the letters as in doubt.
        """

    async def weigh(self, letter: Letter) -> int:
        """What the letter costs, as `capabilities.cost` says; an adapter may have to make it first, to count its pages.

        It calls no vendor, and is only asked where `capabilities.cost` is not `one_unit`.
        """
        return self.capabilities.cost(letter)

    def is_good(self, outcome: Outcome) -> bool | None:
        """Whether the outcome is a good or a bad answer for the vendor's health (document 002); None: neither.

        A refused message is a good answer: the service works. A lost answer, a failed connection and a refused login
        are bad ones. An answer that asks us to wait is neither: it concerns the throttle.
        """
        if isinstance(outcome, NotSent) and outcome.retry_after is not None and not outcome.pause:
            return None
        return isinstance(outcome, Accepted | Refused) or (isinstance(outcome, InDoubt) and outcome.wait > 0)

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        """Look a reference up: Accepted, None if it is not found, or NotSent if the question was not answered.

        `capabilities.lookup` says what "not found" proves.
        """
        return NotSent("this vendor offers no look-up")
