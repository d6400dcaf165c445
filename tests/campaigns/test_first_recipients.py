"""A campaign that waits after its first N calls exactly those until somebody lets the rest go."""

import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import Client
from django.utils import timezone

from campaigns.engine import progress
from campaigns.engine.casting import mailcaster
from campaigns.engine.decisions import Verdict
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.finishing import finalizer
from campaigns.engine.pausing import pauses
from campaigns.engine.sending import send_claimed_job
from campaigns.models import Campaign, Job
from campaigns.operations import actions, pausing
from campaigns.reporting.forecast import eta
from tests import factories
from tests.campaigns.rows import manage, sound, statuses
from tests.faults.sending import login
from tests.sandbox import Sandbox
from vendors.history import Actor
from vendors.models import Mailcaster

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


def first(n: int, size: int, of: Any, **fields: Any) -> Job:
    return factories.campaign_with_job(size, of=of, status="READY", wait_after=n, **fields)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("size", "threshold"), [(300, 10), (300, 100_000)])
def test_several_mailcasters_and_senders_call_exactly_the_first_n_until_somebody_lets_the_rest_go(
    sandbox: Sandbox, size: int, threshold: int
) -> None:
    of = login(sandbox.url)
    of.vendor.small_audience_threshold = threshold
    of.vendor.save()
    job = first(100, size, of)
    assert dispatcher.dispatch_ready([job.pk]).parents == 1  # also a small one
    casters = [factories.caster(of.vendor, min_size=30, max_size=30) for _ in range(4)]

    def work(caster: Mailcaster) -> None:
        try:
            while claimed := mailcaster.claim_next_job(caster.pk, timezone.now()):
                send_claimed_job(claimed.job_id, claimed.fence)
                finalizer.finalise_job(claimed.job_id)
        finally:
            connection.close()

    def all_work() -> None:
        threads = [threading.Thread(target=work, args=[caster]) for caster in casters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    all_work()
    whom = {f"r{number}@sandbox.example" for number in range(1, 101)}
    assert set(sandbox.books().recipients) == whom and len(sandbox.books().entries) == 100
    shown = eta.forecast_jobs([described(job)], progress.progress_of_jobs([Job.objects.get(pk=job.pk)]), timezone.now())
    assert shown[job.pk].next == "waits after its first 100 for somebody to let the rest go"
    assert pauses.pause_after_first() == [job.pk] and pauses.pause_after_first() == []
    campaign = Campaign.objects.get(pk=job.campaign_id)
    assert campaign.paused_reason == "its first 100 of 300 are done; 100 accepted"
    all_work()
    assert len(sandbox.books().entries) == 100
    assert pausing.resume_jobs([job.pk], ANN)[0].message == f"job {job.pk}'s campaign goes on"
    all_work()
    finalizer.finish_parent(job.pk)
    assert statuses(job) == ["P_FINISHED"] and sound()
    assert (len(sandbox.books().recipients), sandbox.books().duplicates()) == (300, {})


def described(job: Job) -> Any:
    return eta.select_related_rows(Job.objects.filter(pk=job.pk)).get()


def test_a_resume_before_the_first_n_are_done_keeps_them_apart_however_often_it_is_repeated() -> None:
    vendor = factories.vendor()
    job = first(4, 10, factories.credential(vendor))
    dispatcher.dispatch_ready([job.pk])
    caster = factories.caster(vendor, min_size=2, max_size=2)
    child = mailcaster.claim_next_job(caster.pk, timezone.now())
    assert child is not None
    pausing.pause_jobs([job.pk], ANN)
    done, again = pausing.resume_jobs([job.pk, child.job_id], ANN)
    assert done.message == f"job {job.pk}'s campaign goes on, and waits after its first 4"
    assert (again.verdict, again.message) == (
        Verdict.ALREADY,
        f"job {child.job_id} is not paused, and waits after its first 4",
    )
    assert mailcaster.claim_next_job(factories.caster(vendor).pk, timezone.now()) is not None
    assert pausing.resume_jobs([job.pk], ANN)[0].verdict == Verdict.ALREADY  # all 4 are cut, and not yet sent
    assert Job.objects.get(pk=job.pk).wait_after == 4
    Job.objects.filter(parent=job).update(status="LOGGED", finished_at=timezone.now(), mailcaster=None)
    assert pausing.resume_jobs([job.pk], ANN)[0].verdict == Verdict.ALREADY  # the wait behind them has not begun
    assert pauses.pause_after_first() == [job.pk]
    assert pausing.resume_jobs([job.pk], ANN)[0].message == f"job {job.pk}'s campaign goes on"
    assert Job.objects.get(pk=job.pk).wait_after is None
    assert pausing.resume_jobs([job.pk], ANN)[0].verdict == Verdict.ALREADY


def test_neither_a_look_up_nor_a_resume_takes_the_first_n_of_a_job_that_has_not_come_so_far(
    admin_client: Client,
) -> None:
    credential = factories.credential(factories.vendor())
    tonight = factories.campaign_with_job(10, of=credential, wait_after=4)
    begun = first(4, 10, credential)
    dispatcher.dispatch_ready([begun.pk])
    waiting = factories.campaign_with_job(10, of=credential, status="P_ASSIGNING", remaining=6, wait_after=4)
    pauses.pause_after_first()
    manage("resume_job", "--vendor", credential.vendor.slug, "--yes")
    pausing.resume_jobs([tonight.pk, begun.pk], ANN)
    assert [Job.objects.get(pk=job.pk).wait_after for job in (tonight, begun, waiting)] == [4, 4, None]
    for job in (tonight, begun):
        page = admin_client.get(f"/admin/campaigns/job/{job.pk}/change/").content.decode()
        assert 'value="resume"' not in page


def test_what_is_stopped_before_the_go_still_waits_after_its_first_n() -> None:
    vendor = factories.vendor()
    job = first(4, 10, factories.credential(vendor))
    dispatcher.dispatch_ready([job.pk])
    actions.stop_jobs([job.pk], ANN)
    finalizer.finish_parent(job.pk)
    (answer,) = actions.retry_jobs([job.pk], by=ANN)
    assert answer.message == f"job {job.pk} sends 4 messages, and waits after its first 4"
    caster = factories.caster(vendor, min_size=20, max_size=20)
    child = mailcaster.claim_next_job(caster.pk, timezone.now())
    assert child is not None and child.size == 4
    assert mailcaster.claim_next_job(factories.caster(vendor).pk, timezone.now()) is None


@pytest.fixture
def campaign(tmp_path: Path) -> Any:
    (tmp_path / "people.csv").write_text("email\n" + "".join(f"p{n}@sandbox.example\n" for n in range(10)))
    (tmp_path / "body.txt").write_text("Dear you\n")
    files = [str(tmp_path / "people.csv"), "--subject", "Hello", "--body", str(tmp_path / "body.txt")]

    def store(*more: str) -> str:
        vendor = factories.credential(factories.vendor()).vendor
        sponsor = factories.sponsor()
        return manage("send_campaign", *files, "--vendor", vendor.slug, "--sponsor", sponsor.name, "--at", "now", *more)

    return store


def test_the_command_takes_first_n_and_limits_and_refuses_impossible_ones(campaign: Any) -> None:
    said = campaign("--first", "3", "--bounce-limit", "0", "--complaint-limit", "1.5")
    job = Job.objects.get()
    assert (job.wait_after, job.status) == (3, "P_QUEUED")
    assert f"waits after its first 3 for resume_job {job.pk}" in said
    assert (job.campaign.bounce_limit, job.campaign.complaint_limit) == (0, 1.5)
    for bad, fault in [(("--first", "0"), "1 or more"), (("--bounce-limit", "101"), "0 to 100")]:
        with pytest.raises(CommandError, match=fault):
            campaign(*bad)
    campaign("--first", "10")
    assert Job.objects.latest("pk").wait_after is None  # all of them are the first
