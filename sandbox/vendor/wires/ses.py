"""Amazon SES, version 2: requests signed by AWS Signature 4, a whole mail in each, and notifications by SNS.

`login`: the access key and its secret. Reports go to receipts_to with basic authentication by receipts_secret,
USER:PASSWORD, as in SNS's subscription URL. They have no certificate from Amazon, and no subscription is confirmed
first. It accepts every address and reports bad ones as bounced.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from binascii import Error as NoBase64
from collections.abc import Sequence
from datetime import UTC, datetime
from email import message_from_bytes, policy
from functools import reduce
from typing import Any
from uuid import uuid4

import orjson

from sandbox.vendor.wires.base import AnswerContent, Asked, Call, Fate, NamedVendor, PostedReport, Wrong

SEND = b"/v2/email/outbound-emails"
CODES = {
    400: "BadRequestException", 401: "UnrecognizedClientException", 404: "NotFoundException",
    429: "TooManyRequestsException", 500: "InternalFailure", 503: "ServiceUnavailable",
}  # fmt: skip
TEXTS = {401: "The request signature we calculated does not match", 429: "Maximum sending rate exceeded."}
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/, ]+)/(?P<scope>\d{8}/[a-z0-9-]+/ses/aws4_request), "
    r"SignedHeaders=(?P<headers>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
TOPIC = "arn:aws:sns:eu-west-1:000000000000:sandbox"


class Ses(NamedVendor):
    looks = False

    def check(self, receipts_to: str, secret: str) -> None:
        if receipts_to and ":" not in secret:
            raise ValueError("reports have a login: give receipts_secret, USER:PASSWORD")

    def knows(self, call: Call) -> bool:
        found = AUTHORIZATION.fullmatch(call.header(b"authorization"))
        if not found or found["key"] != self.user:
            return False
        named = found["headers"].split(";")
        headers = "".join(f"{name}:{' '.join(call.header(name.encode()).split())}\n" for name in named)
        path, query, method = (part.decode("latin-1") for part in (call.path, call.query, call.method))
        asked = "\n".join([method, path, query, headers, found["headers"], hashlib.sha256(call.body).hexdigest()])
        digest = hashlib.sha256(asked.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", call.header(b"x-amz-date"), found["scope"], digest])
        key = reduce(_hmac, found["scope"].split("/"), f"AWS4{self.password}".encode())
        return hmac.compare_digest(_hmac(key, text).hex(), found["signature"])

    def credential(self, call: Call) -> str:
        found = AUTHORIZATION.fullmatch(call.header(b"authorization"))
        return found["key"] if found else ""

    def read(self, call: Call) -> Sequence[Asked] | Wrong:
        if call.path != SEND:
            return Wrong(404, "no such operation")
        try:
            content = orjson.loads(call.body)
            mail = message_from_bytes(base64.b64decode(content["Content"]["Raw"]["Data"]), policy=policy.default)
            to = (content.get("Destination") or {}).get("ToAddresses") or []
            reference = orjson.loads(str(mail.get("X-Metadata", "{}"))).get("reference")
            recipient = to[0] if to else mail["To"].addresses[0].addr_spec
        except (orjson.JSONDecodeError, NoBase64, KeyError, TypeError, AttributeError, IndexError, ValueError):
            return Wrong(400, "Missing or malformed content")
        return [Asked(str(reference or uuid4().hex), str(recipient))]

    def id(self, seq: int) -> str:
        return f"{seq:016x}-sandbox-000000"

    def accepted(self, id: str, asked: Asked) -> AnswerContent:
        return {"MessageId": id}

    def problem(self, status: int, code: str, sub_type: str = "") -> AnswerContent:
        return {"__type": CODES.get(status, "BadRequestException"), "message": TEXTS.get(status, code)}

    def waits(self, seconds: float) -> dict[str, str]:
        return {}

    def reports(self, fates: Sequence[Fate], to: str, secret: str) -> PostedReport:
        [fate] = fates
        at, name = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"), str(uuid4())
        message = orjson.dumps(_event(fate, at)).decode()
        notification = {
            "Type": "Notification", "MessageId": name, "TopicArn": TOPIC, "Subject": "Amazon SES Email Event",
            "Message": message, "Timestamp": at,
        }  # fmt: skip
        headers = {
            "Content-Type": "text/plain; charset=UTF-8",
            "x-amz-sns-message-type": "Notification",
            "x-amz-sns-message-id": name,
            "x-amz-sns-topic-arn": TOPIC,
            "Authorization": "Basic " + base64.b64encode(secret.encode()).decode(),
        }
        return PostedReport(to, headers, orjson.dumps(notification))


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), hashlib.sha256)


def _event(fate: Fate, at: str) -> dict[str, Any]:
    """Return an event in the form of event publishing."""
    entry = fate.entry
    metadata = {"name": "X-Metadata", "value": orjson.dumps({"reference": entry.reference}).decode()}
    mail = {"messageId": entry.id, "timestamp": at, "destination": [entry.recipient], "headers": [metadata]}
    whom: dict[str, Any] = {"emailAddress": entry.recipient}
    if fate.kind == "delivered":
        answer = {"timestamp": at, "recipients": [entry.recipient], "smtpResponse": "250 ok"}
        return {"eventType": "Delivery", "mail": mail, "delivery": answer}
    if fate.kind == "complained":
        about = {"timestamp": at, "complainedRecipients": [whom], "complaintFeedbackType": "abuse"}
        return {"eventType": "Complaint", "mail": mail, "complaint": about}
    whom |= {"action": "failed", "status": "5.1.1", "diagnosticCode": "smtp; 550 5.1.1 user unknown"}
    bounce = {"timestamp": at, "bounceType": "Permanent", "bounceSubType": "General", "bouncedRecipients": [whom]}
    return {"eventType": "Bounce", "mail": mail, "bounce": bounce}
