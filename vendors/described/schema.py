"""Schema of a description: keys, types and bounds. docs/reference/descriptions.md explains each key."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

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


def _path(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(r"[^.\r\n]{1,100}(\.[^.\r\n]{1,100}){0,9}", value):
        raise ValueError("must be a path into the answer, as id or error.code or messages.0.id")
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


AnswerPath = Annotated[str, BeforeValidator(_path)]


def _statuses(value: Any) -> frozenset[int]:
    """Parse 400, "4xx" or a list of both into a set of statuses."""
    found: set[int] = set()
    for one in value if isinstance(value, list) and value else [value]:
        if isinstance(one, str) and re.fullmatch(r"[2-5]xx", one):
            found |= set(range(int(one[0]) * 100, int(one[0]) * 100 + 100))
        elif isinstance(one, int) and not isinstance(one, bool) and 200 <= one < MOST_STATUSES:
            found.add(one)
        else:
            raise ValueError('must be a status from 200 to 599, "4xx" or the like, or a list of them')
    return frozenset(found)


Statuses = Annotated[frozenset[int], BeforeValidator(_statuses)]


def _compiles(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class About(Keys):
    """[vendor]: its name, and the vendor's documents that the description follows."""

    name: Short
    channel: Literal["print", "email", "sms"]
    documents: Short


class Setting(Keys):
    """[settings.NAME]: a setting that differs between the vendor's customers."""

    about: Short
    kind: Literal["text", "flag", "number"] = "text"
    default: str | bool | int | None = None
    pattern: Annotated[str, StringConstraints(max_length=200), AfterValidator(_compiles)] | None = None


class Auth(Keys):
    """[request.auth]: how the secret is sent."""

    scheme: Literal["basic", "bearer", "header", "query"]
    user: Line | None = None
    password: Line | None = None
    token: Line | None = None
    name: Token | None = None
    value: Line | None = None


class SharedFormKeys(Keys):
    """[request.recipients]: in a form shared by all letters of a call, where each letter's own values go."""

    to: Short
    variables: Short
    variable: Annotated[Short, StringConstraints(pattern="NAME")]
    own: list[Short] = Field(max_length=100)
    headers: Short | None = None


class RequestKeys(Keys):
    """[request]: the call that submits one or more letters."""

    method: Literal["POST", "PUT"] = "POST"
    url: Url
    body: Literal["json", "form", "multipart", "none"] = "json"
    timeout: Annotated[float, Field(gt=0, le=300, strict=False)] = 10.0
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 32
    batch: Annotated[int, Field(ge=1, le=1000)] = 1
    batch_in: Short | None = None
    auth: Auth | None = None
    headers: dict[Token, Line] = Field(default_factory=dict, max_length=30)
    content: dict[str, Any] = Field(default_factory=dict)
    files: Token | None = None
    inline: Token | None = None
    recipients: SharedFormKeys | None = None


class Rule(Keys):
    """[[answer.rules]]: the meaning of an answer; the first rule that fits decides."""

    status: Statuses
    body: dict[AnswerPath, list[str | int | bool]] = Field(default_factory=dict, max_length=10)
    outcome: Literal["accepted", "refused", "not sent", "throttled", "paused", "in doubt"] = Field(alias="is")
    contract: Contract | None = None


class AnswerKeys(Keys):
    """[answer]: where the vendor's id and codes are, and what its answers mean."""

    id: AnswerPath | None = None
    id_header: Token | None = None
    batch_in: AnswerPath | None = None
    one_id: bool = False
    code: AnswerPath = "code"
    sub_type: AnswerPath = "sub_type"
    retry_after: Token = "Retry-After"
    retry_at: Token | None = None
    rules: list[Rule] = Field(default_factory=list, max_length=100)


class Dedupe(Keys):
    """[dedupe]: the vendor accepts a repeat with the same reference only once."""

    seconds: Annotated[float, Field(gt=0, strict=False)] | None = None
    contract: Contract


class LookUpKeys(Keys):
    """[lookup]: how to ask the vendor for a letter."""

    url: Url
    id: AnswerPath
    reference: AnswerPath
    entries: AnswerPath | None = None
    settle_delay: Annotated[float, Field(ge=0, le=86400, strict=False)] = 5.0
    proves: Literal["found", "both"] = "found"
    contract: Contract | None = None


class Sms(Keys):
    """[sms]: the vendor's names for the alphabets of an SMS; {alphabet} is the one a letter needs.

    sender: {sender} of a letter without a sender identity.
    """

    gsm: Short | None = None
    unicode: Short | None = None
    sender: Line | None = None


class AddressKeys(Keys):
    """[address]: the vendor's rules for the columns that make up a postal address."""

    one_of: list[Column] = Field(default_factory=list, max_length=20)
    longest: dict[Column, Annotated[int, Field(ge=1, le=10_000)]] = Field(default_factory=dict, max_length=30)
    country: Column | None = None
    countries: list[Short] = Field(default_factory=list, max_length=300)


class Cost(Keys):
    """[cost]: the unit that the vendor's limits count."""

    unit: Literal["message", "segment"] = "message"


class Signature(Keys):
    """[reports.signature]: the proof that a report comes from the vendor."""

    scheme: Literal["hmac", "basic", "header", "standard-webhooks"]
    header: Token | None = None
    path: AnswerPath | None = None
    key: Line | None = None
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: Annotated[str, StringConstraints(max_length=20)] = ""
    over: Line = "{body}"
    contract: Contract | None = None
    timestamp: Token | None = None
    timestamp_path: AnswerPath | None = None
    timestamp_prefix: Annotated[str, StringConstraints(min_length=1, max_length=20)] | None = None
    token: Token | None = None
    token_path: AnswerPath | None = None
    tolerance: Annotated[float, Field(gt=0, le=86400, strict=False)] = 300.0


_Kind = Literal[
    "delivered", "hard bounce", "soft bounce", "blocked", "complained", "unsubscribed", "failed", "opened", "clicked",
    "ignored",
]  # fmt: skip


class ReportKeys(Keys):
    """[reports]: the reports that the vendor posts about accepted letters."""

    body: Literal["json", "form", "query"] = "json"
    events: AnswerPath | None = None
    kind: Annotated[list[AnswerPath], BeforeValidator(_listed), Field(min_length=1, max_length=10)]
    kinds: dict[str, _Kind] = Field(min_length=1, max_length=200)
    codes: dict[str, _Kind] = Field(default_factory=dict, max_length=200)
    reference: AnswerPath | None = None
    reference_query: Short | None = None
    id: AnswerPath | None = None
    time: Annotated[list[AnswerPath], BeforeValidator(_listed), Field(max_length=10)] = []
    code: AnswerPath | None = None
    note: AnswerPath | None = None
    signature: Signature


class InboundKeys(Keys):
    """[inbound]: where an inbound SMS has its parts; body and signature are those of [reports]."""

    id: AnswerPath
    sender: AnswerPath = Field(alias="from")
    to: AnswerPath
    text: AnswerPath
    time: Annotated[list[AnswerPath], BeforeValidator(_listed), Field(max_length=10)] = []


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
