"""Counts of the events that vendors reported on each day (UTC), and of refused reports."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping

from django.db import DatabaseError, InterfaceError, connection

from vendors import alarms

log = logging.getLogger(__name__)

LOG_EVERY = 60.0  # seconds between two log lines for one vendor
COUNT_EVERY = 1.0  # seconds between two writes of counts
COUNTED = ("taken", "unknown", "forged", "unreadable")
"""The columns of ReportCount."""

ADD = """
INSERT INTO vendors_reportcount AS was (vendor_id, day, what, reports)
SELECT a.vendor, (now() AT TIME ZONE 'UTC')::date, a.what, a.reports
FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS a(vendor, what, reports) ORDER BY 1, 3
ON CONFLICT (vendor_id, day, what) DO UPDATE SET reports = was.reports + EXCLUDED.reports
"""
TODAY = """
SELECT vendor_id, what, reports FROM vendors_reportcount
WHERE vendor_id = ANY(%s) AND day = (now() AT TIME ZONE 'UTC')::date
"""


def add_counts(counted: Mapping[tuple[int, str], int]) -> None:
    """Add to the counts of today. Keys: a vendor's id, and one of COUNTED."""
    vendors, whats = zip(*counted, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(ADD, [list(vendors), list(whats), list(counted.values())])


def counts_today(vendor_ids: Collection[int]) -> dict[int, dict[str, int]]:
    """Return the counts of each of these vendors, all of COUNTED."""
    found = {vendor_id: dict.fromkeys(COUNTED, 0) for vendor_id in vendor_ids}
    with connection.cursor() as cursor:
        cursor.execute(TODAY, [list(vendor_ids)])
        for vendor_id, what, reports in cursor.fetchall():
            found[vendor_id][what] = reports
    return found


def refused_sentence(counts: Mapping[str, int]) -> str:
    """Return a sentence about refused reports that somebody must look at, or ""."""
    parts = [
        f"{counts['forged']:,} without the vendor's proof" if counts["forged"] else "",
        f"{counts['unreadable']:,} that cannot be read" if counts["unreadable"] else "",
    ]
    return f"reports refused today: {', '.join(filter(None, parts))}" if any(parts) else ""


class ReportCounts:
    """Counts reports and stores the sums at most once a second, so that nonsense requests cannot cause more writes.

    Reports within that second are stored with the next one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: Counter[tuple[int, str]] = Counter()
        self._stored_at = float("-inf")
        self._logged_at: dict[tuple[int, str], float] = {}

    def count_reports(self, vendor_id: int, what: str, number: int) -> None:
        """Count reports. `what`: one of COUNTED."""
        if not number:
            return
        with self._lock:
            self._waiting[vendor_id, what] += number
            if time.monotonic() - self._stored_at < COUNT_EVERY:
                return
            counted, self._waiting, self._stored_at = self._waiting, Counter(), time.monotonic()
        try:
            add_counts(counted)
        except (DatabaseError, InterfaceError) as error:
            with self._lock:
                self._waiting += counted
            alarms.REPORTS_NOT_COUNTED.log(log, error)

    def may_log(self, vendor_id: int, what: str) -> bool:
        """Return True if the log may have another line about this."""
        with self._lock:
            now = time.monotonic()
            if now - self._logged_at.get((vendor_id, what), float("-inf")) < LOG_EVERY:
                return False
            self._logged_at[vendor_id, what] = now
            return True

    def forget_counts(self) -> None:
        with self._lock:
            self._waiting.clear()
            self._logged_at.clear()
            self._stored_at = float("-inf")
