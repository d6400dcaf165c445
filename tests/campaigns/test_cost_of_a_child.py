"""What a child costs besides its messages: statements, notifications, and what is read once for all children."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from celery.signals import before_task_publish
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns import tasks
from campaigns.engine.claiming import letters
from campaigns.engine.claiming.letters import ClaimedMessage, Lease
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing.sweep import run_sweep
from campaigns.models import Campaign, Job
from tests import factories
from tests.sandbox import Sandbox
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db(transaction=True)
STATEMENTS = 18  # of Django's connection, from a child's notification until the next child is notified


def cut_by_one(sandbox: Sandbox, messages: int) -> Job:
    """A parent whose first child of 10 messages is cut and notified."""
    vendor = factories.vendor(settings={"url": sandbox.url})
    factories.caster(vendor, min_size=10, max_size=10)
    login = factories.credential(vendor)
    parent = factories.campaign_with_job(messages, of=login, status="P_QUEUED", remaining=messages)
    tasks.cast(vendor.pk)
    return parent


def send_next(of: Job) -> Job:
    child = Job.objects.get(parent=of, status="ENQUEUED")
    tasks.send_job(child.pk, child.fence)
    child.refresh_from_db()
    return child


@contextmanager
def notifications() -> Iterator[list[str]]:
    """The names of the tasks that are published."""
    names: list[str] = []

    def look(sender: str, **_: Any) -> None:
        names.append(sender)

    before_task_publish.connect(look)
    try:
        yield names
    finally:
        before_task_publish.disconnect(look)


def test_a_child_costs_few_statements_and_one_notification(sandbox: Sandbox) -> None:
    parent = cut_by_one(sandbox, 50)
    for _ in range(2):  # the first one begins a new generation of its vendor's window
        send_next(parent)
    child = Job.objects.get(parent=parent, status="ENQUEUED")
    with CaptureQueriesContext(connection) as asked, notifications() as sent:
        tasks.send_job(child.pk, child.fence)
    child.refresh_from_db()
    assert child.status == "LOGGED"
    once_a_process = "pg_control_system"  # a worker keeps its sender, and with it the journal of calls
    statements = [query["sql"] for query in asked if once_a_process not in query["sql"]]
    assert sent == ["campaigns.tasks.send_job"], "of the next child; nothing is to be finished yet"
    assert len(statements) <= STATEMENTS, "\n".join(statements)
    merged = [one for one in statements if "DELETE FROM campaigns_answerbatch" in one]
    assert not merged, "the sender has merged the answers by a statement that was planned before"


def test_whoever_logs_the_last_child_finishes_its_parent(sandbox: Sandbox) -> None:
    parent = cut_by_one(sandbox, 30)
    for status in ("P_ASSIGNING", "P_ASSIGNING", "P_ASSIGNED"):
        parent.refresh_from_db()
        assert parent.status == status
        with notifications() as sent:
            send_next(parent)
    parent.refresh_from_db()
    assert (parent.status, parent.accepted) == ("P_FINISHED", 30) and sent == []


def test_a_child_that_is_logged_while_another_one_is_sent_leaves_the_parent_to_that(sandbox: Sandbox) -> None:
    parent = cut_by_one(sandbox, 20)
    factories.caster(parent.vendor, min_size=10, max_size=10)
    tasks.cast(parent.vendor_id)
    first, second = Job.objects.filter(parent=parent).order_by("pk")
    tasks.send_job(first.pk, first.fence)
    parent.refresh_from_db()
    assert parent.status == "P_ASSIGNED" and finalizer.ended_by(finalizer.look_at(first.pk)) == []
    tasks.send_job(second.pk, second.fence)
    parent.refresh_from_db()
    assert parent.status == "P_FINISHED"


def test_the_sweep_tells_of_the_parents_that_it_finishes(sandbox: Sandbox) -> None:
    """As after whoever logged the last child was killed."""
    parent = cut_by_one(sandbox, 10)
    send_next(parent)
    Job.objects.filter(pk=parent.pk).update(status="P_ASSIGNED", finished_at=None)
    assert run_sweep(timedelta(hours=1)).finalised == [parent.pk]


def loaded(job: Job) -> letters.LeasedJob:
    return letters.load_leased_job(Lease(job.pk, job.fence))


def letter(of: letters.LeasedJob) -> Any:
    return of.letter(ClaimedMessage(1, "r", "ann@sandbox.example", {}))


def test_what_children_have_in_common_is_read_and_compiled_once(sandbox: Sandbox) -> None:
    parent = cut_by_one(sandbox, 20)
    first = loaded(send_next(parent))
    Credential.objects.update(rate_limited_until=timezone.now())  # as while mail is sent
    Vendor.objects.update(generation=F("generation") + 1)
    with CaptureQueriesContext(connection) as asked:
        second = loaded(Job.objects.get(parent=parent, status="ENQUEUED"))
    assert second.letters.content is first.letters.content and second.campaign is first.campaign
    assert not {id(one) for one in vars(second.adapter).values() if isinstance(one, dict)} & {
        id(one) for one in vars(first.adapter).values() if isinstance(one, dict)
    }, "no adapter changes another one's settings"
    assert second.connection_key is first.connection_key
    assert len(asked) == 2, "the job that this test has read, and what is its own"
    assert second.first == first.end


@pytest.mark.parametrize("together", [False, True], ids=["each alone", "in one transaction"])
def test_an_edit_of_campaign_vendor_or_credential_holds_for_the_next_child(together: bool, sandbox: Sandbox) -> None:
    job = send_next(cut_by_one(sandbox, 10))
    before = loaded(job)
    with_timeout = {"url": sandbox.url, "timeout": 7}

    def edit() -> None:
        Campaign.objects.filter(pk=job.campaign_id).update(subject="Edited")
        assert letter(loaded(job)).subject == "Edited"
        Campaign.objects.filter(pk=job.campaign_id).update(subject="Edited again")
        assert letter(loaded(job)).subject == "Edited again"
        Vendor.objects.filter(pk=job.vendor_id).update(settings=with_timeout)
        assert loaded(job).adapter.deadline < before.adapter.deadline
        keys = {before.connection_key, loaded(job).connection_key}
        login = Credential.objects.get(pk=job.credential_id)
        login.secret = {"token": "new"}
        login.save()
        assert loaded(job).connection_key not in keys and len(keys) == 2

    with transaction.atomic() if together else nullcontext():
        edit()
