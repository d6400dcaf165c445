"""Finds letters by the vendor's own id, for vendors that cannot carry our reference.

The statement that writes the acceptance also writes the id (merging.py, ground_truth.py). A report may come before
that; then it waits. It is checked after ten seconds, then each time its age has about doubled, and in the end once an
hour, so that reports of other people's letters cost little.

An id belongs to the reporting account: some or all of the vendor's credentials. If it names several letters of these,
it names none. It also names only letters called at the account's destination at the time of the report
(vendors/destinations.py), because another server may give the same ids to other letters. Ids stored by an earlier
version lack a destination and always count.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from campaigns.engine.routes import whose
from campaigns.engine.routes.whose import ReportingAccount
from campaigns.models import WaitingReport
from vendors import destinations
from vendors.adapters.reports import Reported

KEPT = timedelta(days=90)  # how long reports of a letter may come
WAITS = timedelta(days=7)  # how long a report waits for its letter: longer than a doubt may last
AT_ONCE = 1_000  # waiting reports checked together
MOST_WAIT = 10_000  # waiting reports of one vendor; any more are dropped
SOONEST, LATEST = timedelta(seconds=10), timedelta(hours=1)  # bounds of the time until the next check of a report
FORGOTTEN_AT_ONCE = 10_000
LONGEST = 255  # characters of an id

# Whether one of these credentials sent the letter of an id `known` (an empty array stands for all of the vendor's), and
# called the destination `then`: that of its credential l of vendor v at the time of the report.
BY_ONE_OF = f"""EXISTS (
    SELECT FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
        JOIN vendors_credential l ON l.id = {whose.CREDENTIAL} JOIN vendors_vendor v ON v.id = l.vendor_id
    WHERE m.id = known.message AND ({{credentials}} = '{{{{}}}}' OR l.id = ANY({{credentials}}))
        AND coalesce(known.destination, {{then}}) = {{then}})"""
NAMED = f"""
SELECT name, min(uuid::text), max(resend_no) FROM campaigns_vendormessageid known
WHERE vendor_id = %(vendor)s AND name = ANY(%(names)s)
    AND {BY_ONE_OF.format(credentials="%(credentials)s::bigint[]", then=destinations.NUMBER)}
GROUP BY name HAVING count(DISTINCT uuid) = 1
"""
MAY_WAIT = """
SELECT FROM vendors_vendor v WHERE v.id = %(vendor)s AND v.reports_by_id
    AND (SELECT count(*) FROM campaigns_waitingreport w WHERE w.vendor_id = v.id) < %(most)s
"""
# If two reports of a kind wait, the later one by the vendor's clock counts. Once the vendor's destination has changed,
# the first one stays: vendors repeat reports, and a repeat concerns the destination at the time of the first.
KEEP = f"""
INSERT INTO campaigns_waitingreport AS was (vendor_id, name, kind, said, source, credentials, destinations)
SELECT %(vendor)s, a.name, a.kind, a.said::jsonb, %(source)s, %(credentials)s, (
    SELECT jsonb_object_agg(l.id, {destinations.NUMBER})
    FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id WHERE l.vendor_id = %(vendor)s)
FROM unnest(%(names)s::text[], %(kinds)s::text[], %(said)s::text[]) AS a(name, kind, said) ORDER BY 2, 3
ON CONFLICT (vendor_id, name, kind, credentials)
    DO UPDATE SET said = excluded.said
    WHERE (excluded.said->>'at')::timestamptz > (was.said->>'at')::timestamptz
        AND was.destinations IS NOT DISTINCT FROM excluded.destinations
"""
THEN = "coalesce((w.destinations->>l.id::text)::bigint, 0)"  # of a waiting report w; 0: of an earlier version
FORGET = """
DELETE FROM campaigns_vendormessageid WHERE id = ANY(ARRAY(
    SELECT id FROM (SELECT id, at FROM campaigns_vendormessageid ORDER BY id LIMIT %(most)s) oldest
    WHERE at < %(before)s))
"""
# Picks among the reports to check now those with a known letter, and those waiting for too long. All of them are
# checked again later, so a report that fails does not delay the others.
DUE = f"""
WITH looked_at AS (
    UPDATE campaigns_waitingreport w SET look_at = statement_timestamp()
        + greatest(%(soonest)s, least(%(latest)s, statement_timestamp() - w.at))
    WHERE w.id = ANY(ARRAY(SELECT id FROM campaigns_waitingreport WHERE look_at <= statement_timestamp()
        ORDER BY look_at LIMIT %(most)s FOR UPDATE SKIP LOCKED))
    RETURNING w.*
)
SELECT w.id, w.vendor_id, w.source, w.name, w.said, w.credentials,
    CASE WHEN found.letters = 1 THEN found.reference END
FROM looked_at w, LATERAL (SELECT count(DISTINCT known.uuid) AS letters,
        min(known.uuid::text) || '-' || max(known.resend_no) AS reference
    FROM campaigns_vendormessageid known
    WHERE known.vendor_id = w.vendor_id AND known.name = w.name
        AND {BY_ONE_OF.format(credentials="w.credentials", then=THEN)}) found
WHERE found.letters = 1 OR w.at < %(before)s ORDER BY w.id
"""


@dataclass(frozen=True, slots=True)
class DueReport:
    """A waiting report whose letter is known now, or that has waited too long.

    id: of its row. reference: of its letter; None: not known.
    """

    id: int
    vendor_id: int
    source: str
    name: str
    said: str
    credentials: list[int]
    reference: str | None

    @property
    def is_known(self) -> bool:
        return self.reference is not None

    def read_stored_report(self) -> Reported:
        """Return the stored report. Raises ValueError or KeyError if this version cannot read it."""
        said = json.loads(self.said)
        at = datetime.fromisoformat(said["at"])
        text = said["note"], said["bounce"], said["code"]
        more = {"timed": said.get("timed", True), "cause": said.get("cause", "")}
        return Reported(self.reference or "", said["kind"], at, self.name, *text, **more)


def name_letters(of: ReportingAccount, requests: Sequence[Sequence[Reported]]) -> list[list[Reported]]:
    """Return the reports with our references, where the vendor's id is known and names one letter."""
    every = (one for request in requests for one in request)
    wanted = {one.vendor_id for one in every if not one.reference and 0 < len(one.vendor_id) <= LONGEST}
    if not wanted:
        return [list(request) for request in requests]
    with connection.cursor() as cursor:
        cursor.execute(NAMED, {**of.params, "names": [_storable_name(name) for name in wanted]})
        found = {name: f"{uuid}-{resend_no}" for name, uuid, resend_no in cursor.fetchall()}
    return [
        [one if one.reference else replace(one, reference=found.get(one.vendor_id, "")) for one in request]
        for request in requests
    ]


def keep_unknown_reports(of: ReportingAccount, reported: Iterable[Reported], source: str) -> bool:
    """Keep reports of unknown letters until the letters are known.

    False: this vendor's reports carry our references, or MOST_WAIT of them wait already.
    """
    latest: dict[tuple[str, str], Reported] = {}
    for one in reported:
        known = latest.setdefault((_storable_name(one.vendor_id), one.kind), one)
        if one.at > known.at:
            latest[_storable_name(one.vendor_id), one.kind] = one
    kept = {key: one for key, one in latest.items() if len(one.vendor_id) <= LONGEST}
    names, kinds = [name for name, _ in kept], [kind for _, kind in kept]
    said = [json.dumps(_report_as_data(one)) for one in kept.values()]
    with connection.cursor() as cursor:
        cursor.execute(MAY_WAIT, {"vendor": of.vendor_id, "most": MOST_WAIT})
        if not cursor.fetchall():
            return False
        rows: dict[str, Any] = {**of.params, "source": source, "names": names, "kinds": kinds, "said": said}
        cursor.execute(KEEP, rows)
    return True


def due_reports() -> list[list[DueReport]]:
    """Return waiting reports whose letters are known now, or that have waited too long: at most AT_ONCE.

    They are grouped by account. Unless they are passed to `delete_due_reports`, they are due again later.
    """
    limits: dict[str, Any] = {"before": timezone.now() - WAITS, "most": AT_ONCE, "soonest": SOONEST, "latest": LATEST}
    with connection.cursor() as cursor:
        cursor.execute(DUE, limits)
        rows = [DueReport(*row) for row in cursor.fetchall()]
    groups: dict[tuple[int, str, tuple[int, ...]], list[DueReport]] = {}
    for row in rows:
        groups.setdefault((row.vendor_id, row.source, tuple(row.credentials)), []).append(row)
    return list(groups.values())


def delete_due_reports(ids: Collection[int]) -> None:
    """Delete these waiting reports."""
    WaitingReport.objects.filter(pk__in=ids).delete()


def forget_oldest_ids() -> int:
    """Delete the oldest ids, of letters for which no report may come any more. Returns their number."""
    with connection.cursor() as cursor:
        cursor.execute(FORGET, {"most": FORGOTTEN_AT_ONCE, "before": timezone.now() - KEPT})
        number: int = cursor.rowcount
        return number


def _storable_name(name: str) -> str:
    return name.encode(errors="replace").decode().replace("\0", "\ufffd")


def _report_as_data(one: Reported) -> dict[str, Any]:
    said = {
        "kind": one.kind,
        "note": one.note[:LONGEST],
        "bounce": one.bounce,
        "code": one.code[:LONGEST],
        "cause": one.cause,
    }
    return {name: _storable_name(text) for name, text in said.items()} | {"at": one.at.isoformat(), "timed": one.timed}
