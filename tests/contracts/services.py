"""E-mail services by their own documents: contents of a request, answers, signatures of reports.

Each was written from the service's public API reference, and knows one key and one sender.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from standardwebhooks import Webhook as Signer

KEY = "key-of-ours"
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
Answer = tuple[Any, ...]  # the status, the content, and lines of the head


class Service(ABC):
    """One service. refused: its answer for an address that it does not take; foreign: for a sender of somebody else."""

    name: str
    secret: Mapping[str, str] = {"api_key": KEY}
    more: str = ""
    signing: str = "user:password"
    refused: Answer
    foreign: Answer
    wrong_key: Answer = (401, {"message": "Unauthorized"})

    @abstractmethod
    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        """Return a good request's values (to, sender, subject, html, text, reference, headers), and its answer."""

    @abstractmethod
    def report(self, kind: str, reference: str) -> Any:
        """The body of a report: delivered, hard, soft, complained or opened."""

    def sign(self, body: bytes) -> dict[str, str]:
        return {"authorization": "Basic " + base64.b64encode(self.signing.encode()).decode()}

    def packed(self, kind: str, reference: str) -> bytes:
        return json.dumps(self.report(kind, reference)).encode()


class Postmark(Service):
    name = "postmark"
    secret = {"server_token": KEY}
    more = "message_stream:broadcast"
    refused = 422, {"ErrorCode": 300, "Message": "Invalid 'To' address: 'nobody@'."}
    foreign = 422, {"ErrorCode": 400, "Message": "The 'From' address you supplied is not a Sender Signature."}
    wrong_key = 401, {"ErrorCode": 10, "Message": "No Account or Server API tokens were supplied."}

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        said = json.loads(body)
        assert line.startswith("POST /email HTTP") and headers["x-postmark-server-token"] == KEY
        assert said["MessageStream"] == "broadcast"
        given = {one["Name"]: one["Value"] for one in said.get("Headers", [])}
        facts = {"to": said["To"], "sender": said["From"], "subject": said["Subject"], "html": said.get("HtmlBody")}
        facts |= {"text": said.get("TextBody"), "reference": said["Metadata"]["reference"], "headers": given}
        name = str(uuid4())
        return facts, (200, {"To": said["To"], "MessageID": name, "ErrorCode": 0, "Message": "OK"})

    def report(self, kind: str, reference: str) -> Any:
        more = {
            "delivered": {"RecordType": "Delivery", "DeliveredAt": AT.isoformat()},
            "hard": {"RecordType": "Bounce", "Type": "HardBounce", "ID": 7, "BouncedAt": AT.isoformat()},
            "soft": {"RecordType": "Bounce", "Type": "SoftBounce", "ID": 8, "BouncedAt": AT.isoformat()},
            "complained": {"RecordType": "SpamComplaint", "Type": "SpamComplaint", "BouncedAt": AT.isoformat()},
            "opened": {"RecordType": "Open", "ReceivedAt": AT.isoformat()},
        }[kind]
        return {"MessageID": "m-1", "Email": "ann@example.com", "Metadata": {"reference": reference}, **more}


class Mailgun(Service):
    name = "mailgun"
    more = "sender_domain:mg.example.com"
    signing = "signing-key"
    refused = 400, {"message": "to parameter is not a valid address. please check documentation"}
    foreign = 400, {"message": "from parameter is not a valid address. please check documentation"}
    wrong_key = 401, "Forbidden"

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        said = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        assert line.startswith("POST /v3/mg.example.com/messages HTTP")
        assert headers["authorization"] == "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
        given = {name[2:]: value for name, value in said.items() if name.startswith("h:")}
        facts = {"to": said["to"], "sender": said["from"], "subject": said["subject"], "html": said.get("html")}
        facts |= {"text": said.get("text"), "reference": said["v:reference"], "headers": given}
        return facts, (200, {"id": f"<{uuid4()}@mg.example.com>", "message": "Queued. Thank you."})

    def report(self, kind: str, reference: str) -> Any:
        stamp, token = str(int(AT.timestamp())), "t" * 50
        signature = hmac.new(self.signing.encode(), f"{stamp}{token}".encode(), hashlib.sha256).hexdigest()
        more: dict[str, Any] = {
            "delivered": {"event": "delivered"},
            "hard": {"event": "failed", "severity": "permanent", "reason": "bounce"},
            "soft": {"event": "failed", "severity": "temporary", "reason": "generic"},
            "complained": {"event": "complained"},
            "opened": {"event": "opened"},
        }[kind]
        said = {"timestamp": AT.timestamp(), "recipient": "ann@example.com", "user-variables": {"reference": reference}}
        said |= {"message": {"headers": {"message-id": "20260301.1@mg.example.com"}}, **more}
        return {"signature": {"timestamp": stamp, "token": token, "signature": signature}, "event-data": said}

    def sign(self, body: bytes) -> dict[str, str]:
        return {}  # it is within the body


class SendGrid(Service):
    name = "sendgrid"
    private = ec.generate_private_key(ec.SECP256R1())
    signing = base64.b64encode(
        private.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    ).decode()
    refused = (
        400,
        {"errors": [{"message": "Does not contain a valid address.", "field": "personalizations.0.to.0.email"}]},
    )
    foreign = 403, {"errors": [{"message": "The from address does not match a verified Sender Identity."}]}
    wrong_key = 401, {"errors": [{"message": "The provided authorization grant is invalid, expired, or revoked"}]}

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        said = json.loads(body)
        assert line.startswith("POST /v3/mail/send HTTP") and headers["authorization"] == f"Bearer {KEY}"
        content = {one["type"]: one["value"] for one in said["content"]}
        (person,) = said["personalizations"]
        sender = said["from"]
        reference = person.get("custom_args", {}).get("reference") or said["custom_args"]["reference"]
        facts = {
            "to": person["to"][0]["email"],
            "sender": f"{sender['name']} <{sender['email']}>",
            "reference": reference,
        }
        facts |= {"subject": said["subject"], "html": content.get("text/html"), "text": content.get("text/plain")}
        return facts | {"headers": said.get("headers", {})}, (202, None, "X-Message-Id: filter-1")

    def report(self, kind: str, reference: str) -> Any:
        more = {
            "delivered": {"event": "delivered"},
            "hard": {"event": "bounce", "type": "bounce", "reason": "550 5.1.1 unknown user"},
            "soft": {"event": "bounce", "type": "blocked", "reason": "listed at spamhaus"},
            "complained": {"event": "spamreport"},
            "opened": {"event": "open"},
        }[kind]
        stamp = int(AT.timestamp())
        return [{"email": "ann@example.com", "timestamp": stamp, "sg_event_id": "e", "reference": reference, **more}]

    def sign(self, body: bytes) -> dict[str, str]:
        signature = self.private.sign(b"1772366400" + body, ec.ECDSA(hashes.SHA256()))
        name = "x-twilio-email-event-webhook"
        return {f"{name}-signature": base64.b64encode(signature).decode(), f"{name}-timestamp": "1772366400"}


class Brevo(Service):
    name = "brevo"
    refused = 400, {"code": "invalid_parameter", "message": "email is not valid in to"}
    foreign = 400, {"code": "invalid_parameter", "message": "Sending has been rejected because the sender is not valid"}
    wrong_key = 401, {"code": "unauthorized", "message": "Key not found"}

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        said = json.loads(body)
        assert line.startswith("POST /v3/smtp/email HTTP") and headers["api-key"] == KEY
        sender = said["sender"]
        given = said["headers"]
        reference = json.loads(given["X-Mailin-custom"])["reference"]
        facts = {
            "to": said["to"][0]["email"],
            "sender": f"{sender['name']} <{sender['email']}>",
            "reference": reference,
        }
        facts |= {"subject": said["subject"], "html": said.get("htmlContent"), "text": said.get("textContent")}
        return facts | {"headers": given}, (201, {"messageId": f"<{uuid4()}@relay.example.com>"})

    def report(self, kind: str, reference: str) -> Any:
        word = {"hard": "hard_bounce", "soft": "soft_bounce", "complained": "spam"}.get(kind, kind)
        custom = json.dumps({"reference": reference})
        said = {"event": word, "email": "ann@example.com", "ts_epoch": AT.timestamp() * 1000, "X-Mailin-custom": custom}
        return said | {"message-id": "<20260301.1@relay.example.com>"}


class Resend(Service):
    name = "resend"
    signing = "whsec_" + base64.b64encode(b"s" * 24).decode()
    refused = 422, {"statusCode": 422, "name": "validation_error", "message": "Invalid `to` field."}
    foreign = 403, {"statusCode": 403, "name": "validation_error", "message": "The example.org domain is not verified."}
    wrong_key = 401, {"statusCode": 401, "name": "missing_api_key", "message": "Missing API Key"}

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        said = json.loads(body)
        assert line.startswith("POST /emails HTTP") and headers["authorization"] == f"Bearer {KEY}"
        reference = json.loads(said["headers"]["X-Metadata"])["reference"]
        assert headers["idempotency-key"] == reference
        facts = {"to": said["to"][0], "sender": said["from"], "subject": said["subject"], "html": said.get("html")}
        facts |= {"text": said.get("text"), "reference": reference, "headers": said["headers"]}
        return facts, (200, {"id": str(uuid4())})

    def report(self, kind: str, reference: str) -> Any:
        word = {"hard": "bounced", "soft": "bounced"}.get(kind, kind)
        said: dict[str, Any] = {"email_id": "49a3999c", "to": ["ann@example.com"], "created_at": AT.isoformat()}
        said["headers"] = [{"name": "X-Metadata", "value": json.dumps({"reference": reference})}]
        if word == "bounced":
            said["bounce"] = {"type": "Permanent" if kind == "hard" else "Transient", "message": "it came back"}
        return {"type": f"email.{word}", "created_at": AT.isoformat(), "data": said}

    def sign(self, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC)
        signature = Signer(self.signing).sign("msg_1", now, body.decode())
        return {"svix-id": "msg_1", "svix-timestamp": str(int(now.timestamp())), "svix-signature": signature}


class AmazonSes(Service):
    """It checks the signature of each request (AWS Signature Version 4)."""

    name = "amazon_ses"
    secret = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": KEY}
    more = "region:eu-west-1,configuration_set_name:news"
    refused = 400, {"message": "Missing final '@domain'"}, "x-amzn-ErrorType: BadRequestException"
    foreign = (
        400,
        {"message": "Email address is not verified. The following identities failed the check: news@example.org"},
        "x-amzn-ErrorType: MessageRejected",
    )
    wrong_key = (
        403,
        {"message": "The security token included in the request is expired"},
        "x-amzn-ErrorType: ExpiredTokenException:http://internal.amazon.com/coral/",
    )

    def take(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Answer]:
        assert line.startswith("POST /v2/email/outbound-emails HTTP")
        assert headers["authorization"].endswith(f"Signature={self.signature(line, headers, body)}")
        said = json.loads(body)
        assert said["ConfigurationSetName"] == "news"
        mail = message_from_bytes(base64.b64decode(said["Content"]["Raw"]["Data"]), policy=policy.default)
        html, text = mail.get_body(("html",)), mail.get_body(("plain",))
        facts: dict[str, Any] = {"to": said["Destination"]["ToAddresses"][0], "sender": mail["From"]}
        facts |= {"subject": mail["Subject"], "reference": json.loads(mail["X-Metadata"])["reference"]}
        facts |= {"html": html and html.get_content().strip(), "text": text and text.get_content().strip()}
        return facts | {"headers": dict(mail.items())}, (200, {"MessageId": f"0102{uuid4()}-000000"})

    def signature(self, line: str, headers: Mapping[str, str], body: bytes) -> str:
        _, path, _ = line.split()
        given = dict(one.strip().split("=", 1) for one in headers["authorization"].partition(" ")[2].split(","))
        names, scope = given["SignedHeaders"].split(";"), given["Credential"].partition("/")[2]
        assert given["Credential"].startswith("AKIDEXAMPLE/") and scope.split("/")[1:] == [
            "eu-west-1",
            "ses",
            "aws4_request",
        ]
        assert {"host", "x-amz-date"} <= set(names)
        lines = ["POST", path, "", *(f"{name}:{headers[name]}" for name in names), "", ";".join(names)]
        asked = "\n".join([*lines, hashlib.sha256(body).hexdigest()])
        what = ["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(asked.encode()).hexdigest()]
        key = f"AWS4{KEY}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return hmac.new(key, "\n".join(what).encode(), hashlib.sha256).hexdigest()

    def report(self, kind: str, reference: str) -> Any:
        more: dict[str, Any] = {
            "delivered": {"delivery": {"recipients": ["ann@example.com"], "smtpResponse": "250 ok"}},
            "hard": {"bounce": self.bounce("Permanent", "General", "smtp; 550 5.1.1 user unknown")},
            "soft": {"bounce": self.bounce("Transient", "MailboxFull", "smtp; 452 4.2.2 mailbox full")},
            "complained": {"complaint": {"complainedRecipients": [{"emailAddress": "ann@example.com"}]}},
            "opened": {"open": {"userAgent": "A reader"}},
        }[kind]
        name = next(iter(more))
        headers = [{"name": "X-Metadata", "value": json.dumps({"reference": reference})}]
        mail = {"messageId": "0102-1", "destination": ["ann@example.com"], "headers": headers}
        return {"eventType": name.title(), "mail": mail, **more}

    def bounce(self, kind: str, detail: str, said: str) -> dict[str, Any]:
        who = [{"emailAddress": "ann@example.com", "diagnosticCode": said}]
        return {"bounceType": kind, "bounceSubType": detail, "bouncedRecipients": who}

    def packed(self, kind: str, reference: str) -> bytes:
        """In the envelope of Amazon SNS."""
        return self.notice("Notification", Message=json.dumps(self.report(kind, reference)))

    def notice(self, kind: str, **more: str) -> bytes:
        topic = "arn:aws:sns:eu-west-1:123456789012:news"
        said = {"Type": kind, "MessageId": "m-1", "TopicArn": topic, "Timestamp": "2026-03-01T12:00:00.000Z", **more}
        return json.dumps(said).encode()

    def sign(self, body: bytes) -> dict[str, str]:
        kind = {"x-amz-sns-message-type": "Notification", "x-amz-sns-message-id": "m-1"}
        if b'"SubscriptionConfirmation"' in body:
            kind["x-amz-sns-message-type"] = "SubscriptionConfirmation"
        return super().sign(body) | kind


SERVICES: list[Service] = [AmazonSes(), Brevo(), Mailgun(), Postmark(), Resend(), SendGrid()]
