"""Complaints at one provider: counted by sponsor and day, warned about; a pause of that sponsor's bulk mail there."""

import io
import json
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from campaigns import tasks
from campaigns.engine import delivery_reports
from campaigns.engine.pausing import complaints
from campaigns.models import Campaign, ComplaintPause, ComplaintRate, Job, Message, Sponsor, UncountedComplaint
from campaigns.models.states import Status
from mailhub.installation import create_groups
from mailhub.monitoring import metrics
from mailhub.operations import dashboard
from tests import factories, forks, programs
from tests.campaigns.rows import recount
from tests.faults.sending import meanwhile
from tests.lock_waits import count_lock_waits
from tests.waiting import exit_of, wait_until
from vendors.adapters.reports import Reported
from vendors.history import Actor

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("few")]
ANN = Actor("ann")


@pytest.fixture
def few(settings: Any) -> None:
    """Figures that a test can store: a warning from one in fifty, a pause from one in ten, of twenty and more."""
    settings.RECEIVER_COMPLAINT_WARNING, settings.RECEIVER_COMPLAINT_LIMIT = 2, 10
    settings.RECEIVER_COMPLAINT_LEAST = 20


def noon(days_ago: int = 0) -> datetime:
    """The noon (UTC) of the day, or the moment half way to now since its midnight: never ahead."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight - timedelta(days=days_ago)
    return at + (timedelta(hours=12) if days_ago else (timezone.now() - midnight) / 2)


def mailed(by: Sponsor, to: dict[str, int], at: datetime | None = None, **fields: Any) -> Job:
    """A logged job with so many accepted mails to each domain, all called at that time."""
    whom = [f"r{number}@{domain}" for domain, count in to.items() for number in range(count)]
    at = at or noon()
    fields = {"fence": 1, "finished_at": timezone.now(), "created_at": at, "by": by, **fields}
    job = factories.campaign_with_job(whom, status=Status.LOGGED, **fields)
    Message.objects.filter(campaign=job.campaign_id).update(
        dequeued_at=at, sent_at=at, delivered_at=at, message_id="v-1"
    )
    return recount(job)


def complain(job: Job, domain: str, count: int, skip: int = 0) -> Sequence[Message]:
    """So many of the job's recipients at the domain complain now, after the first `skip` of them."""
    rows = Message.objects.filter(campaign=job.campaign_id, recipient__endswith=f"@{domain}").order_by("id")
    about = list(rows[skip : skip + count])
    assert len(about) == count
    delivery_reports.store_reports(
        job.vendor_id, [Reported(one.reference, "complained", timezone.now()) for one in about]
    )
    return about


def paused_now() -> set[tuple[str, str]]:
    return {(one.sponsor.name, one.receiver) for one in complaints.lasting_pauses()}


def test_too_many_complaints_at_one_provider_pause_that_sponsor_there_and_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = factories.sponsor("Bad"), factories.sponsor("Good")
    theirs = mailed(bad, {"gmail.com": 15, "googlemail.com": 15, "yahoo.com": 30, "firm.example": 30})
    ours = mailed(good, {"gmail.com": 30})
    complain(theirs, "gmail.com", 2)
    complain(theirs, "yahoo.com", 2)
    complain(ours, "gmail.com", 2)
    tasks.pause_campaigns()
    assert paused_now() == set()
    complain(theirs, "googlemail.com", 1)
    tasks.pause_campaigns()
    assert paused_now() == {("Bad", "gmail")}
    [pause] = ComplaintPause.objects.all()
    assert (pause.complaints, pause.accepted, pause.limit) == (3, 30, 10)
    figures = "10.00% of 30 accepted complained (3); the limit is 10%"
    assert f"sponsor Bad: bulk mail to gmail has paused itself: {figures}" in caplog.text
    [entry] = LogEntry.objects.filter(object_id=str(bad.pk))
    assert entry.get_change_message() == f"bulk mail to gmail paused: {figures} by mailhub"
    tasks.pause_campaigns()
    assert ComplaintPause.objects.count() == 1 and UncountedComplaint.objects.count() == 0


def test_operators_are_warned_once_a_day_before_anything_pauses(caplog: pytest.LogCaptureFixture) -> None:
    near = factories.sponsor("Near")
    job = mailed(near, {"gmail.com": 40, "yahoo.com": 60})
    complain(job, "gmail.com", 1)
    complain(job, "yahoo.com", 1)
    tasks.pause_campaigns()
    said = "sponsor Near: complaints at gmail come near the limit: 2.50% of 40 accepted complained (1)"
    assert [one.receiver for one in complaints.find_complaints().warnings] == ["gmail"] and said in caplog.text
    caplog.clear()
    complain(job, "gmail.com", 1, skip=1)
    tasks.pause_campaigns()
    assert "come near" not in caplog.text and paused_now() == set()
    complain(job, "gmail.com", 2, skip=2)
    tasks.pause_campaigns()
    assert paused_now() == {("Near", "gmail")} and complaints.find_complaints().warnings == []


def test_a_complaint_counts_on_the_day_of_its_mail_and_not_on_the_day_it_comes() -> None:
    whose = factories.sponsor()
    last, today = mailed(whose, {"gmail.com": 100}, noon(3)), mailed(whose, {"gmail.com": 20})
    complain(last, "gmail.com", 9)
    tasks.pause_campaigns()
    assert paused_now() == set()  # of today's twenty it would be nearly half
    complain(last, "gmail.com", 1, skip=9)
    tasks.pause_campaigns()
    [pause] = complaints.lasting_pauses()
    assert (pause.complaints, pause.accepted) == (10, 100) and pause.since == midnight_of(noon(3))
    assert today.accepted == 20


def midnight_of(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def test_a_complaint_about_a_mail_of_long_ago_is_counted_and_pauses_nothing() -> None:
    old = mailed(factories.sponsor(), {"gmail.com": 20}, noon(9))
    complain(old, "gmail.com", 20)
    tasks.pause_campaigns()
    assert ComplaintRate.objects.get().complaints == 20 and paused_now() == set()


def test_too_few_accepted_are_not_judged_until_enough_are() -> None:
    whose = factories.sponsor()
    job = mailed(whose, {"gmail.com": 19, "yahoo.com": 20})
    complain(job, "gmail.com", 5)
    tasks.pause_campaigns()
    assert paused_now() == set() and ComplaintRate.objects.get().waits
    mailed(whose, {"gmail.com": 1})
    tasks.pause_campaigns()
    [pause] = complaints.lasting_pauses()
    assert (pause.complaints, pause.accepted) == (5, 20) and not ComplaintRate.objects.get().waits


def test_the_rest_of_the_domains_is_one_group_and_transactional_mail_counts_too() -> None:
    whose = factories.sponsor()
    job = mailed(whose, {"firm.example": 10, "gmail.com": 30})
    invoices = mailed(whose, {"other.example": 10})
    Campaign.objects.filter(pk=invoices.campaign_id).update(transactional=True)
    complain(job, "firm.example", 1)
    complain(invoices, "other.example", 1)
    tasks.pause_campaigns()
    [pause] = complaints.lasting_pauses()
    assert (pause.receiver, pause.complaints, pause.accepted) == ("*", 2, 20)


def test_a_vendor_that_delivers_to_nobody_proves_nothing() -> None:
    to_nobody = factories.credential(factories.vendor(sandbox=True))
    complain(mailed(factories.sponsor(), {"gmail.com": 20}, of=to_nobody), "gmail.com", 20)
    tasks.pause_campaigns()
    assert ComplaintRate.objects.count() == UncountedComplaint.objects.count() == 0


def test_a_sponsor_has_limits_of_its_own_which_hold_at_once_and_0_is_none(settings: Any) -> None:
    whose = factories.sponsor("Own")
    job = mailed(whose, {"gmail.com": 20})
    Sponsor.objects.filter(pk=whose.pk).update(complaint_limit=0, complaint_warning=0)
    complain(job, "gmail.com", 10)
    tasks.pause_campaigns()
    assert paused_now() == set() and complaints.find_complaints().warnings == []
    settings.RECEIVER_COMPLAINT_LIMIT = 0
    Sponsor.objects.filter(pk=whose.pk).update(complaint_limit=52)
    complain(job, "gmail.com", 1, skip=10)
    tasks.pause_campaigns()
    assert paused_now() == {("Own", "gmail")}


def test_who_resumes_accepts_the_rate_and_a_new_stretch_begins() -> None:
    whose = factories.sponsor("Whose")
    job = mailed(whose, {"gmail.com": 100})
    complain(job, "gmail.com", 10)
    tasks.pause_campaigns()
    [pause] = complaints.lasting_pauses()
    resumed = complaints.resume_receiver(pause.pk, ANN, "the list was cleaned")
    assert resumed and (resumed.resumed_by, resumed.resumed_reason) == ("ann", "the list was cleaned")
    assert complaints.resume_receiver(pause.pk, Actor("bob")) is None  # somebody was first
    assert ComplaintPause.objects.get().resumed_by == "ann"
    entries = LogEntry.objects.filter(object_id=str(whose.pk)).order_by("id")
    assert [one.get_change_message() for one in entries][1:] == [
        "bulk mail to gmail goes on by ann. Reason: the list was cleaned"
    ]
    complain(job, "gmail.com", 4, skip=10)  # 14% of those from before
    again = mailed(whose, {"gmail.com": 20}, timezone.now())
    complain(again, "gmail.com", 1)
    tasks.pause_campaigns()
    assert paused_now() == set()
    complain(again, "gmail.com", 1, skip=1)
    tasks.pause_campaigns()
    [pause] = complaints.lasting_pauses()
    assert (pause.complaints, pause.accepted, pause.limit) == (2, 20, 10) and pause.since == resumed.resumed_at


def test_after_a_resume_the_stretch_of_before_pauses_again_only_when_it_gets_worse() -> None:
    job = mailed(factories.sponsor(), {"gmail.com": 100})
    complain(job, "gmail.com", 10)
    tasks.pause_campaigns()
    complaints.resume_receiver(complaints.lasting_pauses()[0].pk, ANN)
    complain(job, "gmail.com", 4, skip=10)
    tasks.pause_campaigns()
    assert paused_now() == set()
    complain(job, "gmail.com", 1, skip=14)
    tasks.pause_campaigns()
    [pause] = complaints.lasting_pauses()
    assert (pause.complaints, pause.accepted, pause.limit) == (15, 100, 15)


def test_complaints_that_come_while_it_is_paused_are_accepted_with_the_rest() -> None:
    job = mailed(factories.sponsor(), {"gmail.com": 100})
    complain(job, "gmail.com", 10)
    tasks.pause_campaigns()
    complain(job, "gmail.com", 10, skip=10)
    complaints.resume_receiver(complaints.lasting_pauses()[0].pk, ANN)
    complain(job, "gmail.com", 9, skip=20)
    tasks.pause_campaigns()
    assert paused_now() == set() and ComplaintRate.objects.get().seen == 20


def test_a_repeated_report_counts_once() -> None:
    job = mailed(factories.sponsor(), {"gmail.com": 20})
    for _ in range(3):
        complain(job, "gmail.com", 1)
        tasks.pause_campaigns()
    assert ComplaintRate.objects.get().complaints == 1 and paused_now() == set()


def paused_at_gmail(name: str) -> ComplaintPause:
    job = mailed(factories.sponsor(name), {"gmail.com": 20})
    complain(job, "gmail.com", 2)
    tasks.pause_campaigns()
    return ComplaintPause.objects.get(sponsor__name=name)


def manage(*typed: str) -> str:
    out = io.StringIO()
    call_command("complaints", *typed, stdout=out)
    return out.getvalue()


def test_the_command_lists_pauses_and_rates_and_resumes_once() -> None:
    paused_at_gmail("Bad"), paused_at_gmail("Worse")
    listed = [json.loads(line) for line in manage("list", "--json").splitlines()]
    assert {(one["sponsor"], one["provider"], one["percent"]) for one in listed} == {
        ("Bad", "gmail", "10.00"),
        ("Worse", "gmail", "10.00"),
    }
    assert "bulk mail of Bad to gmail goes on" in manage("resume", "Bad", "gmail", "--by", "ann", "--reason", "cleaned")
    assert "bulk mail of Bad to gmail is not paused" in manage("resume", "Bad", "gmail")
    assert [json.loads(line)["sponsor"] for line in manage("list", "--json").splitlines()] == ["Worse"]
    over = json.loads(manage("list", "--all", "--sponsor", "Bad", "--json"))
    assert (over["resumed_by"], over["reason"]) == ("ann", "cleaned")
    [rate] = [json.loads(line) for line in manage("rates", "--sponsor", "Bad", "--json").splitlines()]
    assert (rate["provider"], rate["complaints"], rate["accepted"], rate["percent"]) == ("gmail", 2, 20, "10.00")
    with pytest.raises(CommandError, match="was never paused"):
        manage("resume", "Bad", "yahoo")


def test_the_operations_page_status_and_the_metrics_tell_of_it() -> None:
    paused_at_gmail("Bad")
    near = mailed(factories.sponsor("Near"), {"yahoo.com": 40})
    complain(near, "yahoo.com", 1)
    tasks.pause_campaigns()
    shown = dashboard.read_dashboard().alarms
    assert any("Bulk mail of Bad to gmail is paused since" in one for one in shown)
    assert any("Complaints about mail of Near to yahoo come near the limit: 2.50%" in one for one in shown)
    assert dashboard.read_dashboard([near.sponsor_id]).alarms == [one for one in shown if "Near" in one]
    complaints.resume_receiver(paused_at_gmail("Gone").pk, ANN)
    assert dashboard.read_dashboard().alarms == shown
    assert "mailhub_complaint_pauses 1.0\n" in (text := metrics.metrics_text().decode())
    assert "mailhub_complaint_warnings 1.0\n" in text


def test_operators_resume_on_the_admins_page_and_only_for_the_sponsors_they_see(
    client: Client, django_user_model: Any
) -> None:
    create_groups()
    ours, theirs = paused_at_gmail("Ours"), paused_at_gmail("Theirs")
    operator, owner = (django_user_model.objects.create_user(name, is_staff=True) for name in ("olga", "otto"))
    operator.groups.add(Group.objects.get(name="operator"))
    owner.groups.add(Group.objects.get(name="campaign owner"))
    for user in (operator, owner):
        ours.sponsor.users.add(user)
    address = reverse("admin:campaigns_complaintpause_changelist")
    press = {"action": "resume", "_selected_action": [ours.pk, theirs.pk], "reason": "we called them"}

    client.force_login(owner)
    assert "Ours" in (page := client.get(address).content.decode()) and "Theirs" not in page
    client.post(address, {**press, "confirmed": "yes"})
    assert paused_now() == {("Ours", "gmail"), ("Theirs", "gmail")}

    client.force_login(operator)
    shown = client.get(reverse("admin:campaigns_complaintpause_change", args=[ours.pk])).content.decode()
    assert "10.00% of 20 accepted complained (2)" in shown and f'{address}?lasts=yes">Resume' in shown
    asked = client.post(address, press).content.decode()
    assert "10.00% of 20 accepted complained (2)" in asked and "Theirs" not in asked
    assert paused_now() == {("Ours", "gmail"), ("Theirs", "gmail")}
    client.post(address, {**press, "confirmed": "yes"})
    assert paused_now() == {("Theirs", "gmail")}
    ours.refresh_from_db()
    assert (ours.resumed_by, ours.resumed_reason) == ("olga", "we called them")


def test_a_sponsors_own_users_do_not_change_its_limits(client: Client, django_user_model: Any) -> None:
    whose = factories.sponsor("Whose")
    user = django_user_model.objects.create_user("otto", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="change_sponsor"))
    whose.users.add(user)
    client.force_login(user)
    address = reverse("admin:campaigns_sponsor_change", args=[whose.pk])
    client.post(address, {"name": "Whose", "language": "", "complaint_limit": "50", "users": [user.pk]})
    whose.refresh_from_db()
    assert whose.complaint_limit is None


def test_the_sponsors_command_sets_its_limits() -> None:
    whose = factories.sponsor("Whose")
    call_command(
        "sponsor", "set", "Whose", "--complaint-limit", "0.2", "--complaint-warning", "0", stdout=io.StringIO()
    )
    whose.refresh_from_db()
    assert (whose.complaint_limit, whose.complaint_warning) == (0.2, 0)
    call_command("sponsor", "set", "Whose", "--complaint-limit", "", stdout=io.StringIO())
    whose.refresh_from_db()
    assert whose.complaint_limit is None
    for bad in ("many", "101", "-1", "nan"):
        with pytest.raises(CommandError):
            call_command("sponsor", "set", "Whose", f"--complaint-limit={bad}", stdout=io.StringIO())


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
def test_a_kill_between_the_count_and_the_judgement_counts_nothing_twice() -> None:
    job = mailed(factories.sponsor("Bad"), {"gmail.com": 20})
    complain(job, "gmail.com", 2)
    code = "import django; django.setup(); from campaigns.engine.pausing import complaints as c; c.judge_complaints()"
    armed = {"DJANGO_SETTINGS_MODULE": "mailhub.settings", "MAILHUB_FAILPOINTS": "mid_complaints"}
    killed = forks.start(["-c", code], env=programs.environment(**armed))
    assert exit_of(killed) == -signal.SIGKILL
    assert UncountedComplaint.objects.count() == 2 and paused_now() == set()
    tasks.pause_campaigns()
    assert paused_now() == {("Bad", "gmail")} and ComplaintPause.objects.get().complaints == 2


@pytest.mark.django_db(transaction=True)
def test_workers_and_operators_at_once_judge_and_resume_once() -> None:
    whose = factories.sponsor("Bad")
    job = mailed(whose, {"gmail.com": 20, "yahoo.com": 20})
    complain(job, "gmail.com", 2)
    complain(job, "yahoo.com", 2)
    judged = at_once(whose, complaints.judge_complaints, complaints.judge_complaints)
    assert sorted(map(len, judged)) == [0, 2]
    [pause] = ComplaintPause.objects.filter(receiver="gmail")
    resumed = at_once(whose, *(partial(complaints.resume_receiver, pause.pk, Actor(name)) for name in ("ann", "bob")))
    assert sorted(one is None for one in resumed) == [False, True]
    assert LogEntry.objects.filter(object_id=str(whose.pk), change_message__contains="goes on").count() == 1


def at_once(of: Sponsor, *verbs: Callable[[], Any]) -> list[Any]:
    """What they come to that wait for the sponsor's turn at first."""
    with ExitStack() as both:
        with transaction.atomic():
            complaints.take_turn(of.pk)
            under_way = [both.enter_context(meanwhile(verb)) for verb in verbs]
            wait_until(lambda: count_lock_waits() == len(verbs), "they wait for their turn")
        return [one.result() for one in under_way]
