"""Stored moments that lie ahead of the clock: each column is decided on; what is not legal is corrected and told."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks

from campaigns.models import AnswerBatch, ClassCredit, Draft, Job, Message, Session, WaitingReport, Webhook, WebhookCall
from mailhub import installation, stored_moments
from mailhub.models import MomentFound, PeriodicRun
from mailhub.stored_moments import CHOSEN, MOMENTS, PAST, SLACK, StoredMoment
from tests import factories
from vendors.mail_classes import MailClass
from vendors.models import Credential, ReceiverWait, Usage
from waiter.models import ParkedTask

HOUR = timedelta(hours=1)


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def test_every_column_with_a_time_is_decided_on() -> None:
    decided = {moment.name for moment in MOMENTS} | set(CHOSEN)
    past = {f"{model}.{field}" for model, fields in PAST.items() for field in fields}
    known = {
        f"{model._meta.label}.{field.name}"
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.get_fields()
        if isinstance(field, models.DateTimeField)
    }
    assert decided | past == known, "a new column: may it lie ahead, how far, and what waits for it?"
    assert not decided & past


def in_a_campaign(**fields: Any) -> Job:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    Job.objects.filter(pk=job.pk).update(**fields)
    return job


def beat_row(**fields: Any) -> PeriodicTask:
    installation.sync_beat()
    PeriodicTask.objects.update(last_run_at=timezone.now())
    row = PeriodicTask.objects.get(task="campaigns.tasks.sweep")
    PeriodicTask.objects.filter(pk=row.pk).update(**fields)
    return row


def last_update(last_update: datetime) -> PeriodicTasks:
    installation.sync_beat()
    PeriodicTasks.objects.update(last_update=last_update)
    return PeriodicTasks.objects.get()


def in_doubt(settle_at: datetime) -> Message:
    job, now = factories.campaign_with_job(1, status="DISPATCHED"), timezone.now()
    message = Message.objects.get(campaign=job.campaign)
    Message.objects.filter(pk=message.pk).update(dequeued_at=now, sent_at=now, in_doubt_at=now, settle_at=settle_at)
    return message


def hook(**fields: Any) -> Webhook:
    return Webhook.objects.create(sponsor=factories.sponsor(), url="https://example.org/", **fields)


def hook_call(next_at: datetime) -> WebhookCall:
    to = hook()
    job = factories.campaign_with_job(1, status="DISPATCHED")
    asked: dict[str, Any] = {"id": uuid.uuid4(), "key_prefix": "k", "idempotency_key": str(uuid.uuid4())}
    session = Session.objects.create(sponsor=to.sponsor, job=job, fingerprint=b"f", answer="{}", **asked)
    named = {"webhook": to, "session": session, "event": uuid.uuid4(), "kind": "k", "body": "{}"}
    return WebhookCall.objects.create(next_at=next_at, **named)


def answers(at: datetime) -> AnswerBatch:
    job = factories.campaign_with_job(1, status="DISPATCHED")
    empty: dict[str, Any] = {name: [] for name in ("messages", "codes", "notes", "waits", "units")}
    about = {"job_id": job.pk, "fence": 0, "claim_id": 1, "called_at": timezone.now(), "kinds": "", "last": False}
    return AnswerBatch.objects.create(at=at, **about, **empty)


def waiting_report(look_at: datetime) -> WaitingReport:
    vendor = factories.vendor()
    return WaitingReport.objects.create(vendor=vendor, name="n", said={}, source="s", look_at=look_at)


def login(**fields: Any) -> Credential:
    made = factories.credential(factories.vendor(limits=[(5, 60)]))
    Credential.objects.filter(pk=made.pk).update(**fields)
    return made


def usage(**moments: datetime) -> Usage:
    of, now = factories.credential(), timezone.now()
    return Usage.objects.create(vendor=of.vendor, credential=of, units=1, **{"at": now, "until": now, **moments})


def receiver_wait(until: datetime) -> ReceiverWait:
    row = {"credential": factories.credential(), "receiver": "gmail", "since": timezone.now(), "seconds": 30.0}
    return ReceiverWait.objects.create(until=until, cause="us", answer="slow down", **row)


def parked(claimed_until: datetime) -> ParkedTask:
    now = timezone.now()
    named = {"task": "t", "task_id": "i", "queue": "q", "message": "{}"}
    return ParkedTask.objects.create(due_at=now, parked_at=now, claimed_until=claimed_until, **named)


def draft(lease_at: datetime) -> Draft:
    return Draft.objects.create(sponsor=factories.sponsor(), lease_at=lease_at)


def kept_for_letters(needed_until: datetime) -> ClassCredit:
    row = {"mail_class": MailClass.URGENT, "needed": 2, "needed_until": needed_until}
    return ClassCredit.objects.create(vendor=factories.vendor(), **row)


MADE: dict[str, Callable[[datetime], models.Model]] = {
    "django_celery_beat.PeriodicTask.last_run_at": lambda at: beat_row(last_run_at=at),
    "django_celery_beat.PeriodicTask.date_changed": lambda at: beat_row(date_changed=at),
    "django_celery_beat.PeriodicTasks.last_update": last_update,
    "mailhub.PeriodicRun.ran_at": lambda at: PeriodicRun.objects.create(task="t", ran_at=at),
    "campaigns.Job.heartbeat_at": lambda at: in_a_campaign(heartbeat_at=at),
    "campaigns.Job.refusals_from": lambda at: in_a_campaign(refusals_from=at),
    "campaigns.Job.not_before": lambda at: in_a_campaign(not_before=at),
    "campaigns.Message.settle_at": in_doubt,
    "campaigns.AnswerBatch.at": answers,
    "campaigns.WaitingReport.look_at": waiting_report,
    "campaigns.Webhook.suspended_until": lambda at: hook(suspended_until=at),
    "campaigns.WebhookCall.next_at": hook_call,
    "campaigns.Draft.lease_at": draft,
    "campaigns.ClassCredit.needed_until": kept_for_letters,
    "vendors.Credential.unreached_since": lambda at: login(unreached_since=at),
    "vendors.Credential.retry_after_until": lambda at: login(retry_after_until=at),
    "vendors.Credential.rate_limited_until": lambda at: login(rate_limited_until=at),
    "vendors.ReceiverWait.until": receiver_wait,
    "vendors.Usage.until": lambda at: usage(until=at),
    "vendors.Usage.ended_at": lambda at: usage(ended_at=at),
    "waiter.ParkedTask.claimed_until": parked,
}


@pytest.mark.django_db
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
def test_a_moment_further_ahead_than_is_legal_is_corrected_and_told(moment: StoredMoment, caplog: Any) -> None:
    row = MADE[moment.name](timezone.now() + moment.longest + HOUR)
    assert stored_moments.correct_moments(at_once=True) >= 1
    row.refresh_from_db()
    found = getattr(row, moment.field)
    assert found is None or found <= database_now()
    assert f"a stored moment lay ahead: {moment.name} of 1 rows, by up to " in caplog.text
    noted = MomentFound.objects.get(pk=moment.name)
    assert noted.number == 1 and noted.ahead > moment.longest
    assert stored_moments.correct_moments(at_once=True) == 0, "once is enough"


@pytest.mark.django_db
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
def test_a_moment_that_is_legal_stays(moment: StoredMoment) -> None:
    at = timezone.now() + moment.longest
    row = MADE[moment.name](at)
    assert stored_moments.correct_moments(at_once=True) == 0
    row.refresh_from_db()
    assert getattr(row, moment.field) == at
    assert not MomentFound.objects.exists()


@pytest.mark.django_db
def test_a_send_time_in_a_year_is_the_sponsors_and_stays() -> None:
    at = timezone.now() + timedelta(days=365)
    job = factories.campaign_with_job(2, status="READY")
    type(job.campaign).objects.filter(pk=job.campaign_id).update(send_at=at)
    Job.objects.filter(pk=job.pk).update(not_before=at)
    assert stored_moments.correct_moments(at_once=True) == 0
    job.refresh_from_db()
    assert job.not_before == at


@pytest.mark.django_db
def test_messages_that_are_put_off_too_long_are_corrected_with_their_job() -> None:
    far = timezone.now() + timedelta(days=400)
    job, other = in_a_campaign(not_before=far), in_a_campaign()
    for one in (job, other):
        Message.objects.filter(campaign=one.campaign_id).update(call_after=far, put_off_at=timezone.now())
    stored_moments.correct_moments(at_once=True)
    assert not Message.objects.filter(campaign=job.campaign_id, call_after__gt=database_now()).exists()
    assert Message.objects.filter(campaign=other.campaign_id, call_after=far).count() == 3, "its sender comes to them"


@pytest.mark.django_db
def test_after_the_clock_was_put_back_waits_end_as_they_were_meant(caplog: Any) -> None:
    now = timezone.now()
    PeriodicRun.objects.create(task=stored_moments.LOOKED, ran_at=now + HOUR)
    wrong, right = hook_call(now + HOUR + timedelta(seconds=300)), hook_call(now + timedelta(seconds=300))
    closed = login(retry_after_until=now + HOUR + timedelta(seconds=30))
    assert stored_moments.correct_moments() == 0, "all of them are legal"
    for row in (wrong, right, closed):
        row.refresh_from_db()
    assert right.next_at == now + timedelta(seconds=300)
    assert now < wrong.next_at <= now + timedelta(seconds=300) + SLACK
    assert closed.retry_after_until <= now + timedelta(seconds=30) + SLACK
    assert "the clock of PostgreSQL was put back by about 0:59:5" in caplog.text
    assert PeriodicRun.objects.get(pk=stored_moments.LOOKED).ran_at <= database_now()


@pytest.mark.django_db
def test_one_process_a_minute_looks() -> None:
    stored_moments.correct_moments()
    row = beat_row(last_run_at=timezone.now() + HOUR)
    assert stored_moments.correct_moments() == 0, "another process has looked within the minute"
    PeriodicRun.objects.update(ran_at=timezone.now() - timedelta(seconds=61))
    assert stored_moments.correct_moments() == 1
    row.refresh_from_db()
    assert row.last_run_at <= database_now()
