"""A campaign pauses itself when too much of it fails, or too many complain."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns import tasks
from campaigns.engine import merging
from campaigns.engine.pausing import rates
from campaigns.engine.pausing.rates import Figures, Judged, pause_reason
from campaigns.models import Campaign, Job, Message, MessageEvent
from campaigns.models.states import S
from campaigns.operations import pausing
from tests import factories
from tests.campaigns.rows import accepted, recount, refused, sound, statuses
from tests.faults.sending import being_sent, login, sent, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors.history import Actor

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


def under_way(size: int, answered: list[dict[str, Any]], **fields: Any) -> Job:
    """A job that is being sent, with these ends."""
    job = factories.campaign_with_job(size, status="SENDING")
    Campaign.objects.filter(pk=job.campaign_id).update(**fields)
    return come_of(job, answered)


def come_of(job: Job, answered: list[dict[str, Any]]) -> Job:
    for number, shape in enumerate(answered):
        Message.objects.filter(pk=job.first_message + number).update(
            **{"dequeued_at": timezone.now(), "message_id": None, "error_code": None, **shape}
        )
    return recount(Job.objects.get(pk=job.pk))


def test_a_campaign_of_which_too_much_is_refused_pauses_itself_and_says_why(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.BOUNCE_LEAST = 20
    good = under_way(100, [accepted()] * 23 + [refused()] * 2)
    few = under_way(100, [refused()] * 19)
    bad = under_way(100, [accepted()] * 22 + [refused()] * 3)
    tasks.pause_campaigns()
    paused = Campaign.objects.exclude(paused_at=None).get()
    why_paused = "12.0% of 25 answered failed (3 refused); the limit is 8%"
    assert (paused.pk, paused.paused_by, paused.paused_reason) == (bad.campaign_id, "mailhub", why_paused)
    assert f"campaign {paused.pk} has paused itself: {why_paused}" in caplog.text
    assert why_paused in LogEntry.objects.get(object_id=str(bad.pk)).change_message
    tasks.pause_campaigns()
    assert statuses(good, few) == [S.SENDING, S.SENDING] and Campaign.objects.exclude(paused_at=None).count() == 1


def test_after_a_persons_word_it_pauses_again_only_when_it_gets_worse(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    job = under_way(200, [accepted()] * 22 + [refused()] * 3)
    tasks.pause_campaigns()
    pausing.resume_jobs([job.pk], ANN, "it is an old list")
    for answered, pauses_itself in [
        ([accepted()] * 22 + [refused()] * 3, False),  # the same figures
        ([accepted()] * 44 + [refused()] * 8, False),  # 15.4 %
        ([accepted()] * 80 + [refused()] * 20, True),  # 20%: more than one and a half times 12 %
    ]:
        come_of(job, answered)
        tasks.pause_campaigns()
        assert bool(Campaign.objects.get().paused_at) == pauses_itself, answered


def test_a_campaign_has_limits_of_its_own_and_0_is_none(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    ends = [accepted()] * 22 + [refused()] * 3
    strict, loose, never = (under_way(100, ends, bounce_limit=limit) for limit in (5, 15, 0))
    settings.BOUNCE_LIMIT = 0
    off = under_way(100, ends)
    assert rates.pause_those_too_high() == [strict.campaign_id]
    assert {job.campaign_id for job in (loose, never, off)} == set(
        Campaign.objects.filter(paused_at=None).values_list("pk", flat=True)
    )


def test_the_bad_end_of_a_long_list_is_seen() -> None:
    began = Judged(answered=500_000, refused=5_000)
    well = Figures(accepted=495_950, refused=5_050)
    ill = Figures(accepted=495_900, refused=5_100)
    assert pause_reason(well, began, 8, 0.3) == ""
    assert pause_reason(ill, began, 8, 0.3) == "10.0% of the latest 1,000 answers are refusals (100); the limit is 8%"
    assert pause_reason(ill, Judged(), 8, 0.3) == ""  # of all of them it is one in a hundred


def test_a_new_stretch_begins_after_ten_thousand_answers() -> None:
    job = factories.campaign_with_job(50_000, status="SENDING", messages=False, accepted=12_000, refused=100)
    assert rates.pause_those_too_high() == []
    assert Campaign.objects.get(pk=job.campaign_id).judged == {
        "bounces": 0.0,
        "complaints": 0.0,
        "answered": 12_100,
        "refused": 100,
        "stretch": 0.0,
    }


def test_a_persons_word_about_the_bad_end_of_a_list_holds_for_what_is_as_bad() -> None:
    job = factories.campaign_with_job(600_000, status="SENDING", messages=False, accepted=495_000, refused=5_000)
    assert rates.pause_those_too_high() == []

    def pauses_itself(refusals: int) -> bool:
        """After 1,000 more answers with so many refusals."""
        row = Job.objects.get(pk=job.pk)
        Job.objects.filter(pk=job.pk).update(accepted=row.accepted + 1000 - refusals, refused=row.refused + refusals)
        return rates.pause_those_too_high() == [job.campaign_id]

    assert pauses_itself(220)
    pausing.resume_jobs([job.pk], ANN)
    assert not any(pauses_itself(220) for _ in range(12))  # the stretch ends in between
    assert pauses_itself(1_000)
    reason = "48.0% of the latest 3,000 answers are refusals (1,440); the limit is 33%"
    assert Campaign.objects.get(pk=job.campaign_id).paused_reason == reason


def test_complaints_have_a_limit_of_their_own() -> None:
    assert pause_reason(Figures(accepted=999, complained=9), Judged(), 8, 0.3) == ""
    assert pause_reason(Figures(accepted=1000, complained=3), Judged(), 8, 0.3) == ""
    shown = pause_reason(Figures(accepted=1000, complained=4), Judged(), 8, 0.3)
    assert shown == "0.40% of 1,000 accepted complained (4); the limit is 0.3%"
    assert pause_reason(Figures(accepted=1000, complained=4), Judged(complaints=0.4), 8, 0.3) == ""
    assert pause_reason(Figures(accepted=1000, complained=4), Judged(), 8, 0) == ""


@pytest.mark.django_db(transaction=True)
def test_a_campaign_that_is_being_sent_stops_itself(sandbox: Sandbox, settings: Any) -> None:
    settings.BOUNCE_LEAST, settings.EQUAL_REFUSALS = 50, 0
    whom = [f"{'bounce' if number % 5 == 0 else 'r'}{number}@sandbox.example" for number in range(400)]
    job = taken(whom, login(sandbox.url))
    sandbox.settings(latency_ms=100)
    with being_sent(job) as sending:
        wait_until(lambda: rates.pause_those_too_high() == [job.campaign_id], "it pauses itself")
        assert sending.result().left
    job.refresh_from_db()
    assert job.accepted + job.refused < 400 and sound()
    assert "answered failed" in job.campaign.paused_reason
    sandbox.settings(latency_ms=0)
    pausing.resume_jobs([job.pk], ANN)
    sent(take_again(job))
    books = sandbox.books()
    assert (len(books.entries), books.duplicates()) == (400, {})


def test_complaints_and_hard_bounces_are_counted_by_their_events_and_no_other_bounces(settings: Any) -> None:
    settings.BOUNCE_LEAST, settings.COMPLAINT_LEAST = 20, 20
    soft, annoyed = (under_way(100, [accepted()] * 30) for _ in range(2))
    for job, kind, number in [
        (soft, "soft_bounce", 30),
        (soft, "blocked", 20),
        (soft, "hard_bounce", 2),
        (annoyed, "complaint", 1),
    ]:
        for message in Message.objects.filter(campaign=job.campaign_id).order_by("pk")[:number]:
            MessageEvent.objects.create(
                message=message, campaign=job.campaign, resend_no=0, kind=kind, at=timezone.now(), source="test"
            )
    Job.objects.filter(pk=soft.pk).update(bounced=30)
    assert rates.read_figures([soft.campaign_id])[soft.campaign_id] == Figures(30, 0, 2, 0)
    assert rates.pause_those_too_high() == [annoyed.campaign_id]
    reason = "3.33% of 30 accepted complained (1); the limit is 0.3%"
    assert Campaign.objects.get(pk=annoyed.campaign_id).paused_reason == reason


def test_an_error_in_the_rates_keeps_no_campaign_from_waiting_after_its_first_n(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    under_way(100, [refused()] * 25, judged={"unknown": 1})
    job = factories.campaign_with_job(10, status="P_ASSIGNING", remaining=6, wait_after=4)
    tasks.pause_campaigns()
    assert Job.objects.get(pk=job.pk).paused_at


def test_campaigns_that_pause_themselves_merge_once_too(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    under_way(100, [refused()] * 25)
    factories.campaign_with_job(10, status="P_ASSIGNING", remaining=6, wait_after=4)
    with CaptureQueriesContext(connection) as asked:
        tasks.pause_campaigns()
    assert Campaign.objects.exclude(paused_at=None).count() == 2
    assert sum(merging.WAITING_ANSWERS.split("%")[0].strip() in one["sql"] for one in asked) == 2
