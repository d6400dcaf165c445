"""Limits of an automatic pause change while a campaign is sent; an error in one campaign's rates stops no other."""

import io
import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.utils import timezone

from campaigns import tasks
from campaigns.engine.pausing import rates
from campaigns.models import Campaign, Job, Message
from tests import factories
from tests.campaigns.rows import accepted, recount, refused
from tests.faults.sending import meanwhile
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from tests.waiting import result_of

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
FAILED = "12.0% of 25 answered failed (3 refused); the limit is"


def under_way(refusals: int, **fields: Any) -> Job:
    """A job that is being sent, of 100 of which 25 are answered, so many of them by a refusal."""
    job = factories.campaign_with_job(100, status="SENDING")
    Campaign.objects.filter(pk=job.campaign_id).update(**fields)
    for number, shape in enumerate([accepted()] * (25 - refusals) + [refused()] * refusals):
        Message.objects.filter(pk=job.first_message + number).update(dequeued_at=timezone.now(), **shape)
    return recount(Job.objects.get(pk=job.pk))


def paused_reason(job: Job) -> str:
    return Campaign.objects.get(pk=job.campaign_id).paused_reason


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.fixture(autouse=True)
def few(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    rates._already_logged.clear()


def test_an_error_in_the_rates_of_a_campaign_is_already_logged_once_and_the_others_are_judged(caplog: Any) -> None:
    broken, bad = under_way(3, judged={"unknown": 1}), under_way(3)
    for _ in range(3):
        tasks.pause_campaigns()
    assert paused_reason(bad) == f"{FAILED} 8%" and paused_reason(broken) == ""
    assert caplog.text.count(f"the rates of campaign {broken.campaign_id} cannot be judged") == 1
    Campaign.objects.filter(pk=broken.campaign_id).update(judged=None)
    tasks.pause_campaigns()
    assert paused_reason(broken) == f"{FAILED} 8%"


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("time")
def test_a_campaign_whose_jobs_are_held_too_long_keeps_no_other_from_being_judged() -> None:
    busy, bad = under_way(3), under_way(3)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=busy.pk)
        with meanwhile(tasks.pause_campaigns) as judging:
            result_of(judging, "judging ends")
    assert paused_reason(bad) == f"{FAILED} 8%" and paused_reason(busy) == ""
    tasks.pause_campaigns()
    assert paused_reason(busy) == f"{FAILED} 8%"


def test_a_command_changes_the_limits_of_a_campaign_that_is_sent() -> None:
    job = under_way(3)
    facts = json.loads(manage("pause_limits", str(job.pk), "--bounce-limit", "20", "--reason", "an old list", "--json"))
    assert facts["told"] == f"job {job.pk}'s campaign: bounce limit as the installation → 20%"
    tasks.pause_campaigns()
    assert paused_reason(job) == ""
    entry = LogEntry.objects.get(object_id=str(job.pk), content_type__model="job")
    assert entry.change_message.endswith("Reason: an old list") and facts["told"] in entry.change_message
    assert LogEntry.objects.filter(object_id=str(job.campaign_id), content_type__model="campaign").count() == 1
    assert "already" in manage("pause_limits", str(job.pk), "--bounce-limit", "20")
    manage("pause_limits", str(job.pk), "--bounce-limit", "default", "--complaint-limit", "0")
    tasks.pause_campaigns()
    assert paused_reason(job) == f"{FAILED} 8%"
    for wrong in (["--bounce-limit", "101"], ["--bounce-limit", "nan"], ["--complaint-limit", "-1"], []):
        with pytest.raises(CommandError):
            manage("pause_limits", str(job.pk), *wrong)
    with pytest.raises(CommandError, match="there is no job"):
        manage("pause_limits", "999999999", "--bounce-limit", "2")
    assert (Campaign.objects.get().bounce_limit, Campaign.objects.get().complaint_limit) == (None, 0)


def test_a_program_changes_the_limits_of_its_session() -> None:
    program = Program()
    links = program.send(letter(api_vendor(), bounce_limit=5)).json()["links"]

    def change(body: Any, who: Program = program) -> Any:
        return who.client.patch(links["self"], json.dumps(body), content_type="application/json")

    session = change({"complaint_limit": 0.5}).json()["session"]
    assert (session["bounce_limit"], session["complaint_limit"]) == (5, 0.5)
    assert change({"bounce_limit": None}).json()["session"]["bounce_limit"] is None
    assert not change({"bounce_limit": None}).json()["changed"] and not change({}).json()["changed"]
    assert pointers(change({"bounce_limit": 101})).keys() == {"/bounce_limit"}
    assert pointers(change({"first": 3})).keys() == {"/first"}
    problem(change({"bounce_limit": 1}, Program()), "not-found", 404)
    problem(change({"bounce_limit": 1}, Program(program.sponsor, scopes=("send", "read"))), "forbidden", 403)
    entries = LogEntry.objects.filter(content_type__model="campaign").values_list("change_message", flat=True)
    assert len(entries) == 2 and all(program.key.prefix in one for one in entries)


def test_the_admin_changes_the_limits_of_a_campaign_and_nothing_else_of_it(admin_client: Client) -> None:
    job = under_way(3)
    page = f"/admin/campaigns/campaign/{job.campaign_id}/change/"
    shown = admin_client.get(page).content.decode()
    assert 'name="bounce_limit"' in shown and 'name="subject"' not in shown
    before = Campaign.objects.get()
    answer = admin_client.post(page, {"bounce_limit": "101", "complaint_limit": ""})
    assert list(answer.context["adminform"].form.errors) == ["bounce_limit"]
    admin_client.post(page, {"bounce_limit": "20", "complaint_limit": "", "subject": "Other", "body": "Other"})
    after = Campaign.objects.get()
    assert (after.bounce_limit, after.subject, after.body) == (20, before.subject, before.body)
    (entry,) = LogEntry.objects.filter(content_type__model="campaign")
    assert "bounce limit as the installation → 20%" in entry.change_message
    tasks.pause_campaigns()
    assert paused_reason(job) == ""
