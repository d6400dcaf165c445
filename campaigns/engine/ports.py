"""Four protocols through which the engine calls the features. `campaigns.apps` names the feature behind each.

The engine casts, claims, sends, settles and finishes; it imports no feature (pyproject.toml holds it). A feature is
imported on the engine's first call to it, so a command loads only the features in use.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID

from django.db.models import Q

from vendors.adapters.base import Adapter, Letter
from vendors.outcomes import Outcome, Refused

if TYPE_CHECKING:
    from campaigns.engine.claiming.letters import ClaimedMessage
    from campaigns.engine.message_events import NewEvent
    from campaigns.models import Campaign, ReportKind, Sponsor
    from vendors.models import Credential, Vendor


class NoLinks(LookupError):
    """The letters show the link to unsubscribe, and there is none to give them."""


class NotEntitled(ValueError):
    """A sentence that names the missing permission of the sponsor, and the command that grants it."""


@dataclass(frozen=True, slots=True)
class ReportChange:
    """A message whose delivery report has changed. session: the API request that sent it, if there is one."""

    id: int
    attempt: int
    kind: "ReportKind"
    at: datetime
    note: str | None
    vendor_message_id: str
    session: UUID | None


@dataclass(frozen=True, slots=True)
class Complaint:
    """A recipient has called a message spam. at: when, as the reporter says; note: the reporter's text."""

    id: int
    attempt: int
    campaign_id: int
    at: datetime
    note: str


class JobLetters(Protocol):
    """Makes the letters of one campaign."""

    def letter(self, message: "ClaimedMessage") -> Letter | Refused:
        """Return the message as the vendor gets it; Refused if its template cannot be rendered with its fields."""


class EnclosesFiles(Protocol):
    """Gives the letters of one campaign their files."""

    async def enclose(self, letters: Sequence[Letter | Outcome]) -> list[Letter | Outcome]:
        """Return the letters with their files; NotSent if a file cannot be read now, Refused if it is gone."""


class LetterMaker(Protocol):
    """Turns campaigns and messages into letters."""

    def compile_content(self, campaign: "Campaign") -> Any:
        """Return the compiled templates, which can be kept. Raises TemplateError."""

    def check_vendor(
        self, campaign: "Campaign", content: Any, vendor: "Vendor", adapter: Adapter, messages: range
    ) -> None:
        """Raises LookupError if the vendor carries less than the letters need, NoLinks if a link is missing."""

    def read_keys(self) -> Any:
        """Return the keys of links and return paths. Raises the database's errors."""

    def prepare_letters(
        self, campaign: "Campaign", content: Any, vendor: "Vendor", adapter: Adapter, keys: Any = None
    ) -> JobLetters:
        """keys: from `read_keys`; None reads the needed ones. Raises the database's errors."""

    def cache_files(self, rows: Any) -> Any:
        """Return a cache of the letters' files. rows: its method `one` lends a connection for a block (SharedRows)."""

    def files_of(self, campaign: "Campaign", cache: Any) -> EnclosesFiles | None:
        """Return None if the letters of this campaign carry no files."""

    def carried_by(self, adapter: str, settings: Any) -> frozenset[str]:
        """Return the parts of a letter that a vendor with this adapter and these settings carries."""


class Suppressions(Protocol):
    """Keeps the list of suppressed recipients. Claims read it directly (campaigns/engine/suppressed)."""

    REFUSED_SO: str  # SQL: message m was refused in a way that suppresses its recipient

    def suppress_refused(self, job_id: int) -> int:
        """Suppress the recipients that a leaf's vendor has refused so; return how many were not suppressed before."""

    async def suppress_recipient(
        self, vendor: "Vendor", campaign: "Campaign", recipient: str, refusal: Refused
    ) -> None:
        """Suppress a recipient if this refusal suppresses, before the refusal is stored."""

    def suppress_reported(self, events: "Collection[NewEvent]") -> None:
        """Suppress the recipients of bounces, complaints and the like that must not be written to again."""


class MoveQuotas(Protocol):
    """The quotas of a sponsor at the vendors to which its work may move."""

    def find_refusal(self, credential: "Credential", messages: int) -> str:
        """Return why this number of messages may not move there, or "". Counts those that may for the next question."""


class Gates(Protocol):
    """Decides what may go out: entitlements, approvals and quotas."""

    def may_go(self) -> Q:
        """Return the condition of jobs whose sponsor may use their vendor, credential and identity now."""

    def may_resume(self) -> Q:
        """Return the condition of campaigns that need no approval, or have it."""

    def waits_for_approval(self, campaign: "Campaign") -> bool:
        """Return whether another person has yet to decide."""

    def may_use(self, sponsor: "Sponsor", credential: "Credential") -> bool:
        """Return True if the sponsor may use the credential."""

    def refuse_classes(self, asked: "Sequence[tuple[int, Credential, int, int]]") -> list[str]:
        """Return the reason to refuse a credential to each campaign, or "", in at most one statement.

        asked: sponsor, credential, class and size.
        """

    def open_moves(self, sponsor_id: int, credentials: "Collection[Credential]") -> "MoveQuotas":
        """Return the quotas for moves of a sponsor's work to these credentials.

        Of two decisions the second waits. The caller has locked the jobs.
        """

    def refuse_moves(self, asked: "Sequence[tuple[int, Credential, int]]") -> list[str]:
        """Return why each move may not be made if it came alone, or "", in at most two statements. Locks nothing.

        asked: sponsor, credential and number of messages.
        """

    def needs_identity(self, vendor: "Vendor") -> bool:
        """Return True if the vendor's adapter writes mails, with their From."""

    def hold_back(self, job_ids: Collection[int], now: datetime) -> Collection[int]:
        """Return which of these jobs a quota holds, in the transaction that locked and dispatches the others."""

    def held_by_quotas(self, job_ids: Collection[int], now: datetime) -> Collection[int]:
        """Return which of these jobs a quota holds, without a transaction or a lock."""


class Events(Protocol):
    """Receives events, in the transaction that stores them."""

    def campaign_paused(self, campaign: "Campaign") -> None: ...

    def reports_changed(self, changes: Sequence[ReportChange]) -> list[int]:
        """Return the ids of the webhook calls due now."""

    def complaints_came(self, complaints: Sequence[Complaint]) -> list[int]:
        """Return the ids of the webhook calls due now."""

    def swept(self) -> None:
        """Do the work due with each sweep: add up counts, log alarms."""


class Feature:
    """A module imported on its first use."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._path), name)


letters: LetterMaker
suppressions: Suppressions
gates: Gates
events: Events


def wire_ports(**paths: str) -> None:
    """Put these modules behind the ports, by the ports' names."""
    for name in ("letters", "suppressions", "gates", "events"):
        globals()[name] = cast(Any, Feature(paths[name]))
