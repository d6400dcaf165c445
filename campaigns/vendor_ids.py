"""Finds letters by the vendor's own id, for vendors that cannot carry our reference.

The ids are written with the acceptance, in the same statement (merging.py, ground_truth.py). A report may come earlier
than that: it waits, and each sweep looks whether its letter is known now.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from campaigns.models import WaitingReport
from vendors.adapters.reports import Reported
from vendors.models import Vendor

KEPT = timedelta(days=90)  # for which reports of a letter may come
WAITS = timedelta(days=7)  # for which a report waits for its letter, as long as a doubt may last and more
AT_ONCE = 1_000  # waiting reports that are looked at
FORGOTTEN_AT_ONCE = 10_000
LONGEST = 255  # characters of an id

NAMED = """
SELECT DISTINCT ON (name) name, uuid, resend_no FROM campaigns_vendormessageid
WHERE vendor_id = %(vendor)s AND name = ANY(%(names)s) ORDER BY name, id DESC
"""
FORGET = """
DELETE FROM campaigns_vendormessageid WHERE id = ANY(ARRAY(
    SELECT id FROM (SELECT id, at FROM campaigns_vendormessageid ORDER BY id LIMIT %(most)s) oldest
    WHERE at < %(before)s))
"""
# The oldest whose letters are known now, and those that have waited for too long.
DUE = """
SELECT w.id, w.vendor_id, w.name, w.said, w.source, known.yes FROM campaigns_waitingreport w, LATERAL (SELECT EXISTS (
    SELECT FROM campaigns_vendormessageid v WHERE v.vendor_id = w.vendor_id AND v.name = w.name) AS yes) known
WHERE known.yes OR w.at < %(before)s ORDER BY w.id LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class DueReports:
    """Waiting reports of one vendor that are due. ids: of their rows; given_up: how many waited for too long."""

    vendor_id: int
    source: str
    ids: Sequence[int]
    reported: Sequence[Reported]
    given_up: int


def named(vendor_id: int, reported: Sequence[Reported]) -> list[Reported]:
    """The same with our references, where the vendor's id is known."""
    wanted = {one.vendor_id for one in reported if not one.reference and 0 < len(one.vendor_id) <= LONGEST}
    if not wanted:
        return list(reported)
    with connection.cursor() as cursor:
        cursor.execute(NAMED, {"vendor": vendor_id, "names": [_stored(name) for name in wanted]})
        found = {name: f"{uuid}-{resend_no}" for name, uuid, resend_no in cursor.fetchall()}
    return [one if one.reference else replace(one, reference=found.get(one.vendor_id, "")) for one in reported]


def keep(vendor_id: int, reported: Collection[Reported], source: str) -> bool:
    """Keeps reports whose letter is not known until it is; False: this vendor's reports name our references."""
    if not Vendor.objects.filter(pk=vendor_id, reports_by_id=True).exists():
        return False
    rows = [
        WaitingReport(vendor_id=vendor_id, name=_stored(one.vendor_id), said=_said(one), source=source)
        for one in reported
        if len(one.vendor_id) <= LONGEST
    ]
    WaitingReport.objects.bulk_create(rows, batch_size=AT_ONCE)
    return True


def due() -> list[DueReports]:
    """Waiting reports whose letters are known now, or that have waited for too long: at most AT_ONCE."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, {"before": timezone.now() - WAITS, "most": AT_ONCE})
        rows = cursor.fetchall()
    groups: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row[1], row[4]), []).append(row)
    return [_due(vendor_id, source, some) for (vendor_id, source), some in groups.items()]


def _due(vendor_id: int, source: str, rows: Sequence[Any]) -> DueReports:
    reported = [_reported(name, said) for _, _, name, said, _, known in rows if known]
    return DueReports(vendor_id, source, [row[0] for row in rows], reported, len(rows) - len(reported))


def done(ids: Collection[int]) -> None:
    """These reports wait no more."""
    WaitingReport.objects.filter(pk__in=ids).delete()


def forget() -> int:
    """Deletes ids of letters of which no report may come any more, the oldest; returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(FORGET, {"most": FORGOTTEN_AT_ONCE, "before": timezone.now() - KEPT})
        return cursor.rowcount


def _stored(name: str) -> str:
    return name.encode(errors="replace").decode().replace("\0", "\ufffd")


def _said(one: Reported) -> dict[str, str]:
    said = {"kind": one.kind, "note": one.note[:LONGEST], "bounce": one.bounce, "code": one.code[:LONGEST]}
    return {name: _stored(text) for name, text in said.items()} | {"at": one.at.isoformat()}


def _reported(name: str, text: str) -> Reported:
    said = json.loads(text)
    at = datetime.fromisoformat(said["at"])
    return Reported("", said["kind"], at, name, said["note"], said["bounce"], said["code"])
