"""Parts of requests and answers that several endpoints share, as the API's OpenAPI document shows them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from campaigns.texts.given_texts import composed
from vendors.mail_classes import CLASSES
from vendors.models import Vendor

TemplateText = Annotated[str, AfterValidator(composed)]
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
