"""The contract that every adapter keeps; vendors/testing tests it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

from vendors.adapters.dkim import DkimKey
from vendors.adapters.options import InvalidSettings, NoSecret, Option, parse_settings
from vendors.adapters.reports import InboundText, NotTheVendor, Reported, ReportRequest, ReportSource, UnreadableEntry
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.said import Said

PARTS = ("text", "headers", "attachments")
"""What a letter may have beside subject and body, if its adapter carries it; see Letter."""

WIND_UP = 1.0
"""Seconds between an adapter's own time limit, after which it still knows what was written, and its `deadline`."""

MAKING = 10.0
"""Seconds within `deadline` in which requests with files are written, before the call's own time limit begins."""

LookUp = Literal["none", "weak", "strong"]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Attachment:
    """A file that letters carry; all letters share one object. `content_type`: such as image/png.

    `cid`: set for an image in the HTML, which shows it as `cid:...`; empty for an attached file. `part`: the file as
    the adapter sends it, cached after its first use.
    """

    name: str
    content_type: str
    content: bytes
    cid: str = ""
    part: bytes = b""


@dataclass(frozen=True, slots=True)
class Origin:
    """The sender of a letter. `address`: an e-mail address; for SMS a sender id or a number in E.164.

    `reply_to`: an address, or a name with an address in <>; may be empty. `return_path`: the address for bounces;
    empty: `address`. `dkim`: the key that signs its mails.
    """

    address: str
    name: str = ""
    reply_to: str = ""
    return_path: str = ""
    dkim: DkimKey | None = None


class Letter(NamedTuple):
    """One rendered message. `reference`: its idempotency key, the same for every attempt.

    `text`: alternative to an HTML body. `headers`: additional ones, each a name and a value. Only an adapter that
    `carries` text, headers or attachments gets them. `origin`: set for e-mail and SMS only. `return_path`: this
    letter's address for bounces; empty: its origin's.
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
    """Return the default cost: every letter takes one place in the vendor's window."""
    return 1


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Promises of a vendor's contract. The defaults are the pessimistic ones.

    `dedupe`: a second call with the same reference is never a second acceptance, for `dedupe_ttl` seconds after the
    first (None: for ever). `lookup`: with `strong`, "not found" proves that the vendor does not have the letter; with
    `weak`, only "found" proves anything. `settle_delay`: seconds between a lost answer and its look-up. `batch_max`:
    letters in a call; fewer if they are large. `cost`: the places a letter takes in the vendor's window, at least 1 and
    always the same for that letter.
    """

    dedupe: bool = False
    dedupe_ttl: float | None = None
    lookup: LookUp = "none"
    settle_delay: float = 0.0
    batch_max: int = 1
    cost: Callable[[Letter], int] = one_unit


@dataclass(frozen=True, slots=True)
class LoginAnswer:
    """A vendor's answer to a login without a letter.

    failure: the outcome that a call would have had; None: it went well. offers: the names that the vendor offers, each
    with its parameters; empty if it did not come to that. tls: version of the encryption; "" if there was none.
    """

    failure: Outcome | None = None
    offers: Mapping[str, str] = field(default_factory=dict)
    tls: str = ""


class Adapter(ABC):
    """Calls a vendor with one credential. Used in one event loop, between `open` and `close`."""

    options: ClassVar[Mapping[str, Option]]
    """The settings, by name. `destination` marks those that decide where or how secrets travel (if none is marked, all
    count): a change requires the secret again. `tuning` marks those that change neither place nor account: any other
    change leaves open doubts to a person."""

    report_status: ClassVar[int] = 200
    """The status that answers a stored report: 200 or 202."""

    needs_origin: ClassVar[bool] = False
    """True if the adapter writes mails itself: then `Letter.origin` is the sender identity."""

    needs_secret: ClassVar[Sequence[str]] = ()
    """The names that a credential's secret must have; without them no call is made."""

    size_offered: int | None = None
    """Bytes of a mail that the vendor takes, as it said at its last connection; 0: it said none. None: not asked."""

    tells_progress: ClassVar[bool] = False
    """True if `send` of this very class tells of each letter before the vendor may have it, and of each answer
    (`call_progress`). It may then ask for further letters."""

    checks_login: ClassVar[bool] = False
    """True if the vendor can be asked by `check_login`: it is harmless, and no call that limits count."""

    capabilities: Capabilities
    """The vendor's guarantees. Declare `dedupe` and `lookup` only by contract, `cost` if limits count no messages."""
    concurrency: int
    """Concurrent calls, each of at most `capabilities.batch_max` letters (1 by default)."""
    deadline: float
    """Seconds after which a call has surely ended, including the wait for a connection."""

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings, parsed from text (`KEY=VALUE`), with defaults. Its own result passes unchanged.

        Raises InvalidSettings with one sentence for each error.
        """
        return parse_settings(cls.options, settings)

    @classmethod
    def destination(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that say where the secret goes. A change to them deletes it (vendors/configuration.py).

        If an adapter marks no option as destination, all of them count. Raises InvalidSettings.
        """
        known = cls.validate(settings)
        marked = [name for name, option in cls.options.items() if option.destination]
        return {name: known[name] for name in marked or cls.options}

    @classmethod
    def calls_at(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that say where calls go and which account they use: all but those marked as tuning.

        If one changes, the vendor's answers prove nothing about earlier calls (vendors/destinations.py). Raises
        InvalidSettings.
        """
        known = cls.validate(settings)
        return {name: known[name] for name, option in cls.options.items() if not option.tuning}

    @classmethod
    def asks_origin(cls, settings: Mapping[str, Any]) -> bool:
        """Return True if these settings require an origin in each letter; needs no secret. Raises ValueError."""
        return cls.needs_origin

    @classmethod
    def asks_secret(cls, settings: Mapping[str, Any]) -> Sequence[str]:
        """Return the names a credential's secret must have under these settings. Raises ValueError."""
        return cls.needs_secret

    @classmethod
    def for_credential(cls, settings: Mapping[str, Any], secret: Mapping[str, str]) -> Self:
        """Return an adapter with a credential's secret. Raises InvalidSettings, NoSecret if a name is missing."""
        wanted = cls.asks_secret(settings)
        if missing := [name for name in wanted if not secret.get(name)]:
            raise NoSecret(
                [
                    Said(
                        "the secret must have %(names)s; there is no %(missing)s",
                        names=" and ".join(wanted),
                        missing=" and no ".join(missing),
                    )
                ]
            )
        try:
            return cls(settings, secret)
        except InvalidSettings as error:
            if secret:
                raise
            cls.validate(settings)  # reports faults of the settings first
            raise NoSecret(error.errors) from None

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """Return the PARTS a letter may have; intake refuses others. Needs no secret. Raises ValueError."""
        return frozenset()

    @classmethod
    def shows_images(cls, settings: Mapping[str, Any]) -> bool:
        """Return True if an attachment may be an image in the HTML. Matters only if attachments are carried."""
        return True

    @classmethod
    def largest_mail(cls, settings: Mapping[str, Any]) -> int:
        """Return the bytes of a mail that the vendor takes, beyond which intake refuses it; 0: unknown."""
        return 0

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        """Return True if the vendor sends delivery reports under these settings; needs no secret. Raises ValueError."""
        return False

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        """Return True if reports name letters only by the vendor's id, as it cannot carry ours. Raises ValueError."""
        return False

    @classmethod
    def asks_report_key(cls, settings: Mapping[str, Any]) -> bool:
        """Return True if reports are believed only with a key entered for them. Raises ValueError."""
        return True

    @classmethod
    def check_report_key(cls, settings: Mapping[str, Any], key: str) -> None:
        """Check a newly entered key for verifying reports. Raises ValueError."""
        if not key:
            raise ValueError(Said("it is empty"))

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> Sequence[Reported | UnreadableEntry]:
        """Check that the vendor made this request, then parse it; calls nobody. Raises NotTheVendor, BadReport.

        Unreadable entries among several become UnreadableEntry; BadReport concerns the whole request.
        """
        raise NotTheVendor("this vendor sends no reports")

    @classmethod
    def read_inbound(cls, request: ReportRequest, source: ReportSource) -> Sequence[InboundText | UnreadableEntry]:
        """Read inbound SMS in the same way."""
        raise NotTheVendor("this vendor hands on no messages")

    @abstractmethod
    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        """Keep the settings and the secret without opening anything. Raises InvalidSettings."""

    @abstractmethod
    async def open(self) -> None:
        """Prepare to send. Connections are made on demand."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections; calls in flight end in doubt."""

    @abstractmethod
    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        """Call the vendor once for at most `batch_max` letters. Returns one outcome for each, in order.

        Never raises because of the vendor or the network, and never repeats a call. If cancelled, it closes its
        connection, and the caller must treat the letters as in doubt.
        """

    async def weigh(self, letter: Letter) -> int:
        """Return the letter's cost as `capabilities.cost` counts it; may render the letter to count its pages.

        Calls no vendor. Used only if `capabilities.cost` is not `one_unit`.
        """
        return self.capabilities.cost(letter)

    def is_good(self, outcome: Outcome) -> bool | None:
        """Return True for an outcome that shows a healthy vendor, False for the contrary, else None (document 002).

        A refused message is a good sign: the service works. A lost answer, a failed connection and a refused credential
        are bad signs. A request to wait is neither, it concerns the throttle; nor is a refused sender.
        """
        if isinstance(outcome, NotSent) and (
            outcome.scope == "sender" or (outcome.retry_after is not None and not outcome.pause)
        ):
            return None
        return isinstance(outcome, Accepted | Refused) or (isinstance(outcome, InDoubt) and outcome.wait > 0)

    async def check_login(self) -> LoginAnswer:
        """Connect, log in and leave; sends no letter. Called only if the adapter `checks_login`.

        Never raises because of the vendor or the network.
        """
        raise NotImplementedError

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        """Look up a reference. Returns Accepted, None if not found, or NotSent if the look-up got no usable answer.

        `capabilities.lookup` says what "not found" proves.
        """
        return NotSent("this vendor offers no look-up")
