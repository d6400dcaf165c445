"""Finds letters by the vendor's own id, for vendors that cannot carry our reference.

The ids are written with the acceptance, in the same statement (merging.py, ground_truth.py). A report may come earlier
than that: it waits. Whether its letter is known now is looked at when it has waited for ten seconds more, then each
time when it is about twice as old, and once an hour in the end: reports of letters of somebody else cost little.

An id belongs to the account that has reported it, which are some of the vendor's credentials or all: where it names
several letters of these, it names none. And it names letters alone that were called where and as whom the account was
called when it was reported (vendors/destinations.py): another server may give the same ids to other letters. Of ids
that a version before has stored nobody knows where; they count.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from campaigns.models import WaitingReport
from campaigns.routes import whose
from campaigns.routes.whose import ReportingAccount
from vendors import destinations
from vendors.adapters.reports import Reported

KEPT = timedelta(days=90)  # for which reports of a letter may come
WAITS = timedelta(days=7)  # for which a report waits for its letter, as long as a doubt may last and more
AT_ONCE = 1_000  # waiting reports that are looked at
MOST_WAIT = 10_000  # reports of one vendor; further ones are not kept
SOONEST, LATEST = timedelta(seconds=10), timedelta(hours=1)  # until a waiting report is looked at again
FORGOTTEN_AT_ONCE = 10_000
LONGEST = 255  # characters of an id

# Whether a letter went by one of these credentials: of an id `known`; an empty array stands for all of the vendor's.
# And whether it was called where its credential called when the report came: `then`, of a credential l of vendor v.
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
# Of a kind that waits already the later one by the vendor's clock counts. Once the vendor is called elsewhere the first
# one stays: vendors repeat reports, and a repeat is of where the vendor was called when the first one came.
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
THEN = "coalesce((w.destinations->>l.id::text)::bigint, 0)"  # of a waiting report w; 0: of a version before
FORGET = """
DELETE FROM campaigns_vendormessageid WHERE id = ANY(ARRAY(
    SELECT id FROM (SELECT id, at FROM campaigns_vendormessageid ORDER BY id LIMIT %(most)s) oldest
    WHERE at < %(before)s))
"""
# Of those that are to be looked at: whose letters are known now, or that have waited for too long. All are looked at
# again later, so one that cannot be taken keeps back no other.
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
    """A waiting report whose letter is known now, or that has waited for too long. id: of its row; reference: of its
    letter, None: it is not known."""

    id: int
    vendor_id: int
    source: str
    name: str
    said: str
    credentials: list[int]
    reference: str | None

    @property
    def known(self) -> bool:
        return self.reference is not None

    def reported(self) -> Reported:
        """What was reported. Raises ValueError, KeyError for what this version cannot read."""
        said = json.loads(self.said)
        at = datetime.fromisoformat(said["at"])
        text = said["note"], said["bounce"], said["code"]
        return Reported(self.reference or "", said["kind"], at, self.name, *text, timed=said.get("timed", True))


def named(of: ReportingAccount, requests: Sequence[Sequence[Reported]]) -> list[list[Reported]]:
    """The same with our references, where the vendor's id is known and names one letter."""
    every = (one for request in requests for one in request)
    wanted = {one.vendor_id for one in every if not one.reference and 0 < len(one.vendor_id) <= LONGEST}
    if not wanted:
        return [list(request) for request in requests]
    with connection.cursor() as cursor:
        cursor.execute(NAMED, {**of.params, "names": [_stored(name) for name in wanted]})
        found = {name: f"{uuid}-{resend_no}" for name, uuid, resend_no in cursor.fetchall()}
    return [
        [one if one.reference else replace(one, reference=found.get(one.vendor_id, "")) for one in request]
        for request in requests
    ]


def keep(of: ReportingAccount, reported: Iterable[Reported], source: str) -> bool:
    """Keeps reports whose letter is not known until it is.

    False: this vendor's reports name our references, or MOST_WAIT of them wait already.
    """
    latest: dict[tuple[str, str], Reported] = {}
    for one in reported:
        known = latest.setdefault((_stored(one.vendor_id), one.kind), one)
        if one.at > known.at:
            latest[_stored(one.vendor_id), one.kind] = one
    kept = {key: one for key, one in latest.items() if len(one.vendor_id) <= LONGEST}
    names, kinds = [name for name, _ in kept], [kind for _, kind in kept]
    said = [json.dumps(_said(one)) for one in kept.values()]
    with connection.cursor() as cursor:
        cursor.execute(MAY_WAIT, {"vendor": of.vendor_id, "most": MOST_WAIT})
        if not cursor.fetchall():
            return False
        rows: dict[str, Any] = {**of.params, "source": source, "names": names, "kinds": kinds, "said": said}
        cursor.execute(KEEP, rows)
    return True


def due() -> list[list[DueReport]]:
    """Waiting reports whose letters are known now, or that have waited for too long: at most AT_ONCE.

    Those of one account are together. All but those that are `done` with are due again later.
    """
    limits: dict[str, Any] = {"before": timezone.now() - WAITS, "most": AT_ONCE, "soonest": SOONEST, "latest": LATEST}
    with connection.cursor() as cursor:
        cursor.execute(DUE, limits)
        rows = [DueReport(*row) for row in cursor.fetchall()]
    groups: dict[tuple[int, str, tuple[int, ...]], list[DueReport]] = {}
    for row in rows:
        groups.setdefault((row.vendor_id, row.source, tuple(row.credentials)), []).append(row)
    return list(groups.values())


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


def _said(one: Reported) -> dict[str, Any]:
    said = {"kind": one.kind, "note": one.note[:LONGEST], "bounce": one.bounce, "code": one.code[:LONGEST]}
    return {name: _stored(text) for name, text in said.items()} | {"at": one.at.isoformat(), "timed": one.timed}
