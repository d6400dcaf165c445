"""Fetches reports that a vendor keeps for us, such as acknowledgement files, and stores them like reports it sends.

Reading them twice, or by two processes in parallel, changes nothing. Only stored reports are settled at the vendor.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import uvloop

from campaigns.engine import delivery_reports, failpoints
from vendors import adapters, alarms
from vendors.adapters.base import Adapter
from vendors.adapters.reports import FetchedReports, FetchesReports
from vendors.models import Credential, Vendor

Awaited = TypeVar("Awaited")
log = logging.getLogger(__name__)

PATIENCE = 120.0  # seconds for one vendor
AT_ONCE = 5_000  # reports in a transaction


@dataclass
class FetchedFromVendor:
    """The result for one vendor.

    strange: sentences that begin with a file's name. calls: ids of webhook calls. why: the error, or "".
    """

    vendor: str
    files: int = 0
    reports: int = 0
    unknown: int = 0
    left_out: int = 0
    strange: list[str] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    why: str = ""


def fetch_all(slug: str = "") -> list[FetchedFromVendor]:
    """Fetch from each vendor that keeps reports, or from this one. A vendor's error does not affect the others."""
    return [fetch_reports(vendor) for vendor in vendors_to_fetch_from() if slug in ("", vendor.slug)]


def vendors_to_fetch_from() -> Iterator[Vendor]:
    """Yield the vendors whose reports are fetched."""
    for vendor in Vendor.objects.order_by("pk"):
        try:
            kind = adapters.load(vendor.adapter)
            if issubclass(kind, FetchesReports) and kind.fetches_reports(vendor.settings):
                yield vendor
        except (LookupError, ImportError, ValueError):
            continue  # reported where its adapter is used


def fetch_reports(vendor: Vendor) -> FetchedFromVendor:
    """Fetch with the vendor's first credential."""
    found = FetchedFromVendor(vendor.slug)
    login = Credential.objects.filter(vendor=vendor).order_by("paused", "pk").first()
    if login is None:
        found.why = "it has no credential"
        return found
    try:
        adapter = adapters.load(vendor.adapter).for_credential(vendor.settings, cast(Any, login.secret))
        _run_adapter(vendor, adapter, found)
    except (OSError, ValueError) as error:  # also TimeoutError
        found.why = str(error) or "it took too long"
    if found.why:
        alarms.REPORTS_NOT_FETCHED.log(log, vendor.slug, found.why)
    for sentence in found.strange:
        alarms.REPORT_UNREADABLE_IN_FILE.log(log, vendor.slug, sentence)
    return found


def _run_adapter(vendor: Vendor, adapter: Adapter, found: FetchedFromVendor) -> None:
    """Run the adapter in an event loop, which stands still while Django's connection writes rows."""
    assert isinstance(adapter, FetchesReports)
    until = time.monotonic() + PATIENCE
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(adapter.open())
        reports = aiter(adapter.fetch_reports())
        try:
            while time.monotonic() < until and (one := loop.run(_fetch_next_source(reports))):
                if _store_source(vendor, one, found):
                    failpoints.here("after_fetched")
                    found.why = loop.run(_settle_source(one)) or found.why
        finally:
            if isinstance(reports, AsyncGenerator):
                loop.run(reports.aclose())
            loop.run(adapter.close())


async def _settle_source(one: FetchedReports) -> str:
    """Settle a source at the vendor. Returns the error, or "". If it fails, reading again changes nothing."""
    try:
        await _await_in_time(one.settled())
        return ""
    except OSError as error:  # also TimeoutError
        return str(error) or f"{one.name}: it took too long"


async def _fetch_next_source(reports: AsyncIterator[FetchedReports]) -> FetchedReports | None:
    try:
        return await _await_in_time(anext(reports))
    except StopAsyncIteration:
        return None


async def _await_in_time(work: Awaitable[Awaited]) -> Awaited:
    async with asyncio.timeout(PATIENCE):
        return await work


def _store_source(vendor: Vendor, one: FetchedReports, found: FetchedFromVendor) -> bool:
    """Store the reports of one source. Returns True if none of them has to be read again."""
    early = 0
    for begin in range(0, len(one.reported), AT_ONCE):
        came = delivery_reports.store_reports(vendor.pk, one.reported[begin : begin + AT_ONCE], vendor.slug)
        found.unknown += len(came.unknown)
        found.calls.extend(came.calls)
        early += came.early
    found.files += 1
    found.reports += len(one.reported)
    found.left_out += one.left_out
    found.strange.extend(f"{one.name}: {sentence}" for sentence in one.strange)
    return not early
