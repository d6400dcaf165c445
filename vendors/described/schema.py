"""Schema of a description: keys, types and bounds. docs/reference/descriptions.md explains each key."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from vendors.said import Said

NAME = r"[a-z][a-z0-9_]{0,39}"
OURS = frozenset({"description", "server", "timeout", "concurrency", "batch", "ca_file"})
"""Settings that each described vendor has; a description names none of its own so."""
MOST_STATUSES = 600

Line = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[^\r\n]*$")]
Short = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\r\n]*$")]
Token = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")]
Url = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"^https?://[^\s#]+$")]
Contract = Annotated[str, StringConstraints(min_length=8, max_length=1000)]
Column = Annotated[str, StringConstraints(pattern=r"^\w{1,100}$")]
Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]


def _check_path(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(r"[^.\r\n]{1,100}(\.[^.\r\n]{1,100}){0,9}", value):
        raise ValueError(Said("must be a path into the answer, as id or error.code or messages.0.id"))
    return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


AnswerPath = Annotated[str, BeforeValidator(_check_path)]


def _parse_statuses(value: Any) -> frozenset[int]:
    """Parse 400, "4xx" or a list of both into a set of statuses."""
    found: set[int] = set()
    for one in value if isinstance(value, list) and value else [value]:
        if isinstance(one, str) and re.fullmatch(r"[2-5]xx", one):
            found |= set(range(int(one[0]) * 100, int(one[0]) * 100 + 100))
        elif isinstance(one, int) and not isinstance(one, bool) and 200 <= one < MOST_STATUSES:
            found.add(one)
        else:
            raise ValueError(Said('must be a status from 200 to 599, "4xx" or the like, or a list of them'))
    return frozenset(found)


Statuses = Annotated[frozenset[int], BeforeValidator(_parse_statuses)]


def _check_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(Said("is not a regular expression: %(error)s", error=error)) from None
    return value


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class About(Keys):
    """[vendor]: its name, and the vendor's documents that the description follows."""

    name: Short
    """The vendor's name."""
    channel: Literal["print", "email", "sms"]
    """`print`, `email` or `sms`."""
    documents: Short
    """The vendor's document behind this description."""


class Setting(Keys):
    """[settings.NAME]: a setting that differs between the vendor's customers."""

    about: Short
    """What to enter."""
    kind: Literal["text", "flag", "number"] = "text"
    """`text`, `flag` (true or false) or `number`; the last two keep their type in JSON."""
    default: str | bool | int | None = None
    """Without one the setting is required."""
    pattern: Annotated[str, StringConstraints(max_length=200), AfterValidator(_check_pattern)] | None = None
    """A regular expression for the whole text."""


class Auth(Keys):
    """[request.auth]: how the secret is sent."""

    scheme: Literal["basic", "bearer", "header", "query"]
    """`basic`, `bearer`, `header` or `query`."""
    user: Line | None = None
    """° For `basic`."""
    password: Line | None = None
    """° For `basic`; default empty."""
    token: Line | None = None
    """° For `bearer`."""
    name: Token | None = None
    """The header's or query parameter's name."""
    value: Line | None = None
    """° Its value."""


class SharedFormKeys(Keys):
    """[request.recipients]: the places of each letter's own values in a form that all letters of a call share."""

    to: Short
    """The repeated field with a recipient."""
    variables: Short
    """The field with the object: values by address."""
    variable: Annotated[Short, StringConstraints(pattern="NAME")]
    """The field's reference to a value, as `%recipient.NAME%`."""
    own: list[Short] = Field(max_length=100)
    """Fields of `content` specific to each letter."""
    headers: Short | None = None
    """Prefix, as `h:`, for further headers as fields."""


class RequestKeys(Keys):
    """[request]: the call that submits one or more letters."""

    method: Literal["POST", "PUT"] = "POST"
    """Or `PUT`."""
    url: Url
    """° Full address; placeholders are quoted. A letter with an empty, `.` or `..` path value is not sent."""
    body: Literal["json", "form", "multipart", "none"] = "json"
    """`json`, `form`, `multipart` or `none`."""
    timeout: Annotated[float, Field(gt=0, le=300, strict=False)] = 10.0
    """Seconds until an unanswered call is in doubt."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 32
    """Concurrent calls of a sender."""
    batch: Annotated[int, Field(ge=1, le=1000)] = 1
    """Letters a call: a JSON list of `content`, or a form by `recipients`; fewer over ten million characters."""
    batch_in: Short | None = None
    """The member with that list; else the list is the body."""
    auth: Auth | None = None
    """See below."""
    headers: dict[Token, Line] = Field(default_factory=dict, max_length=30)
    """° Table of further headers."""
    content: dict[str, Any] = Field(default_factory=dict)
    """° Table of JSON values, or of form fields."""
    files: Token | None = None
    """With `multipart`: the field for each file."""
    inline: Token | None = None
    """The field for images inside the HTML, with the file name as `cid`."""
    recipients: SharedFormKeys | None = None
    """See below: one form for all letters of a call."""


StatedCause = Literal["recipient", "content", "us", "capacity", "vendor"]
"""Whose fault a refusal is, as vendors/causes has it, without `unknown`."""


class Rule(Keys):
    """[[answer.rules]]: the meaning of an answer; the first rule that fits decides.

    `is`: what it proves; without it, what its status proves. `cause`: whose fault a refusal is.
    """

    status: Statuses
    """`422`, `"4xx"`, or a list of both."""
    body: dict[AnswerPath, list[str | int | bool]] = Field(default_factory=dict, max_length=10)
    """Paths, each with its possible values; all must match."""
    outcome: Literal["accepted", "refused", "not sent", "throttled", "paused", "in doubt"] | None = Field(
        default=None, alias="is"
    )
    """See below; without it, what the status proves."""
    cause: StatedCause | None = None
    """Whose fault a refusal is, beside `is = "refused"` or without `is`: see `causes`."""
    contract: Contract | None = None
    """The vendor's promise, required if the rule claims more than the answer proves."""


class AnswerKeys(Keys):
    """[answer]: where the vendor's id and codes are, and what its answers mean."""

    id: AnswerPath | None = None
    """Path of the letter's id; this or `id_header` is required."""
    id_header: Token | None = None
    """Header with it."""
    batch_in: AnswerPath | None = None
    """Path of the list with an entry for each letter, in order; else the answer is the list. Other paths start in an
    entry."""
    one_id: bool = False
    """One id for all letters: each gets that id, a blank and its reference, in reports too."""
    code: AnswerPath = "code"
    """Path of the reason."""
    sub_type: AnswerPath = "sub_type"
    """Path of a finer one."""
    retry_after: Token = "Retry-After"
    """Header with seconds, or a date."""
    retry_at: Token | None = None
    """Header with a Unix time. Without both headers a time in the text counts, as `after Mon, 2 Mar 2026 18:00 UTC`."""
    causes: dict[Short, StatedCause] = Field(default_factory=dict, max_length=500)
    """Table of codes with the cause of a refusal: `recipient`, `content`, `us`, `capacity` or `vendor`. See below."""
    rules: list[Rule] = Field(default_factory=list, max_length=100)
    """See below."""


class Dedupe(Keys):
    """[dedupe]: the vendor accepts a repeat with the same reference only once."""

    seconds: Annotated[float, Field(gt=0, strict=False)] | None = None
    """The vendor's memory for references; omitted: for ever."""
    contract: Contract
    """The vendor's promise."""


class LookUpKeys(Keys):
    """[lookup]: how to ask the vendor for a letter."""

    url: Url
    """° With `{reference}`; scheme, host and port of `request.url`."""
    id: AnswerPath
    """Path of the vendor's id."""
    reference: AnswerPath
    """Path of our reference; any other is ignored."""
    entries: AnswerPath | None = None
    """Path of the list found; the paths above start in an entry."""
    settle_delay: Annotated[float, Field(ge=0, le=86400, strict=False)] = 5.0
    """Seconds until a look-up is up to date."""
    proves: Literal["found", "both"] = "found"
    """`both`: absence proves that the vendor never accepted it."""
    contract: Contract | None = None
    """The vendor's promise, required with `both`."""


class Sms(Keys):
    """[sms]: the vendor's names for the alphabets of an SMS; {alphabet} is the one a letter needs."""

    gsm: Short | None = None
    """GSM 03.38."""
    unicode: Short | None = None
    """UCS-2; give both or neither."""
    sender: Line | None = None
    """Value of `{sender}`, as `{settings.from}`; without it letters need an identity, unless `{sender?}`."""


class AddressKeys(Keys):
    """[address]: the vendor's rules for the columns that make up a postal address."""

    one_of: list[Column] = Field(default_factory=list, max_length=20)
    """Columns, at least one filled."""
    longest: dict[Column, Annotated[int, Field(ge=1, le=10_000)]] = Field(default_factory=dict, max_length=30)
    """Maximum characters, as `{ name = 40 }`."""
    country: Column | None = None
    """Column with one of `countries`."""
    countries: list[Short] = Field(default_factory=list, max_length=300)
    """As `["US", "CA"]`, in any case; required with `country`."""


class Cost(Keys):
    """[cost]: the unit that the vendor's limits count."""

    unit: Literal["message", "segment"] = "message"
    """Unit of the vendor's limits: `message`, or `segment` of an SMS."""


class Signature(Keys):
    """[reports.signature]: the proof that a report comes from the vendor."""

    scheme: Literal["hmac", "basic", "header", "standard-webhooks"]
    """`hmac`; `basic`, a `user:password`; `header`, with the key itself; `standard-webhooks`, with the URL unsigned."""
    header: Token | None = None
    """Header with the signature or key."""
    path: AnswerPath | None = None
    """`hmac`: path of a signature in the body (up to 64 KB)"""
    key: Line | None = None
    """`{secret.NAME}` of the credential; else the key from `vendor receipts SLUG --secret-file FILE`."""
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    """`sha1`, `sha256` or `sha512`."""
    encoding: Literal["hex", "base64"] = "hex"
    """Or `base64`."""
    prefix: Annotated[str, StringConstraints(max_length=20)] = ""
    """Text before the signature, as `sha256=`."""
    over: Line = "{body}"
    """Signed text, see below."""
    contract: Contract | None = None
    """The vendor's statement that it signs less; then only TLS stops anybody who sees a report from forging others."""
    timestamp: Token | None = None
    """Header with the signing time, a Unix time in seconds or milliseconds."""
    timestamp_path: AnswerPath | None = None
    """Its path in the body."""
    timestamp_prefix: Annotated[str, StringConstraints(min_length=1, max_length=20)] | None = None
    """For lists such as `t=...,v1=...`: text before the time; `prefix` stands before signatures."""
    token: Token | None = None
    """Header with `{token}`, a nonce."""
    token_path: AnswerPath | None = None
    """Its path in the body."""
    tolerance: Annotated[float, Field(gt=0, le=86400, strict=False)] = 300.0
    """Seconds allowed from our clock."""


_Kind = Literal[
    "delivered", "deferred", "hard bounce", "soft bounce", "blocked", "complained", "unsubscribed", "failed", "opened",
    "clicked", "ignored",
]  # fmt: skip


ReportedCause = Literal[
    "gone", "recipient", "content", "us", "capacity", "vendor", "complained", "unsubscribed", "delivered", "deferred",
    "opened", "clicked", "ignored", "hard bounce", "soft bounce", "blocked", "failed",
]  # fmt: skip
"""What a code says of a letter that did not arrive. The last four are old names; OLD_CODE_NAMES has better ones."""
OLD_CODE_NAMES = {
    "hard bounce": ("gone",),
    "soft bounce": ("recipient", "vendor"),
    "blocked": ("us", "capacity", "content"),
    "failed": ("recipient", "vendor"),
}


class ReportKeys(Keys):
    """[reports]: the reports that the vendor posts about accepted letters."""

    body: Literal["json", "form", "query"] = "json"
    """`json` (up to 5 MB), `form` or `query` (the URL; both up to 64 KB)"""
    events: AnswerPath | None = None
    """Path of the list; else the body is an event or a list."""
    kind: Annotated[list[AnswerPath], BeforeValidator(_as_list), Field(min_length=1, max_length=10)]
    """Path of the kind, or paths, the first with a word in `kinds`."""
    kinds: dict[str, _Kind] = Field(min_length=1, max_length=200)
    """Vendor's words and ours, below; others are ignored."""
    codes: dict[str, ReportedCause] = Field(default_factory=dict, max_length=500)
    """Vendor's codes with the cause of a failure, or an event, below."""
    reference: AnswerPath | None = None
    """Path of our reference."""
    reference_query: Short | None = None
    """URL parameter with it."""
    id: AnswerPath | None = None
    """Path of the vendor's id."""
    time: Annotated[list[AnswerPath], BeforeValidator(_as_list), Field(max_length=10)] = []
    """Path of the event's time, or paths, the first present one: ISO 8601, as in mail, or Unix. Untimed bounces always
    count."""
    code: AnswerPath | None = None
    """Path of the vendor's code."""
    note: AnswerPath | None = None
    """Path of its text."""
    signature: Signature
    """See below."""


class InboundKeys(Keys):
    """[inbound]: where an inbound SMS has its parts; body and signature are those of [reports]."""

    id: AnswerPath
    """Path of the message's id."""
    sender: AnswerPath = Field(alias="from")
    """Path of the author's number, with + or without."""
    to: AnswerPath
    """Path of our number."""
    text: AnswerPath
    """Path of the text."""
    time: Annotated[list[AnswerPath], BeforeValidator(_as_list), Field(max_length=10)] = []
    """Paths of its time, the first present one; else the arrival."""


class DescriptionKeys(Keys):
    """A whole description."""

    vendor: About
    settings: dict[Name, Setting] = Field(default_factory=dict, max_length=30)
    secret: dict[Name, Short] = Field(default_factory=dict, max_length=10)
    request: RequestKeys
    answer: AnswerKeys
    dedupe: Dedupe | None = None
    lookup: LookUpKeys | None = None
    sms: Sms | None = None
    address: AddressKeys = AddressKeys()
    cost: Cost = Cost()
    reports: ReportKeys | None = None
    inbound: InboundKeys | None = None
