"""A vendor that reports what became of letters, signed as Standard Webhooks has it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from campaigns.integrations.api.receipts import known_vendors
from tests.front.program import api_vendor
from vendors import report_keys

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def reporting(**fields: Any) -> "Reporter":
    """A vendor that the API can use and that reports."""
    return Reporter(api_vendor(settings={"url": "http://127.0.0.1:9/letters", "receipts": True}, **fields))


class Reporter:
    def __init__(self, row: Any) -> None:
        self.row = row
        self.secret = report_keys.rotate_key(row, timezone.now())

    def post(self, receipts: Any, secret: str = "", at: datetime | None = None, **headers: str) -> Any:
        """receipts: a list of them, or a body."""
        body = receipts if isinstance(receipts, str) else json.dumps({"receipts": receipts})
        return self.post_signed(body, self.signed(body, secret or self.secret, at) | headers)

    def post_signed(self, body: str, headers: Mapping[str, str], slug: str = "") -> Any:
        known_vendors.forget_all()  # what a test has just changed
        address = f"/api/v1/receipts/{slug or self.row.slug}"
        return Client().post(address, body, content_type="application/json", headers=headers)

    def signed(self, body: str, secret: str, at: datetime | None = None) -> dict[str, str]:
        moment = at or datetime.now(UTC)
        signature = Signer(secret).sign("msg_1", moment, body)
        stamp = str(int(moment.timestamp()))
        return {"webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": signature}

    def tell(self, *reports: tuple[str, str, int] | Sequence[Any]) -> dict[str, Any]:
        """(reference, status, minutes after noon), ...; the answer, which must be 202."""
        answer = self.post([receipt(*one) for one in reports])
        assert answer.status_code == 202, answer.content
        return answer.json()


def receipt(reference: str, status: str = "delivered", minute: int = 0, **more: Any) -> dict[str, Any]:
    return {"reference": reference, "status": status, "at": (NOON + timedelta(minutes=minute)).isoformat(), **more}
