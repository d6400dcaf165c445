"""Delivery reports: the values that adapters return, and the JSON format of adapters that have none of their own.

The JSON is signed by Standard Webhooks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from standardwebhooks import Webhook as Signer
from standardwebhooks import WebhookVerificationError

MOST = 1000  # receipts in one report
Bounce = Literal["hard", "soft", "blocked"]
ReportText = Annotated[str, StringConstraints(max_length=255)]


@dataclass(frozen=True, slots=True)
class Reported:
    """A delivery report on a letter that the vendor had accepted, or a complaint about it.

    at: when it happened, with a time zone. vendor_id: the vendor's id of the letter, or "". note: why it bounced.
    bounce: hard: the recipient does not exist; soft: not this time, or no reason is given; blocked: because of us or of
    the content. code: the enhanced status (RFC 3463) or the vendor's code, or "".
    """

    reference: str
    kind: Literal["delivered", "bounced", "complained"]
    at: datetime
    vendor_id: str = ""
    note: str = ""
    bounce: Bounce = "soft"
    code: str = ""


class NotTheVendor(Exception):
    """The report has no valid signature of the vendor."""


class BadReport(ValueError):
    """The report is not valid. errors: (path into the body, code, sentence)."""

    def __init__(self, errors: Sequence[tuple[tuple[int | str, ...], str, str]]) -> None:
        super().__init__("; ".join(sentence for _, _, sentence in errors))
        self.errors = errors


class ReceiptIn(BaseModel):
    """The delivery of a letter, its bounce (the vendor had accepted it, and it came back), or a complaint about it."""

    model_config = ConfigDict(extra="forbid")
    reference: str = Field(min_length=1, max_length=255, description="The letter's, as it was sent to the vendor")
    status: Literal["delivered", "bounced", "complained"]
    at: AwareDatetime = Field(description="When it happened, by the vendor's clock: of two receipts the later counts")
    id: ReportText = Field(default="", description="The vendor's own name of the letter")
    reason: ReportText = Field(default="", description="Of a bounce or a complaint")
    bounce: Bounce = Field(
        default="soft", description="hard: there is no such recipient, who is suppressed; blocked: our fault"
    )
    code: str = Field(default="", max_length=20, description="Of a bounce, such as 5.1.1")


class ReceiptsIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    receipts: list[ReceiptIn] = Field(min_length=1, max_length=MOST)


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """Check that it was signed with one of the secrets within the last five minutes. Raises NotTheVendor."""
    for secret in secrets:
        with contextlib.suppress(WebhookVerificationError, ValueError):  # ValueError: malformed headers
            Signer(secret).verify(body.decode(), dict(headers), json_parse=False)
            return
    raise NotTheVendor("the signature is not this vendor's")


def read(body: bytes) -> list[Reported]:
    """Parse the body of a report. Raises BadReport."""
    try:
        report = ReceiptsIn.model_validate_json(body)
    except ValidationError as why:
        found = why.errors(include_url=False, include_context=False, include_input=False)
        raise BadReport([(one["loc"], one["type"], one["msg"]) for one in found]) from None
    return [
        Reported(one.reference, one.status, one.at, one.id, one.reason, one.bounce, one.code) for one in report.receipts
    ]
