"""Parts of requests and answers that several endpoints share, as the API's OpenAPI document shows them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from campaigns.texts.given_texts import compose_text
from vendors.mail_classes import CLASSES
from vendors.models import Vendor

TemplateText = Annotated[str, AfterValidator(compose_text)]
Channel = Literal["print", "email", "sms"]
assert set(Vendor.Channel.values) == {"print", "email", "sms"}
ClassWord = Literal["urgent", "usual", "bulk"]
assert set(CLASSES) == {"urgent", "usual", "bulk"}


class Strict(BaseModel):
    """A body without unknown members and without type conversion."""

    model_config = ConfigDict(extra="forbid", strict=True)


class HeaderIn(Strict):
    name: str = Field(min_length=1, max_length=76)
    value: TemplateText = Field(min_length=1, max_length=1000)


class ProblemOut(BaseModel):
    """RFC 9457"""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] = []


CAUSE = Field(
    default=None,
    description="Whose fault it is that it failed, came back or was put off: recipient, content, us (our account or "
    "sender), capacity (a limit of ours), vendor, unknown; null: none, or not known any more",
)


class PageLinks(BaseModel):
    self: str
    next: str | None


LIMIT = "Percent, beyond which the session pauses itself; default: the installation's, 0: never"


class ForecastOut(BaseModel):
    first_at: datetime | None = Field(description="Null if unknown; the basis says why")
    last_at: datetime | None
    basis: str
    own_ahead: int | None = Field(description="Your own messages that go before it; null if it waits for a time")
    share: float | None = Field(
        description="About your part of the vendor while messages of others wait there too; 1 if none do"
    )


class Links(BaseModel):
    self: str
    messages: str
    stop: str
    retry: str = Field(description="With the revision, so that a repeat changes nothing")
    pause: str
    resume: str = Field(description="With the revision, so that a repeat changes nothing")


class ConditionOut(BaseModel):
    kind: Literal["works", "untried", "failing", "silent", "shut"] = Field(
        description="works: its last answer was good. untried: nothing was called yet. failing: no good answer since "
        "then. silent: no call before `until`. shut: not called until then, or until a person acts"
    )
    since: str | None = Field(description="ISO 8601, where it is known")
    until: str | None = Field(description="ISO 8601: when calls may start again by themselves; null: nobody knows")
    tries: int | None = Field(description="Bad answers since then; null: the vendor is not yours")
    reason: str = Field(description="As a sentence")
