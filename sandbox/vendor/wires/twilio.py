"""Twilio's Messages.json: a form for one SMS, reported to its StatusCallback, signed with the Auth Token.

`login`: Account SID and Auth Token. Its magic numbers are those of Twilio's test credentials; +15005550030 is accepted
and reported as undelivered.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

from sandbox.vendor.wires.base import AnswerContent, Asked, Call, Fate, NamedVendor, PostedReport, Wrong

INVALID = (21211, "Invalid 'To' Phone Number")
NUMBERS = {
    "+15005550001": INVALID,
    "+15005550004": (21610, "Attempt to send to unsubscribed recipient"),
    "+15005550009": (21614, "'To' number is not a valid mobile number"),
}
UNREACHABLE = "+15005550030"
CODES = {401: 20003, 404: 20404, 429: 20429, 500: 20500, 503: 20503}
LONGEST = 1600
EMPTY = (
    "body", "date_sent", "error_code", "error_message", "from", "messaging_service_sid", "price", "price_unit",
)  # fmt: skip


class Twilio(NamedVendor):
    submitted = 201

    def read(self, call: Call) -> Sequence[Asked] | Wrong:
        if call.path != f"/2010-04-01/Accounts/{self.user}/Messages.json".encode():
            return Wrong(404, "The requested resource was not found")
        fields = dict(parse_qsl(call.body.decode("utf-8", "replace"), keep_blank_values=True))
        to, back = fields.get("To", ""), fields.get("StatusCallback", "")
        if not to:
            return Wrong(400, "A 'To' phone number is required.", "21604")
        if not (fields.get("From") or fields.get("MessagingServiceSid")):
            return Wrong(400, "A 'From' phone number is required.", "21603")
        if not 1 <= len(fields.get("Body", "")) <= LONGEST:
            return Wrong(400, f"A 'Body' of 1 to {LONGEST} characters is required.", "21602")
        reference = dict(parse_qsl(back.partition("?")[2])).get("reference", "")
        bad = to in NUMBERS or not re.fullmatch(r"\+[1-9][0-9]{6,14}", to)
        word = "reject" if bad else "returned" if to == UNREACHABLE else ""
        return [Asked(reference or uuid4().hex, to, word, back)]

    def id(self, seq: int) -> str:
        return f"SM{seq:032x}"

    def accepted(self, id: str, asked: Asked) -> AnswerContent:
        at = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        path = f"/2010-04-01/Accounts/{self.user}/Messages/{id}.json"
        return dict.fromkeys(EMPTY) | {
            "sid": id, "account_sid": self.user, "api_version": "2010-04-01", "status": "queued", "to": asked.recipient,
            "direction": "outbound-api", "num_media": "0", "num_segments": "1", "uri": path, "date_created": at,
            "date_updated": at, "subresource_uris": {"media": path.replace(".json", "/Media.json")},
        }  # fmt: skip

    def refused(self, status: int, code: str, sub_type: str, asked: Asked) -> tuple[int, AnswerContent]:
        return 400, _error(400, *NUMBERS.get(asked.recipient, INVALID))

    def problem(self, status: int, code: str, sub_type: str = "") -> AnswerContent:
        return _error(status, int(sub_type or CODES.get(status, 20001)), code)

    def reports(self, fates: Sequence[Fate], to: str, secret: str) -> PostedReport:
        [fate] = fates
        good = fate.kind == "delivered"
        fields = {
            "MessageSid": fate.entry.id, "SmsSid": fate.entry.id, "AccountSid": self.user, "To": fate.entry.recipient,
            "MessageStatus": "delivered" if good else "undelivered", "ApiVersion": "2010-04-01",
        }  # fmt: skip
        fields |= {} if good else {"ErrorCode": "30005"}
        text = fate.report_to + "".join(name + fields[name] for name in sorted(fields))
        signature = base64.b64encode(hmac.digest(self.password.encode(), text.encode(), hashlib.sha1)).decode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": signature}
        return PostedReport(fate.report_to, headers, urlencode(fields).encode())


def _error(status: int, code: int, text: str) -> dict[str, Any]:
    return {"code": code, "message": text, "more_info": f"https://www.twilio.com/docs/errors/{code}", "status": status}
