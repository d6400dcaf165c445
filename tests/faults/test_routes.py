"""A vendor takes no work any more: what was never called goes by the next one of the route, and nothing else does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from campaigns import audit, failpoints
from campaigns.casting import mailcaster
from campaigns.finishing import finalizer
from campaigns.models import Job, Message, Route, RouteEntry, RouteMove
from campaigns.operators import actions, pausing
from campaigns.routes import moving
from sandbox.vendor.books import Books
from tests import factories, sandbox
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.rounds import CONCURRENCY, Driver
from tests.faults.sending import being_sent, calls, sent
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors.history import Actor
from vendors.models import Credential

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
ANN = Actor("ann")
POINTS = ["mid_reroute:1", "mid_reroute:2", "after_reroute:1"]  # with the parent's rest moved, and a part of a child


@pytest.fixture
def two() -> Iterator[tuple[Sandbox, Sandbox]]:
    with sandbox.running() as first, sandbox.running() as second:
        yield first, second


def login(of: Sandbox, *limits: tuple[int, float], **facts: Any) -> Credential:
    settings = {"url": of.url, "timeout": 30, "settle_delay": 1, "concurrency": CONCURRENCY}
    vendor = factories.vendor(settings=settings, limits=limits, small_audience_threshold=10)
    factories.caster(vendor, "MC1", "large-priority", min_size=8, max_size=8, percentage=100)
    return factories.credential(vendor, **facts)


def route(*logins: Credential, patience: int = 1) -> Route:
    made = Route.objects.create(name=factories.unique("route"), channel="email", patience=patience)
    for position, one in enumerate(logins, start=1):
        RouteEntry.objects.create(route=made, position=position, credential=one)
    return made


def campaign(by: Route, of: Credential, recipients: Any = 20, status: str = "P_QUEUED", **fields: Any) -> Job:
    made = factories.campaign_with_job(recipients, of=of, status=status, **fields)
    type(made.campaign).objects.filter(pk=made.campaign_id).update(route=by, routed=True)
    factories.entitle([made.sponsor], [entry.credential.vendor for entry in by.entries.all()])
    made.refresh_from_db()
    return made


def child_of(parent: Job) -> Job:
    """What its vendor's caster cuts next."""
    caster = Job.objects.get(pk=parent.pk).vendor.mailcasters.get()
    claimed = mailcaster.claim(caster.pk, timezone.now())
    assert claimed
    return Job.objects.get(pk=claimed.job_id)


def all_books(*vendors: Sandbox) -> Books:
    found = [vendor.books() for vendor in vendors]
    return Books([entry for books in found for entry in books.entries])


def finish(driver: Driver) -> None:
    for _ in range(rounds.MOST_ROUNDS):
        rounds.an_hour_passes()
        driver.round()
        if not Job.objects.exclude(status__in=("LOGGED", "P_FINISHED", "P_STOPPED")).exists():
            return
    raise AssertionError(list(Job.objects.values("pk", "status", "vendor__slug", "waits_for", "credential")))


def close(one: Credential) -> None:
    Credential.objects.filter(pk=one.pk).update(paused=True, paused_reason="the login is refused")


def by(one: Credential) -> int:
    """Messages in leaves of this credential."""
    found = Job.objects.filter(credential=one).exclude(status__startswith="P_").aggregate(all=Sum("size"))["all"]
    return found or 0


def test_a_vendor_that_dies_midway_keeps_what_it_was_called_for_and_nobody_gets_anything_twice(
    two: tuple[Sandbox, Sandbox], driver: Driver
) -> None:
    one, other = two
    first, second = login(one, (2, 0.5)), login(other, (5, 1.0))
    parent = campaign(route(first, second), first)
    child = child_of(parent)
    with being_sent(child) as sending:
        called = calls(one, 3)
        one.kill()
        assert sending.result(60).left
    moved = moving.reroute(parent.pk)
    assert moved.vendors == {second.vendor_id} and 12 < moved.messages <= 20 - called + CONCURRENCY
    finish(driver)
    assert judge(all_books(one, other), windows=[(5, 1.0, None)]) == []
    counted = sums()
    assert counted.total() == 20 and counted["accepted"] + counted["in doubt"] == 20
    assert len(other.books().entries) == moved.messages  # each once
    assert by(second) == moved.messages and by(first) == 20 - moved.messages
    parent.refresh_from_db()
    assert (parent.status, parent.accepted, parent.in_doubt) == ("P_FINISHED", counted["accepted"], counted["in doubt"])


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_the_move_loses_nothing_and_doubles_nothing(
    point: str, two: tuple[Sandbox, Sandbox], driver: Driver
) -> None:
    assert {name.partition(":")[0] for name in POINTS} == set(failpoints.OF_ROUTES)
    one, other = two
    first, second = login(one), login(other)
    child = child_of(campaign(route(first, second), first))
    doubt = {"dequeued_at": timezone.now(), "sent_at": timezone.now(), "in_doubt_at": timezone.now()}
    Message.objects.filter(pk=child.first_message + 3).update(**doubt, error_sub_type="lost")
    Job.objects.filter(pk=child.pk).update(status="DISPATCHED", mailcaster=None, in_doubt=1)
    close(first)
    assert driver.round(point)["end"] == "killed"
    finish(driver)
    assert judge(all_books(one, other)) == []
    assert sums() == {"accepted": 19, "in doubt": 1} and one.books().entries == []
    assert by(second) == 19 and by(first) == 1


def test_what_was_called_or_is_in_doubt_stays_and_what_lies_between_goes(two: tuple[Sandbox, Sandbox]) -> None:
    one, other = two
    first, second = login(one), login(other)
    to = ["error+a", "b", "c", "bounce+d", "e", "f", "g", "h"]
    parent = campaign(route(first, second), first, [f"{name}@sandbox.example" for name in to])
    child = sent(child_of(parent))
    assert (child.accepted, child.refused, child.in_doubt) == (6, 1, 1)
    waiting = [child.first_message + number for number in (1, 2, 5)]  # as if they had never been called
    Message.objects.filter(pk__in=waiting).update(dequeued_at=None, sent_at=None, delivered_at=None, message_id=None)
    Job.objects.filter(pk=child.pk).update(status="DISPATCHED", finished_at=None, accepted=3)
    close(first)
    assert moving.reroute(parent.pk).messages == 3
    went = Job.objects.filter(credential=second).exclude(pk=parent.pk)
    assert sorted((job.first_message - child.first_message, job.size) for job in went) == [(1, 2), (5, 1)]
    stays = Job.objects.filter(credential=first, parent=parent).order_by("first_message")
    assert [(job.first_message - child.first_message, job.size, job.status) for job in stays] == [
        (0, 1, "SENT"), (3, 2, "SENT"), (6, 2, "SENT"),
    ]  # fmt: skip
    assert [(job.accepted, job.refused, job.in_doubt) for job in stays] == [(0, 0, 1), (1, 1, 0), (2, 0, 0)]
    assert all(finalizer.finalise(job.pk) for job in stays)
    assert moving.reroute(parent.pk).messages == 0
    assert [one for one in audit.run() if not one.ok and one.promise in ("P1", "P2", "P7")] == []


def test_what_a_lost_sender_had_claimed_stays_and_its_late_answers_find_it(
    two: tuple[Sandbox, Sandbox], driver: Driver
) -> None:
    one, other = two
    first, second = login(one, (2, 0.5)), login(other)
    parent = campaign(route(first, second), first)
    result = driver.round("after_call:3:STOP")
    assert result["end"] == "frozen"
    close(first)
    finalizer.recover(Job.objects.get(parent=parent, credential=first).pk, timedelta())
    assert moving.reroute(parent.pk).messages
    driver.round()  # by the other one
    driver.wake(result["pid"])
    finish(driver)
    assert judge(all_books(one, other)) == [] and sums().total() == 20
    references = [entry.reference for entry in all_books(one, other).entries]
    assert len(references) == len(set(references))


def test_two_at_once_move_once(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first)
    Job.objects.filter(pk=child_of(parent).pk).update(status="DISPATCHED", mailcaster=None)
    close(first)

    def move(_: int) -> int:
        try:
            return moving.reroute(parent.pk).messages
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(move, range(4))) == [0, 0, 0, 20]
    assert RouteMove.objects.aggregate(all=Sum("size"))["all"] == 20


def test_each_vendor_is_asked_once_so_nothing_goes_in_circles(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first)
    close(first)
    assert moving.reroute(parent.pk).messages == 20
    Credential.objects.filter(pk=first.pk).update(paused=False)
    close(second)
    assert moving.reroute(parent.pk).messages == 0
    parent.refresh_from_db()
    assert parent.credential == second


@pytest.mark.parametrize("obstacle", ["entitlement", "identity", "channel", "sandbox", "casters", "paused"])
def test_nothing_goes_to_a_vendor_that_may_not_have_it(obstacle: str, two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    third = login(two[1])
    parent = campaign(route(first, second, third), first)
    vendor: Any = second.vendor
    match obstacle:
        case "entitlement":
            vendor.entitlements.all().delete()
        case "identity":
            vendor.adapter, vendor.settings = "smtp", {"host": "relay.example"}
        case "channel":
            vendor.channel = "sms"
        case "sandbox":
            vendor.sandbox = True
        case "casters":
            vendor.mailcasters.update(kind="small-only")
        case "paused":
            vendor.paused = True
    vendor.save()
    close(first)
    assert moving.reroute(parent.pk).vendors == {third.vendor_id}


def test_what_is_stopped_or_paused_does_not_move(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    stopped, paused = (campaign(route(first, second), first) for _ in range(2))
    actions.stop([stopped.pk], ANN)
    pausing.pause([paused.pk], ANN, "wait")
    close(first)
    assert moving.reroute_due().messages == 0
    pausing.resume([paused.pk], ANN)
    assert moving.reroute_due().messages == 20


def test_what_a_sender_has_does_not_move(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first)
    child = child_of(parent)
    close(first)
    assert moving.reroute(parent.pk).messages == 12
    child.refresh_from_db()
    assert (child.credential, child.size, child.status) == (first, 8, "ENQUEUED")


def test_a_vendor_that_answers_again_is_reached(two: tuple[Sandbox, Sandbox]) -> None:
    one, other = two
    first, second = login(one, (2, 0.5)), login(other)
    parent = campaign(route(first, second, patience=60), first)
    with being_sent(child_of(parent)) as sending:
        calls(one, 2)
        one.kill()
        wait_until(lambda: Credential.objects.get(pk=first.pk).unreached_since, "it is noticed")
        one.start()
        assert sending.result(60)
    assert Credential.objects.get(pk=first.pk).unreached_since is None
    assert other.books().entries == [] and moving.reroute_due().messages == 0
