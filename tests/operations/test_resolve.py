"""An operator settles what nothing else could: promise P1 allows "send again", and it is recorded."""

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine import progress
from campaigns.models import Job, Message, Resolution
from tests import factories
from tests.campaigns.rows import accepted, family, in_doubt, logged, messages, recount, refused, statuses

pytestmark = pytest.mark.django_db


def resolve(*ids: int, decision: str, **options: Any) -> None:
    call_command("resolve", *ids, decision=decision, **{"reason": "asked the vendor", "by": "ann", **options})


def counters(job: Job) -> tuple[int, int, int]:
    job.refresh_from_db()
    return job.accepted, job.refused, job.in_doubt


class TestDecisions:
    def test_sent_becomes_an_acceptance_with_the_person_as_evidence(self) -> None:
        job = logged(2, [in_doubt(), in_doubt()])
        resolve(job.first_message, decision="sent")
        row, other = messages(job)
        assert (row.message_id, row.in_doubt_at, row.error_code) == ("person:ann", None, None)
        assert row.delivered_at and other.in_doubt_at
        assert (counters(job), statuses(job)) == ((1, 0, 1), ["LOGGED"])

    def test_failed_becomes_a_refusal_with_the_reason(self) -> None:
        job = logged(1, [in_doubt()])
        resolve(job.first_message, decision="failed")
        (row,) = messages(job)
        assert (row.error_code, row.error_sub_type, row.in_doubt_at) == ("person", "asked the vendor", None)
        assert counters(job) == (0, 1, 0)

    def test_resend_waits_under_a_new_reference_and_its_job_goes_out_again(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(3, [accepted(), in_doubt(), refused()])
        before = messages(job)
        resolve(job.first_message + 1, decision="resend")
        row = messages(job)[1]
        assert (row.resend_no, row.dequeued_at, row.sent_at, row.in_doubt_at) == (1, None, None, None)
        assert row.reference != before[1].reference
        assert (counters(job), statuses(job)) == ((1, 1, 0), ["DISPATCHED"])
        assert [m.dequeued_at for m in messages(job)[::2]] == [m.dequeued_at for m in before[::2]]
        assert capsys.readouterr().out == f"1 message: send again; job {job.pk} sends again\n"

    def test_each_decision_is_recorded_with_who_why_and_what_had_been_seen(self) -> None:
        job = logged(2, [in_doubt(), in_doubt()])
        resolve(job.first_message, job.first_message + 1, decision="sent")
        rows = Resolution.objects.filter(message__campaign=job.campaign).order_by("message")
        assert [row.message_id for row in rows] == [job.first_message, job.first_message + 1]
        assert {(row.decision, row.reason, row.decided_by) for row in rows} == {("sent", "asked the vendor", "ann")}
        assert "read timeout" in rows[0].evidence

    def test_a_finished_parent_waits_for_its_child_again(self) -> None:
        top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=1)
        Message.objects.filter(id=cut[1].first_message).update(dequeued_at=timezone.now(), **in_doubt())
        recount(cut[1])
        resolve(cut[1].first_message, decision="resend")
        assert statuses(top, *cut) == ["P_ASSIGNED", "LOGGED", "DISPATCHED"]

    def test_a_job_that_was_stopped_half_way_is_not_started_by_it(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(3, [in_doubt()])
        resolve(job.first_message, decision="resend")
        assert f"job {job.pk} was stopped: retry_job sends them" in capsys.readouterr().out
        assert (statuses(job), messages(job)[0].resend_no) == (["LOGGED"], 1)
        call_command("retry_job", job.pk)
        assert capsys.readouterr().out == f"job {job.pk} sends 3 messages\n"


class TestRefusals:
    def test_if_one_is_not_in_doubt_none_is_changed_and_each_is_named(self) -> None:
        job = logged(2, [in_doubt(), accepted()])
        before = [vars(row) | {"_state": None} for row in messages(job)]
        with pytest.raises(CommandError) as error:
            resolve(job.first_message, job.first_message + 1, 999_999_999, decision="sent")
        assert error.value.returncode == 1
        assert str(error.value) == (
            f"no such message: 999999999; not in doubt: {job.first_message + 1}; nothing was changed"
        )
        assert [vars(row) | {"_state": None} for row in messages(job)] == before
        assert not Resolution.objects.exists()

    def test_deciding_twice_changes_nothing_the_second_time(self) -> None:
        job = logged(1, [in_doubt()])
        resolve(job.first_message, decision="sent")
        with pytest.raises(CommandError, match="not in doubt"):
            resolve(job.first_message, decision="resend")
        assert (counters(job), Resolution.objects.count()) == ((1, 0, 0), 1)

    def test_nothing_is_sent_again_while_the_job_is_under_way(self) -> None:
        job = logged(2, [in_doubt()])
        Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
        with pytest.raises(CommandError, match=f"still being sent or finalised: job {job.pk}") as error:
            resolve(job.first_message, decision="resend")
        assert error.value.returncode == 3
        resolve(job.first_message, decision="sent")  # which starts no call
        assert counters(job) == (1, 0, 0)

    def test_a_decision_needs_a_reason(self) -> None:
        job = logged(1, [in_doubt()])
        with pytest.raises(CommandError) as error:
            resolve(job.first_message, decision="sent", reason=" ")
        assert (error.value.returncode, counters(job)) == (2, (0, 0, 1))


class TestList:
    def test_so_many_are_listed_as_asked_and_all_with_json(self, capsys: pytest.CaptureFixture) -> None:
        logged(3, [in_doubt(), in_doubt(), in_doubt()])

        def listed(*given: str) -> list[str]:
            call_command("resolve", "--list", *given)
            return capsys.readouterr().out.splitlines()

        assert listed("--limit", "2")[-1] == "the first 2 of 3 messages; --limit 0 shows all"
        assert "limit" not in listed("--limit", "0")[-1] and "limit" not in listed()[-1]
        assert [len(listed("--json", *more)) for more in ((), ("--limit", "2"))] == [3, 2]
        with pytest.raises(CommandError, match="--limit is a number from 0 to"):
            call_command("resolve", "--list", "--limit", "-1")

    def test_it_shows_what_was_seen_and_filters_by_job_and_vendor(self, capsys: pytest.CaptureFixture) -> None:
        mine, other = logged(2, [in_doubt(), accepted()]), logged(1, [in_doubt()])
        call_command("resolve", list=True, json=True)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(line["message"], line["job"]) for line in lines] == [
            (mine.first_message, mine.pk),
            (other.first_message, other.pk),
        ]
        assert (lines[0]["seen"], lines[0]["vendor"]) == ("read timeout", mine.vendor.slug)
        call_command("resolve", list=True, json=True, job=other.pk)
        assert json.loads(capsys.readouterr().out)["job"] == other.pk
        call_command("resolve", list=True, vendor=mine.vendor.slug)
        table = capsys.readouterr().out
        assert "read timeout" in table and str(other.first_message) not in table.split()

    def test_the_job_is_the_child_not_the_parent(self, capsys: pytest.CaptureFixture) -> None:
        _, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=1)
        Message.objects.filter(id=cut[1].first_message).update(dequeued_at=timezone.now(), **in_doubt())
        call_command("resolve", list=True, json=True)
        assert json.loads(capsys.readouterr().out)["job"] == cut[1].pk

    def test_unknown_filters_are_errors(self) -> None:
        factories.vendor("known")
        with pytest.raises(CommandError, match="there is no job 999999999"):
            call_command("resolve", list=True, job=999999999)
        with pytest.raises(CommandError, match="there is no vendor 'unknown'; there are: known"):
            call_command("resolve", list=True, vendor="unknown")


def test_what_is_in_doubt_before_it_is_cut_does_not_wait() -> None:
    """After recover_store, which counts it in the parent."""
    top, _ = family(parent="P_QUEUED", remaining=3, children=["LOGGED"], each=2)
    Message.objects.filter(id=top.end - 1).update(dequeued_at=timezone.now(), **in_doubt())
    Job.objects.filter(pk=top.pk).update(in_doubt=1)
    sums = progress.progress_of_jobs([Job.objects.get(pk=top.pk)])[top.pk]
    assert (sums.size, sums.in_doubt) == (5, 1)
    assert sums.waiting + sums.in_flight + sums.accepted + sums.refused + sums.in_doubt == 5
