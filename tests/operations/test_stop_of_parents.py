"""A stop stops every leaf below a parent, whatever the parent's status (promise P5), through every interface."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from campaigns.engine.decisions import Verdict
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.finishing import finalizer, sweep
from campaigns.engine.lifecycle import move
from campaigns.models import Job, Message
from campaigns.operations import actions
from tests import factories
from tests.campaigns.rows import family, in_doubt, recount, statuses
from vendors.history import Actor

pytestmark = pytest.mark.django_db
ANN = Actor("ann")
JOBS = "/admin/campaigns/job/"


def stopped_family(remaining: int) -> tuple[Job, list[Job]]:
    """Two children of two messages: in each one is in doubt, the other was never called. What remains was not cut."""
    top, cut = family(parent="P_ASSIGNING", remaining=remaining, children=["DISPATCHED", "DISPATCHED"], each=2)
    assert actions.stop_jobs([top.pk], by="ann")[0].verdict == Verdict.DONE
    for child in cut:
        Message.objects.filter(pk=child.first_message).update(dequeued_at=timezone.now(), **in_doubt())
        assert finalizer.finalise_job(child.pk)
        recount(Job.objects.get(pk=child.pk))
    return top, cut


def send_again_what_is_in_doubt(top: Job, child: Job) -> None:
    # The other message was called and accepted: of a job that was stopped half-way nothing is sent without a retry.
    Message.objects.filter(pk=child.first_message + 1).update(
        dequeued_at=timezone.now(), sent_at=timezone.now(), delivered_at=timezone.now(), message_id="v-1"
    )
    recount(Job.objects.get(pk=child.pk))
    (answer,) = actions.settle_jobs([top.pk], "resend", ANN, "they asked for it")
    assert answer.verdict == Verdict.DONE, answer.message


def send_a_child_again(top: Job, child: Job) -> None:
    assert actions.retry_jobs([child.pk], by=ANN)[0].verdict == Verdict.DONE


def by_an_operator(top: Job) -> None:
    assert actions.stop_jobs([top.pk], ANN)[0].verdict == Verdict.DONE


def by_the_command(top: Job) -> None:
    call_command("stop_job", vendor=top.vendor.slug, yes=True)


def by_the_commands_other_look_ups(top: Job) -> None:
    call_command("stop_job", sponsor=top.sponsor.name, campaign=top.campaign.name, yes=True)


def in_the_admin(top: Job) -> None:
    ann = User.objects.create(username="ann", is_staff=True)
    ann.groups.set(Group.objects.filter(name__in=["operator", "all sponsors"]))
    client = Client()
    client.force_login(ann)
    assert 'value="stop"' in client.get(f"{JOBS}{top.pk}/change/").content.decode()
    press: dict[str, Any] = {"action": "stop", "_selected_action": [top.pk]}
    (row,) = client.post(JOBS, press).context["meant"]
    client.post(JOBS, {**press, "confirmed": "Yes", "shown": [f"{row.job.pk}:{row.seen}"], "reason": "enough"})


@pytest.mark.parametrize("remaining", [0, 5])
@pytest.mark.parametrize("again", [send_again_what_is_in_doubt, send_a_child_again])
@pytest.mark.parametrize("door", [by_an_operator, by_the_command, by_the_commands_other_look_ups, in_the_admin])
def test_a_child_that_is_sent_again_after_a_stop_is_stopped_by_the_next_stop(
    door: Any, again: Any, remaining: int
) -> None:
    top, cut = stopped_family(remaining)
    again(top, cut[0])
    assert statuses(top, *cut) == ["P_ASSIGNED", "DISPATCHED", "LOGGED"]
    door(top)
    assert statuses(top, *cut) == ["P_STOPPED", "STOPPED", "LOGGED"]
    assert actions.stop_jobs([top.pk])[0].message == f"job {top.pk} is stopped already"


def test_a_child_that_is_sent_again_does_not_have_the_rest_cut_which_stays_stopped() -> None:
    top, cut = stopped_family(remaining=5)
    send_a_child_again(top, cut[0])
    assert dispatcher.dispatch_ready().jobs == 0
    move(Job.objects.filter(pk=cut[0].pk), "stop")  # the shortest way to its end
    assert finalizer.finalise_job(cut[0].pk)
    sweep.run_sweep(timedelta(minutes=1))
    top.refresh_from_db()
    assert (top.status, top.remaining, top.stopped_by) == ("P_STOPPED", 5, "ann")
    assert actions.retry_jobs([top.pk])[0].verdict == Verdict.DONE
    assert Job.objects.get(pk=top.pk).status == "P_ASSIGNING"


def test_where_nothing_remains_to_be_cut_the_parent_finishes_once_no_child_of_it_is_stopped() -> None:
    """Until then it is itself not stopped for its other children, whose calls in doubt may be repeated."""
    top, cut = stopped_family(remaining=0)
    for child, ending in ((cut[0], "P_STOPPED"), (cut[1], "P_FINISHED")):
        send_a_child_again(top, child)
        assert statuses(top) == ["P_ASSIGNED"]
        move(Job.objects.filter(pk=child.pk), "stop")  # the shortest way to its end
        assert finalizer.finalise_job(child.pk) and finalizer.finish_parent(top.pk)
        top.refresh_from_db()
        assert (top.status, top.stopped_at, bool(top.finished_at)) == (ending, None, True)
        assert top.stopped_by == ("ann" if ending == "P_STOPPED" else "")


def test_a_parent_that_goes_on_does_not_keep_who_stopped_a_part_of_it() -> None:
    """The chord asks after each few children. That part may be sent again, and another be stopped by somebody else."""
    top, cut = family(parent="P_ASSIGNING", remaining=2, children=["DISPATCHED"], each=2)
    assert actions.stop_jobs([cut[0].pk], ANN)[0].verdict == Verdict.DONE
    assert finalizer.finalise_job(cut[0].pk) and not finalizer.finish_parent(top.pk)
    top.refresh_from_db()
    assert (top.status, top.stopped_by) == ("P_ASSIGNING", "")
    send_a_child_again(top, cut[0])
    last = factories.job(top.campaign, "DISPATCHED", parent=top, first_message=top.first_message + 2, size=2, fence=1)
    Job.objects.filter(pk=top.pk).update(remaining=0)
    move(Job.objects.filter(pk=top.pk), "assigned")
    move(Job.objects.filter(pk=cut[0].pk), "stop")  # the shortest way to its end
    assert actions.stop_jobs([last.pk], Actor("bob"))[0].verdict == Verdict.DONE
    assert finalizer.finalise_job(cut[0].pk) and finalizer.finalise_job(last.pk) and finalizer.finish_parent(top.pk)
    top.refresh_from_db()
    assert (top.status, top.stopped_by, top.stopped_at) == ("P_STOPPED", "bob", None)


@pytest.mark.parametrize("parent", ["P_STOPPED", "P_FINISHED"])
def test_a_live_child_is_stopped_even_if_its_parent_says_that_it_has_ended(parent: str) -> None:
    """No verb leaves such rows; but if they are there, a stop must work all the same."""
    top, cut = family(parent=parent, remaining=0, children=["DISPATCHED", "LOGGED"])
    in_the_admin(top)
    assert statuses(top, *cut) == [parent, "STOPPED", "LOGGED"]
    Job.objects.filter(pk=cut[0].pk).delete()
    other, more = family(parent=parent, remaining=0, children=["SENDING", "LOGGED"])
    by_the_command(other)
    assert statuses(other, *more) == [parent, "STOPPED", "LOGGED"]


def test_what_has_called_everything_stays_so_but_goes_on_no_more_after_a_stop() -> None:
    """A zombie reports afterwards that a call was never made: without the stop, its job would be READY again."""
    top, cut = family(parent="P_ASSIGNING", remaining=5, children=["SENT"], each=1)
    Message.objects.filter(pk=cut[0].first_message).update(dequeued_at=None)
    actions.stop_jobs([top.pk], by="ann")
    assert statuses(top, *cut) == ["P_STOPPED", "SENT"]
    assert finalizer.finalise_job(cut[0].pk)
    assert statuses(top, *cut) == ["P_STOPPED", "LOGGED"]


def test_a_finished_parent_has_nothing_uncut() -> None:
    top, _ = family(parent="P_ASSIGNED", remaining=5, children=["LOGGED"])
    with pytest.raises(IntegrityError), transaction.atomic():
        move(Job.objects.filter(pk=top.pk), "finish")


def test_a_small_job_is_stopped_as_before() -> None:
    job = factories.campaign_with_job(1, status="DISPATCHED")
    by_the_command(job)
    assert statuses(job) == ["STOPPED"]
