"""A paused campaign calls nobody until it is resumed."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.engine import audit, merging, progress
from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming.claims import Lease
from campaigns.engine.decisions import Verdict
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import send_claimed_job
from campaigns.models import Campaign, Job, Message
from campaigns.operations import actions, pausing
from campaigns.reporting.forecast import streams
from mailhub.monitoring import metrics
from tests import calling, factories
from tests.campaigns.rows import family, manage, sound, statuses
from tests.faults.sending import being_sent, calls, login, sent, take_again, taken
from tests.sandbox import Sandbox
from vendors.history import Actor

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


@pytest.mark.django_db(transaction=True)
def test_nothing_is_called_in_a_pause_what_was_claimed_is_recorded_and_the_rest_goes_on_afterwards(
    sandbox: Sandbox,
) -> None:
    job = taken(120, login(sandbox.url))
    sandbox.settings(latency_ms=500)
    with being_sent(job) as sending:
        calls(sandbox, 4)
        assert pausing.pause_jobs([job.pk], ANN, "a wrong link")[0].verdict == Verdict.DONE
        assert sending.result().left
    job.refresh_from_db()
    early = len(sandbox.books().accepted)
    assert (job.status, job.accepted, job.waits_for) == ("DISPATCHED", early, "paused: a wrong link")
    assert 4 <= early < 120 and sound()
    assert not Message.objects.filter(campaign=job.campaign, sent_at__gt=job.paused_at).exists()
    caster = factories.caster(job.vendor)
    assert mailcaster.claim_next_job(caster.pk, timezone.now()) is None
    sandbox.settings(latency_ms=0)
    assert not send_claimed_job(job.pk, take_again(job).fence).until  # even one who has it claims nothing
    assert len(sandbox.books().accepted) == early
    assert pausing.resume_jobs([job.pk], ANN)[0].message == f"job {job.pk}'s campaign goes on"
    sent(take_again(job))
    assert (len(sandbox.books().recipients), sandbox.books().duplicates()) == (120, {})
    assert sound() and Job.objects.get(pk=job.pk).accepted == 120


def test_a_pause_is_the_whole_campaigns_and_doing_it_twice_changes_nothing() -> None:
    top, cut = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED", "DISPATCHED"])
    (done,) = pausing.pause_jobs([cut[1].pk], ANN)
    (again,) = pausing.pause_jobs([top.pk], "bob", "me too")
    assert (done.verdict, again.verdict) == (Verdict.DONE, Verdict.ALREADY)
    assert again.message == f"job {top.pk} is paused already: by ann"
    assert len(set(Job.objects.filter(campaign=top.campaign).values_list("paused_at", flat=True)) - {None}) == 1
    assert progress.progress_of_jobs([Job.objects.get(pk=top.pk)])[top.pk].paused
    (done,) = pausing.resume_jobs([cut[0].pk], ANN)
    (again,) = pausing.resume_jobs([top.pk], "bob")
    assert (done.verdict, again.verdict, again.message) == (
        Verdict.DONE,
        Verdict.ALREADY,
        f"job {top.pk} is not paused",
    )
    assert not Job.objects.filter(campaign=top.campaign, paused_at__isnull=False).exists()
    kept = LogEntry.objects.filter(object_id=str(cut[1].pk)).get().change_message
    assert "campaign paused: no new call starts until it is resumed by ann" in kept


def test_who_has_seen_an_older_state_is_refused_and_what_has_ended_cannot_be_paused() -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    seen = job.revision
    pausing.pause_jobs([job.pk], ANN)
    assert pausing.resume_jobs([job.pk], ANN, revision=seen)[0].verdict == Verdict.STALE
    assert pausing.resume_jobs([job.pk], ANN, revision=seen + 1)[0].verdict == Verdict.DONE
    ended = factories.campaign_with_job(1, status="LOGGED", fence=1, finished_at=timezone.now())
    assert pausing.pause_jobs([ended.pk], ANN)[0].message == f"job {ended.pk} is Logged: nothing is left to pause"
    assert pausing.pause_jobs([-1], ANN)[0].verdict == pausing.resume_jobs([-1], ANN)[0].verdict == Verdict.UNKNOWN


@pytest.mark.django_db(transaction=True)
def test_a_claim_of_a_paused_campaign_gets_nothing() -> None:
    job = factories.campaign_with_job(3, status="SENDING")
    lease = Lease(job.pk, job.fence)
    pausing.pause_jobs([job.pk], ANN)
    assert calling.by_sender(lambda rows: calling.claim(rows, job, lease, most=3)) == ([], None, False, 0)
    pausing.resume_jobs([job.pk], ANN)
    assert len(calling.by_sender(lambda rows: calling.claim(rows, job, lease, most=3)).messages) == 3


def test_a_paused_parent_is_not_cut_and_a_stop_and_a_retry_leave_it_paused() -> None:
    top, _ = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED"])
    caster = factories.caster(top.vendor, min_size=2, max_size=2)
    pausing.pause_jobs([top.pk], ANN)
    assert mailcaster.claim_next_job(caster.pk, timezone.now()) is None
    assert actions.stop_jobs([top.pk], ANN)[0].verdict == Verdict.DONE
    (answer,) = actions.retry_jobs([top.pk], by=ANN)
    assert (answer.verdict, answer.message) == (
        Verdict.BUSY,
        f"job {top.pk} is paused with its campaign: resume_job lets it go on",
    )
    assert pausing.resume_jobs([top.pk], ANN)[0].verdict == Verdict.DONE
    assert statuses(top) == ["P_STOPPED"]
    assert actions.retry_jobs([top.pk], by=ANN)[0].verdict == Verdict.DONE
    assert mailcaster.claim_next_job(caster.pk, timezone.now()) is not None


@pytest.mark.django_db(transaction=True)
def test_deadlines_pass_in_a_pause(sandbox: Sandbox) -> None:
    of = login(sandbox.url)
    small = factories.campaign_with_job(5, of=of, status="DISPATCHED")
    large = factories.campaign_with_job(7, of=of, status="P_QUEUED", wait_after=2)
    caster = factories.caster(of.vendor, min_size=2, max_size=100)
    for job in (small, large):
        pausing.pause_jobs([job.pk], ANN)
        Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now())
    while claimed := mailcaster.claim_next_job(caster.pk, timezone.now()):
        send_claimed_job(claimed.job_id, claimed.fence)
        finalizer.finalise_job(claimed.job_id)
    finalizer.finish_parent(large.pk)
    assert statuses(small, large) == ["LOGGED", "P_FINISHED"]
    assert [Job.objects.get(pk=job.pk).expired for job in (small, large)] == [5, 7]
    assert not sandbox.books().entries and sound()


def test_what_is_resumed_after_days_waits_for_a_sender_since_then() -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    factories.caster(job.vendor, kind="small-only")
    long_ago = timezone.now() - timedelta(days=7)
    Job.objects.filter(pk=job.pk).update(status_at=long_ago, dispatched_at=long_ago, created_at=long_ago)
    pausing.pause_jobs([job.pk], ANN)
    pausing.resume_jobs([job.pk], ANN)
    (found,) = [one for one in streams.streams_of_vendors() if one.vendor_id == job.vendor_id]
    assert found.waiting == 1 and found.oldest < 3600


@pytest.mark.parametrize("verb", [pausing.pause_jobs, pausing.resume_jobs])
def test_a_decision_locks_the_jobs_and_merges_their_answers_once(verb: Any) -> None:
    job = factories.campaign_with_job(3, status="SENDING")
    if verb is pausing.resume_jobs:
        pausing.pause_jobs([job.pk], ANN)
    with CaptureQueriesContext(connection) as asked:
        assert verb([job.pk], ANN)[0].verdict == Verdict.DONE
    assert sum(merging.WAITING_ANSWERS.split("%")[0].strip() in one["sql"] for one in asked) == 1


def test_the_commands_pause_and_resume_by_look_ups_and_ask_first() -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    name = job.campaign.name
    with pytest.raises(CommandError, match="this pauses 1 job with 3 messages waiting; add --yes"):
        manage("pause_job", "--campaign", name)
    assert "campaign paused" in manage("pause_job", "--campaign", name, "--yes", "--reason", "a wrong link")
    assert Campaign.objects.get().paused_reason == "a wrong link"
    assert json.loads(manage("resume_job", str(job.pk), "--json"))["verdict"] == "done"
    assert "not paused" in manage("resume_job", str(job.pk))


@pytest.mark.django_db(transaction=True)
def test_the_metrics_count_paused_campaigns() -> None:
    paused = [factories.campaign_with_job(3, status="DISPATCHED").pk for _ in range(2)]
    pausing.pause_jobs(paused, ANN)
    assert "mailhub_campaigns_paused 2.0" in metrics.metrics_text().decode()
    Job.objects.filter(pk=paused[0]).update(status="LOGGED", fence=1, finished_at=timezone.now())
    assert "mailhub_campaigns_paused 1.0" in metrics.metrics_text().decode()


def test_the_page_of_a_job_pauses_and_resumes_after_a_confirmation_that_shows_the_numbers(admin_client: Client) -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    page = "/admin/campaigns/job/"

    def press(name: str) -> Any:
        asked = admin_client.post(page, {"action": name, "_selected_action": [job.pk]})
        (row,) = asked.context["meant"]
        shown = {"confirmed": "Yes", "shown": [f"{job.pk}:{row.seen}"], "reason": "a wrong link"}
        admin_client.post(page, {"action": name, "_selected_action": [job.pk], **shown})
        return asked.content.decode()

    assert 'value="resume"' not in admin_client.get(f"{page}{job.pk}/change/").content.decode()
    assert "will not be called until somebody resumes" in press("pause")
    seen = admin_client.get(f"{page}{job.pk}/change/").content.decode()
    assert "Paused by admin: a wrong link" in seen
    assert 'value="resume"' in seen and 'value="pause"' not in seen
    assert "Paused" in admin_client.get(page).content.decode()
    assert "is paused by admin: a wrong link" in press("resume")
    assert Job.objects.get().paused_at is None


def test_the_audit_finds_a_call_in_a_pause() -> None:
    job = factories.campaign_with_job(1, status="SENDING")
    pausing.pause_jobs([job.pk], ANN)
    assert sound()
    factories.claim(job, at=timezone.now() + timedelta(seconds=1))
    broken = [check.question for check in audit.ask_all_questions() if not check.is_kept]
    assert "no call was allowed after a stop or in a pause" in broken
