"""The API's requests and answers, as its OpenAPI document shows them. Sizes are limited here, before any work."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, JsonValue, StringConstraints

from campaigns.content import previews
from campaigns.doors.front.schemas import (
    LIMIT,
    Channel,
    ClassWord,
    ConditionOut,
    ForecastOut,
    HeaderIn,
    Links,
    Strict,
    TemplateText,
)
from campaigns.texts.given_texts import given_fields, given_name
from vendors.instants import Instant

MOST_RECIPIENTS = 1000
ShortText = Annotated[str, StringConstraints(max_length=100)]
FieldName = Annotated[str, StringConstraints(max_length=100), AfterValidator(given_name)]
FileName = Annotated[str, AfterValidator(given_name)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=40)]
MetadataValue = Annotated[str, StringConstraints(max_length=500)]

CLOCK = "^([01][0-9]|2[0-3]):[0-5][0-9]$"


def _fields_once(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields as given_fields does. Raises ValueError if two names are one to a reader."""
    given = given_fields(fields)
    if len(given) < len(fields):
        raise ValueError("two fields have the same name, but for blanks around it or the way its letters are composed")
    return given


class Recipient(Strict):
    to: str = Field(min_length=1, max_length=2000, description="E-mail address, phone number, or print address")
    fields: Annotated[dict[ShortText, JsonValue], AfterValidator(_fields_once)] = Field(
        default={}, max_length=100, description="What the templates show"
    )
    reference: str | None = Field(default=None, min_length=1, max_length=100, description="Your own name for it")


class HoursIn(Strict):
    """Hours of the day in which calls may start; 20:00 to 08:00 spans midnight."""

    start: str = Field(pattern=CLOCK, description="Like 09:00")
    end: str = Field(pattern=CLOCK, description="From then on no call starts")
    time_zone: str = Field(max_length=64, description="Like Europe/London")
    of_each: bool = Field(
        default=False,
        description="By each recipient's clock: where the number is, or its field time_zone says; "
        "without one, by time_zone",
    )


FILE_ID = "file_([0-9a-f]{64})"  # the SHA-256 of its content


class FileIn(Strict):
    name: FileName = Field(min_length=1, max_length=200, description="As the recipient sees it")
    content: str | None = Field(default=None, min_length=1, description="In base64; or give a file")
    file: str | None = Field(default=None, pattern=f"^{FILE_ID}$", description="The id of one that was uploaded")
    type: str | None = Field(default=None, max_length=100, description="Like application/pdf; default: by the name")


class ImageIn(FileIn):
    cid: str | None = Field(default=None, max_length=100, description="Name of an image that the HTML shows as cid:...")


class SendRequest(Strict):
    """1 to 1,000 messages over one vendor, the first one of a channel that takes work, or the vendors of a route."""

    vendor: str | None = Field(default=None, max_length=50, description="Its slug; or give a channel or a route")
    channel: Channel | None = None
    route: str | None = Field(
        default=None, max_length=50, description="A route's name: where a vendor takes no work, the next one does"
    )
    identity: str | None = Field(
        default=None, min_length=1, max_length=50, description="Sender identity of e-mail or SMS; default: yours"
    )
    topic: str | None = Field(
        default=None, min_length=1, max_length=50, description="One of yours; recipients can unsubscribe from it alone"
    )
    transactional: bool = Field(
        default=False, description="Without unsubscribe link, and for unsubscribed recipients too; must be allowed"
    )
    mail_class: ClassWord | None = Field(
        default=None,
        description="urgent goes first, bulk last. Default: the template's; else one recipient is urgent where you may "
        "send that, several are bulk, or usual if transactional. 403: you may not send this as urgent",
    )
    region: str | None = Field(
        default=None,
        max_length=2,
        description="Region of phone numbers without country code, as GB; default: the sponsor's",
    )
    template: str | None = Field(
        default=None, min_length=1, max_length=111, description="NAME, or NAME@VERSION; instead of subject to mjml"
    )
    subject: TemplateText = Field(default="", max_length=10_000, description="A template; e-mail must have one")
    body: TemplateText = Field(
        default="",
        max_length=1_000_000,
        description="A template: {{ name }} shows the field name. Needed without template",
    )
    html: bool = Field(default=False, description="The body is HTML: fields are escaped in it")
    text: TemplateText = Field(
        default="", max_length=1_000_000, description="Text beside the HTML, a template; default: derived from it"
    )
    headers: list[HeaderIn] = Field(default=[], max_length=20, description="Headers of e-mail; values are templates")
    attachments: list[ImageIn] = Field(default=[], max_length=100, description="Files in each letter")
    files: list[FileIn] = Field(
        default=[],
        max_length=MOST_RECIPIENTS,
        description="Personal files: a recipient gets those that its fields name",
    )
    file_fields: list[FieldName] = Field(default=[], max_length=10, description="The fields that name them")
    mjml: bool = Field(default=False, description="The body is MJML; HTML is made from it")
    recipients: list[Recipient] = Field(min_length=1, max_length=MOST_RECIPIENTS)
    skip_bad_recipients: bool = Field(
        default=False, description="Leave bad recipients and duplicates out instead of refusing all"
    )
    name: str | None = Field(default=None, min_length=1, max_length=200, description="The campaign's name in the admin")
    send_at: Instant | None = Field(
        default=None, description="Not called before this time; within the last day means now, earlier is refused"
    )
    hours: HoursIn | None = None
    expires_at: Instant | None = Field(default=None, description="Messages not called by then expire")
    first: int | None = Field(
        default=None, ge=1, description="Call only this many recipients; the rest waits for /resume"
    )
    bounce_limit: float | None = Field(default=None, ge=0, le=100, description=LIMIT)
    complaint_limit: float | None = Field(default=None, ge=0, le=100, description=LIMIT)
    metadata: dict[MetadataKey, MetadataValue] = Field(default={}, max_length=20)
    preview: int = Field(default=0, ge=0, le=previews.MOST, description="Number of letters that a dry run shows")
    preview_pdf: bool = Field(
        default=False, description="Also show these letters as printed, with the envelope's window"
    )
    test_to: str | None = Field(
        default=None,
        min_length=1,
        max_length=2000,
        description="Send only the first letter, now, to this address; a key may do so ten times an hour",
    )


class FileOut(BaseModel):
    id: str = Field(description="Attachments and files of a request refer to it by this id")
    size: int = Field(description="Bytes")
    asked_at: datetime = Field(description="Last upload, look-up or reference, to the hour; deleted 30 days later")


class LetterOut(BaseModel):
    to: str
    subject: str
    body: str
    text: str = Field(description="Text beside an HTML body")
    headers: list[dict[str, str]]


class PrintedOut(BaseModel):
    pdf: str = Field(description="In base64")
    pages: list[int] = Field(description="Pages of each letter")
    sheets: int = Field(description="Sheets of all letters")


class EstimateOut(BaseModel):
    messages: int
    units: int = Field(description="In the vendor's units, as SMS segments")
    exact: bool = Field(description="False: estimated from some letters, or without files that count")
    currency: str | None = Field(description="ISO 4217; null if there is no price")
    amount: str | None = Field(description="Exact, at today's price, as a decimal number in a text")


class AcceptedOut(BaseModel):
    id: str | None = Field(description="Id of the session; null for a dry run")
    status: Literal["waiting", "scheduled", "paused", "valid"] = Field(
        description="paused: nothing is called until a person acts; the condition or the approval says why"
    )
    condition: ConditionOut = Field(description="Of the vendor's credential, now")
    accepted: int = Field(description="Messages")
    left_out: list[dict[str, str]] = Field(description="Bad recipients, if asked to skip them: pointer, code, detail")
    preview: list[LetterOut]
    printed: PrintedOut | None = Field(description="If asked for with preview_pdf")
    vendor: str
    mail_class: ClassWord
    mode: Literal["live", "test"]
    forecast: ForecastOut
    cost: EstimateOut | None = Field(description="Highest cost of a dry run; null otherwise, or if unknown")
    quotas: list[str] = Field(description="Of a dry run: quotas that would refuse it, or would be nearly used")
    approval: Literal["waiting"] | None = Field(description="waiting: nothing is sent before a person approves")
    links: Links | None
