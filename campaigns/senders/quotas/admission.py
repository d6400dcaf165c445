"""Asks the quotas when work comes in, is sent again or is dispatched. A claim asks nothing.

Decisions about a sponsor with quotas take turns: the second one waits until the first one's transaction ends, then
counts. The turn is an advisory lock of the sponsor, taken after the locks of jobs (engine/lifecycle.py); its holder
never asks for a job. A sponsor without quotas takes none: the locking statement finds the sponsors with quotas.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine.lifecycle import sql_list
from campaigns.models import SponsorQuota
from campaigns.senders.quotas.book import (
    OPEN,
    UNDISPATCHED,
    NewWork,
    QuotaBook,
    QuotaRefusal,
    QuotaUse,
    read_book,
    read_quotas,
)
from vendors import alarms
from vendors.models import Credential
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)
MOST_WARNED = 50  # sponsors
HELD = gettext_noop("held: %(why)s")

_TURNS = "SELECT pg_advisory_xact_lock(hashtext('campaigns_sponsorquota'), one.id::int), one.id FROM ({which}) one"
_WITH_QUOTAS = "SELECT DISTINCT sponsor_id AS id FROM campaigns_sponsorquota WHERE sponsor_id = ANY({of}) ORDER BY 1"
TURNS = _TURNS.format(which=_WITH_QUOTAS.format(of="%(sponsors)s::bigint[]"))
OF_JOBS = "ARRAY(SELECT sponsor_id FROM campaigns_job WHERE id = ANY(%(jobs)s::bigint[]))"
TURNS_OF_JOBS = _TURNS.format(which=_WITH_QUOTAS.format(of=OF_JOBS))
JOBS_WITH_QUOTAS = _WITH_QUOTAS.format(of=OF_JOBS)
# Not those past their deadline: nothing of them is called, and their sender lets them expire.
JOBS = f"""
SELECT j.id, j.sponsor_id, j.vendor_id, j.credential_id, greatest(0, {OPEN}) FROM campaigns_job j
WHERE j.id = ANY(%(jobs)s::bigint[]) AND j.sponsor_id = ANY(%(sponsors)s::bigint[])
    AND j.status IN {sql_list(UNDISPATCHED)}
    AND NOT EXISTS (SELECT FROM campaigns_campaign c WHERE c.id = j.campaign_id AND c.deadline <= %(now)s)
ORDER BY j.id
"""
WARNED = """
UPDATE campaigns_sponsorquota q SET warned_on = w.day FROM unnest(%(quotas)s::bigint[], %(days)s::date[]) AS w(id, day)
WHERE q.id = w.id AND q.warned_on IS DISTINCT FROM w.day RETURNING q.id
"""


def admit_all(cursor: Any, works: Sequence[NewWork], is_counted: bool = False) -> list[QuotaRefusal | None]:
    """Decide about new work in the transaction that stores it. Returns the reason for refusal of each, or None.

    Later decisions about the same sponsors wait for the end of the transaction. is_counted: its job is stored already.
    cursor: of Django or of psycopg.
    """
    cursor.execute(TURNS, {"sponsors": [one.sponsor_id for one in works]})
    with_quotas = [sponsor for _, sponsor in cursor.fetchall()]
    if not with_quotas:
        return [None] * len(works)
    book = _book_of(cursor, with_quotas, works)
    return [_admit_work(cursor, book, one, is_counted) for one in works]


def _admit_work(cursor: Any, book: QuotaBook, work: NewWork, is_counted: bool) -> QuotaRefusal | None:
    refusal = book.refusal_of_work(work, is_counted)
    if refusal is None:
        if not is_counted:
            book.add_work(work)
        _warn_once(cursor, book.uses_of(work))
    return refusal


def _warn_once(cursor: Any, uses: Iterable[QuotaUse]) -> None:
    """Log the nearly used quotas, each once in its present period."""
    today = timezone.now().date()
    found = {
        use.quota.id: use
        for use in uses
        if use.warns and use.started_on <= today and use.quota.warned_on != use.started_on
    }
    if found:
        cursor.execute(WARNED, {"quotas": list(found), "days": [use.started_on for use in found.values()]})
        for (quota,) in cursor.fetchall():
            alarms.QUOTA_NEARLY_USED.log(log, found[quota].sentence)


def warn_of(sponsor_id: int) -> None:
    """Log the sponsor's nearly used quotas, after one was changed."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(TURNS, {"sponsors": [sponsor_id]})
        if quotas := read_quotas(cursor, [sponsor_id]):
            _warn_once(cursor, read_book(cursor, quotas, timezone.now()).find_uses())


def foresee_answers(works: Sequence[NewWork]) -> list[QuotaRefusal | QuotaUse]:
    """Return the quotas' answer to each of these if it came alone: a refusal, or a quota nearly used by it."""
    with connection.cursor() as cursor:
        quotas = read_quotas(cursor, {one.sponsor_id for one in works})
        if not quotas:
            return []
        found: list[QuotaRefusal | QuotaUse] = []
        for work in works:
            book = read_book(cursor, quotas, timezone.now(), [work[:3]])
            if refusal := book.refusal_of_work(work):
                found.append(refusal)
                continue
            book.add_work(work)
            found += [use for use in book.uses_of(work) if use.warns]
        return found


def find_uses(sponsors: Collection[int]) -> dict[int, QuotaUse]:
    """Return how much of the quotas of these sponsors is used now, by the quotas' ids, in the order they were made."""
    with connection.cursor() as cursor:
        quotas = read_quotas(cursor, sponsors) if sponsors else []
        book = read_book(cursor, quotas, timezone.now()) if quotas else None
        return {use.quota.id: use for use in book.find_uses()} if book else {}


def find_warned() -> list[QuotaUse]:
    """Return the still nearly used quotas with a warning in their present period."""
    now = timezone.now()
    periods = [now.date(), now.date().replace(day=1)]
    rows = SponsorQuota.objects.filter(warned_on__in=periods).order_by("id").values_list("sponsor_id", flat=True)
    uses = find_uses(set(rows[:MOST_WARNED])) if rows else {}
    return [use for use in uses.values() if use.warns and use.quota.warned_on == use.started_on]


def find_quota_refusal(work: NewWork) -> QuotaRefusal | None:
    """Return the reason to refuse the work now, or None. Locks nothing."""
    return next((one for one in foresee_answers([work]) if isinstance(one, QuotaRefusal)), None)


def find_held(job_ids: Collection[int], now: datetime | None = None) -> dict[int, QuotaRefusal]:
    """Return which of these undispatched jobs a quota holds, alone or beside the others before it. Locks nothing."""
    with connection.cursor() as cursor:
        cursor.execute(JOBS_WITH_QUOTAS, {"jobs": list(job_ids)})
        with_quotas = [sponsor for (sponsor,) in cursor.fetchall()]
        return _held_among(cursor, with_quotas, job_ids, now) if with_quotas else {}


def take_turns(job_ids: Collection[int]) -> None:
    """Take the turns of the sponsors of these jobs, which the caller has locked, in the one order.

    For a transaction that dispatches jobs of several sponsors in several steps.
    """
    with connection.cursor() as cursor:
        cursor.execute(TURNS_OF_JOBS, {"jobs": list(job_ids)})


def hold_jobs_back(job_ids: Collection[int], now: datetime | None = None) -> list[int]:
    """Return which of these jobs a quota holds, oldest first, in the transaction that locked and dispatches the others.

    Takes four statements for any number of jobs; one if no sponsor has quotas.
    """
    with connection.cursor() as cursor:
        cursor.execute(TURNS_OF_JOBS, {"jobs": list(job_ids)})
        with_quotas = [sponsor for _, sponsor in cursor.fetchall()]
        return list(_held_among(cursor, with_quotas, job_ids, now, warns=True)) if with_quotas else []


def tell_held(job_ids: Collection[int]) -> dict[int, Said]:
    """Return why each of these jobs is held by a quota, by its id; others are left out."""
    found = find_held(job_ids) if job_ids else {}
    return {job_id: Said(HELD, why=refusal.sentence) for job_id, refusal in found.items()}


class VendorQuotas:
    """A sponsor's quotas at the vendors to which its work may move. Quotas in all have counted the work already.

    book: None if there are none. Logs nearly used quotas as work moves.
    """

    def __init__(self, sponsor_id: int, book: QuotaBook | None) -> None:
        self._sponsor, self._book = sponsor_id, book

    def find_refusal(self, credential: Credential, messages: int) -> str:
        """Return why this number of messages may not move there, or "". Counts those that may for the next question."""
        if self._book is None or not messages:
            return ""
        work = NewWork(self._sponsor, credential.vendor_id, credential.pk, messages, self._book.now)
        if refusal := self._book.refusal_of_work(work, dispatches=True):
            return refusal.sentence
        self._book.add_work(work)
        with connection.cursor() as cursor:
            _warn_once(cursor, self._book.uses_of(work))
        return ""


def open_vendor_quotas(sponsor_id: int, to: Sequence[tuple[int, int]]) -> VendorQuotas:
    """Return the quotas for moves of a sponsor's dispatched work, in the transaction that has locked the jobs.

    Later decisions about the sponsor wait for its end. to: vendors, each with a credential.
    """
    vendors = {vendor for vendor, _credential in to}
    with connection.cursor() as cursor:
        quotas = [one for one in read_quotas(cursor, [sponsor_id]) if one.vendor_id in vendors]
        if quotas:
            cursor.execute(TURNS, {"sponsors": [sponsor_id]})
            quotas = [one for one in read_quotas(cursor, [sponsor_id]) if one.vendor_id in vendors]
        asked = [(sponsor_id, vendor, credential) for vendor, credential in to]
        book = read_book(cursor, quotas, timezone.now(), asked) if quotas else None
    return VendorQuotas(sponsor_id, book)


def refuse_moves(asked: Sequence[tuple[int, int, int, int]]) -> list[str]:
    """Return why each move of dispatched work may not be made if it came alone, or "". Locks and counts nothing.

    asked: sponsor, vendor, credential and number of messages. Quotas in all have counted the work already.
    """
    if not asked:
        return []
    now = timezone.now()
    works = [NewWork(*one, now) for one in asked]
    with connection.cursor() as cursor:
        quotas = [one for one in read_quotas(cursor, {of for of, *_ in asked}) if one.vendor_id is not None]
        book = read_book(cursor, quotas, now, [one[:3] for one in works]) if quotas else None
    refusals = [book.refusal_of_work(one, dispatches=True) if book else None for one in works]
    return [one.sentence if one else "" for one in refusals]


def _held_among(
    cursor: Any, sponsors: Collection[int], job_ids: Collection[int], now: datetime | None, warns: bool = False
) -> dict[int, QuotaRefusal]:
    """Let the jobs go that fit one after the other, oldest first; a job that does not fit holds no other one.

    warns: log nearly used quotas as the jobs are dispatched.
    """
    now = now or timezone.now()
    cursor.execute(JOBS, {"jobs": list(job_ids), "sponsors": list(sponsors), "now": now})
    jobs = {row[0]: NewWork(row[1], row[2], row[3], row[4], now) for row in cursor.fetchall()}
    book = _book_of(cursor, sponsors, jobs.values(), now)
    if warns:
        _warn_once(cursor, book.find_uses(now))
    held = {}
    for job_id, work in jobs.items():
        if refusal := book.refusal_of_work(work, dispatches=True):
            held[job_id] = refusal
        else:
            book.add_work(work)
    return held


def _book_of(
    cursor: Any, sponsors: Collection[int], works: Iterable[NewWork], now: datetime | None = None
) -> QuotaBook:
    quotas = read_quotas(cursor, sponsors)
    return read_book(cursor, quotas, now or timezone.now(), [one[:3] for one in works])
