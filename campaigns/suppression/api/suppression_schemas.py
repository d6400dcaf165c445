"""The API's requests and answers about suppressions, as its OpenAPI document shows them."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from campaigns.doors.front.schemas import Channel, PageLinks, Strict
from campaigns.models import Suppression
from vendors.instants import Instant

MOST_ADDRESSES = 1000  # in one request
WhySuppressed = Literal["unsubscribed", "bounced", "complained", "stop", "by_hand"]
assert list(Suppression.Reason.values) == ["unsubscribed", "bounced", "complained", "stop", "by_hand"]


class SuppressionIn(Strict):
    """An address, and why nobody may write to it."""

    address: str = Field(min_length=1, max_length=2000)
    reason: WhySuppressed
    topic: str | None = Field(
        default=None,
        min_length=1,
        max_length=50,
        description="One of yours: unsubscribed from that alone; else everything",
    )
    source: str = Field(
        default="", max_length=200, pattern=r"^[^\x00]*$", description="Where it comes from; else your key's prefix"
    )
    since: Instant | None = Field(default=None, description="When the reason arose; else now")
    until: Instant | None = Field(default=None, description="Else for good")


class SuppressionsIn(Strict):
    """Up to 1,000 addresses that are not written to any more on your behalf."""

    channel: Channel
    suppressions: list[SuppressionIn] = Field(min_length=1, max_length=MOST_ADDRESSES)


class AddressesIn(Strict):
    """Up to 1,000 addresses whose suppressions are to be lifted or erased."""

    channel: Channel
    addresses: list[Annotated[str, StringConstraints(min_length=1, max_length=2000)]] = Field(
        min_length=1, max_length=MOST_ADDRESSES
    )


class SuppressionChangeOut(BaseModel):
    changed: int = Field(description="Suppressions that are different now")


class SuppressionOut(BaseModel):
    """One that holds. since: when its reason arose; until: null is for good."""

    id: str
    channel: Channel
    address: str | None = Field(description="Null after its erasure")
    reason: WhySuppressed
    topic: str | None = Field(description="Null: from everything of yours")
    source: str
    since: datetime
    until: datetime | None


class SuppressionsOut(BaseModel):
    data: list[SuppressionOut]
    links: PageLinks
