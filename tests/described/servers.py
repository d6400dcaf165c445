"""Servers that stand in for vendors, and refuse what the vendors' own documents do not allow, in what mailhub uses.

Each is a plain HTTP server in a thread, so that the vendors' own clients can call it, too. `books` has what it accepted
by our reference; `next_answer` makes it misbehave once.
"""

from __future__ import annotations

import base64
import email
import email.policy
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlsplit


@dataclass
class Called:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def login(self) -> tuple[str, str]:
        """User and password of basic authentication."""
        scheme, _, value = self.headers.get("authorization", "").partition(" ")
        if scheme != "Basic":
            return "", ""
        user, _, password = base64.b64decode(value).decode().partition(":")
        return user, password


@dataclass
class Answer:
    status: int
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """The connection ends in the middle of the answer."""


class VendorServer:
    """Use: `with Twilio() as vendor`."""

    def __init__(self) -> None:
        self.calls: list[Called] = []
        self.books: Counter[str] = Counter()
        self.next_answer: Answer | None = None
        self.accepts_before: bool = False
        """Whether `next_answer` hides that the call was taken."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one(self) -> None:
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                called = Called(self.command, parts.path, parse_qs(parts.query), headers, body)
                with vendor._lock:
                    vendor.calls.append(called)
                    answer = vendor.next_answer
                    if answer is None or vendor.accepts_before:
                        usual = vendor.answer(called)
                        answer = answer or usual
                    vendor.next_answer = None
                self.give(answer)

            def give(self, answer: Answer) -> None:
                content = b"" if answer.content is None else json.dumps(answer.content).encode()
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content) + (99 if answer.cut else 0)))
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = answer.cut

            do_GET = do_POST = do_PUT = handle_one

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, called: Called) -> Answer:
        raise NotImplementedError


ACCOUNT, TOKEN = "AC" + "0" * 31 + "7", "a-token"


class Twilio(VendorServer):
    """POST Messages.json; refuses by the codes of Twilio's list of errors."""

    stopped = "+15005550610"
    members = frozenset({"To", "From", "MessagingServiceSid", "Body", "StatusCallback"})  # of those that we use

    def answer(self, called: Called) -> Answer:
        if called.login != (ACCOUNT, TOKEN):
            return _twilio_error(401, 20003, "Authenticate")
        if (called.method, called.path) != ("POST", f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"):
            return _twilio_error(404, 20404, "The requested resource was not found")
        assert called.headers["content-type"].startswith("application/x-www-form-urlencoded")
        fields = dict(parse_qsl(called.body.decode("ascii"), strict_parsing=True, keep_blank_values=True))
        assert fields.keys() <= self.members, fields.keys() - self.members
        assert re.fullmatch("MG[0-9a-fA-F]{32}|", fields.get("MessagingServiceSid", ""))
        assert urlsplit(fields.get("StatusCallback", "https:")).scheme in ("http", "https")
        if not fields["To"].startswith("+") or not fields["To"][1:].isdigit():
            return _twilio_error(400, 21211, "Invalid 'To' Phone Number")
        if fields["To"] == self.stopped:
            return _twilio_error(400, 21610, "Attempt to send to unsubscribed recipient")
        if not fields.get("From") and not fields.get("MessagingServiceSid"):
            return _twilio_error(400, 21603, "A 'From' phone number is required")
        if not 1 <= len(fields.get("Body", "")) <= 1600:
            return _twilio_error(400, 21617, "The concatenated message body exceeds the 1600 character limit")
        callback = parse_qs(urlsplit(fields.get("StatusCallback", "")).query)
        self.books[callback.get("reference", [fields["Body"]])[0]] += 1
        sid = f"SM{len(self.calls):032x}"
        message = {
            "account_sid": ACCOUNT, "api_version": "2010-04-01", "body": fields["Body"], "sid": sid,
            "date_created": "Thu, 24 Aug 2023 05:01:45 +0000", "date_sent": None,
            "date_updated": "Thu, 24 Aug 2023 05:01:45 +0000", "direction": "outbound-api", "error_code": None,
            "error_message": None, "from": fields.get("From"), "num_media": "0", "num_segments": "1", "price": None,
            "price_unit": None, "messaging_service_sid": fields.get("MessagingServiceSid"), "status": "queued",
            "subresource_uris": {}, "to": fields["To"], "uri": f"{called.path[:-5]}/{sid}.json",
        }  # fmt: skip
        return Answer(201, message)


def _twilio_error(status: int, code: int, text: str) -> Answer:
    content = {"code": code, "message": text, "more_info": f"https://www.twilio.com/docs/errors/{code}"}
    return Answer(status, content | {"status": status})


KEY = "test_key"
ADDRESS = {"address_line1": 64, "address_line2": 64, "address_city": 200, "name": 40, "company": 40, "address_zip": 10}
ADDRESS |= {"address_state": 2, "address_country": 2}


def _faults(letter: dict[str, Any], kind: str) -> list[str]:
    """What is wrong with a letter or postcard to Lob, of the members that we use."""
    allowed: dict[str, Callable[[Any], object]] = {
        "description": lambda text: len(text) <= 255,
        "from": lambda name: re.fullmatch("adr_[a-zA-Z0-9]+", name),
        "to": _is_address,
        "mail_type": ("usps_first_class", "usps_standard").__contains__,
        "use_type": ("marketing", "operational").__contains__,
        "metadata": lambda pairs: len(pairs) <= 20 and all(len(value) <= 500 for value in pairs.values()),
    }
    of_letters: dict[str, Callable[[Any], object]] = {
        "file": lambda html: html.startswith("<"),
        "color": lambda flag: isinstance(flag, bool),
        "double_sided": lambda flag: isinstance(flag, bool),
        "address_placement": ("top_first_page", "insert_blank_page", "bottom_first_page").__contains__,
    }
    of_postcards: dict[str, Callable[[Any], object]] = {
        "front": lambda front: re.match("tmpl_|https://|<", front),
        "back": lambda back: re.match("tmpl_|https://|<", back),
        "size": ("4x6", "6x9", "6x11").__contains__,
    }
    allowed |= of_letters if kind == "letter" else of_postcards
    required = {"file", "color"} if kind == "letter" else {"front", "back"}
    missing = (required | {"to", "from", "use_type"}) - letter.keys()
    return sorted(missing) + [name for name, value in letter.items() if not allowed.get(name, lambda _: False)(value)]


def _is_address(of: dict[str, str]) -> bool:
    home = re.fullmatch("[A-Z]{2}", of.get("address_state", "")) and re.fullmatch(
        r"\d{5}(-?\d{4})?", of.get("address_zip", "")
    )
    named = (of.get("name") or of.get("company")) and of.get("address_line1") and of.get("address_city")
    return bool(named and home) and all(len(value) <= ADDRESS.get(name, 0) for name, value in of.items())


class Lob(VendorServer):
    """POST and GET /v1/letters; takes a repeat with the same Idempotency-Key once."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[dict[str, Any]] = []
        self._by_key: dict[str, dict[str, Any]] = {}

    def answer(self, called: Called) -> Answer:
        if called.login != (KEY, ""):
            return self.wrong(401, "unauthorized", "Your API key is not valid.")
        if called.path not in ("/v1/letters", "/v1/postcards"):
            return self.wrong(404, "not_found", "There is no such thing")
        if called.method == "GET":
            return self._list(called)
        key = called.headers.get("idempotency-key", "")
        if key in self._by_key:
            return Answer(200, self._by_key[key])
        assert called.headers["content-type"] == "application/json"
        content = json.loads(called.body)
        kind, prefix = ("letter", "ltr") if called.path == "/v1/letters" else ("postcard", "psc")
        if faults := _faults(content, kind):
            return self.wrong(422, "invalid", "; ".join(faults))
        if content["to"].get("address_line1") == "1 Nowhere":
            return self.wrong(422, "failed_deliverability_strictness", "to address is undeliverable")
        at = "2026-11-01T00:00:00.000Z"
        own = {"id": f"{prefix}_{len(self.letters):016x}", "object": kind, "url": "https://x"}
        own |= {"return_envelope": False} if kind == "letter" else {}
        letter = content | own | {"date_created": at, "date_modified": at}
        letter |= {side: _address(content[side]) for side in ("to", "from")}
        self.letters.append(letter)
        self._by_key |= {key: letter} if key else {}
        self.books[content.get("metadata", {}).get("reference", "")] += 1
        return Answer(200, letter)

    def _list(self, called: Called) -> Answer:
        wanted = {name[9:-1]: values[0] for name, values in called.query.items() if name.startswith("metadata[")}
        found = [one for one in self.letters if wanted.items() <= one.get("metadata", {}).items()]
        return Answer(200, {"data": found, "object": "list", "count": len(found)})

    def wrong(self, status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> Answer:
        content = {"error": {"message": text, "status_code": status, "code": code}}
        return Answer(status, content, headers or {})


def _address(given: str | dict[str, Any]) -> dict[str, Any]:
    """As Lob gives an address back."""
    at = "2026-11-01T00:00:00.000Z"
    stored = {"name": "Us", "address_line1": "1 MAIN ST", "address_city": "AUSTIN", "address_state": "TX"}
    stored |= {"address_zip": "78701"} if isinstance(given, str) else given
    own = {"id": given if isinstance(given, str) else "adr_1234567890abcdef", "object": "address"}
    return {**stored, **own, "address_country": "UNITED STATES", "date_created": at, "date_modified": at}


SERVER_TOKEN = "a-server-token"


class Postmark(VendorServer):
    """POST /email/batch: an answer for each message, in their order."""

    members = frozenset(
        {"From", "To", "Cc", "Bcc", "Subject", "Tag", "HtmlBody", "TextBody", "ReplyTo", "Metadata", "Headers"}
        | {"TrackOpens", "TrackLinks", "Attachments", "MessageStream"}
    )
    inactive = "inactive@example.com"

    def answer(self, called: Called) -> Answer:
        if called.headers.get("x-postmark-server-token") != SERVER_TOKEN:
            return Answer(401, {"ErrorCode": 10, "Message": "Request does not contain a valid Server token."})
        if (called.method, called.path) != ("POST", "/email/batch"):
            return Answer(404)
        assert called.headers["content-type"] == called.headers["accept"] == "application/json"
        messages = json.loads(called.body)
        if not isinstance(messages, list) or len(messages) > 500:
            return Answer(422, {"ErrorCode": 410, "Message": "Too many batch messages."})
        return Answer(200, [self._one(message) for message in messages])

    def _one(self, message: dict[str, Any]) -> dict[str, Any]:
        assert message.keys() <= self.members, message.keys() - self.members
        assert all(isinstance(value, str) for value in message.get("Metadata", {}).values())
        for file in message.get("Attachments", []):
            assert {"Name", "Content", "ContentType"} <= file.keys() <= {"Name", "Content", "ContentType", "ContentID"}
            base64.b64decode(file["Content"], validate=True)
        for line in message.get("Headers", []):
            assert line.keys() == {"Name", "Value"}
        if "@" not in message["To"] or not (message.get("HtmlBody") or message.get("TextBody")):
            return {"ErrorCode": 300, "Message": "Invalid email request"}
        if "@unknown" in message["From"]:
            return {"ErrorCode": 400, "Message": "The 'From' address you supplied is not a Sender Signature"}
        if message["To"] == self.inactive:
            return {"ErrorCode": 406, "Message": "You tried to send to a recipient that has been marked as inactive."}
        self.books[message["Metadata"]["reference"]] += 1
        own = {"To": message["To"], "SubmittedAt": "2026-11-01T10:00:00Z", "MessageID": f"m-{sum(self.books.values())}"}
        return own | {"ErrorCode": 0, "Message": "OK"}


API_KEY, API_SECRET = "abcd1234", "an-api-secret"


class Vonage(VendorServer):
    """POST /sms/json: 200 to everything, and a status for each message."""

    members = frozenset(
        {"api_key", "api_secret", "from", "to", "text", "type", "client-ref", "ttl", "status-report-req", "callback"}
    )
    barred = "447700900007"

    def answer(self, called: Called) -> Answer:
        if (called.method, called.path) != ("POST", "/sms/json"):
            return Answer(404)
        fields = dict(parse_qsl(called.body.decode("ascii"), strict_parsing=True, keep_blank_values=True))
        assert fields.keys() <= self.members, fields.keys() - self.members
        assert len(fields.get("client-ref", "")) <= 100
        if (fields.get("api_key"), fields.get("api_secret")) != (API_KEY, API_SECRET):
            return self.status(4, "Bad Credentials")
        if not {"from", "to", "text"} <= fields.keys():
            return self.status(2, "Missing parameters")
        if not (fields["to"].isdigit() and 7 <= len(fields["to"]) <= 15):
            return self.status(3, "Invalid to")
        if fields["to"] == self.barred:
            return self.status(7, "Number barred")
        assert fields.get("type", "text") in ("text", "unicode")
        self.texts.append(fields["text"] if fields.get("type") == "unicode" else _as_gsm(fields["text"]))
        self.books[fields["client-ref"]] += 1
        message = {"to": fields["to"], "message-id": f"0A{len(self.calls):014X}", "status": "0", "network": "23410"}
        return Answer(200, {"message-count": "1", "messages": [message]})

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def status(self, number: int, text: str) -> Answer:
        return Answer(200, {"message-count": "1", "messages": [{"status": str(number), "error-text": text}]})


def _as_gsm(text: str) -> str:
    """What arrives of a text that is sent as GSM: other characters are lost."""
    return "".join(one if one.isascii() or one in "äöüÄÖÜß€éàè" else "?" for one in text)


POSTGRID_KEY = "test_grid"
CONTACT = {"firstName", "lastName", "companyName", "addressLine1", "addressLine2", "city", "provinceOrState"} | {
    *("postalOrZip", "countryCode", "email", "phoneNumber", "jobTitle", "description", "metadata"),
    *("skipVerification", "forceVerifiedStatus"),
}


class PostGrid(VendorServer):
    """POST /print-mail/v1/letters, with the members that PostGrid's own client has."""

    members = frozenset(
        {"to", "from", "html", "description", "metadata", "sendDate", "mailingClass", "mergeVariables", "doubleSided"}
        | {"perforatedPage", "returnEnvelope", "attachedPDF", "plasticCard", "color", "addressPlacement", "envelope"}
        | {"size"}
    )

    def answer(self, called: Called) -> Answer:
        if called.headers.get("x-api-key") != POSTGRID_KEY:
            return self.wrong(401, "invalid_api_key_error")
        if (called.method, called.path) != ("POST", "/print-mail/v1/letters"):
            return self.wrong(404, "not_found_error")
        letter = json.loads(called.body)
        to = letter.get("to", {})
        unknown = (letter.keys() - self.members) | (to.keys() - CONTACT)
        named = to.get("firstName") or to.get("companyName")
        if unknown or not (named and to.get("addressLine1") and len(to.get("countryCode", "")) == 2):
            return self.wrong(400, "validation_error")
        if not {"from", "html"} <= letter.keys() or not all(letter[one] in (True, False) for one in ("color",)):
            return self.wrong(400, "validation_error")
        if letter["size"] == "a4" and to["countryCode"] == "US":
            return self.wrong(422, "unprocessable_error")
        self.books[letter["metadata"]["reference"]] += 1
        own = {"id": f"letter_{len(self.calls)}", "object": "letter", "status": "ready", "live": False}
        return Answer(201, letter | own)

    def wrong(self, status: int, kind: str) -> Answer:
        return Answer(status, {"object": "error", "error": {"type": kind, "message": "No."}})


MAILGUN_KEY, DOMAIN = "key-mailgun", "mail.example.com"


@dataclass
class MailgunMail:
    """What one recipient gets."""

    to: str
    fields: dict[str, str]
    files: list[tuple[str, str, str, bytes]]
    """The field, file name, media type and content of each."""


class Mailgun(VendorServer):
    """POST /v3/DOMAIN/messages: one form for up to 1,000 recipients, whose variables are filled in; one id for all."""

    members = frozenset({"from", "to", "cc", "bcc", "subject", "text", "html", "attachment", "inline"})
    no_address = {"message": "'to' parameter is not a valid address. please check documentation"}

    def __init__(self) -> None:
        super().__init__()
        self.mails: list[MailgunMail] = []

    def answer(self, called: Called) -> Answer:
        if called.login != ("api", MAILGUN_KEY):
            return Answer(401, "Forbidden")
        if (called.method, called.path) != ("POST", f"/v3/{DOMAIN}/messages"):
            return Answer(404, {"message": "Domain not found: other.example.com"})
        if len(called.body) > 25_000_000:
            return Answer(413, {"message": "Request Entity Too Large"})
        fields, files = _form_parts(called)
        to = [value for name, value in fields if name == "to"]
        once = dict(fields)
        assert len(once) == len(fields) - max(len(to) - 1, 0), "a field that is no list twice"
        unknown = {name for name in once if not re.match("[hov]:", name)} - self.members - {"recipient-variables"}
        assert not unknown, unknown
        assert 1 <= len(to) <= 1000
        variables = json.loads(once.pop("recipient-variables", "{}"))
        assert len(to) == 1 or variables.keys() == set(to), "all would see each other"
        if not all(re.fullmatch(r"[^@\s]+@[a-z0-9-]+(\.[a-z0-9-]+)+", one) for one in to):
            return Answer(400, self.no_address)
        if "from" not in once:
            return Answer(400, {"message": "from parameter is missing"})
        if not (once.get("text") or once.get("html")):
            return Answer(400, {"message": "Need at least one of 'text', 'html', 'amp-html' or 'template' parameters"})
        for one in to:
            own = variables.get(one, {})
            filled = {
                name: re.sub(r"%recipient\.([^%]+)%", lambda found, own=own: own.get(found[1], ""), value)
                for name, value in once.items()
                if name != "to"
            }
            self.books[filled["v:reference"]] += 1
            self.mails.append(MailgunMail(one, filled, files))
        return Answer(200, {"id": f"<2026.{len(self.calls)}@{DOMAIN}>", "message": "Queued. Thank you."})


def _form_parts(called: Called) -> tuple[list[tuple[str, str]], list[tuple[str, str, str, bytes]]]:
    """The fields and files of multipart/form-data, read by Python's parser of mails."""
    head = f"Content-Type: {called.headers['content-type']}\r\n\r\n".encode()
    whole = email.message_from_bytes(head + called.body, policy=email.policy.HTTP)
    assert whole.get_content_type() == "multipart/form-data" and not whole.defects
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, str, str, bytes]] = []
    for part in whole.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if part.get_filename() is None:
            fields.append((name, content.decode()))
        else:
            files.append((name, part.get_filename(), part.get_content_type(), content))
    return fields, files
