"""An operator settles the doubts of whole jobs: on their page, in the list, by look-ups of the command."""

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.models import Job, Message, Resolution
from campaigns.operations import actions
from tests.campaigns.rows import accepted, family, in_doubt, logged, messages, recount, refused, statuses
from vendors.history import Actor

pytestmark = pytest.mark.django_db
JOBS = "/admin/campaigns/job/"
PRESSES = ("resend", "mark_sent")


@pytest.fixture
def operator(client: Client) -> Client:
    ann = User.objects.create(username="ann", is_staff=True)
    ann.groups.set(Group.objects.filter(name__in=["operator", "all sponsors"]))
    client.force_login(ann)
    return client


def flat(response: Any) -> str:
    return " ".join(response.content.decode().split())


def press(action: str, *jobs: Job) -> dict[str, Any]:
    return {"action": action, "_selected_action": [job.pk for job in jobs]}


def confirmed(asked: Any, reason: str = "their list") -> dict[str, Any]:
    """The form data of the confirmation page."""
    shown = [f"{row.job.pk}:{row.seen}" for row in asked.context["meant"]]
    return {**press(asked.context["action"], *(row.job for row in asked.context["meant"])), "shown": shown} | {
        "confirmed": "Yes",
        "reason": reason,
    }


def shown(response: Any) -> list[str]:
    return [str(one) for one in response.context["messages"]]


def parent_with_doubts() -> tuple[Job, list[Job]]:
    """Finished, in two parts, each with one message in doubt and one accepted."""
    top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=2)
    for child in cut:
        Message.objects.filter(pk=child.first_message).update(dequeued_at=timezone.now(), **in_doubt())
        Message.objects.filter(pk=child.first_message + 1).update(dequeued_at=timezone.now(), **accepted())
        recount(child)
    Job.objects.filter(pk=top.pk).update(accepted=2, in_doubt=2)
    top.refresh_from_db()
    return top, cut


def counters(job: Job) -> tuple[int, int, int]:
    job.refresh_from_db()
    return job.accepted, job.refused, job.in_doubt


class TestOnThePage:
    def test_sending_again_is_shown_in_numbers_first_and_then_done_and_on_record(self, operator: Client) -> None:
        job, sure = logged(4, [in_doubt(), in_doubt(), accepted(), refused()]), logged(1, [accepted()])
        asked = operator.post(JOBS, press("resend", job, sure))
        page = flat(asked)
        assert "1 job: <b>2</b> messages in doubt will be sent again." in page
        assert "their recipients get them twice" in page
        assert "<b>1</b> was already sent and is left alone, as is <b>1</b> refused." in page
        assert f"job {sure.pk} (" in page and not Resolution.objects.exists()
        answer = operator.post(JOBS, confirmed(asked, "asked Velma"), follow=True)
        assert shown(answer) == [f"job {job.pk}: 2 messages in doubt settled as send again"]
        assert (statuses(job, sure), counters(job)) == (["DISPATCHED", "LOGGED"], (1, 1, 0))
        assert [row.resend_no for row in messages(job)] == [1, 1, 0, 0]
        assert [row.decided_by for row in Resolution.objects.all()] == ["ann", "ann"]
        (entry,) = LogEntry.objects.all()
        assert (entry.user.username, entry.object_id) == ("ann", str(job.pk))
        assert entry.change_message == f"job {job.pk}: 2 messages in doubt settled as send again. Reason: asked Velma"

    def test_marking_as_sent_reaches_a_parents_children_and_starts_no_call(self, operator: Client) -> None:
        top, cut = parent_with_doubts()
        asked = operator.post(JOBS, press("mark_sent", top))
        assert "<b>2</b> messages in doubt will count as sent and are never sent again." in flat(asked)
        operator.post(JOBS, confirmed(asked))
        assert [counters(job) for job in (top, *cut)] == [(4, 0, 0), (2, 0, 0), (2, 0, 0)]
        assert statuses(top, *cut) == ["P_FINISHED", "LOGGED", "LOGGED"]
        assert messages(cut[0])[0].message_id == "person:ann"

    def test_a_page_that_somebody_else_has_overtaken_does_no_harm(self, operator: Client) -> None:
        top, cut = parent_with_doubts()
        asked = operator.post(JOBS, press("resend", top))
        call_command("resolve", cut[1].first_message, decision="resend", reason="asked", by="bob")
        Message.objects.filter(pk=cut[1].first_message).update(dequeued_at=timezone.now(), **in_doubt())
        Job.objects.filter(pk=cut[1].pk).update(status="LOGGED", in_doubt=1)
        Job.objects.filter(pk=top.pk).update(status="P_FINISHED")
        answer = operator.post(JOBS, confirmed(asked), follow=True)
        assert shown(answer) == [f"somebody else has just decided about job {top.pk}: look again"]
        assert [row.resend_no for row in messages(top)] == [0, 0, 1, 0], "a doubt that came later is not decided"

    def test_what_was_settled_meanwhile_stays_as_it_is(self, operator: Client) -> None:
        job = logged(2, [in_doubt(), in_doubt()])
        asked = operator.post(JOBS, press("resend", job))
        call_command("resolve", job.first_message, decision="sent", reason="found", by="bob")
        operator.post(JOBS, confirmed(asked))
        assert [row.resend_no for row in messages(job)] == [0, 1]
        assert messages(job)[0].message_id == "person:bob"

    def test_of_two_users_who_decide_at_once_the_second_reads_that_it_is_too_late(self, operator: Client) -> None:
        job = logged(1, [in_doubt()])
        asked = operator.post(JOBS, press("mark_sent", job))
        operator.post(JOBS, confirmed(asked))
        answer = operator.post(JOBS, confirmed(asked), follow=True)
        assert shown(answer)[-1] == f"job {job.pk} has no message in doubt"
        assert Resolution.objects.count() == 1

    @pytest.mark.parametrize("action", PRESSES)
    def test_without_a_reason_nothing_is_settled(self, operator: Client, action: str) -> None:
        job = logged(1, [in_doubt()])
        asked = operator.post(JOBS, press(action, job))
        answer = operator.post(JOBS, confirmed(asked, " "), follow=True)
        assert "a reason is kept" in shown(answer)[0] and counters(job) == (0, 0, 1)

    @pytest.mark.parametrize(
        ("status", "offered"), [("LOGGED", PRESSES), ("SENT", ()), ("STOPPED", ()), ("DISPATCHED", ())]
    )
    def test_only_a_job_that_has_ended_offers_it(self, operator: Client, status: str, offered: tuple[str, ...]) -> None:
        job = logged(2, [in_doubt(), accepted()])
        Job.objects.filter(pk=job.pk).update(status=status)
        page = operator.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert tuple(one for one in PRESSES if f'value="{one}"' in page) == offered
        if not offered:
            assert "There is nothing to do" in flat(operator.post(JOBS, press("resend", job)))

    def test_a_stopped_parent_waits_for_its_last_child_to_be_finalised(self, operator: Client) -> None:
        top, cut = parent_with_doubts()
        Job.objects.filter(pk=top.pk).update(status="P_STOPPED")
        Job.objects.filter(pk=cut[1].pk).update(status="STOPPED")
        assert "There is nothing to do" in flat(operator.post(JOBS, press("mark_sent", top)))
        forged = {**press("mark_sent", top), "shown": [f"{top.pk}:0"], "confirmed": "Y", "reason": "-"}
        assert "still being finalised" in shown(operator.post(JOBS, forged, follow=True))[0]
        assert not Resolution.objects.exists()

    def test_who_may_not_settle_messages_may_not_settle_jobs(self, client: Client) -> None:
        eve = User.objects.create(username="eve", is_staff=True)
        eve.groups.set(Group.objects.filter(name__in=["viewer", "all sponsors"]))
        client.force_login(eve)
        job = logged(1, [in_doubt()])
        assert 'value="resend"' not in client.get(f"{JOBS}{job.pk}/change/").content.decode()
        client.post(JOBS, {**press("resend", job), "shown": [f"{job.pk}:0"], "confirmed": "Y", "reason": "-"})
        assert statuses(job) == ["LOGGED"] and not Resolution.objects.exists()


def test_a_thousand_doubts_take_no_more_statements_than_two() -> None:
    by = Actor("ann", User.objects.create(username="ann").pk)
    jobs = [logged(size, []) for size in (2, 2, 1000)]
    taken = []
    for job in jobs:  # the first one fills caches
        rows = Message.objects.filter(id__gte=job.first_message, id__lt=job.end)
        rows.update(dequeued_at=timezone.now(), **in_doubt())
        recount(job)
        with CaptureQueriesContext(connection) as seen:
            actions.settle_jobs([job.pk], "resend", by, "asked")
        taken.append(len(seen))
    assert statuses(*jobs) == ["DISPATCHED"] * 3
    assert taken[1] == taken[2]


class TestByLookUps:
    def test_a_vendors_doubts_are_settled_job_by_job(self, capsys: pytest.CaptureFixture) -> None:
        mine, other = logged(2, [in_doubt(), in_doubt()]), logged(1, [in_doubt()])
        options = {"vendor": mine.vendor.slug, "decision": "sent", "reason": "their list", "by": "ann"}
        call_command("resolve", **options, dry_run=True, json=True)
        assert json.loads(capsys.readouterr().out) == {"dry_run": True, "messages": 2, "jobs": 1, "as": "sent"}
        with pytest.raises(CommandError, match="this settles 2 messages of 1 job as Sent; add --yes to do it") as error:
            call_command("resolve", **options)
        assert error.value.returncode == 2 and not Resolution.objects.exists()
        call_command("resolve", **options, yes=True)
        assert capsys.readouterr().out == f"job {mine.pk}: 2 messages in doubt settled as Sent\n"
        assert (counters(mine), counters(other)) == ((2, 0, 0), (0, 0, 1))
        assert LogEntry.objects.get().object_id == str(mine.pk)

    def test_a_parent_is_meant_with_its_children(self, capsys: pytest.CaptureFixture) -> None:
        top, cut = parent_with_doubts()
        call_command("resolve", job=top.pk, decision="resend", reason="asked", by="ann", yes=True, json=True)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(line["job"], line["verdict"], line["messages"]) for line in lines] == [
            (child.pk, "done", 1) for child in cut
        ]
        assert statuses(top, *cut) == ["P_ASSIGNED", "DISPATCHED", "DISPATCHED"]

    def test_the_list_takes_the_same_look_ups(self, capsys: pytest.CaptureFixture) -> None:
        mine, other = logged(2, [in_doubt(), in_doubt()]), logged(1, [in_doubt()])
        looks: list[dict[str, Any]] = [
            {"sponsor": mine.sponsor.name},
            {"campaign": str(mine.campaign_id)},
            {"vendor": mine.vendor.slug},
            {"job": mine.pk},
        ]
        for options in looks:
            call_command("resolve", list=True, json=True, **options)
            listed = [json.loads(line)["job"] for line in capsys.readouterr().out.splitlines()]
            assert listed == [mine.pk, mine.pk], options
        call_command("resolve", list=True, json=True, until="2000-01-01")
        assert capsys.readouterr().out == ""
        call_command("resolve", list=True, json=True, since="2000-01-01")
        assert {json.loads(line)["job"] for line in capsys.readouterr().out.splitlines()} == {mine.pk, other.pk}

    def test_messages_and_look_ups_together_are_refused(self) -> None:
        job = logged(1, [in_doubt()])
        with pytest.raises(CommandError, match="say --list") as error:
            call_command("resolve", job.first_message, decision="sent", reason="-", vendor=job.vendor.slug)
        assert error.value.returncode == 2 and counters(job) == (0, 0, 1)

    def test_what_would_be_done_to_named_messages_is_said_without_doing_it(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(2, [in_doubt(), accepted()])
        call_command("resolve", job.first_message, decision="sent", reason="-", dry_run=True)
        assert capsys.readouterr().out == "this settles 1 message of 1 job as Sent\n"
        assert counters(job) == (1, 0, 1)
