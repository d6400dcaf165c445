"""A job is stopped while its calls are in flight, and resumed: document 001's stop and retry, end to end."""

import threading
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import audit, decisions
from campaigns.engine import sending as sender
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.models import Job, Message
from campaigns.operations import actions
from tests import factories
from tests.waiting import joined, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
SIZE = 120


def claimed(job: Job) -> int:
    """Lets a mailcaster claim the job; returns the fence."""
    assert move(Job.objects.filter(pk=job.pk), "enqueue", fence=job.fence + 1, heartbeat_at=timezone.now()) == 1
    job.refresh_from_db()
    return job.fence


def sending(job: Job) -> threading.Thread:
    fence = claimed(job)

    def run() -> None:
        try:
            sender.send_claimed_job(job.pk, fence)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_after_a_stop_no_call_starts_and_the_resumed_job_reaches_everyone_once(sandbox: Any) -> None:
    vendor = factories.vendor(settings={"url": sandbox.url, "concurrency": 4}, limits=[(1000, 60)])
    campaign = factories.campaign(SIZE, of=factories.credential(vendor))
    job = factories.job(campaign, "DISPATCHED")
    sandbox.settings(latency_ms=1000)  # four at a time: the whole would take half a minute
    thread = sending(job)
    wait_until(lambda: len(sandbox.books().accepted) >= 4, "the first four are accepted")
    (answer,) = actions.stop_jobs([job.pk], by="ann")
    assert answer.verdict == decisions.Verdict.DONE
    joined(thread)
    assert finalizer.finalise_job(job.pk)
    early = len(sandbox.books().accepted)
    job.refresh_from_db()
    assert (job.status, job.accepted, job.in_doubt) == ("LOGGED", early, 0)
    assert 4 <= early < SIZE
    assert Message.objects.filter(campaign=campaign, sent_at__gt=job.stopped_at).count() == 0
    assert [check for check in audit.ask_all_questions() if not check.is_kept] == []

    (answer,) = actions.retry_jobs([job.pk])
    assert (answer.messages, Job.objects.get(pk=job.pk).status) == (SIZE - early, "DISPATCHED")
    sandbox.settings(latency_ms=0)
    joined(sending(Job.objects.get(pk=job.pk)))
    assert finalizer.finalise_job(job.pk)
    books = sandbox.books()
    assert (len(books.recipients), books.duplicates()) == (SIZE, {})
    assert Job.objects.get(pk=job.pk).accepted == SIZE
    assert [check for check in audit.ask_all_questions() if not check.is_kept] == []
