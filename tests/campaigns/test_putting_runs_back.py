"""A run of equal refusals over a credential pauses it, and puts back what was refused, instead of refusing the list."""

from typing import Any

import pytest
from django.utils import timezone

from campaigns.audience import finding
from campaigns.engine import audit, sending
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing.sweep import run_sweep
from campaigns.engine.refusal_runs import putting_back
from campaigns.engine.refusal_runs.run_rows import RunKey
from campaigns.models import Job, Message, RefusalRun, RefusalTail, Resolution
from campaigns.models.states import Status
from campaigns.operations import actions
from tests import factories
from tests.ageing import make_older
from tests.campaigns.refused_lists import (
    CONCURRENCY,
    LEASE,
    failed,
    full_run,
    no_other_sender,
    paused,
    refused_so,
    resume,
    swept,
    taken,
    vendor,
)
from tests.campaigns.rows import accepted, family, recount
from tests.faults.sending import login, meanwhile, take_again
from tests.programs import wait_until
from vendors.health import HealthPolicy, health_store

__all__ = ["no_other_sender", "vendor"]


@pytest.mark.django_db(transaction=True)
def test_the_list_waits_the_reason_is_shown_and_health_suffers(vendor: Any, settings: Any) -> None:
    account = login(vendor.url)
    job = taken(200, account)
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert "in a row were refused with the same words: E_7113 state 4: check the account" in paused(account)
    assert 20 <= failed(job) <= 20 + CONCURRENCY and job.accepted == 0 and vendor.calls == job.refused
    health = health_store(settings.REDIS_URL).look(account.vendor_id, HealthPolicy.of(account.vendor))
    assert (health.good, health.bad) == (0, job.refused) and not health.accepting
    refused = job.refused
    swept()
    assert failed(job) == 0 and Message.objects.filter(resend_no=1, error_code=None).count() == refused
    vendor.suspended = False
    resume(account)
    assert not sending.send_claimed_job(job.pk, take_again(job).fence).left
    assert finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert (job.accepted, job.refused) == (200, 0)
    once = Resolution.objects.filter(decided_by="mailhub").first()
    assert once is not None and once.evidence == "E_7113 state 4"
    [found] = finding.look_for(str(once.message_id), None).messages
    assert "Refused in a row of equal refusals, so it waits again" in [one.what for one in found.happenings]
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


@pytest.mark.django_db(transaction=True)
def test_it_is_counted_over_all_jobs_and_a_logged_one_sends_again(vendor: Any) -> None:
    account = login(vendor.url)
    jobs = []
    for _ in range(4):
        job = taken(5, account)
        assert not sending.send_claimed_job(job.pk, job.fence).left and finalizer.finalise_job(job.pk)
        jobs.append(job)
    assert [failed(job) for job in jobs] == [5] * 4
    swept()
    assert paused(account).startswith("20 messages in a row")
    assert [(failed(job), job.status) for job in jobs] == [(0, Status.DISPATCHED)] * 4
    vendor.suspended = False
    resume(account)
    for job in jobs:
        assert not sending.send_claimed_job(job.pk, take_again(job).fence).left and finalizer.finalise_job(job.pk)
    assert sum(Job.objects.values_list("accepted", flat=True)) == 20


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_calls_that_were_open_when_a_run_was_put_back_belong_to_it(vendor: Any, is_resumed: bool) -> None:
    account = login(vendor.url)
    early = taken([f"slow{n}@example.org" for n in range(3)], account)
    job = taken(40, account)
    with meanwhile(sending.send_claimed_job, early.pk, early.fence) as open_calls:
        wait_until(lambda: vendor.calls == 3, "the calls are open")
        assert sending.send_claimed_job(job.pk, job.fence).left
        swept()
        assert failed(job) == 0 and RefusalTail.objects.get().messages
        if is_resumed:
            resume(account)
        vendor.answers_slow.set()
        open_calls.result()
    finalizer.finalise_job(early.pk)
    assert failed(early) == 3, "refused in the same words, and far too few for a run"
    wait_until(lambda: run_sweep(LEASE) and not RefusalTail.objects.exists(), "the tail is put back")
    assert failed(early) == 0 and early.status == Status.DISPATCHED
    assert bool(paused(account)) != is_resumed, "what was called before pauses nothing anew"
    assert Resolution.objects.filter(message_id__gte=early.first_message, message_id__lt=early.end).count() == 3
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


@pytest.mark.django_db(transaction=True)
def test_open_calls_that_end_otherwise_stay_as_they_are(vendor: Any) -> None:
    account = login(vendor.url)
    job = factories.campaign_with_job(22, of=account, status="SENDING")
    claim = factories.claim(job, [20, 21])
    first, last = job.first_message, job.first_message + 20
    Message.objects.filter(id__gte=first, id__lt=last).update(**refused_so("E_7113", "state 4"))
    run = full_run(account, job, 20)
    assert putting_back.put_runs_back() == [RunKey(account.pk)] and paused(account)
    assert RefusalTail.objects.get().messages == [last, last + 1] and not RefusalRun.objects.exists()
    putting_back.put_runs_back()
    assert RefusalTail.objects.get().messages == [last, last + 1], "they are open"
    claim.delete()
    Message.objects.filter(id=last).update(**refused_so("E_7114", ""))
    Message.objects.filter(id=last + 1).update(dequeued_at=run.since, **accepted())
    putting_back.put_runs_back()
    assert not RefusalTail.objects.exists()
    assert Message.objects.get(id=last).error_code == "E_7114" and Message.objects.get(id=last + 1).message_id == "v-1"


@pytest.mark.django_db(transaction=True)
def test_who_is_refused_again_in_a_persons_retry_pauses_nothing(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    mixed = [f"{'good' if n % 10 == 9 else 'bad'}{n}@example.org" for n in range(80)]
    job = taken(mixed, account)
    assert not sending.send_claimed_job(job.pk, job.fence).left and finalizer.finalise_job(job.pk)
    assert failed(job) == 72 and not paused(account)
    for _ in range(2):
        actions.retry_jobs([job.pk])
        wait_until(lambda: run_sweep(LEASE) and failed(job) == 0 and job.status == Status.DISPATCHED, "dispatched")
        assert not sending.send_claimed_job(job.pk, take_again(job).fence).left and finalizer.finalise_job(job.pk)
        run_sweep(LEASE)
        assert failed(job) == 72 and not paused(account)
    RefusalRun.objects.all().delete()
    others = taken(30, account)
    assert sending.send_claimed_job(others.pk, others.fence).left and paused(account).startswith("20 messages in a row")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["template", "E_1"])
def test_a_retry_of_a_whole_list_over_a_suspended_account_pauses_it(vendor: Any, code: str) -> None:
    """Many were refused before, or could not be made. That lets no list be refused whole."""
    account = login(vendor.url)
    job = taken(250, account)
    Message.objects.filter(id__gte=job.first_message, id__lt=job.end).update(**refused_so(code, ""))
    recount(job)
    Job.objects.filter(pk=job.pk).update(status="SENT")
    assert finalizer.finalise_job(job.pk)
    actions.retry_jobs([job.pk])
    wait_until(lambda: run_sweep(LEASE) and failed(job) == 0 and job.status == Status.DISPATCHED, "dispatched")
    assert sending.send_claimed_job(job.pk, take_again(job).fence).left
    assert "messages in a row were refused" in paused(account)
    wait_until(lambda: run_sweep(LEASE) and failed(job) == 0, "put back")


@pytest.mark.django_db(transaction=True)
def test_a_persons_stop_of_the_parent_holds_for_a_child_that_was_logged_before() -> None:
    top, (logged, other) = family(parent="P_ASSIGNED", remaining=0, children=["LOGGED", "DISPATCHED"], each=20)
    Message.objects.filter(id__gte=logged.first_message, id__lt=logged.end).update(**refused_so("E_7113", "state 4"))
    recount(logged)
    Job.objects.filter(pk=top.pk).update(refused=20)
    actions.stop_jobs([top.pk], by="ann")
    full_run(top.credential, logged, 20)
    swept()
    run_sweep(LEASE)
    for job in (top, logged, other):
        job.refresh_from_db()
    assert (logged.status, logged.stopped_by) == ("LOGGED", "ann")
    assert top.status in ("P_STOPPED", "P_ASSIGNED") and top.stopped_by == "ann"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stopped", [[0], [0, 1]])
def test_a_finished_parent_shows_what_waits_again_in_a_stopped_child(stopped: list[int]) -> None:
    top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=10)
    account = top.credential
    for child in cut:
        Message.objects.filter(id__gte=child.first_message, id__lt=child.end).update(**refused_so("E_7113", "state 4"))
        recount(child)
    Job.objects.filter(pk=top.pk).update(refused=20)
    Job.objects.filter(pk__in=[cut[n].pk for n in stopped]).update(stopped_at=timezone.now(), stopped_by="ann")
    full_run(account, top, 20)
    swept()
    run_sweep(LEASE)
    top.refresh_from_db()
    if len(stopped) == 2:
        assert (top.status, top.stopped_by, top.refused) == ("P_STOPPED", "ann", 0) and top.finished_at
    else:
        assert (top.status, top.finished_at) == ("P_ASSIGNED", None), "its other child sends again"
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


@pytest.mark.django_db(transaction=True)
def test_a_stopped_job_stays_stopped(vendor: Any) -> None:
    account = login(vendor.url)
    first, second = taken(10, account), taken(10, account)
    for job in (first, second):
        assert not sending.send_claimed_job(job.pk, job.fence).left and finalizer.finalise_job(job.pk)
    Job.objects.filter(pk=first.pk).update(stopped_at=first.created_at)
    swept()
    assert (failed(first), first.status) == (0, Status.LOGGED) and Message.objects.filter(
        dequeued_at=None
    ).count() == 20


@pytest.mark.django_db(transaction=True)
def test_it_is_counted_over_all_senders_of_a_job_at_five_a_minute(vendor: Any) -> None:
    account = login(vendor.url, (5, 60))
    job = taken(40, account)
    for _ in range(3):
        assert sending.send_claimed_job(job.pk, job.fence).left and not paused(account)
        make_older(account.vendor, 70)
        job = take_again(job)
    assert sending.send_claimed_job(job.pk, job.fence).left and vendor.calls == 20
    swept()
    assert paused(account).startswith("20 messages in a row") and failed(job) == 0


@pytest.mark.django_db(transaction=True)
def test_whoever_resumes_it_gets_past_what_was_refused_before(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    job = taken(60, account)
    assert sending.send_claimed_job(job.pk, job.fence).left and vendor.calls == 20
    swept()
    resume(account)
    assert sending.send_claimed_job(job.pk, take_again(job).fence).left and vendor.calls == 40
    swept()
    assert failed(job) == 0, "none of these was put back before"
    resume(account)
    assert sending.send_claimed_job(job.pk, take_again(job).fence).left and vendor.calls == 60
    swept()
    assert failed(job) == 0
    resume(account)
    assert sending.send_claimed_job(job.pk, take_again(job).fence).left and vendor.calls == 80
    swept()
    assert failed(job) == 20, "refused again with the same words after a person had looked: that stands"
