"""A vendor takes no work any more: what was never called goes by the next one of the route, and nothing else does."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from campaigns.engine import audit, delivery_reports, failpoints
from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import limits
from campaigns.engine.connections import open_connection
from campaigns.engine.doubts import reconciler, resolve
from campaigns.engine.finishing import finalizer
from campaigns.engine.routes import entries, moving, whose
from campaigns.engine.sending.call_pool import CallPool
from campaigns.models import Claim, Entitlement, Job, Message, Route, RouteEntry, RouteMove
from campaigns.operations import actions, pausing
from sandbox.vendor.books import Books
from tests import factories, sandbox
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.rounds import CONCURRENCY, Driver
from tests.faults.sending import being_sent, calls, sent
from tests.sandbox import Sandbox
from tests.waiting import result_of, wait_until
from vendors import adapters
from vendors.adapters.reports import Reported
from vendors.history import Actor
from vendors.models import Credential, Mailcaster, Minute, Vendor
from vendors.outcomes import Accepted, InDoubt, Outcome, classify_http

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
    claimed = mailcaster.claim_next_job(caster.pk, timezone.now())
    assert claimed
    return Job.objects.get(pk=claimed.job_id)


def all_books(*vendors: Sandbox) -> Books:
    found = [vendor.books() for vendor in vendors]
    return Books([entry for books in found for entry in books.entries])


def finish(driver: Driver) -> None:
    for _ in range(rounds.MOST_ROUNDS):
        rounds.an_hour_passes()
        driver.another_round()
        if not Job.objects.exclude(status__in=("LOGGED", "P_FINISHED", "P_STOPPED")).exists():
            return
    raise AssertionError(list(Job.objects.values("pk", "status", "vendor__slug", "waits_for", "credential")))


def close(one: Credential) -> None:
    Credential.objects.filter(pk=one.pk).update(paused=True, paused_reason="the login is refused")


def by(one: Credential) -> int:
    """Messages in leaves of this credential."""
    found = Job.objects.filter(credential=one).exclude(status__startswith="P_").aggregate(all=Sum("size"))["all"]
    return found or 0


@pytest.mark.slow("processes")
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
        assert result_of(sending, "the sender ends").left
    moved = moving.reroute_parent(parent.pk)
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
@pytest.mark.slow("processes")
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
    assert moving.reroute_parent(parent.pk).messages == 3
    went = Job.objects.filter(credential=second).exclude(pk=parent.pk)
    assert sorted((job.first_message - child.first_message, job.size) for job in went) == [(1, 2), (5, 1)]
    stays = Job.objects.filter(credential=first, parent=parent).order_by("first_message")
    assert [(job.first_message - child.first_message, job.size, job.status) for job in stays] == [
        (0, 1, "SENT"), (3, 2, "SENT"), (6, 2, "SENT"),
    ]  # fmt: skip
    assert [(job.accepted, job.refused, job.in_doubt) for job in stays] == [(0, 0, 1), (1, 1, 0), (2, 0, 0)]
    assert all(finalizer.finalise_job(job.pk) for job in stays)
    assert moving.reroute_parent(parent.pk).messages == 0
    assert [one for one in audit.ask_all_questions() if not one.is_kept and one.promise in ("P1", "P2", "P7")] == []


@pytest.mark.slow("processes")
def test_what_a_lost_sender_had_claimed_stays_and_its_late_answers_find_it(
    two: tuple[Sandbox, Sandbox], driver: Driver
) -> None:
    one, other = two
    first, second = login(one, (2, 0.5)), login(other)
    parent = campaign(route(first, second), first)
    result = driver.round("after_call:3:STOP")
    assert result["end"] == "frozen"
    close(first)
    finalizer.recover_job(Job.objects.get(parent=parent, credential=first).pk, timedelta())
    assert moving.reroute_parent(parent.pk).messages
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
            return moving.reroute_parent(parent.pk).messages
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(move, range(4))) == [0, 0, 0, 20]
    assert RouteMove.objects.aggregate(all=Sum("size"))["all"] == 20


def test_each_vendor_is_asked_once_so_nothing_goes_in_circles(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first)
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 20
    Credential.objects.filter(pk=first.pk).update(paused=False)
    close(second)
    assert moving.reroute_parent(parent.pk).messages == 0
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
    assert moving.reroute_parent(parent.pk).vendors == {third.vendor_id}


def test_what_is_stopped_or_paused_does_not_move(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    stopped, paused = (campaign(route(first, second), first) for _ in range(2))
    actions.stop_jobs([stopped.pk], ANN)
    pausing.pause_jobs([paused.pk], ANN, "wait")
    close(first)
    assert moving.reroute_due().messages == 0
    pausing.resume_jobs([paused.pk], ANN)
    assert moving.reroute_due().messages == 20


def test_what_a_sender_has_does_not_move(two: tuple[Sandbox, Sandbox]) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first)
    child = child_of(parent)
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 12
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
        assert result_of(sending, "the sender ends")
    assert Credential.objects.get(pk=first.pk).unreached_since is None
    assert other.books().entries == [] and moving.reroute_due().messages == 0


Two = tuple[Sandbox, Sandbox]


def put_back(child: Job) -> Job:
    Job.objects.filter(pk=child.pk).update(status="DISPATCHED", mailcaster=None)
    child.refresh_from_db()
    return child


def barred_and_free(first: Credential, second: Credential, barred: int = 2) -> Job:
    """Campaigns whose sponsors may not use the second one; then one whose sponsor may."""
    by_both = route(first, second)
    for _ in range(barred):
        one = campaign(by_both, first, 3)
        Entitlement.objects.filter(sponsor=one.sponsor, vendor=second.vendor).delete()
    return campaign(by_both, first, 3)


def test_what_cannot_move_keeps_nothing_younger_from_moving(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOST_PARENTS", 1)
    first, second = (login(one) for one in two)
    barred_and_free(first, second)
    close(first)
    assert moving.reroute_due().messages == 3


def test_a_sweep_whose_time_is_over_goes_on_behind_where_it_ended(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOST_SECONDS", -1.0)
    monkeypatch.setattr(moving, "_looked_at", 0)
    first, second = (login(one) for one in two)
    barred_and_free(first, second)
    close(first)
    assert [moving.reroute_due().messages for _ in range(3)] == [0, 0, 3]
    assert [moving.reroute_due().messages for _ in range(3)] == [0, 0, 0]  # behind the last it begins anew


def test_an_error_of_one_campaign_keeps_no_other_from_moving(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    first, second = (login(one) for one in two)
    free = barred_and_free(first, second, barred=1)
    wrong = Job.objects.filter(parent=None).exclude(pk=free.pk).get()
    with connection.cursor() as cursor:  # the moves of this one cannot be stored
        factories.entitle([wrong.sponsor], [second.vendor])
        cursor.execute(f"ALTER TABLE campaigns_routemove ADD CONSTRAINT wrong CHECK (parent_id <> {wrong.pk})")
    close(first)
    try:
        assert moving.reroute_due().messages == 3
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE campaigns_routemove DROP CONSTRAINT wrong")
    assert f"job {wrong.pk}: what waits cannot go by another vendor" in caplog.text
    assert moving.reroute_due().messages == 3


def test_what_waits_between_the_calls_of_a_dead_sender_moves_when_their_doubts_are_settled(two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first)
    child = child_of(parent)
    Job.objects.filter(pk=child.pk).update(status="SENDING", heartbeat_at=timezone.now() - timedelta(hours=1))
    child.refresh_from_db()
    ends = [child.first_message, child.end - 1]
    Claim.objects.create(job=child, fence=child.fence, at=timezone.now(), messages=ends)
    assert finalizer.recover_job(child.pk, timedelta())
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 12 and by(second) == 0
    assert Claim.objects.count() == 1  # a late answer may still settle these
    resolve.resolve_doubts(ends[:1], "sent", "the vendor says so", "ann")
    assert moving.reroute_parent(parent.pk).messages == 0
    resolve.resolve_doubts(ends[1:], "sent", "the vendor says so", "ann")
    assert moving.reroute_parent(parent.pk).messages == 6 and by(second) == 6 and not Claim.objects.exists()
    assert [one for one in audit.ask_all_questions() if not one.is_kept and one.promise in ("P1", "P2")] == []


def moved_whole(first: Credential, second: Credential) -> Job:
    """A campaign of eight, all in a child that has gone from the first to the second."""
    parent = campaign(route(first, second), first, 8)
    put_back(child_of(parent))
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 8
    return parent


@pytest.mark.parametrize("of_first", [True, False])
def test_a_resume_asks_for_the_vendors_that_will_be_called(of_first: bool, two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = moved_whole(first, second)
    pausing.pause_jobs([parent.pk], ANN, "wait")
    gone = first if of_first else second
    Entitlement.objects.filter(sponsor=parent.sponsor, vendor=gone.vendor).delete()
    [answer] = pausing.resume_jobs([parent.pk], ANN)
    assert answer.verdict == ("done" if of_first else "busy"), answer


@pytest.mark.parametrize("of_first", [True, False])
def test_a_retry_asks_for_the_vendors_that_will_be_called(of_first: bool, two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = moved_whole(first, second)
    child = Job.objects.get(parent=parent)
    at = timezone.now()
    failed = {"dequeued_at": at, "sent_at": at, "delivered_at": at, "error_code": "full"}
    Message.objects.filter(campaign=parent.campaign_id).update(**failed)
    Job.objects.filter(pk=child.pk).update(status="LOGGED", refused=8, finished_at=at)
    assert finalizer.finish_parent(parent.pk)
    gone = first if of_first else second
    Entitlement.objects.filter(sponsor=parent.sponsor, vendor=gone.vendor).delete()
    [answer] = actions.retry_jobs([parent.pk])
    assert answer.verdict == ("done" if of_first else "busy"), answer
    child.refresh_from_db()
    assert child.refused == (0 if of_first else 8)
    assert Message.objects.filter(error_code="full").count() == child.refused


def test_a_campaign_of_which_all_has_moved_is_of_the_vendor_that_has_it(two: Two) -> None:
    first, second = (login(one) for one in two)
    Credential.objects.update(exclusive=True)
    parent = moved_whole(first, second)
    parent.refresh_from_db()
    assert parent.credential == second
    assert mailcaster.holders_of_credentials(Credential.objects.all()) == {second.pk: parent.campaign_id}


def fail_once(one: Credential) -> None:
    async def once() -> None:
        rows = await open_connection()
        await limits.back_off(rows, one.pk)
        await rows.close()

    asyncio.run(once())


def test_patience_counts_from_the_failures_of_now_and_not_of_last_night(two: Two) -> None:
    first, _ = (login(one) for one in two)
    night = timezone.now() - timedelta(hours=8)
    Credential.objects.filter(pk=first.pk).update(unreached_since=night, retry_after_until=night, backoff=30)
    fail_once(first)
    first.refresh_from_db()
    assert first.backoff == 0.5 and first.unreached_since > night + timedelta(hours=7)
    assert entries.closed_credentials([first.pk], 5) == {first.pk: ""}


@pytest.mark.parametrize(
    ("outcome", "reached"),
    [
        (InDoubt("no answer before the deadline"), False),
        (classify_http(503, {}, b"", now=0), True),
        (Accepted("a"), True),
    ],
)
def test_a_call_without_any_answer_is_no_sign_that_the_vendor_is_reached(
    outcome: Outcome, reached: bool, two: Two
) -> None:
    one = login(two[0])
    vendor: Any = one.vendor
    adapter = adapters.load(vendor.adapter).for_credential(vendor.settings, {})
    leased: Any = SimpleNamespace(adapter=adapter, campaign=None, lease=SimpleNamespace(job_id=1), vendor_id=vendor.pk)
    call: Any = SimpleNamespace(permits=(), message=SimpleNamespace(recipient="a@b"))
    pool = CallPool(leased, lambda *_: asyncio.sleep(0))
    pool._finish_call(call, outcome, called=True)
    assert (pool.answered_at > 0) == reached


def test_a_vendor_that_was_not_reached_when_it_was_last_called_comes_last(two: Two) -> None:
    first, second = (login(one) for one in two)
    third = login(two[1])
    parent = campaign(route(first, second, third), first, 8)
    ago = timezone.now() - timedelta(seconds=entries.PROBE + 1)
    unreached = {"unreached_since": ago - timedelta(hours=3), "retry_after_until": ago, "backoff": 30}
    Credential.objects.filter(pk=second.pk).update(**unreached)
    close(first)
    assert moving.reroute_parent(parent.pk).vendors == {third.vendor_id}
    close(third)
    assert moving.reroute_parent(parent.pk).vendors == {second.vendor_id}


def test_a_repeat_is_plotted_for_the_vendor_that_was_called(two: Two) -> None:
    one, other = two
    one.settings(dedupe=True)
    first, second = login(one), login(other)
    vendor = Vendor.objects.get(pk=first.vendor_id)
    Vendor.objects.filter(pk=vendor.pk).update(settings={**vendor.settings, "dedupe": True, "timeout": 2})
    to = ["lost+a@sandbox.example", *(f"r{n}@sandbox.example" for n in range(9))]
    parent = campaign(route(first, second), first, to)
    assert sent(child_of(parent)).in_doubt == 1
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 2
    ago = timezone.now() - timedelta(minutes=5)
    Credential.objects.filter(pk=first.pk).update(paused=False, retry_after_until=None, unreached_since=ago)
    Message.objects.filter(in_doubt_at__isnull=False).update(sent_at=ago, settle_at=timezone.now())
    assert reconciler.reconcile_due_doubts() == 1
    assert other.books().entries == [] and Credential.objects.get(pk=first.pk).unreached_since is None
    assert not Minute.objects.filter(vendor=second.vendor, units__gt=0).exists()


def test_a_report_of_a_vendor_of_the_route_settles_a_doubt_whose_move_was_lost(two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first, 8)
    child, at = put_back(child_of(parent)), timezone.now()
    lost = {"dequeued_at": at, "sent_at": at, "in_doubt_at": at, "taken_over_at": at}
    Message.objects.filter(pk=child.first_message).update(**lost)
    stranger = login(two[0])
    message = Message.objects.get(pk=child.first_message)
    said = [Reported(message.reference, "delivered", timezone.now())]
    assert delivery_reports.store_reports(stranger.vendor_id, said).unknown == (message.reference,)
    assert delivery_reports.store_reports(second.vendor_id, said).unknown == ()
    message.refresh_from_db()
    assert message.in_doubt_at is None and message.message_id


def test_a_report_of_the_vendor_that_a_message_has_left_is_an_acceptance(two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = moved_whole(first, second)
    message = Message.objects.get(pk=parent.first_message)
    delivery_reports.store_reports(first.vendor_id, [Reported(message.reference, "delivered", timezone.now())])
    message.refresh_from_db()
    assert message.message_id


def test_a_vendor_whose_mailcasters_cut_nothing_takes_no_work(two: Two) -> None:
    first, second = (login(one) for one in two)
    by_both = route(first, second)
    parent = campaign(by_both, first, 1)
    Mailcaster.objects.filter(vendor=first.vendor).update(kind="small-only")
    assert mailcaster.idle_casters(first.vendor_id) == []
    assert entries.closed_credentials([first.pk], 5) == {first.pk: entries.UNCUT}
    assert entries.usable_credentials(by_both, parent.sponsor)[0] == second
    assert moving.reroute_due().messages == 1
    Mailcaster.objects.filter(vendor=second.vendor).update(enabled=False)
    assert entries.usable_credentials(by_both, parent.sponsor)[0] == first


def test_what_has_ended_without_a_call_is_not_counted_as_gone(two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first, 10)
    ended = range(parent.first_message, parent.first_message + 4)
    Message.objects.filter(pk__in=ended).update(dequeued_at=timezone.now(), error_code="suppressed")
    Job.objects.filter(pk=parent.pk).update(remaining_suppressed=4, suppressed=4)
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 6
    assert [one.messages for one in whose.list_moves(parent.campaign_id)] == [6]


def test_what_one_vendor_has_put_off_does_not_wait_for_it_at_the_next(two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first, 8)
    child = put_back(child_of(parent))
    put_off = {"put_off_at": timezone.now(), "call_after": timezone.now() + timedelta(hours=1)}
    Message.objects.filter(pk=child.first_message).update(**put_off)
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 8
    assert not Message.objects.exclude(put_off_at=None, call_after=None).exists()


def test_a_move_makes_nothing_that_was_shown_to_a_person_old(two: Two) -> None:
    first, second = (login(one) for one in two)
    parent = campaign(route(first, second), first, 8)
    child, at = put_back(child_of(parent)), timezone.now()
    doubtful = {"dequeued_at": at, "sent_at": at, "in_doubt_at": at, "resend_no": 2}  # twice sent again
    Message.objects.filter(pk=child.first_message + 3).update(**doubtful)
    Message.objects.filter(pk=child.first_message + 5).update(**doubtful)
    Job.objects.filter(pk=child.pk).update(in_doubt=2, revision=2)
    shown = resolve.count_decisions([parent.pk])
    close(first)
    assert moving.reroute_parent(parent.pk).messages == 6
    assert resolve.count_decisions([parent.pk]) == shown
    assert [one for one in audit.ask_all_questions() if not one.is_kept and one.promise == "P1"] == []
