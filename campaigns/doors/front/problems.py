"""All errors of the API as problem details (RFC 9457), each with a stable type."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import django.db
import orjson
import psycopg
from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from campaigns.senders.quotas.book import QuotaRefusal
from campaigns.texts.apart import ProcessLost
from vendors import alarms, health, outages
from vendors.not_now import find_refusal_text

log = logging.getLogger(__name__)

MIME = "application/problem+json"
API = "/api/"
REPORTS = (f"{API}v1/receipts/", f"{API}v1/inbound/")  # from vendors, who may report by GET
# type -> HTTP status and title
TYPES: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "idempotency-key-missing": (400, "A request that sends needs an Idempotency-Key"),
    "unauthorized": (401, "There is no valid API key"),
    "not-the-vendor": (401, "The signature is not this vendor's"),
    "forbidden": (403, "The API key does not allow this"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "The method is not allowed here"),
    "quota-too-small": (403, "A quota of the sponsor is smaller than this"),
    "idempotency-key-in-use": (409, "The first request with this Idempotency-Key is still running"),
    "state-conflict": (409, "This cannot be done now"),
    "request-timeout": (408, "The request did not arrive in time"),
    "payload-too-large": (413, "The request is too large"),
    "unsupported-coding": (415, "The body has a coding that is not read"),
    "validation": (422, "The request is not valid"),
    "idempotency-key-reused": (422, "The Idempotency-Key was used for another request"),
    "rate-limited": (429, "Too many requests with this API key"),
    "quota-used": (429, "A quota of the sponsor has no room for this now"),
    "too-many-uploads": (429, "Too many large requests are on their way"),
    "internal": (500, "Something went wrong here"),
    "busy": (503, "Too many ask for this at once"),
    "vendor-paused": (503, "The vendor is paused"),
    "vendor-unhealthy": (503, "The vendor is in trouble"),
    "storage-unavailable": (503, "The work cannot be stored now"),
    "insufficient-storage": (507, "There is no room for this request"),
}
BY_STATUS = {
    400: "bad-request",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    413: "payload-too-large",
}
STORAGE_RETRY = 5  # seconds
QUOTA_RETRY = 60  # seconds, where a quota of work in flight is used
Handler = Callable[[HttpRequest], HttpResponse]


class Problem(Exception):
    """An error answer. `errors`: details with JSON pointers. `retry_after`: seconds. `facts`: further members."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Iterable[Mapping[str, str]] = (),
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors, self.facts = kind, detail, list(errors), facts
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))

    def make_response(self) -> HttpResponse:
        status, title = TYPES[self.kind]
        body = {"type": f"urn:mailhub:problem:{self.kind}", "title": title, "status": status, "detail": self.detail}
        if self.errors:
            body["errors"] = self.errors
        return HttpResponse(orjson.dumps(body | self.facts), MIME, status, headers=self.headers)


def invalid_problem(errors: Iterable[Mapping[str, str]]) -> Problem:
    found = list(errors)
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    where = first.get("pointer") or first.get("parameter")
    return Problem(
        "validation", f"{where}: {first['detail']}{more}" if where else f"{first['detail']}{more}", errors=found
    )


def quota_problem(refusal: QuotaRefusal) -> Problem:
    """Return the problem for work beyond a quota's room: now, or never."""
    use = refusal.use
    quota = {
        "vendor": use.quota.vendor,
        "span": use.quota.span,
        "measure": use.quota.measure,
        "limit": use.quota.write_rounded(use.quota.most),
        "used": use.quota.write_rounded(use.used),
        "renewed_at": use.renewed_at and use.renewed_at.isoformat(timespec="seconds"),
    }
    if not refusal.can_fit:
        return Problem("quota-too-small", str(refusal.sentence), quota=quota)
    wait = (refusal.again - datetime.now(UTC)).total_seconds() if refusal.again else QUOTA_RETRY
    return Problem("quota-used", str(refusal.sentence), retry_after=wait, quota=quota)


def unavailable_problem(what: str) -> Problem:
    """Return the problem for a store that does not answer. Nothing was stored, so the client should retry soon."""
    return Problem("storage-unavailable", f"{what}; nothing was stored", retry_after=STORAGE_RETRY)


def make_error(pointer: str, code: str, detail: str) -> dict[str, str]:
    """Return one error. `pointer`: JSON pointer into the request's body."""
    return {"pointer": pointer, "code": code, "detail": detail}


def install_handlers(api: NinjaAPI) -> None:
    """Turn every exception of a view into a problem."""
    api.add_exception_handler(Problem, _answer_problem)
    api.add_exception_handler(ValidationError, _answer_validation)
    api.add_exception_handler(HttpError, _http_error)
    api.add_exception_handler(Http404, _not_found)
    api.add_exception_handler(Exception, _answer_unexpected)


STORES = (
    django.db.OperationalError,
    django.db.InterfaceError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    health.HealthStoreUnreachable,
)


def answer_exception(request: HttpRequest, why: Exception) -> HttpResponse:
    """Return the answer for code that bypasses NinjaAPI."""
    return why.make_response() if isinstance(why, Problem) else _answer_unexpected(request, why)


def _answer_problem(request: HttpRequest, why: Any) -> HttpResponse:
    answer: HttpResponse = why.make_response()
    return answer


def _not_found(request: HttpRequest, why: Any) -> HttpResponse:
    return Problem("not-found", "There is no such thing.").make_response()


def _answer_unexpected(request: HttpRequest, why: Any) -> HttpResponse:
    if said := find_refusal_text(why):
        log.warning("%s: %s", request.path, said)
        if isinstance(why, django.db.Error):
            outages.note_outage("database", said)
            django.db.connection.close()  # a read-only session may stay read-only
        return unavailable_problem("A database cannot be reached, or refuses for a while").make_response()
    if isinstance(why, STORES):
        log.warning("%s: %s", request.path, why)
        return unavailable_problem("A database cannot be reached").make_response()
    if isinstance(why, ProcessLost):
        log.warning("%s: %s", request.path, why)
        return Problem("busy", str(why), retry_after=STORAGE_RETRY).make_response()
    if _takes_no_messages(why):
        alarms.CANNOT_STORE.log(log, request.path)
        return unavailable_problem("The database takes no messages until an operator has looked at it").make_response()
    log.error("%s %s", request.method, request.path, exc_info=why)
    return Problem("internal", "It is in the log.").make_response()


def _takes_no_messages(why: Exception) -> bool:
    """Return True if no partition takes new messages, or a leftover constraint forbids them (docs/partitioning.md)."""
    error = why if isinstance(why, psycopg.Error) else why.__cause__
    return isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name in (None, "message_until")


def _http_error(request: HttpRequest, why: Any) -> HttpResponse:
    if why.status_code == 401:
        return unauthorized_problem().make_response()
    return Problem(BY_STATUS.get(why.status_code, "bad-request"), str(why)).make_response()


def unauthorized_problem() -> Problem:
    detail = "Send a valid key: Authorization: Bearer mh_live_..."
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def _answer_validation(request: HttpRequest, why: Any) -> HttpResponse:
    found = ((one["loc"], one["type"], one["msg"]) for one in why.errors)
    return invalid_problem(locate_error(*one) for one in found).make_response()


def locate_error(location: tuple[Any, ...], code: str, detail: str) -> dict[str, str]:
    """Convert an error of pydantic. `location`: `body` or the kind of parameter, then the path."""
    place, *path = location
    if place != "body":
        return {"parameter": ".".join(map(str, path)), "code": code, "detail": detail}
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return make_error("".join(f"/{step}" for step in steps), code, detail)


class NulMiddleware:
    """Refuses NUL characters in URLs and forms. PostgreSQL's texts contain none, so no look-up could match."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\0" in request.path_info:
            raise Http404
        for name, values in request.GET.lists():
            if any("\0" in text for text in (name, *values)):
                return self._refuse_nul(request, name.replace("\0", ""))
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Check forms of pages, which the CSRF check has already read. The API's schemas check its own bodies."""
        if request.method == "POST" and not request.path.startswith(API):
            for name, values in request.POST.lists():
                if any("\0" in text for text in (name, *values)):
                    return self._refuse_nul(request, name.replace("\0", ""))
        return None

    @staticmethod
    def _refuse_nul(request: HttpRequest, name: str) -> HttpResponse:
        detail = "a NUL character is in it"
        if request.path.startswith(API):
            return invalid_problem([{"parameter": name, "code": "nul", "detail": detail}]).make_response()
        raise BadRequest(f"{name}: {detail}")


def head_of(response: HttpResponseBase) -> HttpResponseBase:
    """Return the answer to HEAD: that of GET without its body (RFC 9110)."""
    if isinstance(response, HttpResponse):
        response.headers.setdefault("Content-Length", str(len(response.content)))
        response.content = b""
        return response
    head = HttpResponse(status=response.status_code, headers=response.headers)
    response.close()  # nobody reads its stream
    return head


class ProblemMiddleware:
    """Turns Django's own errors below /api/ into problems: unknown paths, wrong methods, oversized bodies.

    HEAD is answered like GET.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith(API):
            return self.get_response(request)
        coding = request.headers.get("Content-Encoding", "").strip()
        if coding.lower() not in ("", "identity"):  # RFC 9110, 15.5.16
            detail = f"Send the body without Content-Encoding: {coding[:20]}."
            return Problem("unsupported-coding", detail, headers={"Accept-Encoding": "identity"}).make_response()
        if int(request.META.get("CONTENT_LENGTH") or 0) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            most = f"At most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes are read."
            return Problem("payload-too-large", most).make_response()
        is_head = request.method == "HEAD" and not request.path.startswith(REPORTS)
        if is_head:
            request.method = "GET"
        response = self._get_problem_response(request)
        return head_of(response) if is_head else response

    def _get_problem_response(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if "GET" in response.headers.get("Allow", "") and "HEAD" not in response.headers["Allow"]:
            response.headers["Allow"] += ", HEAD"
        if response.status_code < 400 or response.headers.get("Content-Type", "").startswith(MIME):
            return response
        kind = BY_STATUS.get(response.status_code, "bad-request" if response.status_code < 500 else "internal")
        headers = {"Allow": response.headers["Allow"]} if "Allow" in response.headers else {}
        return Problem(kind, f"{request.method} {request.path}", headers=headers).make_response()
