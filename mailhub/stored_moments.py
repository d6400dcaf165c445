"""Stored times that something waits for, and their correction if they are wrongly ahead of PostgreSQL's clock.

A fast clock leaves such times behind; nothing moves until the right clock has reached them. MOMENTS names
each one with the longest legal distance. The others are in CHOSEN and PAST, so a new column needs a decision
(tests/mailhub/test_stored_moments.py). PostgreSQL's clock decides, because all processes share it. Beat also compares
its own entries with its own clock (mailhub/beat.py).
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connection, transaction
from django.db.models.functions import Now

from campaigns.engine.turns import reserve
from campaigns.integrations.webhooks import delivery
from mailhub.models import MomentFound
from vendors import alarms
from vendors.said import Said, gettext_noop
from waiter import parking

log = logging.getLogger(__name__)

SLACK = timedelta(seconds=10)  # more than clocks of machines may differ: the throttle already stops at 2 s
EVERY = timedelta(minutes=1)
RECENT = timedelta(hours=1)  # how long `status` reports it
NOW = "clock_timestamp()"
DAY = timedelta(days=1)
# The longest wait a vendor may ask for, plus an hour for clock changes.
LONGEST_WAIT = DAY + timedelta(hours=1)
UNFINISHED = (
    "t.status IN ('READY', 'RENDERED', 'DISPATCHED', 'P_QUEUED', 'P_ASSIGNING', 'P_ASSIGNED', 'ENQUEUED', 'SENDING',"
    " 'RECOVERING', 'SENT', 'STOPPED')"
)


@dataclass(frozen=True)
class StoredMoment:
    """A column with times that something waits for.

    `longest`: the farthest they may lie ahead, and `why`. `clamped`: the replacement for later ones (SQL). `where`: SQL
    over the row `t` that limits the check to few rows. `waits`: a wait that began when stored, so setting back a clock
    shifts it.
    """

    model: str
    field: str
    longest: timedelta
    why: str
    clamped: str = NOW
    where: str = "true"
    waits: bool = False

    @property
    def name(self) -> str:
        return f"{self.model}.{self.field}"


ZERO = timedelta(0)
# A job may wait for its send time, and for the sending hours of the following day.
NOT_BY_SEND_TIME = f"""{UNFINISHED} AND NOT EXISTS (SELECT FROM campaigns_campaign c WHERE c.id = t.campaign_id
    AND t.not_before <= c.send_at + interval '2 days')"""
# A recovery closes a credential for its vendor's longest window; a full window blocks for the same time.
NOT_BY_WINDOW = """NOT EXISTS (SELECT FROM vendors_ratelimit l WHERE l.vendor_id = t.vendor_id
    AND t.{until} <= clock_timestamp() + l.seconds * interval '1 second' + interval '15 minutes')"""
MOMENTS = (
    StoredMoment("django_celery_beat.PeriodicTask", "last_run_at", ZERO, "beat starts a task when it is past"),
    StoredMoment("django_celery_beat.PeriodicTask", "date_changed", ZERO, "beat takes it where a task never ran"),
    StoredMoment("django_celery_beat.PeriodicTasks", "last_update", ZERO, "beat reads its rows when it is later"),
    StoredMoment("mailhub.PeriodicRun", "ran_at", ZERO, "workers sweep by themselves when it is old"),
    StoredMoment("campaigns.Job", "heartbeat_at", ZERO, "a lease: recovery waits for it", where=UNFINISHED),
    StoredMoment("campaigns.Job", "refusals_from", ZERO, "equal refusals count from then on", where=UNFINISHED),
    StoredMoment(
        "campaigns.Job", "not_before", 2 * DAY, "a vendor's wait, quiet or sending hours",
        where=NOT_BY_SEND_TIME, waits=True,
    ),
    StoredMoment(
        "campaigns.Message", "settle_at", timedelta(days=60), "a print shop's acknowledgement takes days",
        where="t.in_doubt_at IS NOT NULL", waits=True,
    ),
    StoredMoment("campaigns.AnswerBatch", "at", ZERO, "answers that were left behind are merged when it is past"),
    StoredMoment("campaigns.WaitingReport", "look_at", 2 * timedelta(hours=1), "a look each hour", waits=True),
    StoredMoment(
        "campaigns.Webhook", "suspended_until", max(timedelta(seconds=delivery.SUSPENDED[1]), LONGEST_WAIT),
        "a receiver that does not answer", waits=True,
    ),
    StoredMoment(
        "campaigns.WebhookCall", "next_at", timedelta(seconds=1.1 * max(delivery.WAITS)) + timedelta(hours=1),
        "the longest wait between two tries", where="t.next_at IS NOT NULL", waits=True,
    ),
    StoredMoment("campaigns.Draft", "lease_at", ZERO, "a lease: another worker takes the draft over"),
    StoredMoment(
        "campaigns.ClassCredit", "needed_until", timedelta(seconds=reserve.KEPT_SECONDS),
        "mailcasters are kept free for letters until then", waits=True,
    ),
    StoredMoment("vendors.Credential", "unreached_since", ZERO, "a route's patience counts from then on"),
    StoredMoment(
        "vendors.Credential", "retry_after_until", LONGEST_WAIT, "a vendor's Retry-After is believed up to a day",
        where=NOT_BY_WINDOW.format(until="retry_after_until"), waits=True,
    ),
    StoredMoment(
        "vendors.Credential", "rate_limited_until", timedelta(minutes=15), "its longest window, and open calls",
        clamped="NULL", where=NOT_BY_WINDOW.format(until="rate_limited_until"), waits=True,
    ),
    StoredMoment(
        "vendors.ReceiverWait", "until", LONGEST_WAIT, "a receiver's wait is as long as a vendor's at most", waits=True
    ),
    StoredMoment(
        "vendors.Usage", "until", DAY, "no call takes that long; a rebuilt window holds it until then", waits=True
    ),
    StoredMoment("vendors.Usage", "ended_at", ZERO, "a rebuilt window holds its calls for one window from then on"),
    StoredMoment(
        "waiter.ParkedTask", "claimed_until", parking.LEASE, "a lease of the release", where="t.done_at IS NULL",
        waits=True,
    ),
)  # fmt: skip
# Times that somebody chose, however far ahead.
CHOSEN = {
    "campaigns.Campaign.send_at": "the sponsor's send time",
    "campaigns.Campaign.deadline": "the sponsor's deadline",
    "campaigns.Draft.send_at": "the sponsor's send time",
    "campaigns.Suppression.until": "until when somebody is not written to",
    "mailhub.ApiKey.expires_at": "until when a key is valid",
    "vendors.ReportKey.expires_at": "until when a replaced key is taken",
    "waiter.ParkedTask.due_at": "the eta of a task, as its caller gave it",
    "django_celery_beat.ClockedSchedule.clocked_time": "an operator's own task",
    "django_celery_beat.PeriodicTask.expires": "an operator's own task",
    "django_celery_beat.PeriodicTask.start_time": "an operator's own task",
    "sessions.Session.expire_date": "how long a log-in lasts",
    "campaigns.Message.call_after": "bound by its job's not_before, with which it is corrected: it has no index",
}
# History: times of past events. Nothing waits for them; a wrong one is displayed, or kept somewhat longer.
PAST = {
    "mailhub.KeptAnswer": ("created_at",),
    "mailhub.ApiKey": ("created_at", "revoked_at", "last_used_at"),
    "vendors.ReceiverWait": ("since", "warned_at"),
    "mailhub.FormerSecretKey": ("created_at",),
    "mailhub.MomentFound": ("at",),
    "campaigns.Topic": ("archived_at", "created_at"),
    "campaigns.Campaign": ("paused_at", "created_at"),
    # sent_at gives a deduplication key's age; one in the future counts as too old (doubts/queries.py).
    "campaigns.Message": (
        *("dequeued_at", "sent_at", "delivered_at", "in_doubt_at", "taken_over_at", "put_off_at", "disproved"),
        "report_at",
    ),
    "campaigns.Claim": ("at",),
    "campaigns.ComplaintPause": ("paused_at", "since", "resumed_at"),
    "campaigns.ComplaintRate": ("since", "warned_at"),
    "campaigns.UncountedComplaint": ("sent_at",),
    "campaigns.AnswerBatch": ("called_at",),
    "campaigns.Job": (
        *("status_at", "created_at", "dispatched_at", "started_at", "stopped_at", "paused_at", "finished_at"),
    ),
    "campaigns.Session": ("created_at", "finished_at"),
    "campaigns.Webhook": ("created_at",),
    "campaigns.WebhookCall": ("taken_at", "created_at"),
    "campaigns.Approval": ("asked_at", "decided_at"),
    "campaigns.StoredFile": ("asked_at",),
    "campaigns.UploadedFile": ("asked_at",),
    "campaigns.Identity": ("created_at",),
    "campaigns.Entitlement": ("created_at",),
    "campaigns.Route": ("created_at",),
    "campaigns.RouteMove": ("at",),
    "campaigns.Template": ("archived_at", "created_at"),
    "campaigns.TemplateVersion": ("made_at",),
    "campaigns.Draft": ("created_at", "updated_at"),
    "campaigns.MessageEvent": ("at", "stored_at"),
    "campaigns.VendorMessageId": ("at",),
    "campaigns.WaitingReport": ("at",),
    "campaigns.InboundMessage": ("written_at", "stored_at"),
    "campaigns.RecipientAnswer": ("written_at", "stored_at", "decided_at"),
    "campaigns.DispatchRun": ("due_at", "started_at", "finished_at"),
    "campaigns.RefusalRun": ("since", "full_at"),
    "campaigns.SponsorRefusalRun": ("since", "full_at"),
    "campaigns.RefusalTail": ("at",),
    "campaigns.Resolution": ("created_at",),
    "campaigns.Audited": ("at",),
    "campaigns.Store": ("adopted_at", "noticed_at"),
    "campaigns.Suppression": ("since",),
    "campaigns.TokenKey": ("created_at",),
    "vendors.Vendor": ("limits_since", "paused_at", "resumed_at", "created_at"),
    "vendors.Credential": (
        *("paused_at", "resumed_at", "braked_at", "brake_held_at", "brake_released_at", "probed_at"),
    ),
    "vendors.VendorCondition": ("good_at", "failing_since", "last_at"),
    "vendors.Usage": ("at",),
    "vendors.VendorChange": ("asked_at", "decided_at"),
    "vendors.Minute": ("at",),
    "vendors.Price": ("entered_at",),
    "vendors.ReportKey": ("created_at",),
    "waiter.ParkedTask": ("parked_at", "done_at"),
    "waiter.Revocation": ("revoked_at",),
    "admin.LogEntry": ("action_time",),
    "auth.User": ("last_login", "date_joined"),
}

# Locked rows are left to the next check, a minute later.
CLAMP = """
WITH ahead AS (
    SELECT t.{key} AS key, t.{field} - clock_timestamp() AS distance FROM {table} t
    WHERE t.{field} > clock_timestamp() + %(longest)s AND {where}
    FOR NO KEY UPDATE OF t SKIP LOCKED
), clamped AS (
    UPDATE {table} t SET {field} = {clamped} FROM ahead WHERE t.{key} = ahead.key
)
SELECT count(*), max(distance) FROM ahead
"""
# Put-off messages of jobs with overlong waits: found by id range, because call_after has no index.
CALLS = f"""
UPDATE campaigns_message m SET call_after = {{clamped}} WHERE m.id = ANY(ARRAY(
    SELECT w.id FROM campaigns_job t CROSS JOIN LATERAL (
        SELECT m.id FROM campaigns_message m WHERE m.id >= t.first_message AND m.id < t.first_message + t.size
            AND m.dequeued_at IS NULL AND m.call_after > clock_timestamp() + %(longest)s
        OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED
    ) w
    WHERE t.not_before > clock_timestamp() + %(longest)s AND {NOT_BY_SEND_TIME}))
"""
NOTED = """
INSERT INTO mailhub_momentfound AS f (moment, number, ahead) VALUES (%(moment)s, %(number)s, %(ahead)s)
ON CONFLICT (moment) DO UPDATE SET at = clock_timestamp(), number = excluded.number, ahead = excluded.ahead
"""
LOOKED = "mailhub.stored_moments"
# One check per minute, by the first process to come. A last check in the future shows that the clock was set back.
TURN = """
INSERT INTO mailhub_periodicrun AS r (task, ran_at) VALUES (%(task)s, clock_timestamp())
ON CONFLICT (task) DO UPDATE SET ran_at = clock_timestamp()
WHERE %(at_once)s OR r.ran_at < clock_timestamp() - %(every)s OR r.ran_at > clock_timestamp() + %(slack)s
RETURNING true
"""
PUT_BACK = """
SELECT max(ran_at) - clock_timestamp() FROM mailhub_periodicrun
WHERE ran_at > clock_timestamp() + %(slack)s * interval '1 second'
"""


def correct_moments(at_once: bool = False) -> int:
    """Correct times wrongly ahead, unless a process did so within the minute. Returns their number.

    `at_once`: ignore the minute, for a process that starts. Each correction is logged and stored as a MomentFound for
    pages. Raises django.db.Error.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(PUT_BACK, {"slack": SLACK.total_seconds()})
        put_back: timedelta | None = cursor.fetchone()[0]
        turn: dict[str, Any] = {"task": LOOKED, "at_once": at_once, "every": EVERY, "slack": SLACK}
        cursor.execute(TURN, turn)
        if cursor.fetchone() is None:
            return 0
    if put_back:
        alarms.DATABASE_CLOCK_BACK.log(log, put_back)
        for moment in MOMENTS:
            if moment.waits:
                _clamp_moment(moment, put_back, f"greatest(clock_timestamp(), t.{moment.field} - %(back)s)", put_back)
    return sum(_clamp_moment(moment, moment.longest, moment.clamped) for moment in MOMENTS)


AHEAD = gettext_noop(
    "A clock was wrong: %(count)s × %(moment)s lay up to %(ahead)s ahead of PostgreSQL's, corrected %(at)s UTC"
)


def found_lately() -> list[Said]:
    """Return a sentence for each kind of time found ahead within RECENT, for `status`."""
    rows = MomentFound.objects.filter(at__gt=Now() - RECENT).order_by("moment")
    return [
        Said(
            AHEAD,
            count=row.number,
            moment=row.moment,
            ahead=str(row.ahead).partition(".")[0],
            at=f"{row.at:%Y-%m-%d %H:%M}",
        )
        for row in rows
    ]


def _clamp_moment(moment: StoredMoment, longest: timedelta, clamped: str, back: timedelta = ZERO) -> int:
    model = apps.get_model(moment.model)
    params: dict[str, Any] = {"longest": max(longest, SLACK), "back": back}
    statement = CLAMP.format(
        key=model._meta.pk.column, field=moment.field, table=model._meta.db_table, where=moment.where, clamped=clamped
    )
    with transaction.atomic(), connection.cursor() as cursor:
        if moment.name == "campaigns.Job.not_before":
            cursor.execute("SET LOCAL enable_seqscan = off")  # with few jobs it might scan all messages
            cursor.execute(CALLS.format(clamped=clamped.replace("t.not_before", "m.call_after")), params)
        cursor.execute(statement, params)
        number, ahead = cursor.fetchone()
        if not number:
            return 0
        cursor.execute(NOTED, {"moment": moment.name, "number": number, "ahead": ahead})
    alarms.MOMENT_AHEAD.log(log, moment.name, number, ahead)
    return int(number)
