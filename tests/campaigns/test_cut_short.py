"""Stopped and Sent mean the same at every door: a stop that has left something uncalled, and one that came too late."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine import audit
from campaigns.engine.decisions import Verdict
from campaigns.engine.failover import queries
from campaigns.engine.finishing import finalizer, sweep
from campaigns.engine.lifecycle import CUT_SHORT, group_condition
from campaigns.models import Campaign, Job, Message
from campaigns.operations import actions
from campaigns.reporting import campaign_rows, message_rows
from campaigns.reporting.campaign_rows import CampaignQuery
from tests import factories
from tests.campaigns.rows import accepted, family, in_doubt, statuses
from vendors.history import Actor

pytestmark = pytest.mark.django_db
ANN = Actor("ann")
JOBS = "/admin/campaigns/job/"


def called(job: Job, shapes: list[dict[str, Any]]) -> None:
    """The vendor has answered so of the first messages."""
    for number, shape in enumerate(shapes):
        Message.objects.filter(pk=job.first_message + number).update(dequeued_at=timezone.now(), **shape)


def ids(jobs: list[Job]) -> list[int]:
    return [job.pk for job in jobs]


def stop(job: Job, verdict: Verdict = Verdict.DONE) -> None:
    assert [answer.verdict for answer in actions.stop_jobs([job.pk], ANN)] == [verdict]


def half_way() -> Job:
    """Two of three were called."""
    job = factories.campaign_with_job(3, status="SENDING", fence=1)
    stop(job)
    called(job, [accepted("v-1"), accepted("v-2")])
    assert finalizer.finalise_job(job.pk) and statuses(job) == ["LOGGED"]
    return job


def in_its_last_calls() -> Job:
    """All that it had were in calls, which succeed."""
    job = factories.campaign_with_job(2, status="SENDING", fence=1)
    stop(job)
    called(job, [accepted("v-1"), accepted("v-2")])
    assert finalizer.finalise_job(job.pk) and statuses(job) == ["LOGGED"]
    return job


def when_it_waited_for_its_last_answer() -> Job:
    job = factories.campaign_with_job(2, status="SENT", fence=1)
    called(job, [accepted("v-1"), accepted("v-2")])
    stop(job, Verdict.ALREADY)
    assert finalizer.finalise_job(job.pk) and Job.objects.get(pk=job.pk).stopped_at
    return job


def one_part_of_it_alone() -> Job:
    """The other part goes on, and the whole ends with it."""
    top, cut = family(parent="P_ASSIGNED", remaining=0, children=["DISPATCHED", "SENT"], each=2)
    called(cut[1], [accepted("v-1"), accepted("v-2")])
    stop(cut[0])
    for part in cut:
        assert finalizer.finalise_job(part.pk)
    assert finalizer.finish_parent(top.pk)
    return top


def one_part_of_it_in_its_last_call() -> Job:
    top, cut = family(parent="P_ASSIGNED", remaining=0, children=["SENDING", "SENT"], each=1)
    for number, part in enumerate(cut):
        called(part, [accepted(f"v-{number}")])
    stop(cut[0])
    for part in cut:
        assert finalizer.finalise_job(part.pk)
    assert finalizer.finish_parent(top.pk)
    return top


def the_whole_of_it_in_its_last_calls() -> Job:
    top, cut = family(parent="P_ASSIGNED", remaining=0, children=["SENDING", "LOGGED"], each=1)
    stop(top)
    assert statuses(top) == ["P_STOPPED"]
    for number, part in enumerate(cut):
        called(part, [accepted(f"v-{number}")])
    Job.objects.filter(pk=cut[1].pk).update(accepted=1)
    assert finalizer.finalise_job(cut[0].pk) and finalizer.finish_parent(top.pk)
    return top


def before_all_of_it_was_cut() -> Job:
    top, cut = family(parent="P_ASSIGNING", remaining=2, children=["SENDING"], each=1)
    stop(top)
    called(cut[0], [accepted("v-1")])
    assert finalizer.finalise_job(cut[0].pk) and finalizer.finish_parent(top.pk)
    return top


WORD_OF = {
    half_way: "Stopped",
    in_its_last_calls: "Sent",
    when_it_waited_for_its_last_answer: "Sent",
    one_part_of_it_alone: "Stopped",
    one_part_of_it_in_its_last_call: "Sent",
    the_whole_of_it_in_its_last_calls: "Sent",
    before_all_of_it_was_cut: "Stopped",
}
OTHER = {"Stopped": "Sent", "Sent": "Stopped"}


@pytest.fixture
def owner(client: Client) -> User:
    ann = User.objects.create_user("ann", password="a long password")
    ann.groups.add(Group.objects.get(name="campaign owner"))
    client.force_login(ann)
    return ann


def of_home(client: Client) -> list[int]:
    page = client.get("/?state=stopped").content.decode()
    return [int(found) for found in re.findall(r'id="campaign-(\d+)" href', page)]


@pytest.mark.parametrize(("stopped", "word"), WORD_OF.items(), ids=[story.__name__ for story in WORD_OF])
def test_what_was_stopped_has_one_word_at_every_door(
    stopped: Callable[[], Job],
    word: str,
    client: Client,
    owner: User,
    admin_client: Client,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = stopped()
    job.sponsor.users.add(owner)
    # the operators' list, its tabs, and the word of its row
    for by in ("created", "sent"):
        page = admin_client.get(JOBS, {"status": word, "by": by, "date": "any"}).context["cl"]
        tabs = {tab.name: tab.count for tab in page.paginator.tabs}
        assert (tabs[word], tabs[OTHER[word]]) == ("1", "0")
        assert [(row.pk, row.word) for row in page.result_list] == [(job.pk, word)]
        assert [row.next.startswith("stopped by ann") for row in page.result_list] == [word == "Stopped"]
    # the command
    for group, found in ((word, [job.pk]), (OTHER[word], []), (word.lower(), [job.pk])):
        call_command("list_jobs", json=True, status=group)
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["id"] for row in rows] == found
        assert [row["in_words"] for row in rows] == [word for _ in found]
    # the owners' pages, of some sponsors and of all
    mine = [job.campaign_id] if word == "Stopped" else []
    assert of_home(client) == of_home(admin_client) == mine
    said = client.get(f"/campaigns/{job.campaign_id}/").content.decode()
    assert ("It was stopped: the rest is not sent" in said, "It has been sent to everybody." in said) == (
        word == "Stopped",
        word == "Sent",
    )


def test_a_job_with_a_doubt_is_cut_short_only_if_something_was_never_called() -> None:
    all_called, some = (factories.campaign_with_job(2, status="SENDING", fence=1) for _ in range(2))
    for job, shapes in ((all_called, [accepted("v-1"), in_doubt()]), (some, [in_doubt()])):
        stop(job)
        called(job, shapes)
        assert finalizer.finalise_job(job.pk)
    assert ids(list(Job.objects.filter(CUT_SHORT))) == [some.pk]
    assert ids(list(Job.objects.filter(group_condition("Sent")))) == [all_called.pk]


def test_of_a_whole_with_a_stopped_part_lists_read_only_the_part_that_was_sent() -> None:
    top = one_part_of_it_alone()
    top.refresh_from_db()
    sent = message_rows.find_stretches(top.campaign_id, top.first_message, top.end, labels.SENT)
    assert sent == [message_rows.Stretch(top.first_message + 2, top.first_message + 4, 2)]
    Job.objects.filter(pk=top.pk).update(accepted=1)
    wrong = [check.question for check in audit.ask_all_questions() if f"parent {top.pk}" in check.examples]
    assert wrong == ["the counters of a finished parent are those of its children"]


def test_a_part_that_is_sent_after_all_lets_the_whole_be_sent() -> None:
    top = one_part_of_it_alone()
    (part,) = Job.objects.filter(CUT_SHORT)
    assert (part.parent_id, Job.objects.get(pk=top.pk).stopped_by) == (top.pk, "ann")
    assert actions.retry_jobs([part.pk], by=ANN)[0].verdict == Verdict.DONE
    assert ids(list(Job.objects.filter(group_condition("Sending")))) == [top.pk]
    Job.objects.filter(pk=part.pk).update(status="SENT")
    called(part, [accepted("v-3"), accepted("v-4")])
    assert finalizer.finalise_job(part.pk) and finalizer.finish_parent(top.pk)
    top.refresh_from_db()
    assert (top.status, top.stopped_by) == ("P_FINISHED", "")


def test_a_stop_does_not_claim_a_whole_of_which_a_part_alone_was_stopped() -> None:
    """It has ended: what is in doubt of the other part may be asked about, and called again, after such an answer."""
    top = one_part_of_it_alone()
    (answer,) = actions.stop_jobs([top.pk], ANN)
    assert (answer.verdict, answer.message) == (
        Verdict.ALREADY,
        f"job {top.pk} is Parent stopped: nothing is left to stop",
    )
    assert Job.objects.get(pk=top.pk).stopped_at is None


def test_a_whole_of_which_nothing_is_left_after_all_is_found_among_those_sent() -> None:
    """As after a takeover of the store, when the rows did not know what had been called before the stop."""
    top = one_part_of_it_alone()
    (part,) = Job.objects.filter(CUT_SHORT)
    Campaign.objects.update(created_at=timezone.now() - timedelta(hours=1))
    for left in (1, 0):
        assert queries.doubt_granted(part.first_message, part.first_message, part.end, 1, timezone.now()) == 1
        swept = sweep.run_sweep(timedelta(minutes=1))
        assert statuses(top) == ["P_STOPPED" if left else "P_FINISHED"]
        assert top.pk not in swept.finalised, "it had ended before, and its session with it"
    top.refresh_from_db()
    assert (top.in_doubt, top.accepted, bool(top.finished_at)) == (2, 2, True)
    assert actions.settle_jobs([top.pk], "sent", ANN, "seen at the vendor")[0].verdict == Verdict.DONE
    assert ids(list(Job.objects.filter(group_condition("Sent"), parent=None))) == [top.pk]


def test_nobody_finds_what_others_have_stopped(client: Client, owner: User) -> None:
    half_way()
    half_way().sponsor.users.add(owner)
    assert len(of_home(client)) == 1


@pytest.mark.parametrize(("all_", "index"), [(True, "job_stopped"), (False, "job_stopped_of")])
def test_the_newest_of_what_was_stopped_are_found_in_the_order_of_an_index(all_: bool, index: str) -> None:
    """However many jobs others have: not one is read that was not stopped, and none is sorted."""
    job = half_way()
    with CaptureQueriesContext(connection) as seen:
        campaign_rows.page_of_campaigns(None if all_ else [job.sponsor_id], CampaignQuery(state="stopped"))
    (statement,) = [one["sql"] for one in seen if '"stopped_at" IS NOT NULL' in one["sql"]]
    with connection.cursor() as cursor:
        for kind in ("seqscan", "bitmapscan", "sort"):
            cursor.execute(f"SET LOCAL enable_{kind} = off")
        cursor.execute(f"EXPLAIN (COSTS OFF) {statement}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert f"Index Scan Backward using {index} on" in plan and "Sort" not in plan, plan


def test_parents_that_had_ended_before_the_upgrade_say_the_same() -> None:
    alone = one_part_of_it_alone()
    late, whole = the_whole_of_it_in_its_last_calls(), before_all_of_it_was_cut()
    plain, _ = family(parent="P_FINISHED", remaining=0, children=["LOGGED"], each=1)
    ended = {alone.pk: "P_STOPPED", late.pk: "P_FINISHED", whole.pk: "P_STOPPED", plain.pk: "P_FINISHED"}
    Job.objects.filter(pk=alone.pk).update(status="P_FINISHED", stopped_by="")  # as they ended before
    Job.objects.filter(pk=late.pk).update(status="P_STOPPED")
    with connection.cursor() as cursor:
        cursor.execute(import_module("campaigns.migrations.0052_stopped_after_all").PARENTS)
    assert dict(Job.objects.filter(parent=None).values_list("pk", "status")) == ended
    assert Job.objects.get(pk=alone.pk).stopped_by == "ann"


def test_what_a_stop_of_one_part_kept_back_is_not_in_doubt_after_a_takeover() -> None:
    top, cut = family(parent="P_ASSIGNING", remaining=2, children=["DISPATCHED", "SENDING"], each=2)
    stop(cut[0])
    assert finalizer.finalise_job(cut[0].pk)
    assert queries.doubt_all(top.vendor_id, timezone.now(), None, []) == 4, "the other part, and what is uncut"
    doubtful = set(Message.objects.exclude(in_doubt_at=None).values_list("pk", flat=True))
    assert doubtful == set(range(cut[1].first_message, top.end))
