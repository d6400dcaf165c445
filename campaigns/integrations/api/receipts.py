"""POST /receipts/{vendor}: delivery reports of a vendor, in its own form and with its proof.

The vendor's adapter reads the request (vendors/adapters/reports.py). Reports that arrive together are stored together.
No API key is needed; requests without the vendor's proof get 401 and are counted and logged.
"""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urlsplit

import orjson
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router, Status

from campaigns import tasks
from campaigns.doors.front import problems
from campaigns.doors.front.batcher import Batcher
from campaigns.doors.front.problems import API, Problem, invalid_problem, locate_error, unavailable_problem
from campaigns.doors.front.schemas import ProblemOut
from campaigns.engine import delivery_reports
from campaigns.engine.delivery_reports import ReportsStored
from campaigns.integrations.api.session_schemas import ReceiptsOut
from vendors import adapters, alarms, report_keys, webhook_http
from vendors.adapters.base import Adapter
from vendors.adapters.reports import (
    BadReport,
    InboundText,
    NotTheVendor,
    Reported,
    ReportRequest,
    ToConfirm,
    UnreadableEntry,
)
from vendors.not_now import is_not_now
from vendors.report_counts import ReportCounts
from vendors.report_keys import ReportingVendor

log = logging.getLogger(__name__)
Proved = TypeVar("Proved")  # the content of a request with a proof
ReadEntry = TypeVar("ReadEntry", bound=Reported | InboundText)
Mistake = tuple[tuple[int | str, ...], str, str]
ReadReport = Reported | UnreadableEntry
ReadText = InboundText | UnreadableEntry
router = Router()
Credentials = tuple[int, ...]

HERE = re.compile(f"{API}v1/receipts/([-a-zA-Z0-9_]+)")
FRESH = 0.8  # seconds for which a vendor's secrets are cached: a change holds within a second
MOST_STRANGE = 1_000  # cached names without a vendor
AT_ONCE = 500  # requests stored together
MOST_ACCOUNTS = 1_000  # accounts for which a process keeps batches
PROBLEMS = dict.fromkeys((400, 401, 413, 422, 503), ProblemOut)
SIGNED = [
    {"in": "header", "name": name, "schema": {"type": "string"}, "description": "As Standard Webhooks has it"}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
]
BODY = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ReceiptsIn"}}}, "required": True}


@router.post(
    "/receipts/{vendor}",
    tags=["vendors"],
    response={200: ReceiptsOut, 202: ReceiptsOut, **PROBLEMS},
    exclude_none=True,
    summary="A vendor's receipts: what became of letters",
    openapi_extra={"parameters": SIGNED, "requestBody": BODY, "security": []},  # the signature takes a key's place
)
def take_receipts(request: HttpRequest, vendor: str) -> Status[ReceiptsOut]:
    """Signed with the vendor's secret (manage.py vendor receipts). Posting the same again changes nothing.

    This is the form of the adapter `http`. Other adapters take their vendor's own form and answer 200, because some
    vendors repeat reports after any other status.
    """
    return Status(*_take_receipts(request, vendor))


@router.get(
    "/receipts/{vendor}",
    response={200: ReceiptsOut, 202: ReceiptsOut, **PROBLEMS},
    exclude_none=True,
    include_in_schema=False,
)
def take_receipts_by_query(request: HttpRequest, vendor: str) -> Status[ReceiptsOut]:
    """The same for vendors that report by GET, everything in the query."""
    return Status(*_take_receipts(request, vendor))


def answer_fast(request: HttpRequest) -> HttpResponse | None:
    """Answer while skipping the slow parts: middleware, URLs and NinjaAPI. None: those should answer."""
    place = HERE.fullmatch(request.path_info)
    if place is None or request.method != "POST" or "%00" in request.META["QUERY_STRING"]:
        return None
    try:
        request.get_host()
    except DisallowedHost:
        return None
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        return None
    try:
        status, said = _take_receipts(request, place[1])
    except Exception as why:
        return problems.answer_exception(request, why)
    return HttpResponse(orjson.dumps(said.model_dump(exclude_none=True)), "application/json; charset=utf-8", status)


def _take_receipts(request: HttpRequest, slug: str) -> tuple[int, ReceiptsOut]:
    of, adapter, found, credentials = _read_receipts(request, slug)
    reported, refused = _split_readable(of, found)
    if len(reported) > delivery_reports.MOST:
        raise invalid_problem(
            [{"pointer": "", "code": "too_long", "detail": f"At most {delivery_reports.MOST:,} events."}]
        )
    stored = (
        _batcher_of_account(of.id, of.slug, credentials).serve_in_batch(reported)
        if reported
        else ReportsStored(0, (), ())
    )
    if stored.calls:
        tasks.notify_webhooks()
    counts.count_reports(of.id, "unknown", len(stored.unknown))
    counts.count_reports(of.id, "taken", len(reported) - len(stored.unknown))
    return adapter.report_status, ReceiptsOut(
        changed=stored.changed, unknown=list(stored.unknown), refused=refused or None
    )


def _read_receipts(
    request: HttpRequest, slug: str
) -> tuple[ReportingVendor, type[Adapter], Sequence[ReadReport], Credentials]:
    def read_reports(adapter: type[Adapter], vendor: ReportingVendor) -> tuple[Sequence[ReadReport], Credentials]:
        if not adapter.sends_reports(vendor.settings):
            raise NotTheVendor
        return _read_confirmed(adapter, _original_request(request), vendor)

    vendor, adapter, (reported, credentials) = read_proved(slug, read_reports)
    return vendor, adapter, reported, credentials


def read_inbound(request: HttpRequest, slug: str) -> tuple[ReportingVendor, Sequence[InboundText], Credentials]:
    """Read messages that recipients sent to us, with the same proof."""

    def read_texts(adapter: type[Adapter], vendor: ReportingVendor) -> tuple[Sequence[ReadText], Credentials]:
        came = _original_request(request)
        return report_keys.read_for_accounts(lambda source: adapter.read_inbound(came, source), vendor)

    vendor, _, (found, credentials) = read_proved(slug, read_texts)
    return vendor, _split_readable(vendor, found)[0], credentials


def _split_readable(
    vendor: ReportingVendor, found: Sequence[ReadEntry | UnreadableEntry]
) -> tuple[list[ReadEntry], list[dict[str, str]]]:
    """Return the readable entries, and the mistakes in the others in the API's form."""
    readable = [one for one in found if not isinstance(one, UnreadableEntry)]
    mistakes: list[Mistake] = []
    for one in found:
        if isinstance(one, UnreadableEntry):
            mistakes += one.errors
    refused = [locate_error(("body", *where), code, sentence) for where, code, sentence in mistakes]
    if mistakes:
        _count_unreadable(vendor, "; ".join(sentence for _, _, sentence in mistakes))
    return readable, refused


def read_proved(
    slug: str, read: Callable[[type[Adapter], ReportingVendor], Proved]
) -> tuple[ReportingVendor, type[Adapter], Proved]:
    """Read a request with the vendor's proof. Raises the same Problem for a missing proof and an unknown vendor."""
    vendor = known_vendors.find_vendor(slug)
    try:
        if vendor is None:
            raise NotTheVendor
        adapter = adapters.load(vendor.adapter)
        return vendor, adapter, read(adapter, vendor)
    except NotTheVendor:
        if vendor is not None:
            counts.count_reports(vendor.id, "forged", 1)
            if counts.may_log(vendor.id, "forged"):
                alarms.REPORT_FORGED.log(log, vendor.slug)
        raise _strange_problem() from None
    except BadReport as bad:
        assert vendor is not None
        _count_unreadable(vendor, str(bad))
        raise invalid_problem(
            locate_error(("body", *where), code, sentence) for where, code, sentence in bad.errors
        ) from None
    except (LookupError, ValueError) as error:
        assert vendor is not None
        counts.count_reports(vendor.id, "unreadable", 1)
        if counts.may_log(vendor.id, "unusable"):
            alarms.REPORTS_NOT_TAKEN.log(log, vendor.slug, str(error)[:500])
        raise _strange_problem() from None


def _count_unreadable(vendor: ReportingVendor, why: str) -> None:
    counts.count_reports(vendor.id, "unreadable", 1)
    if counts.may_log(vendor.id, "unreadable"):
        alarms.REPORT_UNREADABLE.log(log, vendor.slug, why[:500])


def _read_confirmed(
    adapter: type[Adapter], request: ReportRequest, vendor: ReportingVendor
) -> tuple[Sequence[ReadReport], Credentials]:
    """Return the events; none if the vendor only wanted its reports to be confirmed, which is done here."""
    try:
        return report_keys.read_for_accounts(lambda source: adapter.read_report(request, source), vendor)
    except ToConfirm as wanted:
        result = asyncio.run(webhook_http.get_once(wanted.url))
        host = urlsplit(wanted.url).hostname
        if not result.is_taken:
            alarms.REPORTS_NOT_CONFIRMED.log(log, vendor.slug, host, result.note)
            raise unavailable_problem("The vendor's reports could not be confirmed") from None
        log.info("reports of vendor %s are confirmed at %s", vendor.slug, host)
        return (), ()


def _strange_problem() -> Problem:
    """Return the refusal. It asks for basic authentication, as Amazon SES and others send theirs only when asked."""
    asking = {"WWW-Authenticate": 'Basic realm="receipts"'}
    return Problem("not-the-vendor", "Receipts are signed with the secret of their vendor.", headers=asking)


def _original_request(request: HttpRequest) -> ReportRequest:
    path = request.get_full_path()
    url = f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return ReportRequest(str(request.method), url, headers, request.body)


class KnownVendors:
    """Vendors with the proofs for their reports, read about once a second in a process. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, ReportingVendor]] = {}
        self._strange: dict[str, float] = {}  # separate, so that guessing names does not evict known vendors
        self._reading = threading.Lock()  # one thread reads; the others wait for its result

    def find_vendor(self, slug: str) -> ReportingVendor | None:
        """Return the vendor, or None. Raises django.db's errors."""
        fresh, vendor = self._remembered_vendor(slug)
        if fresh:
            return vendor
        with self._reading:
            fresh, vendor = self._remembered_vendor(slug)
            return vendor if fresh else self._read_vendor(slug)

    def _remembered_vendor(self, slug: str) -> tuple[bool, ReportingVendor | None]:
        """Return whether the vendor was read just now, and the result."""
        now = time.monotonic()
        if now - self._strange.get(slug, float("-inf")) <= FRESH:
            return True, None
        read_at, vendor = self._known.get(slug, (float("-inf"), None))
        return now - read_at <= FRESH, vendor

    def _read_vendor(self, slug: str) -> ReportingVendor | None:
        now = time.monotonic()
        found = report_keys.reporting_vendor(slug, timezone.now()) if "\0" not in slug else None
        if found is not None:
            self._known[slug] = now, found
            return found
        self._known.pop(slug, None)
        if len(self._strange) >= MOST_STRANGE:
            self._strange.clear()
        self._strange[slug] = now
        return None

    def forget_all(self) -> None:
        self._known.clear()
        self._strange.clear()


known_vendors = KnownVendors()


counts = ReportCounts()


@lru_cache(maxsize=MOST_ACCOUNTS)
def _batcher_of_account(
    vendor_id: int, slug: str, credentials: Credentials
) -> Batcher[Sequence[Reported], ReportsStored]:
    """Return the batcher for an account's reports.

    It stores one batch at a time, because most reports are of one job and would wait for each other's locks. Vendors do
    not block each other. `credentials`: the reports may name letters of these; empty: of all.
    """

    def store_batch(requests: Sequence[Sequence[Reported]]) -> Sequence[ReportsStored | Exception]:
        try:
            return delivery_reports.store_requests_together(vendor_id, requests, slug, credentials)
        except Exception as error:
            if isinstance(error, OperationalError) or is_not_now(error):
                return [error] * len(requests)
            if len(requests) == 1:
                return [error]
            return [store_batch([one])[0] for one in requests]  # a bad report spoils no other

    return Batcher(store_batch, most=AT_ONCE, rounds=1)
