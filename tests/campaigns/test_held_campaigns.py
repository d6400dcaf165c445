"""Accepted campaigns that nobody calls while their sponsor may not send them, or mailhub has no link to give them."""

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.engine import sending
from campaigns.engine.decisions import Verdict
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.progress import progress_of_jobs
from campaigns.models import Campaign, Job, Message, Sponsor
from campaigns.models.states import S
from campaigns.operations import actions, pausing
from campaigns.reporting.forecast import eta
from tests import factories
from tests.faults.sending import login, send_the_rest, sent, take_again
from tests.front.program import Program, api_vendor, fresh, letter, problem
from tests.sandbox import Sandbox
from vendors.history import Actor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
BASE = "https://mail.example.org"
NO_MORE = "its sponsor may not send transactional mail any more"
NO_LINK = "PUBLIC_URL is not set, and its letters show the link to unsubscribe"


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def obstacle(job: Job) -> str:
    jobs = eta.select_related_rows(Job.objects.filter(pk=job.pk))
    seen = list(jobs)
    return eta.forecast_jobs(seen, progress_of_jobs(seen), timezone.now())[job.pk].next


def allowed(job: Job, answer: str) -> None:
    manage("sponsor", "set", job.sponsor.name, "--transactional", answer)


def transactional(status: str = S.READY, **fields: Any) -> Job:
    job = factories.campaign_with_job(3, status=status, **fields)
    Campaign.objects.filter(pk=job.campaign_id).update(transactional=True)
    return job


@pytest.mark.parametrize("status", [S.RENDERED, S.READY])
def test_transactional_mail_is_held_while_its_sponsor_may_not_send_any_and_goes_on_after(status: str) -> None:
    job, bulk = transactional(status), factories.campaign_with_job(3, status=status)
    allowed(job, "no")
    done = dispatcher.dispatch_rendered() + dispatcher.dispatch_ready()
    job.refresh_from_db()
    bulk.refresh_from_db()
    assert (done.jobs, job.status, bulk.status) == (1, status, S.DISPATCHED)
    assert obstacle(job) == f"held: {NO_MORE}" and NO_MORE in manage("list_jobs", "--json")
    [answer] = actions.dispatch_jobs([job.pk], Actor("ann"))
    assert (answer.verdict, answer.message) == (Verdict.BUSY, f"job {job.pk} is held: {NO_MORE}")
    allowed(job, "yes")
    assert obstacle(job) != f"held: {NO_MORE}" and dispatcher.dispatch_these([job.pk]).jobs == 1


def test_a_transactional_job_is_not_sent_again_while_its_sponsor_may_not_send_any() -> None:
    job = transactional(S.LOGGED, finished_at=timezone.now())
    [answer] = actions.retry_jobs([job.pk])
    assert (answer.verdict, answer.message) == (Verdict.BUSY, f"job {job.pk} is held: {NO_MORE}")
    allowed(job, "yes")
    assert actions.retry_jobs([job.pk])[0].verdict == Verdict.DONE


def test_what_waits_after_its_first_recipients_is_not_resumed_while_its_sponsor_may_not_send_it(
    admin_client: Client,
) -> None:
    job = transactional("P_ASSIGNING", remaining=2, wait_after=1)
    program, vendor = Program(), api_vendor()
    Sponsor.objects.update(may_be_transactional=True)
    pausing.pause_jobs([job.pk], Actor("ann"))
    links = program.send(letter(vendor, transactional=True)).json()["links"]
    session = program.post(links["pause"]).json()["session"]
    Sponsor.objects.update(may_be_transactional=False)

    with pytest.raises(CommandError, match=f"job {job.pk} is held: {NO_MORE}") as refused:
        manage("resume_job", str(job.pk))
    assert refused.value.returncode == 3
    form = {"action": "resume", "_selected_action": [job.pk]}
    (row,) = admin_client.post("/admin/campaigns/job/", form).context["meant"]
    form |= {"confirmed": "Yes", "shown": [f"{job.pk}:{row.seen}"]}
    assert f"held: {NO_MORE}" in admin_client.post("/admin/campaigns/job/", form, follow=True).content.decode()
    answer = program.post(session["links"]["resume"])
    assert f"held: {NO_MORE}" in problem(answer, "state-conflict", 409)["detail"]
    assert program.get(links["self"]).json()["held"] == NO_MORE
    assert Campaign.objects.exclude(paused_at=None).count() == 2

    Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now())  # then it may expire
    Sponsor.objects.filter(pk=program.sponsor.pk).update(may_be_transactional=True)
    manage("resume_job", str(job.pk))
    assert program.post(session["links"]["resume"]).json()["changed"]
    assert not Campaign.objects.exclude(paused_at=None).exists()


def test_a_program_sees_that_its_transactional_session_is_held_and_why() -> None:
    program, vendor = Program(), api_vendor()
    program.sponsor.may_be_transactional = True
    program.sponsor.save()
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    link = program.send(letter(vendor, send_at=later, transactional=True)).json()["links"]["self"]
    assert program.get(link).json()["held"] is None
    manage("sponsor", "set", program.sponsor.name, "--transactional", "no")
    vendor_cache.forget_vendors()
    assert program.get(link).json()["held"] == NO_MORE


@pytest.mark.django_db(transaction=True)
def test_letters_that_show_the_link_wait_while_public_url_is_gone_and_nobody_is_refused(
    sandbox: Sandbox, settings: Any
) -> None:
    job = factories.campaign_with_job(3, of=login(sandbox.url), status="DISPATCHED")
    Campaign.objects.update(body="{{ unsubscribe_url }}")
    settings.PUBLIC_URL = ""
    take_again(job)
    assert sending.send_claimed_job(job.pk, job.fence).left
    job.refresh_from_db()
    assert (job.status, job.refused) == (S.DISPATCHED, 0) and job.paused_at and not sandbox.books().entries
    assert Campaign.objects.get().paused_reason == NO_LINK and obstacle(job) == f"paused by mailhub: {NO_LINK}"
    settings.PUBLIC_URL = BASE
    assert pausing.resume_jobs([job.pk], Actor("ann"))[0].verdict == Verdict.DONE
    done = send_the_rest(job)
    assert (done.status, done.accepted) == (S.LOGGED, 3)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("body", ["Hello", "{{ unsubscribe_url | default('') }}"])
def test_letters_that_need_no_link_go_out_without_public_url(body: str, sandbox: Sandbox, settings: Any) -> None:
    job = factories.campaign_with_job(3, of=login(sandbox.url), status="DISPATCHED")
    Campaign.objects.update(body=body)
    settings.PUBLIC_URL = ""
    assert sent(take_again(job)).accepted == 3


@pytest.mark.django_db(transaction=True)
def test_a_list_with_links_of_its_own_needs_none_of_mailhubs(sandbox: Sandbox, settings: Any) -> None:
    job = factories.campaign_with_job(3, of=login(sandbox.url), status="DISPATCHED")
    Campaign.objects.update(body="{{ unsubscribe_url }}")
    Message.objects.update(params={"unsubscribe_url": "https://velma.example/off"})
    settings.PUBLIC_URL = ""
    assert sent(take_again(job)).accepted == 3


@pytest.mark.django_db(transaction=True)
def test_one_recipient_without_a_link_is_enough_to_wait_for_mailhubs(sandbox: Sandbox, settings: Any) -> None:
    job = factories.campaign_with_job(3, of=login(sandbox.url), status="DISPATCHED")
    Campaign.objects.update(body="{{ unsubscribe_url }}")
    Message.objects.exclude(pk=job.end - 1).update(params={"unsubscribe_url": "https://velma.example/off"})
    settings.PUBLIC_URL = ""
    take_again(job)
    assert sending.send_claimed_job(job.pk, job.fence).left
    job.refresh_from_db()
    assert (job.refused, Campaign.objects.get().paused_reason) == (0, NO_LINK) and not sandbox.books().entries


@pytest.mark.django_db(transaction=True)
def test_what_waits_for_a_link_expires_at_its_deadline_without_a_call(sandbox: Sandbox, settings: Any) -> None:
    job = factories.campaign_with_job(3, of=login(sandbox.url), status="DISPATCHED")
    Campaign.objects.update(body="{{ unsubscribe_url }}", deadline=timezone.now() - timedelta(minutes=1))
    settings.PUBLIC_URL = ""
    done = sent(take_again(job))
    assert (done.status, done.expired) == (S.LOGGED, 3) and not sandbox.books().entries


@pytest.mark.django_db(transaction=True)
def test_letters_that_wait_before_the_place_where_a_sender_goes_on_wait_for_a_link_too(
    sandbox: Sandbox, settings: Any
) -> None:
    """As after a pass through the whole job, of which the vendor put off some."""
    job = factories.campaign_with_job(3, of=login(sandbox.url), status="DISPATCHED")
    Job.objects.update(next_message=job.end)
    Campaign.objects.update(body="{{ unsubscribe_url }}")
    settings.PUBLIC_URL = ""
    take_again(job)
    assert sending.send_claimed_job(job.pk, job.fence).left
    job.refresh_from_db()
    assert (job.refused, Campaign.objects.get().paused_reason) == (0, NO_LINK) and not sandbox.books().entries
