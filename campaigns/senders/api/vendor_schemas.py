"""Answers about vendors and sender identities, as the API's OpenAPI document shows them."""

from pydantic import BaseModel, Field

from campaigns.doors.front.schemas import Channel, ConditionOut, ForecastOut


class ServiceOut(BaseModel):
    slug: str
    name: str
    channel: Channel
    sandbox: bool
    accepting: bool = Field(description="It takes work, and nothing is known against its calls")
    condition: ConditionOut
    paused: str | None = Field(description="Why it takes no work until a person changes that; else null")
    retry_after: int | None = Field(description="Seconds, while it takes no work")
    good: int
    bad: int
    ratio: float | None
    threshold: float
    limits: list[str]
    waiting: int
    forecast: ForecastOut = Field(description="For one more message of bulk mail")


class ServicesOut(BaseModel):
    data: list[ServiceOut]


class RefusedSenderOut(BaseModel):
    since: str = Field(description="When the first of the campaigns was paused for it, ISO 8601 in UTC")
    campaigns: int = Field(description="Those that wait for it, paused")
    reason: str = Field(description="The vendor's latest answer, and what to do")


class IdentityOut(BaseModel):
    name: str = Field(description="By which a request names it")
    channel: Channel
    from_name: str
    from_address: str
    senders: list[str] = Field(
        description="Of SMS: its sender id, or its numbers, of which a recipient always sees one"
    )
    reply_to: str
    default: bool = Field(description="Of requests that name none")
    signed: bool = Field(description="Its mails are signed by DKIM")
    refused: RefusedSenderOut | None = Field(description="Set while campaigns wait because a vendor does not take it")


class IdentitiesOut(BaseModel):
    data: list[IdentityOut]
