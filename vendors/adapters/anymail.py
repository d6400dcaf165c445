"""The adapter `anymail`: e-mail services over their HTTP APIs, through django-anymail.

django-anymail builds the request and reads the answer, but our own client makes the call. So written and answered bytes
are known as exactly as with any other vendor (docs/decisions/0024-anymail-writes-our-client-calls.md).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from vendors.adapters import anymail_answers, anymail_mails, anymail_reports, building, options
from vendors.adapters.anymail_services import (
    NO_IMAGES,
    NO_METADATA,
    NO_REPORTS,
    SERVICES,
    UNWRITABLE,
    WANTED,
    RequestsWriter,
    ServiceRequest,
    Unwritable,
    Writer,
    check_header_secret,
    check_more,
)
from vendors.adapters.anymail_ses import SesWriter, judge_throttled
from vendors.adapters.base import PARTS, WIND_UP, Adapter, Capabilities, Letter
from vendors.adapters.http import parse_statuses, url
from vendors.adapters.http_client import Client, Response, header
from vendors.adapters.letter_faults import LetterFault, LetterPart, refuse_letter
from vendors.adapters.options import InvalidSettings, Option
from vendors.adapters.reports import Reported, ReportRequest, ReportSource
from vendors.adapters.segments import cost_by_size
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
from vendors.said import Said

BUILD_SECONDS = 60.0  # to build a request, including the wait for its turn; nothing has been sent by then
WRITERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, str]], Writer]] = {"amazon_ses": SesWriter}
_LATE = NotSent("the request was not made in time", retry_after=5.0)
"""It puts off this mail alone: a busy machine says nothing of the service. The next call finds the request made."""
_ELSEWHERE = frozenset({"host", "content-length", "connection", "accept-encoding", "transfer-encoding"})


def more_settings(value: Any) -> dict[str, Any]:
    """Parse NAME:VALUE pairs, separated by commas. Raises ValueError."""
    if isinstance(value, dict):
        return value
    pairs = [one.partition(":") for one in str(value).split(",") if one.strip()]
    if not all(colon for _, colon, _ in pairs):
        raise ValueError(Said("must be NAME:VALUE, separated by commas, as sender_domain:mg.example.com"))
    return {name.strip(): text.strip() for name, _, text in pairs}


class Anymail(Adapter):
    """An e-mail service, called once for each mail.

    `service`: one of SERVICES; `more`: its other settings, named as in django-anymail but in lower case. `reference`:
    carries our reference as metadata, as a tag, or with `none` not at all; then reports name the service's own id. The
    reference is also sent as Idempotency-Key; `dedupe` says that the service's contract honours it.
    """

    needs_origin = True
    options = {
        "service": Option(
            options.choice(*SERVICES),
            required=True,
            destination=True,
            about="`amazon_ses` (needs requirements-extras.txt), `brevo`, `mailersend`, `mailgun`, `mailjet`, "
            "`mailtrap`, `mandrill`, `postal`, `postmark`, `resend`, `scaleway`, `sendgrid`, `sparkpost` or "
            "`unisender_go`",
        ),
        "url": Option(url, "", destination=True, about="Its API, if not django-anymail's default"),
        "more": Option(
            more_settings,
            {},
            destination=True,
            about="Comma-separated `NAME:VALUE`: `region` and `configuration_set_name` (Amazon SES), "
            "`sender_domain` (Mailgun), `sandbox_id` (Mailtrap), `message_stream` (Postmark), `project_id` "
            "and `region` (Scaleway), `subaccount` (SparkPost)",
        ),
        "reference": Option(
            options.choice("metadata", "tag", "none"),
            "metadata",
            about="Carrier of our reference: `metadata`, `tag`, or `none` (reports carry only the service's id)",
        ),
        "timeout": Option(options.seconds, 30.0, tuning=True, about="Seconds until an unanswered call is in doubt"),
        "concurrency": Option(options.whole(1, 1000), 16, tuning=True, about="Concurrent calls of a sender"),
        "dedupe": Option(options.flag, False, tuning=True, about="The service accepts each `Idempotency-Key` once"),
        "dedupe_ttl": Option(options.seconds, 86400.0, tuning=True, about="Seconds for which it remembers keys"),
        "receipts": Option(options.flag, True, tuning=True, about="It reports results later"),
        "safe_statuses": Option(
            parse_statuses, (), tuning=True, about='Comma-separated 5xx statuses that by contract mean "not accepted"'
        ),
        "unit_kb": Option(
            options.whole(0, 1_000_000),
            0,
            tuning=True,
            about="Kilobytes a [unit](../how-to/costs.md), begun ones included, of texts and files; 0: one unit a mail",
        ),
        "ca_file": Option(
            options.certificates,
            "",
            destination=True,
            about="File with the authorities of its certificate, instead of the system's",
        ),
    }

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        known = self.validate(settings)
        check_header_secret(known["service"], secret)
        self._writer: Writer = WRITERS.get(known["service"], RequestsWriter)(known, secret)
        self._url = self._writer.url
        self._hidden = [value.encode() for value in secret.values() if len(value) > 5]
        parts = urlsplit(self._url)
        if parts.scheme == "http" and not options.is_this_machine(parts.hostname or ""):
            raise InvalidSettings(
                [Said("a secret goes over https alone: http is for this machine, not %(url)s", url=self._url)]
            )
        self._builds = building.Builds(self._build_request)
        self._service: str = known["service"]
        self._reference: str = known["reference"]
        self._ca_file: str = known["ca_file"]
        self._safe: tuple[int, ...] = known["safe_statuses"]
        self._timeout: float = known["timeout"]
        self.deadline = BUILD_SECONDS + self._timeout + WIND_UP
        self.concurrency = known["concurrency"]
        dedupe = known["dedupe"]
        ttl, cost = known["dedupe_ttl"] if dedupe else None, cost_by_size(known["unit_kb"])
        self.capabilities = Capabilities(dedupe=dedupe, dedupe_ttl=ttl, cost=cost)

    @classmethod
    def asks_secret(cls, settings: Mapping[str, Any]) -> Sequence[str]:
        return WANTED.get(str(settings.get("service")), ("api_key",))

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = super().validate(settings)
        service = known["service"]
        check_more(service, known["more"])
        if known["reference"] == "metadata" and service in NO_METADATA:
            raise InvalidSettings([Said("reference must be tag or none: %(service)s has no metadata", service=service)])
        return known

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(PARTS)

    @classmethod
    def shows_images(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("service") not in NO_IMAGES

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        return options.flag(settings.get("receipts", True)) and settings.get("service") not in NO_REPORTS

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("reference") == "none"

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> list[Reported]:
        service = source.settings.get("service")  # other settings, such as ca_file, may be valid on a worker only
        return anymail_reports.read_events(str(service), request, source.secrets)

    async def open(self) -> None:
        self._client = Client(self._url, connections=self.concurrency, deadline=self._timeout, ca_file=self._ca_file)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        return [await self._post_letter(letter) for letter in letters]

    async def _post_letter(self, letter: Letter) -> Outcome:
        try:
            built = await self._builds.build_letter(letter, BUILD_SECONDS)
        except _Unsendable as error:
            return error.outcome
        except TimeoutError:
            return _LATE
        message, written, *request = built
        try:
            answer = await self._client.call(*request)
        except CallError as error:
            return classify_error(error, now=time.time(), safe_statuses=self._safe)
        return self._classify_answer(answer, written, message)

    def _build_request(self, letter: Letter) -> tuple[Any, ServiceRequest, bytes, bytes, bytes]:
        """Return the mail, the service's request, and the call's head, headers and body. Raises _Unsendable."""
        from anymail.exceptions import AnymailConfigurationError, AnymailError, AnymailUnsupportedFeature

        try:
            message = anymail_mails.make_mail(letter, self._reference)
            written = self._writer.write_request(message)
        except AnymailConfigurationError as error:  # concerns every letter
            raise _Unsendable(
                NotSent(anymail_answers.mask_addresses(str(error)), scope="credential", pause=True)
            ) from None
        except Unwritable as error:
            raise _Unsendable(NotSent(str(error), scope="credential", pause=True)) from None
        except AnymailUnsupportedFeature as error:
            raise _Unsendable(Refused("unsupported", anymail_answers.mask_addresses(str(error)))) from None
        except LetterFault as error:
            raise _Unsendable(refuse_letter(error)) from None
        except (AnymailError, ValueError, TypeError) as error:
            raise _Unsendable(refuse_letter(anymail_answers.mask_addresses(str(error)))) from None
        try:
            return message, written, *self._build_head(written, letter.reference)
        except UnicodeError:  # caused by the letter's text: the secret is ASCII
            raise _Unsendable(refuse_letter("it cannot be encoded", LetterPart.CHARACTER)) from None
        except ValueError:  # its text may show the secret
            raise _Unsendable(NotSent(UNWRITABLE, scope="credential", pause=True)) from None

    def _build_head(self, written: ServiceRequest, reference: str) -> tuple[bytes, bytes, bytes]:
        """Return head, headers and body."""
        lines = [
            header(name, _as_text(value)) for name, value in written.headers.items() if name.lower() not in _ELSEWHERE
        ]
        lines += [header("Accept-Encoding", "identity"), header("Idempotency-Key", reference)]
        body = written.body.encode() if isinstance(written.body, str) else written.body
        target = urlsplit(written.url)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        return self._client.head(written.method, path), b"".join(lines), body

    def _classify_answer(self, answer: Response, written: ServiceRequest, message: Any) -> Outcome:
        status, headers = answer.status, answer.headers
        if status >= 300:  # answers are shown, and some services echo a wrong key
            answer = answer._replace(body=functools.reduce(_mask_value, self._hidden, answer.body))
        if 200 <= status < 300 or status == 422:
            found = self._judge_recipient(answer, written, message)
            if found is not None:
                return found
            if status < 300:
                return InDoubt(f"http {status}, and an answer that cannot be understood", answered=True)
        if self._service == "amazon_ses" and (waits := judge_throttled(status, headers, answer.body, time.time())):
            return waits
        dedupe = self.capabilities.dedupe
        found = classify_http(status, headers, answer.body, now=time.time(), safe_statuses=self._safe, dedupe=dedupe)
        return (
            anymail_answers.judge_refused_request(self._service, answer, found) if isinstance(found, Refused) else found
        )

    def _judge_recipient(self, answer: Response, written: ServiceRequest, message: Any) -> Outcome | None:
        """Return the outcome the service gives for the one recipient; None if django-anymail finds none."""
        if answer.body and not anymail_answers.is_json(answer.body):
            return None
        if self._service == "sendgrid" and not (answer.status == 202 and answer.headers.get("x-message-id")):
            return None  # SendGrid's answers have no body, and a proxy's may have none either
        try:
            said = self._writer.read_answer(answer, written, message)
        except Exception:  # an answer may contain anything
            return None
        if said.status in ("sent", "queued"):
            name = sane(said.message_id)
            return Accepted(name) if name and answer.status < 300 else None
        # django-anymail also says "failed" for answers without meaning
        if said.status in ("rejected", "invalid"):
            return anymail_answers.judge_rejected(self._service, said.status, answer)
        return None


class _Unsendable(Exception):
    """Nothing was sent. `outcome`: the letter's outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _mask_value(body: bytes, value: bytes) -> bytes:
    return body.replace(value, b"***")


def _as_text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
