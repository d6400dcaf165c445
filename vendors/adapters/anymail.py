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
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.structures import CaseInsensitiveDict

from vendors.adapters import anymail_answers, anymail_mails, anymail_reports
from vendors.adapters import base as options
from vendors.adapters.base import PARTS, WIND_UP, Adapter, Capabilities, InvalidSettings, Letter, Option
from vendors.adapters.http import statuses, url
from vendors.adapters.http_client import Client, Response, header
from vendors.adapters.reports import Reported, ReportRequest, ReportSource
from vendors.outcomes import (
    Accepted,
    CallError,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    classify_error,
    classify_http,
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
MORE = {
    "mailgun": ("sender_domain",),
    "mailtrap": ("sandbox_id",),
    "postmark": ("message_stream",),
    "scaleway": ("project_id", "region"),
    "sparkpost": ("subaccount",),
}
"""What `more` may have for a service. Nothing else: django-anymail has settings that name code, or leave parts out."""
_NO_METADATA = ("mailersend", "postal")
_NO_REPORTS = ("scaleway",)  # none that django-anymail reads
_MORE_VALUE = re.compile(r"[A-Za-z0-9._-]{1,100}")
BUILD_SECONDS = 10.0  # until a request is made; before that nothing has left. One with 20 MB of files takes a second
_LATE = "the request was not made in time"
# Threads that make requests: few, as they share the processor, in turn. Mails with files do not keep others waiting.
_builders, _builders_of_files = ThreadPoolExecutor(2, "mails"), ThreadPoolExecutor(2, "mails-with-files")
_ELSEWHERE = frozenset({"host", "content-length", "connection", "accept-encoding", "transfer-encoding"})


def more_settings(value: Any) -> dict[str, Any]:
    """NAME:VALUE, separated by commas."""
    if isinstance(value, dict):
        return value
    pairs = [one.partition(":") for one in str(value).split(",") if one.strip()]
    if not all(colon for _, colon, _ in pairs):
        raise ValueError("must be NAME:VALUE, separated by commas, as sender_domain:mg.example.com")
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
        _check_secret(secret)
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
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = super().validate(settings)
        service = known["service"]
        if strange := [name for name in known["more"] if name not in MORE.get(service, ())]:
            may = ", ".join(MORE.get(service, ())) or "none"
            raise InvalidSettings([f"more: {service} has no setting {', '.join(strange)}; it has {may}"])
        for name, text in known["more"].items():
            if not (isinstance(text, str) and _MORE_VALUE.fullmatch(text)):
                raise InvalidSettings([f"more: {name} must be a text of letters, digits, dots and hyphens"])
        if known["reference"] == "metadata" and service in _NO_METADATA:
            raise InvalidSettings([f"reference must be tag or none: {service} has no metadata"])
        return known

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(PARTS)

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        return options.flag(settings.get("receipts", True)) and settings.get("service") not in _NO_REPORTS

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("reference") == "none"

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> list[Reported]:
        service = source.settings.get("service")  # the rest may be of use to a worker alone, as ca_file
        return anymail_reports.read(str(service), request, source.secrets)

    async def open(self) -> None:
        self._client = Client(self._url, connections=self.concurrency, deadline=self._timeout, ca_file=self._ca_file)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        return [await self._post(letter) for letter in letters]

    def is_good(self, outcome: Outcome) -> bool | None:
        return None if outcome == NotSent(_LATE) else super().is_good(outcome)

    async def _post(self, letter: Letter) -> Outcome:
        builders = _builders_of_files if letter.attachments else _builders
        try:
            async with asyncio.timeout(BUILD_SECONDS):  # after which it leaves the queue: those before it go out
                built = await asyncio.get_running_loop().run_in_executor(builders, self._build, letter)
        except _Unsendable as error:
            return error.outcome
        except TimeoutError:
            return NotSent(_LATE)
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
        except AnymailConfigurationError as error:  # of each letter alike
            raise _Unsendable(NotSent(anymail_answers.shown(str(error)), scope="credential", pause=True)) from None
        except AnymailUnsupportedFeature as error:
            raise _Unsendable(Refused("unsupported", anymail_answers.shown(str(error)))) from None
        except (AnymailError, ValueError, TypeError) as error:
            raise _Unsendable(Refused("unsendable", anymail_answers.shown(str(error)))) from None
        if urlsplit(asked["url"])[:2] != urlsplit(self._url)[:2]:
            raise _Unsendable(NotSent("the service wants another address", scope="credential", pause=True))
        try:
            return payload, message, *self._request(asked, letter.reference)
        except UnicodeError:  # a text of the letter, as the secret is ASCII
            raise _Unsendable(Refused("unsendable", "it cannot be encoded")) from None
        except (requests.RequestException, ValueError):  # its text may show the secret
            said = "no request could be made with this secret and these settings"
            raise _Unsendable(NotSent(said, scope="credential", pause=True)) from None

    def _request(self, asked: Mapping[str, Any], reference: str) -> tuple[bytes, bytes, bytes]:
        """The head, the headers and the body."""
        request = requests.Request(**asked).prepare()
        lines = [
            header(name, _text(value)) for name, value in request.headers.items() if name.lower() not in _ELSEWHERE
        ]
        lines += [header("Accept-Encoding", "identity"), header("Idempotency-Key", reference)]
        body: Any = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        return self._client.head(str(request.method), request.path_url), b"".join(lines), body

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
        return (
            anymail_answers.refusal(self._service, status, answer.body, found) if isinstance(found, Refused) else found
        )

    def _of_recipient(self, answer: Response, payload: Any, message: Any) -> Outcome | None:
        """What the service says of the one recipient; None: nothing that django-anymail understands."""
        if answer.body and not anymail_answers.is_json(answer.body):
            return None
        if self._service == "sendgrid" and not (answer.status == 202 and answer.headers.get("x-message-id")):
            return None  # its answer has no body, as that of something before it may be
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
        if said.status in (
            "rejected",
            "invalid",
        ):  # "failed" may be django-anymail's word for an answer that says nothing
            return Refused(said.status, anymail_answers.reason(answer.body)[1])
        return None


class _Unsendable(Exception):
    """Nothing has left. outcome: what the letter comes to."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _check_secret(secret: Mapping[str, str]) -> None:
    """Raises InvalidSettings, which never shows a secret, for what no header could carry as it is."""
    if strange := sorted(set(secret) - set(SECRETS)):
        raise InvalidSettings([f"the secret has {', '.join(strange)}; it may have {', '.join(SECRETS)}"])
    for name, text in secret.items():
        if not (isinstance(text, str) and re.fullmatch(r"[!-~]([ -~]*[!-~])?", text)):
            raise InvalidSettings([f"the secret's {name} must be one line of ASCII, without a blank at either end"])


def _backend(known: Mapping[str, Any], secret: Mapping[str, str]) -> Any:
    """django-anymail's backend of the service. Raises InvalidSettings, which never shows a secret."""
    from anymail.exceptions import AnymailConfigurationError

    given = dict(known["more"]) | dict(secret) | ({"api_url": known["url"]} if known["url"] else {})
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
    except (LookupError, AttributeError, ValueError):  # Scaleway's address may have {region}
        raise InvalidSettings([f"url cannot be used for {known['service']}"]) from None
    return backend


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
