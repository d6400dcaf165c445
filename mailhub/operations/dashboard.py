"""The numbers of the operations page and of `manage.py status`.

`read_dashboard` uses a fixed number of statements and counts no messages. `ask_workers` pings the workers for about a
second.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models import Count, QuerySet
from django.db.models.functions import TruncHour
from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from kombu.exceptions import OperationalError

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.engine.ground_truth import AWAITED
from campaigns.engine.pausing import complaints
from campaigns.engine.progress import Progress
from campaigns.models import Job, Message
from campaigns.models.states import PARENTS, RUNNING
from campaigns.reporting.forecast import ahead, eta, kept_totals, obstacles, queues, streams
from campaigns.reporting.forecast.ahead import SharingSponsor
from campaigns.reporting.forecast.eta import Eta
from campaigns.reporting.forecast.queues import LoginQueue, Sponsors, VendorQueue
from campaigns.reporting.forecast.streams import VendorStreams
from campaigns.senders.quotas import admission
from mailhub import worker_queues
from mailhub.operations import outcomes
from mailhub.operations.charts import WindowUsage, window_meters
from vendors import deferrals, health, ownership, redis_clients, report_counts, restarts, said
from vendors.condition.values import Condition, ConditionKind
from vendors.deferrals import NO_WAITS, VendorWaits
from vendors.limits.values import Limit
from vendors.listing import CONDITIONS
from vendors.mail_classes import MailClass
from vendors.models import Vendor
from vendors.remedies import Remedy
from vendors.said import show
from waiter.models import ParkedTask

SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that answered. unread: queues that none of them reads. lost: the broker does not answer.

    outdated: a sentence for each external adapter that some workers do not know.
    """

    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    lost: bool = False
    outdated: tuple[str, ...] = ()


def ask_workers(seconds: float = SECONDS) -> Workers:
    """Ask all workers which queues they read; waits `seconds` for their answers."""
    from mailhub.celery import app

    try:
        replies = app.control.inspect(timeout=seconds).active_queues() or {}
    except OperationalError:
        return Workers(lost=True)
    read = {queue["name"] for queues in replies.values() for queue in queues}
    unread = tuple(name for name in worker_queues.queues_to_read() if name not in read)
    return Workers(tuple(sorted(replies)), unread, outdated=tuple(restart_sentences()))


def restart_sentences() -> list[str]:
    """Return the sentences of vendors/restarts.py; none while Redis is away, which is reported elsewhere."""
    try:
        return restarts.needed_restarts()
    except redis_clients.WorkerRegistryUnreachable:
        return []


SHORT_WAIT = timedelta(minutes=1)  # vendors ask for shorter ones all day
COUNTED = 10_000
MOST_DOUBTS = 1_000  # of all vendors, counted by vendor
MOST_RUNNING = 200  # jobs on the map of mailcasters


@dataclass(slots=True)
class VendorRow:
    """A vendor's row on the page. waiting: messages of the viewer's sponsors. ends: forecast of the queue's end.

    obstacle: the reason for a missing end, or "". apart: messages that wait for something other than the window.
    condition: of its best credential, in a few words `brief` and with the reason as `state`; while no vendor may be
    called, both say that. look: the style of its badge. notes: further facts, such as credentials in a worse condition,
    or why other vendors of a route take nothing.
    remedy: its cure. doubts: messages without a known answer, up to MOST_DOUBTS. reports: today's delivery reports by
    kind. receivers: domains that wait. governed: the viewer governs the vendor; if not, the row hides what reveals
    others' mail. queue: the queue whose sponsors and classes follow, for viewers of all sponsors.
    """

    vendor: Vendor
    limits: tuple[Limit, ...]
    meters: list[WindowUsage]
    jobs: int = 0
    waiting: int = 0
    ends: str = ""
    obstacle: str = ""
    apart: list[str] = field(default_factory=list)
    condition: Condition = queues.UNTRIED
    brief: str = ""
    state: str = ""
    look: str = "idle"
    notes: list[str] = field(default_factory=list)
    remedy: Remedy | None = None
    doubts: int = 0
    good: int = 0
    bad: int = 0
    counted_at: datetime | None = None
    today: dict[str, int] = field(default_factory=dict)
    reports: dict[str, int] = field(default_factory=dict)
    governed: bool = True
    receivers: VendorWaits = NO_WAITS
    queue: VendorQueue | None = None

    @property
    def receiver_lines(self) -> list[str]:
        """The receiving domains that wait, as sentences."""
        said = [show(deferrals.describe_wait(one)) for one in self.receivers.rows]
        return [*said, *filter(None, [self.more_receivers])]

    @property
    def more_receivers(self) -> str:
        """How many more receiving domains wait than are named; "" if none does."""
        more = self.receivers.total - len(self.receivers.rows)
        form = ngettext("%(number)s more receiving domain waits", "%(number)s more receiving domains wait", more)
        return form % {"number": labels.format_number(more)} if more > 0 else ""

    def list_sharing(self, now: datetime) -> list[SharingSponsor]:
        """Return the sponsors with queued mail, with their shares now."""
        return ahead.list_sharing(self.queue, now) if self.queue else []

    @property
    def classes(self) -> dict[str, int]:
        """Queued messages by the word of their class."""
        found = self.queue.queued_by_class if self.queue else {}
        return {MailClass(one).word: count for one, count in found.items()}

    @property
    def row_rank(self) -> int:
        """The place of the row on the page: the less, the more a person has to do about it."""
        if self.look == "bad" or self.obstacle:
            return 0 if self.waiting else 1
        if self.look == "warn" or self.notes or self.doubts or self.receivers.total or self.refused_reports:
            return 2
        return 3 if self.waiting else 4

    @property
    def refused_reports(self) -> str:
        """Refused delivery reports, as a sentence or empty."""
        return report_counts.refused_sentence(self.reports) if self.reports else ""

    @property
    def open(self) -> bool:
        """Whether nothing is known against calls: it works, or was never tried."""
        return self.look in ("good", "idle")

    @property
    def ratio(self) -> str:
        total = self.good + self.bad
        return labels.format_share(self.good / total) if total else "–"

    @property
    def total(self) -> int:
        return self.good + self.bad

    @property
    def threshold(self) -> str:
        return labels.format_share(self.vendor.min_ratio, 0)


class RunningJob(NamedTuple):
    """A job with a sender. mailcaster: its name, or empty."""

    pk: int
    parent: int | None
    vendor: str
    mailcaster: str
    sums: Progress


@dataclass(slots=True)
class Dashboard:
    """The page's numbers, except those of the workers."""

    at: datetime
    vendors: list[VendorRow]
    running: list[RunningJob]
    today: dict[str, int]
    last_minute: int
    attention: int
    parked: list[tuple[datetime, int]]
    streams: list[VendorStreams]  # of all vendors; empty for viewers who may not see the total of mail
    alarms: list[str]
    failing: list[str]  # alarms of vendors that their rows tell, too

    @property
    def by_trouble(self) -> list[VendorRow]:
        """The vendors' rows, those first that need somebody."""
        return sorted(self.vendors, key=lambda row: row.row_rank)

    @property
    def in_trouble(self) -> int:
        """How many vendors cannot be called, or not to an end."""
        return sum(row.row_rank < 2 for row in self.vendors)

    @property
    def running_streams(self) -> int:
        return sum(one.running for one in self.streams)

    @property
    def jobs_waiting(self) -> int:
        """The number of jobs waiting for a stream; a vendor's oldest jobs only."""
        return sum(one.waiting for one in self.streams)

    @property
    def more_waiting(self) -> bool:
        return any(one.more for one in self.streams)

    @property
    def parked_total(self) -> int:
        return sum(count for _, count in self.parked)

    @property
    def hours(self) -> list[tuple[datetime, int, int]]:
        """Return (hour, parked tasks, percentage of the fullest hour) for each hour."""
        most = max(1, *(count for _, count in self.parked))
        return [(at, count, max(2, round(100 * count / most))) for at, count in self.parked]

    @property
    def failed_share(self) -> str:
        """The share of refusals in today's answers, as text."""
        answered = self.today["accepted"] + self.today["refused"]
        if not answered:
            return _("refused by the vendor")
        return _("%(share)s of what was answered") % {"share": labels.format_share(self.today["refused"] / answered, 2)}

    @property
    def waiting(self) -> int:
        return sum(row.waiting for row in self.vendors)

    @property
    def counted_at(self) -> datetime | None:
        """When the queues were counted, if earlier than the rest."""
        return min((row.counted_at for row in self.vendors if row.counted_at), default=None)

    @property
    def funnel(self) -> list[tuple[str, str, int, int]]:
        """Return the rows of the funnel: label, CSS class, messages, percentage of the largest."""
        rows = [
            (_("Waiting"), "idle", self.waiting),
            (_("Sent today"), "good", self.today["accepted"]),
            (_("Failed today"), "bad", self.today["refused"]),
            (_("Answer lost today"), "warn", self.today["in_doubt"]),
        ]
        most = max(1, *(count for _, _, count in rows))
        return [(name, look, count, round(100 * count / most)) for name, look, count in rows]


def read_dashboard(
    sponsors: Sponsors = None, *, recent: bool = False, known: "QuerySet[Vendor] | None" = None
) -> Dashboard:
    """Return the dashboard: totals of these sponsors' mail, and limits, windows and health of the known vendors.

    recent: counts of long queues may be some seconds old. known: None: all vendors.
    """
    now = timezone.now()
    today, last_minute = outcomes.outcomes_of_today(now, sponsors)
    vendors = list(Vendor.objects.all() if known is None else known)
    seen = queues.queues_of_vendors([vendor.pk for vendor in vendors], now, sponsors, recent=recent)
    total = {name: sum(counts[name] for counts in today.values()) for name in outcomes.COUNTS}
    found = streams.streams_of_vendors() if sponsors is None else []
    doubts = Message.objects.of_sponsors(sponsors).filter(in_doubt_at__isnull=False)
    doubts = doubts.exclude(settle_at__gt=now + AWAITED)
    attention = doubts.order_by()[: COUNTED + 1].count()
    rows = _vendor_rows(vendors, seen, today, now, counted=sponsors is None)
    of_vendors = _doubts_by_vendor(sponsors, now, recent) if attention else {}
    for row in rows:
        row.doubts = of_vendors.get(row.vendor.pk, 0)
    return Dashboard(
        at=now,
        vendors=rows,
        running=_running_jobs(sponsors),
        today=total,
        last_minute=last_minute,
        attention=attention,
        parked=_parked_by_hour(now) if sponsors is None else [],
        streams=found,
        alarms=[
            *_complaint_sentences(sponsors),
            *(_quota_sentences(recent) if sponsors is None else []),
            *streams.late_alarms(found, seen),
            *map(show, deferrals.lasting_waits([row.vendor.pk for row in rows if row.receivers.total])),
        ],
        failing=failing_vendors(rows),
    )


def _quota_sentences(recent: bool) -> list[str]:
    """Return a sentence for each nearly used quota. recent: it may be some seconds old."""

    def count_warned() -> list[Any]:
        return [[use.sentence, use.sentence.data] for use in admission.find_warned()]

    found = kept_totals.kept_counts("quotas", [], count_warned, bool) if recent else count_warned()
    return [show(said.read(text, data)) for text, data in found]


def _complaint_sentences(sponsors: Sponsors) -> list[str]:
    """Return a sentence for each pause after complaints that lasts, and for each warning of the last day."""
    seen = complaints.find_complaints(sponsors)
    paused = [
        _("Bulk mail of %(sponsor)s to %(provider)s is paused since %(at)s: %(why)s")
        % {
            "sponsor": one.sponsor.name,
            "provider": show(one.provider),
            "at": formats.date_format(timezone.localtime(one.paused_at), "j M H:i"),
            "why": show(one.figures),
        }
        for one in seen.pauses
    ]
    near = [
        _("Complaints about mail of %(sponsor)s to %(provider)s come near the limit: %(why)s")
        % {"sponsor": one.sponsor.name, "provider": show(one.provider), "why": show(one.figures)}
        for one in seen.warnings
    ]
    return [*paused, *near]


def failing_vendors(rows: list[VendorRow]) -> list[str]:
    """Return a sentence for each vendor that fails while messages wait for it."""
    return _waiting_sentences(row for row in rows if row.condition.kind is ConditionKind.FAILING)


def uncalled_vendors(rows: list[VendorRow], now: datetime) -> list[str]:
    """Return a sentence for each vendor with messages if none of these vendors may be called for a while, or []."""
    awaited = [row for row in rows if row.waiting]
    if any(_is_called_soon(row, now) for row in awaited):
        return []
    return _waiting_sentences(awaited)


def _is_called_soon(row: VendorRow, now: datetime) -> bool:
    if row.queue and row.queue.shut:
        return False
    until = row.condition.until
    return row.condition.kind not in (ConditionKind.SILENT, ConditionKind.SHUT) or (
        row.condition.kind is ConditionKind.SHUT and until is not None and until <= now + SHORT_WAIT
    )


def _waiting_sentences(rows: Iterable[VendorRow]) -> list[str]:
    return [
        ngettext(
            "vendor %(vendor)s: %(count)s message waits: %(why)s",
            "vendor %(vendor)s: %(count)s messages wait: %(why)s",
            row.waiting,
        )
        % {"vendor": row.vendor.slug, "count": labels.format_number(row.waiting), "why": row.state}
        for row in rows
        if row.waiting
    ]


def ends_text(end: Eta, queued: int, now: datetime) -> str:
    """Return the forecast of a queue's end, or why there is none; empty without a limit."""
    if end.obstacle:
        return _("no end: %(why)s") % {"why": end.obstacle.reason}
    return eta.format_about(end.ends_at, now) if queued else _("nothing is queued")


def _end_of_row(queue: VendorQueue, end: Eta, now: datetime) -> str:
    if not queue.waiting:
        return _("nothing waits")
    if not (queue.count_in_queue or end.obstacle):
        return _("put off or paused")
    return ends_text(end, queue.count_in_queue, now)


def row_of_vendor(vendor: Vendor) -> VendorRow:
    """Return one vendor's row, with all sponsors' mail; counts of long queues may be some seconds old."""
    now = timezone.now()
    return _vendor_rows(
        [vendor], queues.queues_of_vendors([vendor.pk], now, recent=True), defaultdict(dict), now, counted=True
    )[0]


def _vendor_rows(
    vendors: list[Vendor],
    seen: dict[int, VendorQueue],
    today: Mapping[int, dict[str, int]],
    now: datetime,
    *,
    counted: bool,
) -> list[VendorRow]:
    """Return the vendors' rows, with two requests to Redis and two statements in total.

    Vendors that take nothing cost some statements more, whatever their number. counted: the viewer may see the total of
    waiting mail.
    """
    eta.read_windows(seen.values())
    reports, waits = report_counts.counts_today(list(seen)), deferrals.waits_of_vendors(list(seen))
    looked: Mapping[int, health.HealthStatus] = {}
    with suppress(health.HealthStoreUnreachable):
        looked = health.health_store(settings.REDIS_URL).looks({one.pk: health.HealthPolicy.of(one) for one in vendors})
    rows = [
        _make_vendor_row(
            vendor, seen[vendor.pk], today[vendor.pk], looked.get(vendor.pk), reports[vendor.pk], now, counted
        )
        for vendor in vendors
    ]
    if counted and ownership.sees_all_sponsors():
        stays = eta.stays_of_queues(seen.values(), now)
        for row in rows:
            row.notes += stays.get(row.vendor.pk, ())
    for row in rows:
        row.receivers = waits[row.vendor.pk] if row.governed else NO_WAITS
    return rows


def _make_vendor_row(
    vendor: Vendor,
    queue: VendorQueue,
    today: dict[str, int],
    status: health.HealthStatus | None,
    reports: dict[str, int],
    now: datetime,
    counted: bool,
) -> VendorRow:
    row = VendorRow(
        vendor, queue.limits, window_meters(queue.limits, eta.vendor_window(queue)), queue.jobs, queue.mine,
        today=today, counted_at=queue.counted_at, reports=reports,
    )  # fmt: skip
    end = eta.forecast_queue(queue, now)
    row.ends = _end_of_row(queue, end, now)
    row.obstacle = end.obstacle.reason if queue.waiting and end.obstacle else ""
    row.apart = obstacles.waiting_apart(vendor, queue, now) if counted else []
    if counted and ownership.sees_all_sponsors():
        row.queue = queue
        row.apart += ahead.describe_sharing(queue)
    row.condition, row.state, row.look = queue.best_condition, *_state_and_look(queue, now)
    row.brief = _brief_of(queue, now)
    row.notes, row.remedy = _worse_logins(queue, now), queue.remedy(None)
    if status:
        row.good, row.bad = status.good, status.bad
        if not status.accepting:
            seconds = f"{status.seconds:.0f}\N{NO-BREAK SPACE}s"
            row.notes.append(_("programs hear 503, retry after %(seconds)s") % {"seconds": seconds})
    row.governed = ownership.is_disclosed(vendor.pk)
    if not row.governed:
        row.jobs, row.meters, row.reports = 0, [replace(one, used=None, secret=True) for one in row.meters], {}
        row.good = row.bad = 0
    return row


def _state_and_look(queue: VendorQueue, now: datetime) -> tuple[str, str]:
    """Return the vendor's condition in words, and the style of its badge."""
    if queue.halted:
        return _("halted: %(why)s") % {"why": queue.halted}, "bad"
    best = queue.best_login
    if queue.shut or best is None:
        return queue.vendor_stop_reason or _("the vendor has no credential"), "bad"
    return best.describe_for_page(now), CONDITIONS[queue.best_condition.kind][1]


def _brief_of(queue: VendorQueue, now: datetime) -> str:
    """Return the vendor's condition in a few words."""
    if queue.halted:
        return _("halted")
    if queue.shut and queue.brief:
        return show(queue.brief)
    return queue.best_login.name_condition(now) if queue.best_login else _("the vendor has no credential")


def _worse_logins(queue: VendorQueue, now: datetime) -> list[str]:
    """Describe the credentials in a worse condition than the vendor's best one."""
    if queue.shut:
        return []
    fine = (ConditionKind.WORKS, ConditionKind.UNTRIED)
    others = (one for one in queue.logins.values() if one is not queue.best_login and one.condition.kind not in fine)
    return [one.login_stop_reason or _named_login(one, one.describe_for_page(now)) for one in others]


def _named_login(login: LoginQueue, said: str) -> str:
    return _("credential %(name)s: %(said)s") % {"name": login.name, "said": said} if login.disclosed else said


DOUBTS = """
SELECT leaf.vendor_id, count(*) FROM (
    SELECT m.id, m.campaign_id FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
    WHERE m.in_doubt_at IS NOT NULL AND NOT coalesce(m.settle_at > %(awaited)s, false)
        AND (%(sponsors)s::bigint[] IS NULL OR c.sponsor_id = ANY(%(sponsors)s::bigint[]))
    ORDER BY m.id LIMIT %(most)s
) d JOIN campaigns_job leaf ON leaf.campaign_id = d.campaign_id AND d.id >= leaf.first_message
    AND d.id < leaf.first_message + leaf.size AND leaf.status <> ALL(%(parents)s)
GROUP BY 1
"""


def _doubts_by_vendor(sponsors: Sponsors, now: datetime, recent: bool) -> dict[int, int]:
    """Return how many of the first MOST_DOUBTS messages in doubt each vendor has."""
    asked = {"awaited": now + AWAITED, "sponsors": sponsors, "most": MOST_DOUBTS, "parents": list(PARENTS)}

    def count_doubts() -> list[tuple[int, int]]:
        with connection.cursor() as cursor:
            cursor.execute(DOUBTS, asked)
            return list(cursor.fetchall())

    if not recent:
        return dict(count_doubts())
    return dict(kept_totals.kept_counts("doubts", sponsors, count_doubts, _are_many))


def _are_many(rows: list[tuple[int, int]]) -> bool:
    return sum(many for _vendor, many in rows) >= MOST_DOUBTS


def _running_jobs(sponsors: Sponsors) -> list[RunningJob]:
    jobs = Job.objects.of_sponsors(sponsors).filter(status__in=RUNNING).order_by("vendor", "mailcaster")
    rows = list(jobs.values_list("pk", "parent_id", "vendor__slug", "mailcaster__name")[:MOST_RUNNING])
    sums = progress.progress_of_leaves([pk for pk, *_ in rows])
    return [RunningJob(pk, parent, slug, name or "", sums.get(pk, Progress())) for pk, parent, slug, name in rows]


def _parked_by_hour(now: datetime) -> list[tuple[datetime, int]]:
    """Count the parked tasks for each of the next 24 hours."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    soon = ParkedTask.waiting.filter(due_at__lt=hour + timedelta(hours=24))
    rows = soon.order_by().annotate(hour=TruncHour("due_at")).values_list("hour").annotate(count=Count("id"))
    counts = {max(at, hour): 0 for at, _ in rows}
    for at, count in rows:
        counts[max(at, hour)] += count
    return [(hour + timedelta(hours=n), counts.get(hour + timedelta(hours=n), 0)) for n in range(24)]
