"""Operators stop jobs and send the rest again: documents 001 (stop, retry, resume) and 003 (parents)."""

import io
import json
import threading
from collections.abc import Callable

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine import progress
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.models import Job, Message
from campaigns.operations import actions
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, messages, recount, refused, statuses
from tests.waiting import joined, wait_until


def only(answers: list[JobDecision]) -> JobDecision:
    (answer,) = answers
    return answer


def at_once(*calls: Callable[[], JobDecision]) -> list[JobDecision]:
    """Runs each in a thread with its own connection, all at the same moment."""
    start, answers = threading.Barrier(len(calls)), []

    def run(call: Callable[[], JobDecision]) -> None:
        try:
            start.wait(30)
            answers.append(call())
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    joined(*threads)
    return answers


@pytest.mark.django_db
class TestStop:
    @pytest.mark.parametrize("status", ["RENDERED", "READY", "DISPATCHED", "ENQUEUED", "SENDING", "RECOVERING"])
    def test_a_job_stops_from_every_state_before_sent_and_says_who_did_it(self, status: str) -> None:
        job = factories.campaign_with_job(3, status=status)
        assert only(actions.stop_jobs([job.pk], by="ann")).verdict == Verdict.DONE
        job.refresh_from_db()
        assert (job.status, job.revision, job.stopped_by) == ("STOPPED", 1, "ann")
        assert job.stopped_at

    def test_what_is_in_flight_stays_claimed_so_that_its_answers_are_recorded(self) -> None:
        job = factories.campaign_with_job(3, status="SENDING")
        factories.claim(job, [0])
        actions.stop_jobs([job.pk])
        assert progress.messages_in_flight([job.pk]) == {job.first_message}

    def test_stopping_twice_changes_nothing_the_second_time(self) -> None:
        job = factories.campaign_with_job(1)
        actions.stop_jobs([job.pk])
        before = Job.objects.filter(pk=job.pk).values().get()
        again = only(actions.stop_jobs([job.pk]))
        assert (again.verdict, again.message) == (Verdict.ALREADY, f"job {job.pk} is stopped already")
        assert Job.objects.filter(pk=job.pk).values().get() == before

    @pytest.mark.parametrize("status", ["SENT", "LOGGED"])
    def test_a_job_that_has_called_everything_is_left_alone(self, status: str) -> None:
        job = factories.campaign_with_job(1, status=status)
        assert only(actions.stop_jobs([job.pk])).verdict == Verdict.ALREADY
        assert statuses(job) == [status]

    def test_a_decision_on_an_old_revision_of_the_job_loses_and_says_so(self) -> None:
        job = factories.campaign_with_job(1, revision=4)
        answer = only(actions.stop_jobs([job.pk], revision=3))
        assert (answer.verdict, statuses(job)) == (Verdict.STALE, ["READY"])
        assert only(actions.stop_jobs([job.pk], revision=4)).verdict == Verdict.DONE

    def test_a_parent_stops_with_all_its_children_that_still_can(self) -> None:
        top, cut = family(parent="P_ASSIGNING", remaining=5, children=["SENDING", "DISPATCHED", "SENT", "LOGGED"])
        answer = only(actions.stop_jobs([top.pk]))
        assert answer.message == f"job {top.pk} and 2 child jobs stopped: no new call starts"
        assert statuses(top, *cut) == ["P_STOPPED", "STOPPED", "STOPPED", "SENT", "LOGGED"]

    def test_a_parent_whose_children_have_called_everything_goes_on_to_its_end(self) -> None:
        top, cut = family(parent="P_ASSIGNED", remaining=0, children=["SENT", "LOGGED"])
        assert only(actions.stop_jobs([top.pk])).verdict == Verdict.ALREADY
        assert statuses(top, *cut) == ["P_ASSIGNED", "SENT", "LOGGED"]

    def test_of_other_jobs_no_row_changes(self) -> None:
        other = factories.campaign_with_job(1, status="SENDING")
        actions.stop_jobs([factories.campaign_with_job(1, status="SENDING").pk])
        assert statuses(other) == ["SENDING"]


@pytest.mark.django_db(transaction=True)
def test_a_stop_waits_for_the_child_that_is_being_cut_and_stops_it_too() -> None:
    top, _ = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED"])
    caster = factories.caster(top.vendor)
    locked, cutting = threading.Event(), threading.Event()
    cut: list[Job] = []

    def cast() -> None:
        try:
            with transaction.atomic():
                job = Job.objects.select_for_update().get(pk=top.pk)
                locked.set()
                assert cutting.wait(30)
                cut.append(
                    factories.job(
                        job.campaign,
                        "ENQUEUED",
                        parent=job,
                        first_message=job.first_message + 10,
                        size=5,
                        mailcaster=caster,
                    )
                )
                Job.objects.filter(pk=top.pk).update(remaining=5)
        finally:
            connection.close()

    casting = threading.Thread(target=cast)
    casting.start()
    assert locked.wait(30)
    stopping = threading.Thread(target=lambda: (actions.stop_jobs([top.pk]), connection.close()))
    stopping.start()
    cutting.set()
    joined(casting)
    joined(stopping)
    assert statuses(top, *cut) == ["P_STOPPED", "STOPPED"]


@pytest.mark.django_db
class TestRetry:
    def test_what_was_refused_or_never_called_waits_again_and_nothing_else_does(self) -> None:
        job = logged(5, [accepted(), refused(), in_doubt(), expired()])
        answer = only(actions.retry_jobs([job.pk]))
        assert (answer.verdict, answer.messages, answer.ready) == (Verdict.DONE, 2, (job.pk,))
        rows = messages(job)
        waiting = [row.dequeued_at is None and row.sent_at is None and row.error_code is None for row in rows]
        assert waiting == [False, True, False, False, True]
        assert [row.resend_no for row in rows] == [0, 1, 0, 0, 0]  # a new reference for the refused one only
        job.refresh_from_db()
        assert (job.status, job.accepted, job.refused, job.in_doubt, job.expired) == ("DISPATCHED", 1, 0, 1, 1)

    def test_expired_messages_are_sent_only_when_asked_for(self) -> None:
        job = logged(2, [accepted(), expired()])
        assert only(actions.retry_jobs([job.pk])).verdict == Verdict.ALREADY
        answer = only(actions.retry_jobs([job.pk], expired=True))
        job.refresh_from_db()
        assert (answer.messages, job.expired, job.status) == (1, 0, "DISPATCHED")
        assert Message.objects.get(id=job.first_message + 1).resend_no == 0

    def test_with_nothing_to_send_nothing_changes_and_it_says_why(self) -> None:
        job = logged(2, [accepted(), in_doubt()])
        before = list(Message.objects.filter(campaign=job.campaign).order_by("id").values())
        answer = only(actions.retry_jobs([job.pk]))
        assert answer.message == (
            f"job {job.pk} has nothing to send again: 1 accepted, 1 in doubt; what is in doubt is decided under Needs "
            f"attention, or by resolve --job {job.pk}"
        )
        assert list(Message.objects.filter(campaign=job.campaign).order_by("id").values()) == before
        assert statuses(job) == ["LOGGED"]

    def test_the_command_with_hundreds_in_doubt_names_the_one_that_decides_about_them(self) -> None:
        job, out = logged(300, [in_doubt()] * 300), io.StringIO()
        call_command("retry_job", str(job.pk), stdout=out)
        assert "300 in doubt" in out.getvalue() and f"resolve --job {job.pk}" in out.getvalue()
        listed = io.StringIO()
        call_command("resolve", job=job.pk, list=True, causes=True, stdout=listed)
        assert "300" in listed.getvalue()

    @pytest.mark.parametrize("status", ["STOPPED", "SENT"])
    def test_it_is_refused_while_the_job_is_being_finalised(self, status: str) -> None:
        job = factories.campaign_with_job(1, status=status)
        answer = only(actions.retry_jobs([job.pk]))
        assert answer.message == f"job {job.pk} is still being finalised; try again in a moment"
        assert (answer.verdict, statuses(job)) == (Verdict.BUSY, [status])

    def test_a_job_that_was_stopped_before_it_began_starts_from_the_beginning(self) -> None:
        job = factories.campaign_with_job(3, status="RENDERED")
        actions.stop_jobs([job.pk])
        move(Job.objects.filter(pk=job.pk), "log")
        assert only(actions.retry_jobs([job.pk])).messages == 3
        assert (statuses(job), Job.objects.get(pk=job.pk).stopped_at) == (["DISPATCHED"], None)

    def test_a_parent_goes_on_with_the_children_that_have_something_and_with_the_rest(self) -> None:
        top, cut = family(parent="P_STOPPED", remaining=5, children=["LOGGED", "LOGGED"])
        Message.objects.filter(id__gte=cut[0].first_message, id__lt=cut[0].end).update(
            dequeued_at=timezone.now(), **accepted()
        )
        recount(cut[0])
        answer = only(actions.retry_jobs([top.pk]))
        assert (answer.messages, answer.ready) == (15, (cut[1].pk,))
        assert statuses(top, *cut) == ["P_ASSIGNING", "LOGGED", "DISPATCHED"]

    def test_a_finished_parent_has_nothing_to_cut_but_its_children_to_wait_for(self) -> None:
        top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED"])
        actions.retry_jobs([top.pk])
        assert statuses(top, *cut) == ["P_ASSIGNED", "DISPATCHED"]

    def test_a_parent_waits_until_all_its_children_are_logged(self) -> None:
        top, cut = family(parent="P_STOPPED", remaining=5, children=["LOGGED", "STOPPED"])
        assert only(actions.retry_jobs([top.pk])).verdict == Verdict.BUSY
        assert statuses(top, *cut) == ["P_STOPPED", "LOGGED", "STOPPED"]

    def test_a_child_alone_is_sent_again_and_its_finished_parent_waits_for_it(self) -> None:
        top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"])
        actions.retry_jobs([cut[0].pk])
        assert statuses(top, *cut) == ["P_ASSIGNED", "DISPATCHED", "LOGGED"]

    def test_no_row_of_another_job_of_the_campaign_changes(self) -> None:
        _, cut = family(parent="P_STOPPED", remaining=5, children=["LOGGED", "LOGGED"])
        others = Message.objects.filter(id__gte=cut[1].first_message).order_by("id")
        others.update(dequeued_at=timezone.now(), **refused())
        before = list(others.values())
        actions.retry_jobs([cut[0].pk])
        assert list(others.values()) == before


@pytest.mark.django_db(transaction=True)
class TestTwoUsersAtOnce:
    def test_of_two_retries_exactly_one_wins(self) -> None:
        job = logged(20, [refused()])
        answers = at_once(*[lambda: only(actions.retry_jobs([job.pk]))] * 2)
        assert sorted(answer.verdict for answer in answers) == [Verdict.BUSY, Verdict.DONE]

    def test_of_two_decisions_on_the_same_revision_exactly_one_wins(self) -> None:
        top, _ = family(parent="P_STOPPED", remaining=5, children=["LOGGED"])
        actions.retry_jobs([top.pk])
        seen = Job.objects.get(pk=top.pk).revision
        answers = at_once(*[lambda: only(actions.stop_jobs([top.pk], revision=seen))] * 2)
        assert sorted(answer.verdict for answer in answers) == [Verdict.ALREADY, Verdict.DONE]
        assert only(actions.stop_jobs([top.pk], revision=seen)).verdict == Verdict.ALREADY
        assert only(actions.retry_jobs([top.pk], revision=seen)).verdict in (Verdict.STALE, Verdict.BUSY)


@pytest.mark.django_db(transaction=True)
def test_a_retry_that_waits_also_awaits_the_last_answers_of_a_stopped_job() -> None:
    """A script stops a job and sends the rest. Somebody stops it again, or nobody would send it here."""
    job = factories.campaign_with_job(2, status="READY")
    actions.stop_jobs([job.pk])

    def record_and_stop_again() -> None:
        try:
            assert finalizer.finalise_job(job.pk)
            wait_until(lambda: statuses(job) == ["DISPATCHED"], "it goes on")
            actions.stop_jobs([job.pk], by="bob")
        finally:
            connection.close()

    other = threading.Timer(1.0, record_and_stop_again)  # where the command needs longer to begin, it waits for nothing
    other.start()
    with pytest.raises(SystemExit) as ended:
        call_command("retry_job", job.pk, wait=True, by="ann")
    joined(other)
    assert ended.value.code == 4  # some were not sent
    assert (statuses(job), Job.objects.get(pk=job.pk).stopped_by) == (["STOPPED"], "bob")


@pytest.mark.django_db
class TestStopCommand:
    def test_unknown_jobs_are_named_with_exit_code_1_while_the_known_ones_stop(
        self, capsys: pytest.CaptureFixture
    ) -> None:
        job = factories.campaign_with_job(1)
        with pytest.raises(CommandError, match="there is no job 999999999") as error:
            call_command("stop_job", job.pk, 999999999)
        assert (error.value.returncode, statuses(job)) == (1, ["STOPPED"])
        assert capsys.readouterr().out == f"job {job.pk} stopped: no new call starts\n"

    def test_all_jobs_of_a_sponsor_stop_after_a_yes(self) -> None:
        mine, other = factories.campaign_with_job(2), factories.campaign_with_job(2)
        sponsor = mine.campaign.sponsor.name
        with pytest.raises(CommandError, match="this stops 1 job with 2 messages waiting; add --yes"):
            call_command("stop_job", sponsor=sponsor)
        call_command("stop_job", sponsor=sponsor, vendor=mine.vendor.slug, yes=True)
        assert statuses(mine, other) == ["STOPPED", "READY"]

    def test_an_unknown_sponsor_or_vendor_is_an_error(self) -> None:
        with pytest.raises(CommandError, match="there is no sponsor 'nobody'"):
            call_command("stop_job", sponsor="nobody", yes=True)
        with pytest.raises(CommandError, match="there is no vendor 'nowhere'"):
            call_command("stop_job", vendor="nowhere", yes=True)

    def test_json_is_one_object_a_job(self, capsys: pytest.CaptureFixture) -> None:
        jobs = [factories.campaign_with_job(1), factories.campaign_with_job(1)]
        call_command("stop_job", *[job.pk for job in jobs], json=True)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(line["job"], line["verdict"]) for line in lines] == [(job.pk, "done") for job in jobs]


@pytest.mark.django_db
class TestRetryCommand:
    def test_the_job_is_dispatched_at_once(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(3, [accepted()])
        call_command("retry_job", job.pk)
        assert capsys.readouterr().out == f"job {job.pk} sends 2 messages\n"
        assert statuses(job) == ["DISPATCHED"]

    def test_a_large_job_that_was_sent_whole_is_not_cut_when_it_is_sent_again(self) -> None:
        job = logged(3, [])
        job.vendor.small_audience_threshold = 2
        job.vendor.save()
        call_command("retry_job", job.pk)
        assert statuses(job) == ["DISPATCHED"]

    def test_a_parent_and_its_children_go_on(self) -> None:
        top, cut = family(parent="P_STOPPED", remaining=5, children=["LOGGED"])
        call_command("retry_job", top.pk)
        assert statuses(top, *cut) == ["P_ASSIGNING", "DISPATCHED"]

    def test_exit_code_3_says_try_again_and_1_says_unknown(self) -> None:
        job = factories.campaign_with_job(1, status="STOPPED")
        with pytest.raises(CommandError, match="still being finalised; try again in a moment") as error:
            call_command("retry_job", job.pk)
        assert error.value.returncode == 3
        with pytest.raises(CommandError, match="there is no job 999999999") as error:
            call_command("retry_job", job.pk, 999999999)
        assert error.value.returncode == 1

    def test_nothing_to_send_again_is_reported_and_is_no_error(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(1, [accepted()])
        call_command("retry_job", job.pk, json=True)
        answer = json.loads(capsys.readouterr().out)
        assert (answer["verdict"], answer["messages"]) == ("already", 0)

    def test_expired_ones_come_with_an_option(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(2, [expired(), expired()])
        call_command("retry_job", job.pk, expired=True)
        assert "sends 2 messages" in capsys.readouterr().out
