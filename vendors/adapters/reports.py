"""What vendors report later of letters: the values every adapter makes of it, and one form of such reports.

The form is JSON, signed as Standard Webhooks has it; adapters without a form of their own understand it.
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
ReportText = Annotated[str, StringConstraints(max_length=255)]


@dataclass(frozen=True, slots=True)
class Reported:
    """What the vendor says later of a letter that it accepted. at: when it happened, with a time zone.

    vendor_id: its own name of the letter, if it says it. note: why it bounced.
    """

    reference: str
    kind: Literal["delivered", "bounced"]
    at: datetime
    vendor_id: str = ""
    note: str = ""


class NotTheVendor(Exception):
    """Whoever reports here cannot prove that it is the vendor."""


class BadReport(ValueError):
    """The vendor's report cannot be read. errors: (where, code, sentence), where: the way into its body."""

    def __init__(self, errors: Sequence[tuple[tuple[int | str, ...], str, str]]) -> None:
        super().__init__("; ".join(sentence for _, _, sentence in errors))
        self.errors = errors


class ReceiptIn(BaseModel):
    """What became of one letter. A bounce: the vendor accepted it, and it came back."""

    model_config = ConfigDict(extra="forbid")
    reference: str = Field(min_length=1, max_length=255, description="The letter's, as it was sent to the vendor")
    status: Literal["delivered", "bounced"]
    at: AwareDatetime = Field(description="When it happened, by the vendor's clock: of two receipts the later counts")
    id: ReportText = Field(default="", description="The vendor's own name of the letter")
    reason: ReportText = Field(default="", description="Of a bounce")


class ReceiptsIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    receipts: list[ReceiptIn] = Field(min_length=1, max_length=MOST)


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """It is signed with one of the secrets, less than five minutes ago. Raises NotTheVendor."""
    for secret in secrets:
        with contextlib.suppress(WebhookVerificationError, ValueError):  # ValueError: headers that are none
            Signer(secret).verify(body.decode(), dict(headers), json_parse=False)
            return
    raise NotTheVendor("the signature is not this vendor's")


def read(body: bytes) -> list[Reported]:
    """Raises BadReport."""
    try:
        report = ReceiptsIn.model_validate_json(body)
    except ValidationError as why:
        found = why.errors(include_url=False, include_context=False, include_input=False)
        raise BadReport([(one["loc"], one["type"], one["msg"]) for one in found]) from None
    return [Reported(one.reference, one.status, one.at, one.id, one.reason) for one in report.receipts]
