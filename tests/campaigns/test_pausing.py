"""A paused campaign calls nobody until it is resumed; it pauses itself when too much fails, and after its first N."""

import io
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns import audit, merging, progress, tasks
from campaigns.casting import mailcaster
from campaigns.claiming.claims import Lease
from campaigns.decisions import Verdict
from campaigns.dispatch import dispatcher
from campaigns.finishing import finalizer
from campaigns.forecast import eta, streams
from campaigns.lifecycle import S
from campaigns.models import Campaign, Job, Message, MessageEvent
from campaigns.operators import actions, pausing
from campaigns.pausing import pauses, rates
from campaigns.pausing.rates import Figures, Judged, why
from campaigns.sending import send
from mailhub.monitoring import metrics
from tests import calling, factories
from tests.campaigns.rows import accepted, family, recount, refused, statuses
from tests.faults.sending import being_sent, calls, login, sent, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors.history import Actor
from vendors.models import Mailcaster

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


def sound() -> bool:
    return [check for check in audit.run() if not check.ok] == []


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.mark.django_db(transaction=True)
def test_nothing_is_called_in_a_pause_what_was_claimed_is_recorded_and_the_rest_goes_on_afterwards(
    sandbox: Sandbox,
) -> None:
    job = taken(120, login(sandbox.url))
    sandbox.settings(latency_ms=500)
    with being_sent(job) as sending:
        calls(sandbox, 4)
        assert pausing.pause([job.pk], ANN, "a wrong link")[0].verdict == Verdict.DONE
        assert sending.result().left
    job.refresh_from_db()
    early = len(sandbox.books().accepted)
    assert (job.status, job.accepted, job.waits_for) == ("DISPATCHED", early, "paused: a wrong link")
    assert 4 <= early < 120 and sound()
    assert not Message.objects.filter(campaign=job.campaign, sent_at__gt=job.paused_at).exists()
    caster = factories.caster(job.vendor)
    assert mailcaster.claim(caster.pk, timezone.now()) is None
    sandbox.settings(latency_ms=0)
    assert not send(job.pk, take_again(job).fence).until  # even one who has it claims nothing
    assert len(sandbox.books().accepted) == early
    assert pausing.resume([job.pk], ANN)[0].message == f"job {job.pk}'s campaign goes on"
    sent(take_again(job))
    assert (len(sandbox.books().recipients), sandbox.books().duplicates()) == (120, {})
    assert sound() and Job.objects.get(pk=job.pk).accepted == 120


def test_a_pause_is_the_whole_campaigns_and_doing_it_twice_changes_nothing() -> None:
    top, cut = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED", "DISPATCHED"])
    (done,) = pausing.pause([cut[1].pk], ANN)
    (again,) = pausing.pause([top.pk], "bob", "me too")
    assert (done.verdict, again.verdict) == (Verdict.DONE, Verdict.ALREADY)
    assert again.message == f"job {top.pk} is paused already: by ann"
    assert len(set(Job.objects.filter(campaign=top.campaign).values_list("paused_at", flat=True)) - {None}) == 1
    assert progress.of_jobs([Job.objects.get(pk=top.pk)])[top.pk].paused
    (done,) = pausing.resume([cut[0].pk], ANN)
    (again,) = pausing.resume([top.pk], "bob")
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
    pausing.pause([job.pk], ANN)
    assert pausing.resume([job.pk], ANN, revision=seen)[0].verdict == Verdict.STALE
    assert pausing.resume([job.pk], ANN, revision=seen + 1)[0].verdict == Verdict.DONE
    ended = factories.campaign_with_job(1, status="LOGGED", fence=1, finished_at=timezone.now())
    assert pausing.pause([ended.pk], ANN)[0].message == f"job {ended.pk} is Logged: nothing is left to pause"
    assert pausing.pause([-1], ANN)[0].verdict == pausing.resume([-1], ANN)[0].verdict == Verdict.UNKNOWN


@pytest.mark.django_db(transaction=True)
def test_a_claim_of_a_paused_campaign_gets_nothing() -> None:
    job = factories.campaign_with_job(3, status="SENDING")
    lease = Lease(job.pk, job.fence)
    pausing.pause([job.pk], ANN)
    assert calling.by_sender(lambda rows: calling.claim(rows, job, lease, most=3)) == ([], None, False, 0)
    pausing.resume([job.pk], ANN)
    assert len(calling.by_sender(lambda rows: calling.claim(rows, job, lease, most=3)).messages) == 3


def test_a_paused_parent_is_not_cut_and_a_stop_and_a_retry_leave_it_paused() -> None:
    top, _ = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED"])
    caster = factories.caster(top.vendor, min_size=2, max_size=2)
    pausing.pause([top.pk], ANN)
    assert mailcaster.claim(caster.pk, timezone.now()) is None
    assert actions.stop([top.pk], ANN)[0].verdict == Verdict.DONE
    (answer,) = actions.retry([top.pk], by=ANN)
    assert (answer.verdict, answer.message) == (
        Verdict.BUSY,
        f"job {top.pk} is paused with its campaign: resume_job lets it go on",
    )
    assert pausing.resume([top.pk], ANN)[0].verdict == Verdict.DONE
    assert statuses(top) == ["P_STOPPED"]
    assert actions.retry([top.pk], by=ANN)[0].verdict == Verdict.DONE
    assert mailcaster.claim(caster.pk, timezone.now()) is not None


@pytest.mark.django_db(transaction=True)
def test_deadlines_pass_in_a_pause(sandbox: Sandbox) -> None:
    of = login(sandbox.url)
    small = factories.campaign_with_job(5, of=of, status="DISPATCHED")
    large = factories.campaign_with_job(7, of=of, status="P_QUEUED", wait_after=2)
    caster = factories.caster(of.vendor, min_size=2, max_size=100)
    for job in (small, large):
        pausing.pause([job.pk], ANN)
        Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now())
    while claimed := mailcaster.claim(caster.pk, timezone.now()):
        send(claimed.job_id, claimed.fence)
        finalizer.finalise(claimed.job_id)
    finalizer.finish_parent(large.pk)
    assert statuses(small, large) == ["LOGGED", "P_FINISHED"]
    assert [Job.objects.get(pk=job.pk).expired for job in (small, large)] == [5, 7]
    assert not sandbox.books().entries and sound()


# -- the first N


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
            while claimed := mailcaster.claim(caster.pk, timezone.now()):
                send(claimed.job_id, claimed.fence)
                finalizer.finalise(claimed.job_id)
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
    shown = eta.of_jobs([described(job)], progress.of_jobs([Job.objects.get(pk=job.pk)]), timezone.now())
    assert shown[job.pk].next == "waits after its first 100 for somebody to let the rest go"
    assert pauses.pause_after_first() == [job.pk] and pauses.pause_after_first() == []
    campaign = Campaign.objects.get(pk=job.campaign_id)
    assert campaign.paused_reason == "its first 100 of 300 are called; 100 accepted"
    all_work()
    assert len(sandbox.books().entries) == 100
    assert pausing.resume([job.pk], ANN)[0].message == f"job {job.pk}'s campaign goes on"
    all_work()
    finalizer.finish_parent(job.pk)
    assert statuses(job) == ["P_FINISHED"] and sound()
    assert (len(sandbox.books().recipients), sandbox.books().duplicates()) == (300, {})


def described(job: Job) -> Any:
    return eta.with_holder(Job.objects.filter(pk=job.pk)).select_related("campaign", "vendor", "credential").get()


def test_a_resume_before_the_first_n_are_done_keeps_them_apart_however_often_it_is_repeated() -> None:
    vendor = factories.vendor()
    job = first(4, 10, factories.credential(vendor))
    dispatcher.dispatch_ready([job.pk])
    caster = factories.caster(vendor, min_size=2, max_size=2)
    child = mailcaster.claim(caster.pk, timezone.now())
    assert child is not None
    pausing.pause([job.pk], ANN)
    done, again = pausing.resume([job.pk, child.job_id], ANN)
    assert done.message == f"job {job.pk}'s campaign goes on, and waits after its first 4"
    assert (again.verdict, again.message) == (
        Verdict.ALREADY,
        f"job {child.job_id} is not paused, and waits after its first 4",
    )
    assert mailcaster.claim(factories.caster(vendor).pk, timezone.now()) is not None
    assert pausing.resume([job.pk], ANN)[0].verdict == Verdict.ALREADY  # all 4 are cut, and not yet sent
    assert Job.objects.get(pk=job.pk).wait_after == 4
    Job.objects.filter(parent=job).update(status="LOGGED", finished_at=timezone.now(), mailcaster=None)
    assert pausing.resume([job.pk], ANN)[0].verdict == Verdict.ALREADY  # the wait behind them has not begun
    assert pauses.pause_after_first() == [job.pk]
    assert pausing.resume([job.pk], ANN)[0].message == f"job {job.pk}'s campaign goes on"
    assert Job.objects.get(pk=job.pk).wait_after is None
    assert pausing.resume([job.pk], ANN)[0].verdict == Verdict.ALREADY


def test_an_error_in_the_rates_keeps_no_campaign_from_waiting_after_its_first_n(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    under_way(100, [refused()] * 25, judged={"unknown": 1})
    job = factories.campaign_with_job(10, status="P_ASSIGNING", remaining=6, wait_after=4)
    tasks.pause_campaigns()
    assert Job.objects.get(pk=job.pk).paused_at


def test_what_is_resumed_after_days_waits_for_a_sender_since_then() -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    factories.caster(job.vendor, kind="small-only")
    long_ago = timezone.now() - timedelta(days=7)
    Job.objects.filter(pk=job.pk).update(status_at=long_ago, dispatched_at=long_ago, created_at=long_ago)
    pausing.pause([job.pk], ANN)
    pausing.resume([job.pk], ANN)
    (found,) = [one for one in streams.of_vendors() if one.vendor_id == job.vendor_id]
    assert found.waiting == 1 and found.oldest < 3600


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
    pausing.resume([tonight.pk, begun.pk], ANN)
    assert [Job.objects.get(pk=job.pk).wait_after for job in (tonight, begun, waiting)] == [4, 4, None]
    for job in (tonight, begun):
        page = admin_client.get(f"/admin/campaigns/job/{job.pk}/change/").content.decode()
        assert 'value="resume"' not in page


@pytest.mark.parametrize("verb", [pausing.pause, pausing.resume])
def test_a_decision_locks_the_jobs_and_merges_their_answers_once(verb: Any) -> None:
    job = factories.campaign_with_job(3, status="SENDING")
    if verb is pausing.resume:
        pausing.pause([job.pk], ANN)
    with CaptureQueriesContext(connection) as asked:
        assert verb([job.pk], ANN)[0].verdict == Verdict.DONE
    assert sum(merging.WAITING_ANSWERS.split("%")[0].strip() in one["sql"] for one in asked) == 1


def test_campaigns_that_pause_themselves_merge_once_too(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    under_way(100, [refused()] * 25)
    factories.campaign_with_job(10, status="P_ASSIGNING", remaining=6, wait_after=4)
    with CaptureQueriesContext(connection) as asked:
        tasks.pause_campaigns()
    assert Campaign.objects.exclude(paused_at=None).count() == 2
    assert sum(merging.WAITING_ANSWERS.split("%")[0].strip() in one["sql"] for one in asked) == 2


def test_what_is_stopped_before_the_go_still_waits_after_its_first_n() -> None:
    vendor = factories.vendor()
    job = first(4, 10, factories.credential(vendor))
    dispatcher.dispatch_ready([job.pk])
    actions.stop([job.pk], ANN)
    finalizer.finish_parent(job.pk)
    (answer,) = actions.retry([job.pk], by=ANN)
    assert answer.message == f"job {job.pk} sends 4 messages, and waits after its first 4"
    caster = factories.caster(vendor, min_size=20, max_size=20)
    child = mailcaster.claim(caster.pk, timezone.now())
    assert child is not None and child.size == 4
    assert mailcaster.claim(factories.caster(vendor).pk, timezone.now()) is None


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


def test_the_commands_pause_and_resume_by_look_ups_and_ask_first() -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    name = job.campaign.name
    with pytest.raises(CommandError, match="this pauses 1 jobs with 3 messages waiting; add --yes"):
        manage("pause_job", "--campaign", name)
    assert "campaign paused" in manage("pause_job", "--campaign", name, "--yes", "--reason", "a wrong link")
    assert Campaign.objects.get().paused_reason == "a wrong link"
    assert json.loads(manage("resume_job", str(job.pk), "--json"))["verdict"] == "done"
    assert "not paused" in manage("resume_job", str(job.pk))


@pytest.mark.django_db(transaction=True)
def test_the_metrics_count_paused_campaigns() -> None:
    paused = [factories.campaign_with_job(3, status="DISPATCHED").pk for _ in range(2)]
    pausing.pause(paused, ANN)
    assert "mailhub_campaigns_paused 2.0" in metrics.text().decode()
    Job.objects.filter(pk=paused[0]).update(status="LOGGED", fence=1, finished_at=timezone.now())
    assert "mailhub_campaigns_paused 1.0" in metrics.text().decode()


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
    assert 'value="resume"' in seen and 'value="pause"' not in seen and "paused by admin: a wrong link" in seen
    assert "Paused" in admin_client.get(page).content.decode()
    assert "is paused by admin: a wrong link" in press("resume")
    assert Job.objects.get().paused_at is None


# -- too much fails


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
    why_paused = "12.0 % of 25 answered failed (3 refused); the limit is 8 %"
    assert (paused.pk, paused.paused_by, paused.paused_reason) == (bad.campaign_id, "mailhub", why_paused)
    assert f"campaign {paused.pk} has paused itself: {why_paused}" in caplog.text
    assert why_paused in LogEntry.objects.get(object_id=str(bad.pk)).change_message
    tasks.pause_campaigns()
    assert statuses(good, few) == [S.SENDING, S.SENDING] and Campaign.objects.exclude(paused_at=None).count() == 1


def test_after_a_persons_word_it_pauses_again_only_when_it_gets_worse(settings: Any) -> None:
    settings.BOUNCE_LEAST = 20
    job = under_way(200, [accepted()] * 22 + [refused()] * 3)
    tasks.pause_campaigns()
    pausing.resume([job.pk], ANN, "it is an old list")
    for answered, pauses_itself in [
        ([accepted()] * 22 + [refused()] * 3, False),  # the same figures
        ([accepted()] * 44 + [refused()] * 8, False),  # 15.4 %
        ([accepted()] * 80 + [refused()] * 20, True),  # 20 %: more than one and a half times 12 %
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
    assert why(well, began, 8, 0.3) == ""
    assert why(ill, began, 8, 0.3) == "10.0 % of the latest 1,000 answers are refusals (100); the limit is 8 %"
    assert why(ill, Judged(), 8, 0.3) == ""  # of all of them it is one in a hundred


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
    pausing.resume([job.pk], ANN)
    assert not any(pauses_itself(220) for _ in range(12))  # the stretch ends in between
    assert pauses_itself(1_000)
    reason = "48.0 % of the latest 3,000 answers are refusals (1,440); the limit is 33 %"
    assert Campaign.objects.get(pk=job.campaign_id).paused_reason == reason


def test_complaints_have_a_limit_of_their_own() -> None:
    assert why(Figures(accepted=999, complained=9), Judged(), 8, 0.3) == ""
    assert why(Figures(accepted=1000, complained=3), Judged(), 8, 0.3) == ""
    shown = why(Figures(accepted=1000, complained=4), Judged(), 8, 0.3)
    assert shown == "0.40 % of 1,000 accepted complained (4); the limit is 0.3 %"
    assert why(Figures(accepted=1000, complained=4), Judged(complaints=0.4), 8, 0.3) == ""
    assert why(Figures(accepted=1000, complained=4), Judged(), 8, 0) == ""


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
    pausing.resume([job.pk], ANN)
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
    assert rates.figures([soft.campaign_id])[soft.campaign_id] == Figures(30, 0, 2, 0)
    assert rates.pause_those_too_high() == [annoyed.campaign_id]
    reason = "3.33 % of 30 accepted complained (1); the limit is 0.3 %"
    assert Campaign.objects.get(pk=annoyed.campaign_id).paused_reason == reason


def test_the_audit_finds_a_call_in_a_pause() -> None:
    job = factories.campaign_with_job(1, status="SENDING")
    pausing.pause([job.pk], ANN)
    assert sound()
    factories.claim(job, at=timezone.now() + timedelta(seconds=1))
    broken = [check.question for check in audit.run() if not check.ok]
    assert "no call was allowed after a stop or in a pause" in broken
