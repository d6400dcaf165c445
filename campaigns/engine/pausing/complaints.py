"""Counts complaints by sponsor, receiving domain and day, and pauses a sponsor's bulk mail to a domain after too many.

Gmail and Yahoo judge a sender by complaints per mail of a day, each over its own domains. Their limits are ours: a
warning at 0.1 %, a pause at 0.3 %. Other sponsors, other receivers and mail other than bulk continue.

Numerator: a complaint counts on the day (UTC) on which its mail was called, as in Gmail's Postmaster Tools. So the
numerator is a part of the denominator: a late complaint neither spoils a day with few mails nor is lost. Stretches
older than LOOKS_BACK are counted, but not judged.

Denominator: accepted e-mail of that sponsor, day and receiver, counted in the messages, but only once there are enough
complaints for a limit. A count can only grow. So it is repeated when further complaints could exceed a limit at the
last count, or when too few were accepted and the sponsor's accounts of the day have grown. Counting each mail as it is
merged would cost all mail, for figures that few sponsors ever need.

All work about one sponsor is done in its turn (`take_turn`), which is the first lock taken here.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.engine import failpoints
from campaigns.engine.lifecycle import passes_locked, wait_at_most
from campaigns.models import Campaign, ComplaintPause, ComplaintRate, Sponsor
from campaigns.models.states import PARENTS, Status
from vendors import alarms, history, receivers
from vendors.history import Actor
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)
ITSELF = Actor("mailhub")
OfWhom = Collection[int] | None
LOOKS_BACK = timedelta(days=7)
WARNED_FOR = timedelta(days=1)  # a warning is shown that long
WORSE = 1.5  # after a resume, the stretches of before pause only at that many times the accepted rate
GROWTH = 20  # too few are counted again after the sponsor's day has grown by 1/GROWTH

TO_JUDGE = """
SELECT sponsor_id FROM campaigns_uncountedcomplaint UNION SELECT sponsor_id FROM campaigns_complaintrate WHERE waits
ORDER BY 1
"""
# A stretch begins with the day of the call, or with the latest resume before the call.
COUNT = """
WITH gone AS (
    DELETE FROM campaigns_uncountedcomplaint WHERE sponsor_id = %(sponsor)s RETURNING receiver, sent_at
), placed AS (
    SELECT receiver, greatest(date_trunc('day', sent_at, 'UTC'), (
        SELECT max(p.resumed_at) FROM campaigns_complaintpause p
        WHERE p.sponsor_id = %(sponsor)s AND p.receiver = gone.receiver AND p.resumed_at <= gone.sent_at)) AS since
    FROM gone
)
INSERT INTO campaigns_complaintrate AS was (sponsor_id, receiver, since, complaints)
SELECT %(sponsor)s, receiver, since, count(*) FROM placed GROUP BY receiver, since ORDER BY receiver, since
ON CONFLICT (sponsor_id, receiver, since) DO UPDATE SET complaints = was.complaints + excluded.complaints
RETURNING was.id
"""
# The leaves that can have called within the stretch, each kind by an index; then their messages by key.
ACCEPTED = """
WITH leaf AS (
    SELECT id FROM campaigns_job
    WHERE sponsor_id = %(sponsor)s AND created_at >= %(since)s - interval '7 days' AND created_at < %(until)s
    UNION SELECT id FROM campaigns_job WHERE sponsor_id = %(sponsor)s AND finished_at >= %(since)s
    UNION SELECT id FROM campaigns_job WHERE sponsor_id = %(sponsor)s AND status = ANY(%(open)s)
)
SELECT count(m.id) FROM leaf JOIN campaigns_job j USING (id) JOIN vendors_vendor v ON v.id = j.vendor_id
CROSS JOIN LATERAL (
    SELECT m.id FROM campaigns_message m
    WHERE m.id >= j.first_message AND m.id < j.first_message + j.size AND m.message_id IS NOT NULL
        AND m.sent_at >= %(since)s AND m.sent_at < %(until)s
        AND (lower(rtrim(split_part(m.recipient, '@', -1), '.')) = ANY(%(domains)s::text[])) = %(among)s
) m
WHERE j.created_at < %(until)s AND j.accepted > 0 AND j.status <> ALL(%(parents)s) AND v.channel = 'email'
    AND NOT v.sandbox
"""
LET_GO_ON = """
UPDATE campaigns_job SET not_before = NULL WHERE id IN (
    SELECT j.id FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id
    WHERE j.sponsor_id = %(sponsor)s AND j.status = 'DISPATCHED' AND j.not_before > clock_timestamp()
        AND c.size > 1 AND NOT c.transactional
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED)
RETURNING vendor_id
"""
# For a vendor v: the receivers to which bulk mail of sponsors is paused, by sponsor, as `may_hold` says; NULL: none. A
# pause or a resume raises limits_version of the vendors (a trigger), so no claim is made without knowing of it.
HELD = """CASE WHEN v.channel = 'email' AND NOT v.sandbox THEN (
    SELECT json_object_agg(p.sponsor_id, p.receivers) FROM (
        SELECT sponsor_id, json_agg(receiver) AS receivers FROM campaigns_complaintpause
        WHERE resumed_at IS NULL GROUP BY sponsor_id) p) END"""
SHOWN = """
SELECT true, s.id, s.name, p.paused_at AS at, p."limit", p.receiver, p.complaints, p.accepted
FROM campaigns_complaintpause p JOIN campaigns_sponsor s ON s.id = p.sponsor_id
WHERE p.resumed_at IS NULL AND (%(sponsors)s::bigint[] IS NULL OR s.id = ANY(%(sponsors)s::bigint[]))
UNION ALL
SELECT false, s.id, s.name, r.warned_at, NULL, r.receiver, r.complaints, r.accepted
FROM campaigns_complaintrate r JOIN campaigns_sponsor s ON s.id = r.sponsor_id
WHERE r.warned_at >= %(since)s AND (%(sponsors)s::bigint[] IS NULL OR s.id = ANY(%(sponsors)s::bigint[]))
    AND NOT EXISTS (SELECT FROM campaigns_complaintpause p
        WHERE p.sponsor_id = r.sponsor_id AND p.receiver = r.receiver AND p.resumed_at IS NULL)
ORDER BY 1 DESC, at, 2
"""
RESUMED_NEXT = """
SELECT min(resumed_at) FROM campaigns_complaintpause
WHERE sponsor_id = %(sponsor)s AND receiver = %(receiver)s AND resumed_at > %(since)s
"""
SENT = """
SELECT coalesce(sum(messages), 0) FROM campaigns_costentry
WHERE day = (%(since)s AT TIME ZONE 'UTC')::date AND sponsor_id = %(sponsor)s
"""


@dataclass(frozen=True, slots=True)
class ComplaintLimits:
    """The limits of a sponsor in percent; 0 is none. least: accepted mails of a stretch to judge by."""

    warning: float
    pause: float
    least: int

    def judge_stretch(self, rate: ComplaintRate, accepted: int) -> str:
        """Return "pause", "warning" or "" for the stretch with this number of accepted mails."""
        if accepted < self.least:
            return ""
        limit = self.limit_of(rate)
        if limit and 100 * rate.complaints >= limit * accepted:
            return "pause"
        warns = self.warning and rate.warned_at is None and 100 * rate.complaints >= self.warning * accepted
        return "warning" if warns else ""

    def limit_of(self, rate: ComplaintRate) -> float:
        """Return the limit at which the stretch pauses: higher if somebody accepted its rate."""
        return max(self.pause, WORSE * rate.seen) if self.pause else 0.0


def limits_of(sponsor: Sponsor) -> ComplaintLimits:
    """Return the sponsor's own limits, or the installation's where it has none."""
    warning, pause = sponsor.complaint_warning, sponsor.complaint_limit
    return ComplaintLimits(
        settings.RECEIVER_COMPLAINT_WARNING if warning is None else warning,
        settings.RECEIVER_COMPLAINT_LIMIT if pause is None else pause,
        settings.RECEIVER_COMPLAINT_LEAST,
    )


def judge_complaints() -> list[ComplaintPause]:
    """Count new complaints, warn, and pause. Returns the new pauses. Raises database errors.

    Leaves a sponsor to the next run if another process has its turn. Safe to run concurrently and to kill at any line.
    """
    with connection.cursor() as cursor:
        cursor.execute(TO_JUDGE)
        sponsors = [sponsor_id for (sponsor_id,) in cursor.fetchall()]
    paused: list[ComplaintPause] = []
    for sponsor_id in sponsors:
        with passes_locked():
            warned, its = _judge_sponsor(sponsor_id)
            for pause in its:
                alarms.COMPLAINTS_PAUSED.log(log, pause.sponsor.name, pause.receiver, pause.figures)
            for rate in warned:
                alarms.COMPLAINTS_NEAR_LIMIT.log(log, rate.sponsor.name, rate.receiver, rate.figures)
            paused += its
    return paused


@transaction.atomic
def _judge_sponsor(sponsor_id: int) -> tuple[list[ComplaintRate], list[ComplaintPause]]:
    """Return the stretches warned about and the new pauses of one sponsor."""
    wait_at_most()
    sponsor = take_turn(sponsor_id)
    fresh = _count_new(sponsor_id)
    failpoints.here("mid_complaints")
    limits, paused = limits_of(sponsor), set(_lasting_pauses(sponsor_id).values_list("receiver", flat=True))
    recent = ComplaintRate.objects.filter(sponsor=sponsor_id, since__gte=timezone.now() - LOOKS_BACK)
    warned, pauses = [], []
    for rate in recent.filter(Q(pk__in=fresh) | Q(waits=True)).order_by("since", "id"):
        rate.sponsor = sponsor
        what = "" if rate.receiver in paused else _judge_stretch(rate, limits)
        rate.waits = rate.waits and rate.receiver not in paused
        if what == "pause":
            pauses.append(_pause_receiver(rate, limits))
            paused.add(rate.receiver)
        elif what == "warning":
            rate.warned_at = timezone.now()
            warned.append(rate)
        rate.save(update_fields=["accepted", "sent", "waits", "warned_at"])
    ComplaintRate.objects.filter(sponsor=sponsor_id, waits=True, since__lt=timezone.now() - LOOKS_BACK).update(
        waits=False
    )
    return warned, pauses


def take_turn(sponsor_id: int) -> Sponsor:
    """Wait for those who judge this sponsor or resume its mail; others wait until the transaction ends.

    Its row stays free: counting may take a while, and campaigns and webhooks use the row. Raises Sponsor.DoesNotExist.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('campaigns_complaintpause'), %s::int)", [sponsor_id])
    return Sponsor.objects.get(pk=sponsor_id)


def _count_new(sponsor_id: int) -> list[int]:
    """Add the uncounted complaints to their stretches. Returns the ids of those stretches."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, {"sponsor": sponsor_id})
        return [pk for (pk,) in cursor.fetchall()]


def _judge_stretch(rate: ComplaintRate, limits: ComplaintLimits) -> str:
    """Return as ComplaintLimits.judge_stretch, and count the accepted mails of the stretch if that can change the
    answer.
    """
    near = [limits.limit_of(rate), limits.warning if rate.warned_at is None else 0.0]
    lowest = min(filter(None, near), default=0.0)
    rate.waits = False
    if not lowest or 100 * rate.complaints < lowest * limits.least:
        return ""
    if rate.accepted is not None and rate.accepted >= limits.least and 100 * rate.complaints < lowest * rate.accepted:
        return ""
    [sent] = _fetch_one_row(SENT, {"sponsor": rate.sponsor_id, "since": rate.since})
    lacks = limits.least - (rate.accepted or 0)
    if sent - rate.sent >= max(lacks, rate.sent // GROWTH) or lacks <= 0:
        rate.accepted, rate.sent = count_accepted(rate), sent
    rate.waits = (rate.accepted or 0) < limits.least and timezone.now() < _day_end(rate.since)
    return limits.judge_stretch(rate, rate.accepted or 0)


def _day_end(since: datetime) -> datetime:
    return since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def count_accepted(rate: ComplaintRate) -> int:
    """Return how many e-mails of a stretch are accepted."""
    of = {"sponsor": rate.sponsor_id, "receiver": rate.receiver, "since": rate.since}
    [resumed] = _fetch_one_row(RESUMED_NEXT, of)
    until = min(filter(None, (resumed, _day_end(rate.since))))
    groups = receivers.known_groups()
    among = rate.receiver in groups
    domains = groups[rate.receiver] if among else tuple(receivers.groups_of_domains())
    params = {**of, "until": until, "domains": list(domains), "among": among}
    params |= {"parents": list(PARENTS), "open": [one.value for one in Status if one != Status.LOGGED]}
    [accepted] = _fetch_one_row(ACCEPTED, params)
    return int(accepted)


def _fetch_one_row(statement: str, params: dict[str, Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchone()


def _pause_receiver(rate: ComplaintRate, limits: ComplaintLimits) -> ComplaintPause:
    pause = ComplaintPause.objects.create(
        sponsor=rate.sponsor, receiver=rate.receiver, since=rate.since, complaints=rate.complaints,
        accepted=rate.accepted or 0, limit=limits.limit_of(rate),
    )  # fmt: skip
    history.record_changes(ITSELF, Sponsor, [(rate.sponsor_id, _paused_sentence(pause))])
    return pause


def _paused_sentence(pause: ComplaintPause) -> Said:
    return Said(gettext_noop("bulk mail to %(receiver)s paused: %(why)s"), receiver=pause.provider, why=pause.figures)


def _lasting_pauses(sponsor_id: int | None = None) -> Any:
    rows = ComplaintPause.objects.filter(resumed_at=None)
    return rows if sponsor_id is None else rows.filter(sponsor=sponsor_id)


@transaction.atomic
def resume_receiver(pause_id: int, by: Actor, reason: str = "") -> ComplaintPause | None:
    """Resume a sponsor's bulk mail to a receiver. Returns the pause, or None if it was over already.

    The present rates are accepted: mails called from now on are a new stretch, and the stretches of before pause again
    only at WORSE times their rate. Raises ComplaintPause.DoesNotExist.
    """
    sponsor_id = ComplaintPause.objects.values_list("sponsor", flat=True).get(pk=pause_id)
    take_turn(sponsor_id)
    pause: ComplaintPause | None = _lasting_pauses().select_related("sponsor").filter(pk=pause_id).first()
    if pause is None:
        return None
    _count_new(sponsor_id)
    rates = ComplaintRate.objects.filter(
        sponsor=sponsor_id, receiver=pause.receiver, since__gte=timezone.now() - LOOKS_BACK
    )
    for rate in rates:
        _accept_rate(rate)
    ComplaintPause.objects.filter(pk=pause.pk).update(
        resumed_at=_database_now(), resumed_by=by.name[:150], resumed_reason=reason.strip()[:255]
    )
    pause.refresh_from_db()
    said = Said(gettext_noop("bulk mail to %(receiver)s goes on"), receiver=pause.provider)
    history.record_changes(by, Sponsor, [(sponsor_id, said)], reason)
    return pause


def _accept_rate(rate: ComplaintRate) -> None:
    if rate.accepted is not None:
        rate.accepted = count_accepted(rate)
        rate.seen = max(rate.seen, 100 * rate.complaints / max(1, rate.accepted))
    rate.waits = False
    rate.save(update_fields=["accepted", "seen", "waits"])


def let_go_on(resumed: ComplaintPause) -> set[int]:
    """Release the sponsor's jobs that wait for a time, so that senders take them immediately. Returns their vendors.

    A job that waits for something else is put back for it. Locked jobs are left to their time.
    """
    with connection.cursor() as cursor:
        cursor.execute(LET_GO_ON, {"sponsor": resumed.sponsor_id})
        return {vendor_id for (vendor_id,) in cursor.fetchall()}


def _database_now() -> datetime:
    [now] = _fetch_one_row("SELECT clock_timestamp()", {})
    return now  # type: ignore[no-any-return]


def may_hold(vendor: Vendor, campaign: Campaign) -> bool:
    """Tell whether pauses concern this campaign's mail by this vendor."""
    return campaign.is_bulk and vendor.channel == Vendor.Channel.EMAIL and not vendor.sandbox


def lasting_pauses(sponsors: OfWhom = None) -> "list[ComplaintPause]":
    """Return the pauses that last, the oldest first; of these sponsors, None: of all."""
    return list(_lasting_pauses().of_sponsors(sponsors).select_related("sponsor").order_by("id"))


def recent_rates(rows: "QuerySet[ComplaintRate]") -> "QuerySet[ComplaintRate]":
    """Return the stretches still judged, the newest first."""
    return rows.filter(since__gte=timezone.now() - LOOKS_BACK).order_by("-since", "-complaints", "id")


class ShownComplaints(NamedTuple):
    """Pauses that last, and warnings of the last day about unpaused mail."""

    pauses: list[ComplaintPause]
    warnings: list[ComplaintRate]


def find_complaints(sponsors: OfWhom = None) -> ShownComplaints:
    """Return what operators see, by one statement; of these sponsors, None: of all. The rows have few columns."""
    found = ShownComplaints([], [])
    of = None if sponsors is None else list(sponsors)
    with connection.cursor() as cursor:
        cursor.execute(SHOWN, {"sponsors": of, "since": timezone.now() - WARNED_FOR})
        for lasts, sponsor_id, name, at, limit, *figures in cursor.fetchall():
            receiver, complaints, accepted = figures
            row = {"receiver": receiver, "complaints": complaints, "accepted": accepted}
            sponsor = Sponsor(pk=sponsor_id, name=name)
            if lasts:
                found.pauses.append(ComplaintPause(sponsor=sponsor, paused_at=at, limit=limit, **row))
            else:
                found.warnings.append(ComplaintRate(sponsor=sponsor, warned_at=at, **row))
    return found
