"""The adapter `anymail`: e-mail services over their HTTP APIs, by django-anymail.

django-anymail makes the request and reads the answer; our own client makes the call, so what was written and what was
answered is known as exactly as of any other vendor (docs/decisions/0024-anymail-writes-our-client-calls.md).
"""

from __future__ import annotations

import asyncio
import importlib
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
from requests.structures import CaseInsensitiveDict

from vendors.adapters import anymail_mails, anymail_reports
from vendors.adapters import base as options
from vendors.adapters.base import PARTS, WIND_UP, Adapter, Capabilities, InvalidSettings, Letter, Option
from vendors.adapters.http import statuses, url
from vendors.adapters.http_client import Client, Response, header
from vendors.adapters.reports import Reported, ReportRequest, ReportSource
from vendors.outcomes import (
    TEXT_MAX,
    Accepted,
    CallError,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    classify_error,
    classify_http,
    is_about_us,
    sane,
)

SERVICES = (
    "brevo",
    "mailersend",
    "mailgun",
    "mailjet",
    "mailtrap",
    "mandrill",
    "postal",
    "postmark",
    "resend",
    "scaleway",
    "sendgrid",
    "sparkpost",
    "unisender_go",
)
SECRETS = ("api_key", "api_token", "secret_key", "server_token")
"""What a credential may hold, as django-anymail names it."""
BUILD_SECONDS = WIND_UP / 2  # until a request is made; before that nothing has left
_ELSEWHERE = frozenset({"host", "content-length", "connection", "accept-encoding", "transfer-encoding"})
_UNPROVED = {"sendgrid": (200, 201, 204)}  # its 202 has no body; another status is of something before it
# Refusals whose text speaks of the recipient, and of those that do not: of our sender, account or quota.
_OF_RECIPIENT = re.compile(
    r"\bto\b['\"`]? (parameter|field|address)|recipient|['\"`]to['\"`]|to\.\d|inactive", re.IGNORECASE
)
_OF_US = re.compile(
    r"['\"`]?\b(from|sender)\b['\"`]?|not (been )?(verified|confirmed|authori[sz]ed|allowed)|unverified|suspended"
    r"|\bcredits?\b|\baccount\b|\bplan\b|\bquota\b",
    re.IGNORECASE,
)


def more_settings(value: Any) -> dict[str, str]:
    """NAME:VALUE, separated by commas."""
    if isinstance(value, dict):
        return value
    pairs = [one.partition(":") for one in str(value).split(",") if one.strip()]
    if not all(colon and re.fullmatch(r"[a-z_]+", name.strip()) for name, colon, _ in pairs):
        raise ValueError(
            "must be NAME:VALUE, separated by commas; names in lower case, as sender_domain:mg.example.com"
        )
    return {name.strip(): text.strip() for name, _, text in pairs}


class Anymail(Adapter):
    """One call a mail. `service`: of SERVICES; `more`: its other settings, as django-anymail names them in lower case.

    `reference`: how our reference travels: as metadata, as a tag, or, none, not at all; then reports name the service's
    own id. It is sent as Idempotency-Key, too; `dedupe` says that the service's contract honours that.
    """

    needs_origin = True
    options = {
        "service": Option(options.choice(*SERVICES), required=True, destination=True),
        "url": Option(url, "", destination=True),
        "more": Option(more_settings, {}, destination=True),
        "reference": Option(options.choice("metadata", "tag", "none"), "metadata"),
        "timeout": Option(options.seconds, 30.0),
        "concurrency": Option(options.whole(1, 1000), 16),
        "dedupe": Option(options.flag, False),
        "dedupe_ttl": Option(options.seconds, 86400.0),
        "receipts": Option(options.flag, True),
        "safe_statuses": Option(statuses, ()),
        "ca_file": Option(options.certificates, "", destination=True),
    }

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        known = self.validate(settings)
        if strange := sorted(set(secret) - set(SECRETS)):
            raise InvalidSettings([f"the secret has {', '.join(strange)}; it may have {', '.join(SECRETS)}"])
        self._backend = _backend(known, secret)
        self._url = self._backend.api_url
        parts = urlsplit(self._url)
        if parts.scheme == "http" and not options.is_this_machine(parts.hostname or ""):
            raise InvalidSettings([f"a secret goes over https alone: http is for this machine, not {self._url}"])
        self._service: str = known["service"]
        self._reference: str = known["reference"]
        self._ca_file: str = known["ca_file"]
        self._safe: tuple[int, ...] = known["safe_statuses"]
        self._timeout: float = known["timeout"]
        self.deadline = BUILD_SECONDS + self._timeout + WIND_UP
        self.concurrency = known["concurrency"]
        dedupe = known["dedupe"]
        self.capabilities = Capabilities(dedupe=dedupe, dedupe_ttl=known["dedupe_ttl"] if dedupe else None)

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(PARTS)

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        return options.flag(settings.get("receipts", True))

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("reference") == "none"

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> list[Reported]:
        return anymail_reports.read(cls.validate(source.settings)["service"], request, source.secrets)

    async def open(self) -> None:
        self._client = Client(self._url, connections=self.concurrency, deadline=self._timeout, ca_file=self._ca_file)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        return [await self._post(letter) for letter in letters]

    async def _post(self, letter: Letter) -> Outcome:
        began = time.monotonic()
        try:
            built = await asyncio.to_thread(self._build, letter)
        except _Unsendable as error:
            return error.outcome
        if time.monotonic() - began > BUILD_SECONDS:
            return NotSent("the request was not made in time")
        payload, message, head, headers, body = built
        try:
            answer = await self._client.call(head, headers, body)
        except CallError as error:
            return classify_error(error, now=time.time(), safe_statuses=self._safe)
        return self._classify(answer, payload, message)

    def _build(self, letter: Letter) -> tuple[Any, Any, bytes, bytes, bytes]:
        """The payload, the mail, and the request. Raises _Unsendable."""
        from anymail.exceptions import AnymailConfigurationError, AnymailError, AnymailUnsupportedFeature

        try:
            message = anymail_mails.mail(letter, self._reference)
            payload = self._backend.build_message_payload(message, self._backend.send_defaults)
            asked = payload.get_request_params(self._url)
            if urlsplit(asked["url"])[:2] != urlsplit(self._url)[:2]:
                raise _Unsendable(NotSent("the service wants another address", scope="credential", pause=True))
            request = requests.Request(**asked).prepare()
            lines = [
                header(name, _text(value)) for name, value in request.headers.items() if name.lower() not in _ELSEWHERE
            ]
            lines += [header("Accept-Encoding", "identity"), header("Idempotency-Key", letter.reference)]
            body: Any = request.body or b""
            body = body.encode() if isinstance(body, str) else body
            return payload, message, self._client.head(str(request.method), request.path_url), b"".join(lines), body
        except (AnymailConfigurationError, AnymailUnsupportedFeature) as error:  # of each letter alike
            raise _Unsendable(NotSent(_short(error), scope="credential", pause=True)) from None
        except (AnymailError, requests.RequestException, ValueError, TypeError) as error:
            raise _Unsendable(Refused("unsendable", _short(error))) from None

    def _classify(self, answer: Response, payload: Any, message: Any) -> Outcome:
        status, headers = answer.status, answer.headers
        if 200 <= status < 300 or status == 422:
            found = self._of_recipient(answer, payload, message)
            if found is not None:
                return found
            if status < 300:
                return InDoubt(f"http {status}, and an answer that cannot be understood")
        dedupe = self.capabilities.dedupe
        found = classify_http(status, headers, answer.body, now=time.time(), safe_statuses=self._safe, dedupe=dedupe)
        return _refusal(status, answer.body, found) if isinstance(found, Refused) else found

    def _of_recipient(self, answer: Response, payload: Any, message: Any) -> Outcome | None:
        """What the service says of the one recipient; None: nothing that django-anymail understands."""
        if (answer.body and not _is_json(answer.body)) or answer.status in _UNPROVED.get(self._service, ()):
            return None
        response = requests.Response()
        response.status_code, response._content = answer.status, answer.body
        response.headers, response.url = CaseInsensitiveDict(answer.headers), self._url
        try:
            self._backend.raise_for_status(response, payload, message)
            (said,) = self._backend.parse_recipient_status(response, payload, message).values()
        except Exception:  # whatever an answer has in it
            return None
        if said.status in ("sent", "queued"):
            name = sane(said.message_id)
            return Accepted(name) if name and answer.status < 300 else None
        if said.status in ("rejected", "invalid", "failed"):
            return Refused(said.status, _reason(answer.body)[1])
        return None


class _Unsendable(Exception):
    """Nothing has left. outcome: what the letter comes to."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _backend(known: Mapping[str, Any], secret: Mapping[str, str]) -> Any:
    """django-anymail's backend of the service. Raises InvalidSettings, which never shows a secret."""
    from anymail.exceptions import AnymailConfigurationError

    given = dict(known["more"]) | dict(secret) | ({"api_url": known["url"]} if known["url"] else {})
    if forbidden := sorted(set(known["more"]) & {"api_url", "debug_api_requests", *SECRETS}):
        raise InvalidSettings([f"more must not have {', '.join(forbidden)}"])
    module = importlib.import_module(f"anymail.backends.{known['service']}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SendGrid: "dropped official support"
            backend = module.EmailBackend(**given)
    except AnymailConfigurationError as error:
        wanted = re.findall(r"ANYMAIL_([A-Z_]+)", str(error))
        name = wanted[0].removeprefix(f"{known['service'].upper()}_").lower() if wanted else "a setting"
        where = "the secret" if name in SECRETS else "more"
        raise InvalidSettings([f"{where} must have {name}, for {known['service']}"]) from None
    if strange := [name for name in known["more"] if not hasattr(backend, name) and name != "region"]:
        raise InvalidSettings([f"more: {known['service']} has no setting {', '.join(strange)}"])
    return backend


def _refusal(status: int, body: bytes, found: Refused) -> Outcome:
    """A refused request: of this letter, or of all that we send; then it pauses. found: by the table of all vendors."""
    code, text = _reason(body)
    if not _OF_RECIPIENT.search(text) and (_OF_US.search(text) or is_about_us("", text)):
        return NotSent(f"http {status}: {text}"[:TEXT_MAX], scope="credential", pause=True)
    return Refused(code or found.code, text or found.sub_type)


def _reason(body: bytes) -> tuple[str, str]:
    """The code and the text of an answer, wherever services have them, or empty."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", ""
    said = said[0] if isinstance(said, list) and said else said
    said = said if isinstance(said, dict) else {}
    errors = said.get("errors")
    inner = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    codes = (said.get(name) for name in ("ErrorCode", "code", "name", "statusCode"))
    texts = (*(said.get(name) for name in ("Message", "message", "error")), inner.get("message"))
    code = next((str(one) for one in codes if isinstance(one, str | int)), "")
    text = next((one for one in texts if isinstance(one, str)), "")
    return _printable(code)[:50], _printable(text)[:TEXT_MAX]


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:  # also NaN and a wrong charset
        return False
    return True


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text).strip()


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _short(error: Exception) -> str:
    return _printable(str(error))[:TEXT_MAX]
