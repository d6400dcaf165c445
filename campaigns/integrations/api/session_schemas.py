"""Answers about sessions and their messages, and to vendors' reports, as the API's OpenAPI document shows them."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from campaigns.doors.front.schemas import CAUSE, LIMIT, ClassWord, ForecastOut, Links, PageLinks, Strict


class MoveOut(BaseModel):
    at: datetime
    came_from: str = Field(description="The vendor, and its credential")
    went_to: str
    messages: int = Field(description="None was accepted or refused by the former vendor, and no call is in doubt")
    reason: str


class ApprovalOut(BaseModel):
    state: Literal["waiting", "approved", "refused"]
    by: str | None = Field(description="The person who decided")
    decided_at: datetime | None
    remark: str | None


class ProviderPauseOut(BaseModel):
    provider: str = Field(description="A group of receiving domains, such as gmail; * is all others")
    since: datetime
    complaints: int = Field(description="About the sponsor's mails of one day to it")
    accepted: int = Field(description="Those mails")
    limit: float = Field(description="Percent")


class ReceiverWaitOut(BaseModel):
    receiver: str = Field(description="A group of receiving domains, such as gmail, or a domain")
    since: datetime = Field(description="Nothing accepted since")
    until: datetime = Field(description="Not called before; later it is tried with one mail at a time")
    refuses: bool = Field(description="It refuses the mail for a reason that is not the recipients'")


class SessionOut(BaseModel):
    id: str
    status: str = Field(
        description="scheduled, waiting, sending, paused, sent, partly_sent, failed, needs_attention, ..."
    )
    finished: bool = Field(description="No more calls, unless somebody retries")
    held: str | None = Field(description="Reason why nothing is sent until a person changes something; else null")
    paused: str | None = Field(description="Reason of the pause, until a person ends it for the session or its vendor")
    paused_providers: list[ProviderPauseOut] = Field(
        description="Providers whose recipients wait for an operator after too many complaints; all other mail goes on"
    )
    waiting_receivers: list[ReceiverWaitOut] = Field(
        description="Receiving domains that asked to slow down: their recipients wait, all others go on; at most 20"
    )
    approval: ApprovalOut | None = Field(description="Set if the session needs one; else null")
    due: datetime | None = Field(
        description="Time at which it continues, if all of it waits, as for the end of quiet hours"
    )
    revision: int = Field(description="Number of decisions about it: stop, retry, pause, resume")
    bounce_limit: float | None = Field(description="Percent; null: the installation's")
    complaint_limit: float | None = Field(description="Percent; null: the installation's")
    vendor: str = Field(description="With a route: the vendor with the uncut rest, or with the last of it")
    mail_class: ClassWord = Field(description="urgent goes first at the vendor, bulk last")
    route: str | None = Field(description="Name of its route")
    moves: list[MoveOut] = Field(description="Messages moved to another vendor of the route, newest first")
    forecast: ForecastOut | None = Field(
        description="Of its first and last call, as it stands now; null once it is finished. first_at is null once it "
        "has begun"
    )
    mode: Literal["live", "test"]
    accepted: int = Field(description="Messages")
    counts: dict[str, int] = Field(description="Messages by state; they add up to the accepted")
    reports_deliveries: bool = Field(
        description="Whether its vendor reports deliveries; if not, none is ever `delivered`, and `sent` means "
        "accepted by the vendor"
    )
    events: dict[str, int] = Field(description="Messages by reported event: kinds of bounces, complaints")
    units: int = Field(description="Cost of the calls in the vendor's units, as SMS segments")
    metadata: dict[str, str]
    created_at: datetime
    finished_at: datetime | None
    links: Links


class LimitsIn(Strict):
    """Limits to change; the others stay."""

    bounce_limit: float | None = Field(default=None, ge=0, le=100, description=LIMIT)
    complaint_limit: float | None = Field(default=None, ge=0, le=100, description=LIMIT)


class ChangedOut(BaseModel):
    changed: bool
    told: str
    session: SessionOut


class Reason(BaseModel):
    code: str
    text: str | None


class MessageOut(BaseModel):
    id: str
    reference: str | None
    status: str
    reason: Reason | None
    cause: str | None = CAUSE
    vendor_message_id: str | None
    sent_at: datetime | None
    reported_at: datetime | None = Field(description="Delivered or bounced: when, by the vendor's clock")
    attempt: int


class OneMessageOut(MessageOut):
    session_id: str


class MessagesOut(BaseModel):
    data: list[MessageOut]
    links: PageLinks


class ReceiptsOut(BaseModel):
    changed: int = Field(description="Letters whose state this changed")
    unknown: list[str] = Field(description="References that belong to no letter of this vendor")
    refused: list[dict[str, str]] | None = Field(
        default=None, description="If some cannot be read, which: pointer, code, detail. The others are taken"
    )
