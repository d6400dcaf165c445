"""Document 001, section by section: sender and logger, retry, stop, priority.

In this process: a caster's claim is the picking, sender.send_claimed_job the sender worker, finalise the logger worker.
The vendor is a sandbox with its own books, reached over a real socket.
"""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import decisions, sending
from campaigns.engine.casting import mailcaster
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import sender
from campaigns.models import AnswerBatch, Claim, Job, Message
from campaigns.operations import actions
from tests import calling
from tests import factories as make
from tests.programs import wait_until
from tests.waiting import joined
from vendors.models import Credential
from vendors.outcomes import Accepted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def twilio(sandbox) -> Credential:
    vendor = make.vendor(settings={"url": sandbox.url}, casters=["small-only"] * 2, small_audience_threshold=1000)
    return make.credential(vendor, exclusive=True)


def pick(credential: Credential) -> mailcaster.ClaimedJob | None:
    """A sender worker looks for a job."""
    for caster in mailcaster.idle_casters(credential.vendor_id):
        if claimed := mailcaster.claim_next_job(caster, timezone.now()):
            return claimed
    return None


def status(job: Job) -> str:
    return Job.objects.get(pk=job.pk).status


def ready(recipients: list[str] | int, credential: Credential, **fields: Any) -> Job:
    """A user has clicked 'Send Campaign'."""
    job = make.campaign_with_job(recipients, of=credential, status="READY", **fields)
    dispatcher.dispatch_ready([job.pk])
    return job


def test_six_states_from_ready_to_logged(twilio, sandbox):
    job = make.campaign_with_job(["ann@sandbox.example", "bounce@sandbox.example"], of=twilio, status="READY")
    assert status(job) == "READY"
    dispatcher.dispatch_ready([job.pk])
    claimed = pick(twilio)
    assert claimed and status(job) == "ENQUEUED", "chosen by a sender worker"
    lease = calling.started(Job.objects.get(pk=job.pk))
    assert status(job) == "SENDING"
    assert sender.put_back(job.pk, lease.fence), "the worker is replaced by another one"
    claimed = pick(twilio)
    assert claimed and not sending.send_claimed_job(job.pk, claimed.fence).left
    assert status(job) == "SENT", "all are picked off; the logger has not been there yet"
    assert not Message.objects.filter(delivered_at=None).exists(), "all results are in the ground truth"
    assert finalizer.finalise_job(job.pk) and status(job) == "LOGGED"
    assert not Claim.objects.exists() and not AnswerBatch.objects.exists(), "the queueing tables are empty again"
    ann, bounce = Message.objects.order_by("pk")
    assert ann.message_id and ann.sent_at and ann.delivered_at and not ann.error_code
    assert bounce.error_code == "bounce" and bounce.error_sub_type and bounce.delivered_at and not bounce.message_id


def test_only_one_worker_can_take_a_job(twilio):
    job = ready(1, twilio)
    start = threading.Barrier(2)
    found = []

    def worker(caster: int) -> None:
        start.wait(60)
        found.append(mailcaster.claim_next_job(caster, timezone.now()))
        connection.close()

    workers = [threading.Thread(target=worker, args=(c,)) for c in mailcaster.idle_casters(twilio.vendor_id)]
    for thread in workers:
        thread.start()
    joined(*workers)
    assert [claimed.job_id for claimed in found if claimed] == [job.pk]


def test_a_credential_serves_one_campaign_at_a_time_but_several_jobs_of_it(twilio):
    first = ready(2, twilio)
    Job.objects.filter(pk=first.pk).update(size=1)
    second = make.job(first.campaign, "DISPATCHED", first_message=first.first_message + 1, size=1)
    stranger = ready(1, twilio)
    picked = [pick(twilio), pick(twilio)]
    assert {claimed.job_id for claimed in picked if claimed} == {first.pk, second.pk}
    for claimed in filter(None, picked):
        assert pick(twilio) is None, "the other campaign waits for the credential"
        sending.send_claimed_job(claimed.job_id, claimed.fence)
        assert pick(twilio) is None, "also while results are not logged yet"
        finalizer.finalise_job(claimed.job_id)
    claimed = pick(twilio)
    assert claimed and claimed.job_id == stranger.pk


def test_a_retry_sends_only_what_failed_in_the_same_row(twilio, sandbox):
    sandbox.settings(reject_rate=1.0)
    old = ready(["ann@sandbox.example", "bob@sandbox.example"], twilio)
    claimed = pick(twilio)
    sending.send_claimed_job(old.pk, claimed.fence)
    assert actions.retry_jobs([old.pk])[0].verdict == decisions.Verdict.BUSY, "not before it is logged"
    finalizer.finalise_job(old.pk)
    assert Job.objects.get(pk=old.pk).refused == 2
    newer = ready(1, twilio, by=old.sponsor)  # of two sponsors the one that was served less would be first
    sandbox.settings(reject_rate=0.0)
    assert actions.retry_jobs([old.pk])[0].verdict == decisions.Verdict.DONE
    claimed = pick(twilio)
    assert claimed.job_id == old.pk < newer.pk, "an older job that is retried comes before a newer one"
    sending.send_claimed_job(old.pk, claimed.fence)
    finalizer.finalise_job(old.pk)
    assert actions.retry_jobs([old.pk])[0].verdict == decisions.Verdict.ALREADY, "nothing is left that failed"
    job = Job.objects.get(pk=old.pk)
    assert (job.accepted, job.refused) == (2, 0)
    assert not sandbox.books().duplicates()


def test_a_job_is_stopped_and_resumed_in_the_middle(twilio, sandbox):
    job = ready(200, twilio)
    claimed = pick(twilio)
    twilio.vendor.settings["concurrency"] = 2
    twilio.vendor.save()
    sandbox.settings(latency_ms=200)  # it would take 20 s

    def stop_in_the_middle() -> None:
        wait_until(lambda: len(sandbox.books().accepted) >= 20, "twenty are accepted")
        actions.stop_jobs([job.pk])
        connection.close()

    person = threading.Thread(target=stop_in_the_middle)
    person.start()
    sending.send_claimed_job(job.pk, claimed.fence)
    joined(person)
    assert status(job) == "STOPPED"
    stopped_at = Job.objects.get(pk=job.pk).stopped_at
    assert not Message.objects.filter(sent_at__gt=stopped_at).exists(), "no call starts after the stop"
    assert not Claim.objects.filter(at__gt=stopped_at).exists()
    assert finalizer.finalise_job(job.pk), "every message with sent_at has its answer"
    halfway = Job.objects.get(pk=job.pk)
    assert halfway.status == "LOGGED" and 20 <= halfway.accepted < 200
    assert Message.objects.filter(dequeued_at=None).count() == 200 - halfway.accepted
    sandbox.settings(latency_ms=0)
    assert actions.retry_jobs([job.pk])[0].verdict == decisions.Verdict.DONE, "resuming is the same as retrying"
    claimed = pick(twilio)
    sending.send_claimed_job(job.pk, claimed.fence)
    finalizer.finalise_job(job.pk)
    assert Job.objects.get(pk=job.pk).accepted == 200
    books = sandbox.books()
    assert len(books.recipients) == 200 and not books.duplicates()


def test_finalising_one_campaign_touches_no_row_of_another(twilio, sandbox):
    other = make.credential(make.vendor(settings={"url": sandbox.url}, casters=["small-only"]))
    done, in_progress = ready(3, twilio), ready(3, other)
    claimed = pick(twilio)
    sending.send_claimed_job(done.pk, claimed.fence)
    pick(other)
    lease = calling.started(Job.objects.get(pk=in_progress.pk))
    claimed = calling.by_sender(lambda rows: calling.claim(rows, in_progress, lease, most=2))
    answers = [(in_progress.first_message, Accepted("v-1"))]
    calling.by_sender(lambda rows: calling.append(rows, lease, claimed.claim, answers))

    def rows() -> list[Any]:
        mine = Message.objects.filter(campaign=in_progress.campaign).order_by("pk")
        tables = (table.objects.filter(job=in_progress) for table in (Claim, AnswerBatch))
        return [list(mine.values()), *(list(table.values()) for table in tables)]

    before = rows()
    assert finalizer.finalise_job(done.pk)
    assert rows() == before and list(map(len, before)) == [3, 1, 1]


def test_the_oldest_job_is_the_one_with_the_lowest_id(twilio):
    older, newer = ready(1, twilio), ready(1, twilio)
    Job.objects.filter(pk=newer.pk).update(created_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert pick(twilio).job_id == older.pk
