"""A session that is stopped has ended when its jobs have, and its program hears of it, once for each end."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.finishing import finalizer, sweep
from campaigns.integrations.results import writer
from campaigns.integrations.webhooks import events
from campaigns.models import Job, Message, Session, WebhookCall
from campaigns.models.states import Status
from campaigns.operations import actions
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, recount, refused, statuses
from tests.front.program import Program, api_vendor, fresh, letter
from vendors.history import Actor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
JOBS = "/admin/campaigns/job/"


class Large:
    """A large session at a vendor whose casters cut two letters at a time; its program has a webhook."""

    def __init__(self, settings: Any, cut: int, letters: int = 5) -> None:
        settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
        self.program = Program()
        events.create_webhook(self.program.sponsor, "http://127.0.0.1:8443/hook", ["session.finished"], test=False)
        vendor = api_vendor(small_audience_threshold=4)
        addresses = [f"p{number}@sandbox.example" for number in range(letters)]
        self.links = self.program.send(letter(vendor, addresses)).json()["links"]
        self.top = Job.objects.get()
        for _ in range(cut):
            caster = factories.caster(vendor, min_size=2, max_size=2)
            assert mailcaster.claim_next_job(caster.pk, timezone.now())
        self.cut = list(Job.objects.filter(parent=self.top).order_by("pk"))

    def swept(self) -> None:
        """More often than needed."""
        for _ in range(3):
            sweep.run_sweep(timedelta(minutes=1))
            for session_id in writer.left_behind():
                writer.write_result(session_id)

    def answered(self, child: Job, *shapes: dict[str, Any]) -> None:
        """The first messages of the child were called."""
        for number, shape in enumerate(shapes):
            called = Message.objects.filter(pk=child.first_message + number)
            called.update(**{"dequeued_at": timezone.now(), "in_doubt_at": None, "error_sub_type": None, **shape})

    def sent(self, child: Job) -> None:
        """The child has called whatever it had, and is logged."""
        self.answered(child, accepted(), accepted())
        Job.objects.filter(pk=child.pk).update(status=Status.LOGGED, finished_at=timezone.now())
        recount(Job.objects.get(pk=child.pk))

    def session(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.program.get(self.links["self"]).json()
        return answer

    def finished(self) -> list[dict[str, int]]:
        """The counts of each event that says that it has ended, oldest first."""
        calls = WebhookCall.objects.filter(kind="session.finished").order_by("pk")
        return [json.loads(call.body)["data"]["counts"] for call in calls]


@pytest.fixture
def large(settings: Any) -> Large:
    return Large(settings, cut=2)


def by_the_program(large: Large) -> None:
    assert large.program.post(large.links["stop"]).json()["changed"]


def by_an_operator(large: Large) -> None:
    actions.stop_jobs([large.top.pk], Actor("ann"))


def by_the_command(large: Large) -> None:
    call_command("stop_job", large.top.pk, yes=True)


def in_the_admin(large: Large) -> None:
    ann = User.objects.create(username="ann", is_staff=True)
    ann.groups.set(Group.objects.filter(name__in=["operator", "all sponsors"]))
    client = Client()
    client.force_login(ann)
    press: dict[str, Any] = {"action": "stop", "_selected_action": [large.top.pk]}
    (row,) = client.post(JOBS, press).context["meant"]
    client.post(JOBS, {**press, "confirmed": "Yes", "shown": [f"{row.job.pk}:{row.seen}"], "reason": "enough"})


@pytest.mark.parametrize("door", [by_the_program, by_an_operator, by_the_command, in_the_admin])
def test_it_ends_when_all_that_was_cut_is_logged_and_says_so_once(large: Large, door: Any) -> None:
    large.answered(large.cut[0], accepted("v-1"), in_doubt())
    door(large)
    assert finalizer.finalise_job(large.cut[0].pk)
    assert not finalizer.finish_parent(large.top.pk), "one of its children is not logged"
    assert not large.session()["finished"] and large.finished() == []
    large.swept()
    answer = large.session()
    assert answer["finished"] and answer["finished_at"] and answer["status"] == "needs_attention"
    counts = {"needs_attention": 1, "sent": 1, "stopped": 3}
    assert {name: count for name, count in answer["counts"].items() if count} == counts
    assert large.finished() == [counts]
    session = Session.objects.get()
    assert session.finished_at and session.shard == writer.shard_of(session.pk)
    stored = writer.get_result(session.shard, session.pk)
    assert stored and [one["status"] for one in stored["messages"]] == ["sent", "needs_attention", *["stopped"] * 3]
    assert not finalizer.finish_parent(large.top.pk), "it has ended once"
    again = large.program.post(large.links["stop"]).json()
    assert not again["changed"] and again["session"]["finished"]


def test_one_that_is_stopped_before_anything_was_cut_ends_too(settings: Any) -> None:
    large = Large(settings, cut=0)
    by_the_program(large)
    large.swept()
    assert large.session()["finished"] and large.finished() == [{"stopped": 5}]


def test_after_a_retry_it_is_open_again_and_its_next_end_is_an_event_of_its_own(large: Large) -> None:
    by_the_program(large)
    large.swept()
    assert large.program.post(large.session()["links"]["retry"]).json()["changed"]
    answer = large.session()
    assert (answer["finished"], answer["finished_at"]) == (False, None)
    large.swept()
    assert large.finished() == [{"stopped": 5}] and not large.session()["finished"]
    for child in large.cut:
        large.sent(child)
    by_the_program(large)  # what is not cut yet
    large.swept()
    assert large.finished() == [{"stopped": 5}, {"sent": 4, "stopped": 1}]
    ids = set(WebhookCall.objects.values_list("event", flat=True))
    assert len(ids) == 2, "a program tells a repeat by the event's id"


def test_a_child_that_is_sent_again_alone_opens_it_until_that_is_logged(large: Large) -> None:
    for child in large.cut:
        large.answered(child, accepted(), refused())
    by_the_program(large)
    large.swept()
    assert actions.retry_jobs([large.cut[0].pk])[0].messages == 1
    assert statuses(large.top) == ["P_ASSIGNED"] and not large.session()["finished"]
    large.sent(large.cut[0])
    large.swept()
    assert statuses(large.top) == ["P_STOPPED"] and large.session()["finished"], "the rest stays stopped"
    assert large.finished() == [{"failed": 2, "sent": 2, "stopped": 1}, {"failed": 1, "sent": 3, "stopped": 1}]


def test_a_retry_with_nothing_to_send_leaves_it_as_it_was_told(settings: Any) -> None:
    large = Large(settings, cut=2, letters=4)
    for child in large.cut:
        large.answered(child, accepted(), accepted())
    by_the_program(large)
    large.swept()
    assert not large.program.post(large.session()["links"]["retry"]).json()["changed"]
    large.swept()
    assert large.session()["finished"] and len(large.finished()) == 1
