"""Waiting jobs are opened to casters: which, as what, in which order, and only once."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from campaigns.engine.dispatch import dispatcher
from campaigns.engine.dispatch.dispatcher import dispatch_in_batches
from campaigns.models import Campaign, Job
from campaigns.models.states import S
from tests import factories as make
from vendors.mail_classes import MailClass

NOW = datetime(2026, 3, 2, 18, 0, tzinfo=UTC)


def state(job: Job) -> str:
    job.refresh_from_db()
    return job.status


@pytest.mark.django_db
def test_a_small_job_goes_out_whole_and_a_large_one_is_queued_to_be_cut() -> None:
    login = make.credential(make.vendor(small_audience_threshold=100))
    small = make.campaign_with_job(99, status=S.RENDERED, of=login, messages=False)
    large = make.campaign_with_job(100, status=S.RENDERED, of=login, messages=False)
    done = dispatcher.dispatch_rendered(now=NOW)
    assert (done.leaves, done.parents, done.jobs, done.vendors) == (1, 1, 2, {login.vendor_id})
    assert (state(small), small.remaining, small.dispatched_at) == (S.DISPATCHED, 0, NOW)
    assert (state(large), large.remaining, large.dispatched_at) == (S.P_QUEUED, 100, NOW)


@pytest.mark.django_db
def test_a_second_dispatch_finds_nothing() -> None:
    make.campaign_with_job(status=S.RENDERED)
    assert dispatcher.dispatch_rendered().jobs == 1
    assert dispatcher.dispatch_rendered().jobs == 0


@pytest.mark.django_db
@pytest.mark.parametrize("status", [one for one in S if one != S.RENDERED])
def test_only_rendered_jobs_wait_for_the_night(status: str) -> None:
    job = make.campaign_with_job(3, status=status)
    assert dispatcher.dispatch_rendered().jobs == 0
    assert state(job) == status


@pytest.mark.django_db
def test_one_vendor_or_one_sponsor_can_be_chosen() -> None:
    velma, other = make.sponsor(), make.sponsor()
    here, there = make.credential(), make.credential()
    wanted = make.campaign_with_job(status=S.RENDERED, of=here, by=velma)
    make.campaign_with_job(status=S.RENDERED, of=here, by=other)
    make.campaign_with_job(status=S.RENDERED, of=there, by=velma)
    assert dispatcher.preview_dispatch(Job.objects.filter(vendor=here.vendor, sponsor=velma)).jobs == 1
    assert dispatcher.dispatch_rendered(Job.objects.filter(vendor=here.vendor, sponsor=velma)).jobs == 1
    assert state(wanted) == S.DISPATCHED
    assert dispatcher.dispatch_rendered(Job.objects.filter(sponsor=velma)).vendors == {there.vendor_id}
    assert dispatcher.dispatch_rendered(Job.objects.filter(vendor=here.vendor)).jobs == 1


@pytest.mark.django_db
def test_the_jobs_of_a_paused_vendor_are_dispatched_and_wait_on_its_queue() -> None:
    job = make.campaign_with_job(status=S.RENDERED, of=make.credential(make.vendor(paused=True)))
    dispatcher.dispatch_rendered()
    assert state(job) == S.DISPATCHED


@pytest.mark.django_db
def test_batches_go_out_oldest_first_and_each_is_finished_when_the_next_begins() -> None:
    login, by = make.credential(), make.sponsor()
    jobs = [make.campaign_with_job(status=S.RENDERED, of=login, by=by) for _ in range(7)]
    steps = dispatch_in_batches(Job.objects.filter(status=S.RENDERED), login.vendor, NOW, batch=3)
    assert next(steps).jobs == 3
    assert [state(job) for job in jobs] == [S.DISPATCHED] * 3 + [S.RENDERED] * 4
    assert [done.jobs for done in steps] == [3, 1]


@pytest.mark.django_db
def test_the_jobs_of_one_sponsor_do_not_stand_before_the_first_one_of_another() -> None:
    login, one, other = make.credential(), make.sponsor(), make.sponsor()
    long = [make.campaign_with_job(status=S.RENDERED, of=login, by=one) for _ in range(5)]
    short = [make.campaign_with_job(status=S.RENDERED, of=login, by=other) for _ in range(2)]
    steps = dispatch_in_batches(Job.objects.filter(status=S.RENDERED), login.vendor, NOW, batch=2)
    next(steps)
    assert [state(job) for job in (long[0], short[0])] == [S.DISPATCHED] * 2
    next(steps)
    assert [state(job) for job in (long[1], short[1])] == [S.DISPATCHED] * 2
    assert [state(job) for job in long[2:]] == [S.RENDERED] * 3
    assert [done.jobs for done in steps] == [2, 1]


@pytest.mark.django_db
def test_at_night_urgent_jobs_go_first_and_within_a_class_the_sponsors_take_turns() -> None:
    """Velma's codes come last into the night, behind Anton's newsletters and codes."""
    login, anton, velma = make.credential(), make.sponsor(), make.sponsor()
    names: dict[int, str] = {}
    for name, by, mail_class in (
        ("news of Anton", anton, MailClass.BULK),
        ("codes of Anton", anton, MailClass.URGENT),
        ("letters of Anton", anton, MailClass.USUAL),
        ("news of Velma", velma, MailClass.BULK),
        ("codes of Velma", velma, MailClass.URGENT),
    ):
        facts: dict[str, Any] = {"status": S.RENDERED, "of": login, "by": by, "mail_class": mail_class}
        names |= {make.campaign_with_job(**facts).pk: name for _ in range(2)}
    order: list[str] = []
    for _done in dispatch_in_batches(Job.objects.filter(status=S.RENDERED), login.vendor, NOW, batch=1):
        (gone,) = Job.objects.filter(pk__in=names, status=S.DISPATCHED).values_list("pk", flat=True)
        order.append(names.pop(gone))
    assert order == [
        *("codes of Anton", "codes of Velma") * 2,
        *("letters of Anton",) * 2,
        *("news of Anton", "news of Velma") * 2,
    ]


@pytest.mark.django_db
def test_a_job_that_was_claimed_before_stays_a_leaf_and_so_does_a_child() -> None:
    login = make.credential(make.vendor(small_audience_threshold=10))
    retried = make.campaign_with_job(50, status=S.READY, of=login, messages=False, fence=3, started_at=NOW)
    parent = make.campaign_with_job(50, status=S.P_ASSIGNED, of=login, messages=False)
    child = make.job(parent.campaign, S.READY, parent=parent)
    assert dispatcher.dispatch_ready(now=NOW).leaves == 2
    assert (state(retried), retried.started_at) == (S.DISPATCHED, None)
    assert state(child) == S.DISPATCHED


@pytest.mark.django_db
def test_ready_jobs_wait_for_their_own_time_and_for_their_campaigns() -> None:
    later = NOW + timedelta(seconds=1)
    parked = make.campaign_with_job(not_before=later)
    timed = make.campaign_with_job()
    Campaign.objects.filter(pk=timed.campaign_id).update(send_at=later)
    ripe = make.campaign_with_job(not_before=NOW)
    nightly = make.campaign_with_job(status=S.RENDERED)
    assert dispatcher.dispatch_ready(now=NOW).jobs == 1
    assert [state(job) for job in (parked, timed, ripe, nightly)] == [S.READY, S.READY, S.DISPATCHED, S.RENDERED]
    assert dispatcher.dispatch_ready(now=later).jobs == 2


@pytest.mark.django_db
def test_send_now_can_name_its_jobs() -> None:
    one, other = make.campaign_with_job(), make.campaign_with_job()
    assert dispatcher.dispatch_ready([one.pk]).jobs == 1
    assert (state(one), state(other)) == (S.DISPATCHED, S.READY)
    assert dispatcher.dispatch_ready([]).jobs == 0


@pytest.mark.django_db(transaction=True)
def test_of_many_dispatchers_at_once_each_job_is_counted_by_one() -> None:
    login = make.credential(make.vendor(small_audience_threshold=2))
    for number in range(60):
        make.campaign_with_job(1 + number % 2, status=S.RENDERED, of=login, messages=False)

    def dispatch(_: int) -> int:
        try:
            return dispatcher.dispatch_rendered(batch=7).jobs
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(dispatch, range(6))) == 60
    assert not Job.objects.filter(status=S.RENDERED).exists()


@pytest.fixture
def said() -> Callable[..., str]:
    def call(*arguments: str) -> str:
        out = StringIO()
        call_command("dispatch_jobs", *arguments, stdout=out)
        return out.getvalue()

    return call


@pytest.mark.django_db
def test_the_command_says_what_it_would_do_and_what_it_did(said: Callable[..., str]) -> None:
    vendor = make.vendor("amazing-mail")
    make.campaign_with_job(status=S.RENDERED, of=make.credential(vendor))
    make.campaign_with_job(500, status=S.RENDERED, of=make.credential(vendor), messages=False)
    assert said("--dry-run") == "Would dispatch 2 jobs (1 whole, 1 to be cut): amazing-mail\n"
    assert said("--vendor", "amazing-mail") == "Dispatched 2 jobs (1 whole, 1 to be cut): amazing-mail\n"
    assert said() == "No job waits for dispatch.\n"


@pytest.mark.django_db
def test_the_command_gives_one_json_object(said: Callable[..., str]) -> None:
    make.campaign_with_job(status=S.RENDERED, of=make.credential(make.vendor("amazing-mail")))
    facts = {"jobs": 1, "whole": 1, "to_cut": 0, "vendors": ["amazing-mail"]}
    assert json.loads(said("--json", "--dry-run")) == facts | {"dry_run": True}
    assert json.loads(said("--json")) == facts | {"dry_run": False}


@pytest.mark.django_db
@pytest.mark.parametrize("option", ["--vendor", "--sponsor"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(said: Callable[..., str], option: str) -> None:
    job = make.campaign_with_job(
        status=S.RENDERED, of=make.credential(make.vendor("known-vendor")), by=make.sponsor("known-sponsor")
    )
    with pytest.raises(CommandError, match=f"no {option[2:]} 'nobody'; there are: known-{option[2:]}") as error:
        said(option, "nobody")
    assert error.value.returncode == 1
    assert state(job) == S.RENDERED
