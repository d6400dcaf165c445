"""/metrics for Prometheus, read from the rows and from Redis at each scrape.

All processes of all machines give the same numbers; scrape one of them. No statement reads messages that have ended;
doubts and webhook calls are counted up to MOST.

Vendors are labels: the oldest LABELLED by slug, all others together. Sponsors are labels only at vendors that several
of them share: the oldest PAIRS, all others together. So the number of series is bounded.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from typing import cast

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from campaigns.audience.answers import inbox
from campaigns.engine import audit, ground_truth
from campaigns.engine.failover import guard
from campaigns.models.states import PARENTS
from campaigns.reporting.forecast import ahead, obstacles, queues, streams
from campaigns.reporting.forecast.queues import VendorQueue
from campaigns.tasks import WEBHOOKS
from mailhub.monitoring import probes
from mailhub.operations import outcomes
from vendors import deferrals, histograms, redis_clients
from vendors.condition.values import ConditionKind
from vendors.limits.throttle import Throttle, ThrottleUnreachable
from vendors.mail_classes import MailClass
from vendors.models import Vendor

LABELLED = 200
PAIRS = 500  # vendors with a sponsor that shares them
OTHERS = "(others)"  # not a valid slug
MOST = 10_000

_Windows = tuple[int, str, list[tuple[int, float]]]  # vendor, slug, and limits: units, seconds
AWAITED = f"settle_at > now() + interval '{ground_truth.AWAITED.total_seconds()} seconds'"
COUNTED = f"""
SELECT 'doubts', count(*) FROM (SELECT FROM campaigns_message WHERE in_doubt_at IS NOT NULL
    AND NOT coalesce({AWAITED}, false) LIMIT {MOST}) one
UNION ALL SELECT 'awaited', count(*) FROM (
    SELECT FROM campaigns_message WHERE in_doubt_at IS NOT NULL AND {AWAITED} LIMIT {MOST}) one
UNION ALL SELECT 'pending', count(*) FROM (
    SELECT FROM campaigns_webhookcall WHERE next_at IS NOT NULL AND tries = 0 LIMIT {MOST}) one
UNION ALL SELECT 'retrying', count(*) FROM (
    SELECT FROM campaigns_webhookcall WHERE next_at IS NOT NULL AND tries > 0 LIMIT {MOST}) one
UNION ALL SELECT 'paused', count(*) FROM campaigns_campaign c WHERE paused_at IS NOT NULL AND EXISTS (
    SELECT FROM campaigns_job j WHERE j.campaign_id = c.id
        AND j.status NOT IN ('STOPPED', 'LOGGED', 'P_STOPPED', 'P_ASSIGNED', 'P_FINISHED'))
UNION ALL SELECT 'complaint_pauses', count(*) FROM campaigns_complaintpause WHERE resumed_at IS NULL
UNION ALL SELECT 'complaint_warnings', count(*) FROM campaigns_complaintrate
    WHERE warned_at > now() - interval '1 day'
UNION ALL SELECT state, count(*) FROM (
    SELECT CASE WHEN NOT enabled THEN 'off' WHEN suspended_until > now() THEN 'suspended' ELSE 'on' END AS state
    FROM campaigns_webhook
) hook GROUP BY state
"""


def metrics_text() -> bytes:
    """Return all metrics in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Scrape())
    return generate_latest(registry)


class _Scrape:
    """The collector of a scrape. Metrics of an unreachable server are missing, and mailhub_up is 0 for it."""

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not ask the servers

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "mailhub_up", "1: database and Redis answered; otherwise their numbers are missing.", labels=["part"]
        )
        windows: list[_Windows] = []
        try:
            windows = _read_windows()
            of_rows = list(_metrics_of_rows())
        except (DatabaseError, InterfaceError):
            up.add_metric(["database"], 0)
        else:
            up.add_metric(["database"], 1)
            yield from of_rows
        finally:
            connection.close()
        try:
            of_redis = list(_metrics_of_redis(windows))
        except (ThrottleUnreachable, redis_clients.WorkerRegistryUnreachable):
            up.add_metric(["redis"], 0)
        else:
            up.add_metric(["redis"], 1)
            yield from of_redis
        yield up


class _ByVendor:
    """Sums values by vendor label."""

    def __init__(self, slugs: dict[int, str]) -> None:
        oldest = sorted(slugs)[:LABELLED]
        self._labels = {vendor: slugs[vendor] for vendor in oldest}

    def label(self, vendor: int) -> str:
        return self._labels.get(vendor, OTHERS)

    def vendor_gauge(
        self, name: str, about: str, values: Iterable[tuple[int, float]], *, largest: bool = False
    ) -> Metric:
        """Return a gauge. largest: vendors with the same label show their largest value instead of the sum."""
        found: dict[str, float] = defaultdict(float)
        for vendor, value in values:
            label = self.label(vendor)
            found[label] = max(found[label], value) if largest else found[label] + value
        return _label_gauge(name, about, "vendor", found)


def _label_gauge(name: str, about: str, label: str, values: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for one, value in values.items():
        family.add_metric([one], value)
    return family


def _metrics_of_rows() -> Iterator[Metric]:
    found = streams.streams_of_vendors()
    by = _ByVendor({one.vendor_id: one.slug for one in found})
    yield by.vendor_gauge("mailhub_streams", "Jobs being sent.", ((one.vendor_id, one.running) for one in found))
    yield by.vendor_gauge(
        "mailhub_jobs_waiting",
        "Sendable jobs not begun; the oldest 100 of each kind count.",
        ((one.vendor_id, one.waiting) for one in found),
    )
    yield by.vendor_gauge(
        "mailhub_jobs_waiting_oldest_seconds",
        "Longest wait of these.",
        ((one.vendor_id, one.oldest) for one in found),
        largest=True,
    )
    yield by.vendor_gauge(
        "mailhub_jobs_late",
        f"Those not begun within {streams.LATE:g} seconds: raise an alarm.",
        ((one.vendor_id, one.late) for one in found),
    )
    there = queues.queues_of_vendors([one.vendor_id for one in found], timezone.now())
    yield from _metrics_of_queues(by, there)
    yield from _condition_metrics(by, there)
    yield _outcome_metric(by)
    yield by.vendor_gauge(
        "mailhub_messages_suppressed", "Suppressed messages of jobs since midnight.", _count_suppressed()
    )
    yield from _counted_metrics()
    yield _inbound_metric()
    yield from _answer_metrics_of_inbox()
    yield _report_metric(by)
    yield _cause_metric(by)
    waits = deferrals.count_waits()
    about = "Receiving domains that wait at the vendor, or have accepted nothing since."
    yield by.vendor_gauge("mailhub_receivers_waiting", about, ((vendor, number) for vendor, number, _ in waits))
    about = "Seconds for which the first of these has accepted nothing; 0: none waits."
    seconds = [*((one.vendor_id, 0.0) for one in found), *((vendor, lasts) for vendor, _, lasts in waits)]
    yield by.vendor_gauge("mailhub_receivers_waiting_seconds", about, seconds, largest=True)
    about = "Reports that came before their letters were known by the vendor's id: at 10,000 further ones are not kept."
    yield by.vendor_gauge("mailhub_reports_waiting", about, _reports_waiting())
    yield GaugeMetricFamily(
        "mailhub_halted",
        "1: no call may start at any vendor; the admin's first page says why.",
        float(bool(guard.halt_reason())),
    )
    # 0 where nothing ran yet: a missing series would keep its rule silent
    about = "Beat's last task; 0: none."
    yield GaugeMetricFamily("mailhub_beat_sent_timestamp_seconds", about, probes.beat_sent_at() or 0.0)
    last = audit.read_last_audit()
    if last:
        breaches = sum(not check.is_kept for check in last[1])
        yield GaugeMetricFamily("mailhub_audit_breaches", "Promises broken at beat's last audit.", breaches)
    about = "Time of that audit; 0: none."
    yield GaugeMetricFamily("mailhub_audit_timestamp_seconds", about, last[0].timestamp() if last else 0.0)


def _metrics_of_queues(by: _ByVendor, there: dict[int, VendorQueue]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "mailhub_messages_waiting",
        "Uncalled: queued for the window, put_off by the vendor, stopped by a pause or limit 0, or for the night.",
        labels=["vendor", "state"],
    )
    sums: Counter[tuple[str, str]] = Counter()
    for vendor, queue in there.items():
        label = by.label(vendor)
        queued = 0 if queue.shut else queue.count_in_queue
        sums[label, "queued"] += queued
        sums[label, "put_off"] += queue.put_off
        sums[label, "stopped"] += queue.waiting - queued - queue.put_off
        sums[label, "night"] += queue.rendered
    for labels, count in sums.items():
        waiting.add_metric(labels, count)
    yield waiting
    yield by.vendor_gauge(
        "mailhub_jobs_held",
        "Jobs held by a paused vendor or credential, or a limit of 0: perhaps forgotten.",
        ((vendor, queue.held) for vendor, queue in there.items()),
    )
    now = timezone.now()
    yield from _share_metrics(by, there, now)
    yield by.vendor_gauge(
        "mailhub_windows_full_seconds",
        "Seconds until the credentials' windows have a place, as senders were told; 0: they have one.",
        (
            (vendor, max(0.0, (login.full_until - now).total_seconds()) if login.full_until else 0.0)
            for vendor, queue in there.items()
            for login in queue.logins.values()
        ),
        largest=True,
    )
    yield by.vendor_gauge(
        "mailhub_vendor_blocked",
        "1: nothing gets through until something changes: a pause, a failing vendor, no worker; `status` says which.",
        ((vendor, float(obstacles.obstacle_of_queue(queue, now) is not None)) for vendor, queue in there.items()),
    )


def _share_metrics(by: _ByVendor, there: dict[int, VendorQueue], now: datetime) -> Iterator[Metric]:
    """Yield who shares a vendor now, and its part of the rate: alarm on messages that wait with a small share."""
    sharing = {vendor: ahead.list_sharing(queue, now) for vendor, queue in there.items() if len(queue.sponsors) > 1}
    about = "Sponsors with queued messages; 2 or more share the vendor."
    yield by.vendor_gauge(
        "mailhub_sponsors_queued", about, ((one, len(queue.sponsors)) for one, queue in there.items())
    )
    classes = GaugeMetricFamily(
        "mailhub_class_messages_queued", "Queued messages: urgent, usual, bulk.", labels=["vendor", "class"]
    )
    by_class = Counter[tuple[str, str]]()
    for vendor, queue in there.items():
        for mail_class in MailClass:
            by_class[by.label(vendor), mail_class.word] += queue.queued_by_class.get(mail_class, 0)
    for names, count in by_class.items():
        classes.add_metric(names, count)
    yield classes
    waiting = GaugeMetricFamily(
        "mailhub_sponsor_messages_queued",
        "Queued messages of sponsors that share a vendor; the oldest 500 pairs.",
        labels=["vendor", "sponsor"],
    )
    share = GaugeMetricFamily(
        "mailhub_sponsor_share", "Their parts of the vendor's rate now, 0 to 1.", labels=["vendor", "sponsor"]
    )
    pairs = sorted((one.sponsor.id, vendor, one) for vendor, found in sharing.items() for one in found)
    sums = dict[tuple[str, str], list[float]]()
    for number, (_id, vendor, one) in enumerate(pairs):
        label = by.label(vendor)
        key = label, one.sponsor.name if number < PAIRS and label != OTHERS else OTHERS
        of = sums.setdefault(key, [0.0, 0.0])
        of[0], of[1] = of[0] + one.sponsor.count_queued, of[1] + one.part
    for labels, (queued, part) in sums.items():
        waiting.add_metric(labels, queued)
        share.add_metric(labels, min(1.0, part))
    yield from (waiting, share)


def _condition_metrics(by: _ByVendor, there: dict[int, VendorQueue]) -> Iterator[Metric]:
    """Yield the vendors' conditions, those of their best credentials."""
    about = "Vendors in this condition: works, untried, failing, silent, shut."
    family = GaugeMetricFamily("mailhub_vendor_condition", about, labels=["vendor", "condition"])
    kinds = Counter((by.label(vendor), queue.best_condition.kind) for vendor, queue in there.items())
    for label in dict.fromkeys(label for label, _kind in kinds):
        for kind in ConditionKind:
            family.add_metric([label, kind], kinds[label, kind])
    yield family
    yield by.vendor_gauge(
        "mailhub_vendor_failing_seconds",
        "Seconds without a good answer; 0: it works, or nobody calls it.",
        ((vendor, _failing_for(queue)) for vendor, queue in there.items()),
        largest=True,
    )


def _failing_for(queue: VendorQueue) -> float:
    condition = queue.best_condition
    if condition.kind is not ConditionKind.FAILING or condition.since is None:
        return 0.0
    return max(0.0, (timezone.now() - condition.since).total_seconds())


def _outcome_metric(by: _ByVendor) -> Metric:
    family = CounterMetricFamily(
        "mailhub_outcomes", "accepted, refused, in_doubt; since midnight.", labels=["vendor", "outcome"]
    )
    today, _ = outcomes.outcomes_of_today(timezone.now(), None)
    sums: Counter[tuple[str, str]] = Counter()
    for vendor, counts in today.items():
        for outcome in ("accepted", "refused", "in_doubt"):
            sums[by.label(vendor), outcome] += counts[outcome]
    for labels, count in sums.items():
        family.add_metric(labels, count)
    return family


SUPPRESSED = """
SELECT vendor_id, sum(CASE WHEN status = ANY(%s) THEN remaining_suppressed ELSE suppressed END)::bigint
FROM campaigns_job WHERE created_at >= %s GROUP BY 1
"""


def _count_suppressed() -> list[tuple[int, float]]:
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    with connection.cursor() as cursor:
        cursor.execute(SUPPRESSED, [list(PARENTS), midnight])
        rows: list[tuple[int, float]] = cursor.fetchall()
    return rows


def _inbound_metric() -> Metric:
    with connection.cursor() as cursor:
        cursor.execute("SELECT what, sum(mails)::bigint FROM campaigns_inboundcount GROUP BY 1")
        found = cursor.fetchall()
    family = CounterMetricFamily(
        "mailhub_inbound_mails", "Returned mail by kind (docs/how-to/bounces.md).", labels=["what"]
    )
    for what, mails in found:
        family.add_metric([what], mails)
    return family


def _answer_metrics_of_inbox() -> Iterator[Metric]:
    """Yield the inbox of recipients' answers, by channel."""
    unread = {one.channel: one for one in inbox.unread_by_channel()}
    number = GaugeMetricFamily(
        "mailhub_answers_unread", "Unread answers of recipients, at most 1,000.", labels=["channel"]
    )
    about = "Age of the oldest unread answer; 0: there is none."
    oldest = GaugeMetricFamily("mailhub_answers_unread_oldest_seconds", about, labels=["channel"])
    for channel in (Vendor.Channel.EMAIL.value, Vendor.Channel.SMS.value):
        one = unread.get(channel)
        number.add_metric([channel], one.number if one else 0)
        oldest.add_metric([channel], (timezone.now() - one.oldest).total_seconds() if one else 0)
    yield number
    yield oldest


def _report_metric(by: _ByVendor) -> Metric:
    with connection.cursor() as cursor:
        cursor.execute("SELECT vendor_id, what, sum(reports)::bigint FROM vendors_reportcount GROUP BY 1, 2")
        found = cursor.fetchall()
    about = "Reported events: taken, unknown; refused reports: forged, unreadable."
    family = CounterMetricFamily("mailhub_reports", about, labels=["vendor", "what"])
    sums: Counter[tuple[str, str]] = Counter()
    for vendor, what, reports in found:
        sums[by.label(vendor), what] += reports
    for (label, what), reports in sums.items():
        family.add_metric([label, what], reports)
    return family


def _cause_metric(by: _ByVendor) -> Metric:
    with connection.cursor() as cursor:
        cursor.execute("SELECT vendor_id, cause, what, sum(messages)::bigint FROM vendors_causecount GROUP BY 1, 2, 3")
        found = cursor.fetchall()
    about = "Messages `refused` or `put_off` by calls, by cause (docs/glossary.md); raise an alarm on `us`."
    family = CounterMetricFamily("mailhub_causes", about, labels=["vendor", "cause", "what"])
    sums: Counter[tuple[str, str, str]] = Counter()
    for vendor, cause, what, messages in found:
        sums[by.label(vendor), cause, what] += messages
    for labels, messages in sums.items():
        family.add_metric(labels, messages)
    return family


def _reports_waiting() -> list[tuple[int, float]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT vendor_id, count(*) FROM campaigns_waitingreport GROUP BY 1")
        rows: list[tuple[int, float]] = cursor.fetchall()
    return rows


def _counted_metrics() -> Iterator[Metric]:
    with connection.cursor() as cursor:
        cursor.execute(COUNTED)
        found = defaultdict(int, cursor.fetchall())
    about = f"Messages in doubt; {MOST:,} are {MOST:,} or more."
    yield GaugeMetricFamily("mailhub_messages_in_doubt", about, found["doubts"])
    about = f"In doubt within the time for the vendor's acknowledgement; {MOST:,} are {MOST:,} or more."
    yield GaugeMetricFamily("mailhub_messages_to_be_acknowledged", about, found["awaited"])
    yield GaugeMetricFamily("mailhub_campaigns_paused", "Campaigns to resume.", found["paused"])
    about = "Sponsors' bulk mail to one provider that paused itself after complaints, and that somebody has to resume."
    yield GaugeMetricFamily("mailhub_complaint_pauses", about, found["complaint_pauses"])
    about = "Days of a sponsor at one provider with nearly too many complaints, warned about within a day."
    yield GaugeMetricFamily("mailhub_complaint_warnings", about, found["complaint_warnings"])
    about = f"Calls to webhooks: pending, retrying; {MOST:,} are {MOST:,} or more."
    tried = {state: float(found[state]) for state in ("pending", "retrying")}
    yield _label_gauge("mailhub_webhook_calls", about, "state", tried)
    states = {state: float(found[state]) for state in ("on", "suspended", "off")}
    yield _label_gauge("mailhub_webhooks", "Webhooks: on, suspended, off.", "state", states)


WINDOWS = """
SELECT v.id, v.slug, coalesce(json_agg(json_build_array(l.units, l.seconds)) FILTER (WHERE l.id IS NOT NULL), '[]')
FROM vendors_vendor v LEFT JOIN vendors_ratelimit l ON l.vendor_id = v.id AND l.credential_id IS NULL GROUP BY v.id
"""


def _read_windows() -> list[_Windows]:
    with connection.cursor() as cursor:
        cursor.execute(WINDOWS)
        return list(cursor.fetchall())


def _metrics_of_redis(rows: list[_Windows]) -> Iterator[Metric]:
    by = _ByVendor({vendor: slug for vendor, slug, _ in rows})
    counts = _metrics_throttle(settings.REDIS_URL).counts(
        {vendor: [seconds for _, seconds in limits] for vendor, _, limits in rows}
    )
    in_flight = ((vendor, counts[vendor][0]) for vendor, _, _ in rows)
    yield by.vendor_gauge("mailhub_calls_in_flight", "Permits (units) of open calls.", in_flight)
    used = GaugeMetricFamily("mailhub_window_used", "Units in the limit's window.", labels=["vendor", "seconds"])
    limit = GaugeMetricFamily("mailhub_window_limit", "Units that the window may hold.", labels=["vendor", "seconds"])
    for vendor, _, limits in rows:
        if (label := by.label(vendor)) == OTHERS:
            continue
        for (units, seconds), now in zip(limits, counts[vendor][1], strict=True):
            used.add_metric([label, f"{seconds:g}"], now)
            limit.add_metric([label, f"{seconds:g}"], units)
    yield from (used, limit)
    yield from _worker_metrics(by, rows)
    yield from _histogram_metrics(by)


_StoredByLabel = dict[str, histograms.StoredHistogram]


def _histogram_metrics(by: _ByVendor) -> Iterator[Metric]:
    with redis_clients.make_client(settings.REDIS_URL, probes.SECONDS) as client:
        found = histograms.read_sums(cast("dict[bytes, bytes]", client.hgetall(histograms.KEY)))
    of_vendors = {
        kind: _histograms_by_label(by, found[kind]) for kind in histograms.KINDS if kind is not histograms.STATEMENT
    }
    about = "From a campaign's acceptance, or its send time if that is later, to the claim of a call, in seconds."
    kind = histograms.ACCEPT_TO_CALL
    yield _make_histogram("mailhub_accept_to_call_seconds", about, "vendor", kind, of_vendors[kind])
    about = "Duration of a call to the vendor."
    kind = histograms.CALL
    yield _make_histogram("mailhub_call_seconds", about, "vendor", kind, of_vendors[kind])
    about = "From an answer to its commit; the answers of a batch count as its oldest."
    kind = histograms.CALL_TO_STORED
    yield _make_histogram("mailhub_call_to_stored_seconds", about, "vendor", kind, of_vendors[kind])
    about = "From a call to its first delivery report."
    kind = histograms.REPORT_LAG
    yield _make_histogram("mailhub_report_lag_seconds", about, "vendor", kind, of_vendors[kind])
    about = "Messages in a claim."
    kind = histograms.CLAIM_SIZE
    yield _make_histogram("mailhub_claim_messages", about, "vendor", kind, of_vendors[kind])
    about = "Duration of the senders' statements: claim, store, merge."
    kind = histograms.STATEMENT
    yield _make_histogram("mailhub_statement_seconds", about, "statement", kind, found[kind])


def _histograms_by_label(by: _ByVendor, found: _StoredByLabel) -> _StoredByLabel:
    """Return the histograms by the vendors' labels; those with the same label are added."""
    sums: _StoredByLabel = {}
    for vendor, one in found.items():
        label = by.label(int(vendor))
        if known := sums.get(label):
            buckets = [first + second for first, second in zip(known.buckets, one.buckets, strict=True)]
            one = histograms.StoredHistogram(buckets, known.total + one.total)
        sums[label] = one
    return sums


def _make_histogram(name: str, about: str, label: str, kind: histograms.HistogramKind, found: _StoredByLabel) -> Metric:
    family = HistogramMetricFamily(name, about, labels=[label])
    for one, stored in found.items():
        family.add_metric([one], list(stored.cumulate_buckets(kind)), stored.total)
    return family


def _worker_metrics(by: _ByVendor, rows: Iterable[_Windows]) -> Iterator[Metric]:
    there = redis_clients.registered_workers(settings.REDIS_URL)
    slots = ((row[0], sum(w.slots for w in redis_clients.workers_reading(f"vendor.{row[1]}", there))) for row in rows)
    about = "Jobs that the workers of the vendor's queue can send, those of other vendors included."
    yield by.vendor_gauge("mailhub_streams_limit", about, slots, largest=True)
    ours = (settings.CELERY_TASK_DEFAULT_QUEUE, WEBHOOKS)
    reading = {queue: float(len(redis_clients.workers_reading(queue, there))) for queue in ours}
    yield _label_gauge("mailhub_queue_workers", "Workers of `hub` and `webhooks`.", "queue", reading)


@cache
def _metrics_throttle(url: str) -> Throttle:
    return Throttle(redis_clients.make_client(url, probes.SECONDS))
