"""A vendor that hangs, answers 500 or cuts connections costs its connections and a few probes, not the whole list."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.claiming import limits
from campaigns.engine.connections import SharedRows
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.models import Campaign, Claim, Identity, Job, Message
from campaigns.operations import actions
from tests import factories, programs
from tests.described.servers import SERVER_TOKEN, Answer, Called, Postmark
from tests.faults.sending import being_sent, login, send_the_rest, sent, take_again, taken
from tests.moody_vendor import MOODS, MoodyVendor, moody_relay, moody_vendor
from tests.waiting import result_of, wait_until
from vendors import configuration
from vendors.condition import brake
from vendors.condition.reading import conditions_of_credentials
from vendors.condition.values import Condition, ConditionKind
from vendors.models import Credential

pytestmark = pytest.mark.django_db(transaction=True)
CONNECTIONS = 8


@pytest.fixture
def vendor() -> Iterator[MoodyVendor]:
    with moody_vendor() as running:
        yield running


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes come soon."""
    monkeypatch.setattr(brake, "WAIT_FIRST", 0.1)
    monkeypatch.setattr(brake, "WAIT_MOST", 0.4)


def account_at(vendor: MoodyVendor, **settings: Any) -> Credential:
    return login(vendor.url, concurrency=CONNECTIONS, **settings)


def condition(account: Credential) -> Condition:
    return conditions_of_credentials([account.pk])[account.pk]


def probes(account: Credential) -> int:
    """How many probes were taken, and how often the brake was put on."""
    return Credential.objects.get(pk=account.pk).probe_no


def by_rows(verb: Any, *args: Any) -> Any:
    """Runs a statement of the brake as a sender does."""

    async def run() -> Any:
        rows = SharedRows(1)
        try:
            return await verb(rows, *args)
        finally:
            await rows.close(float("inf"))

    return asyncio.run(run())


@pytest.mark.parametrize("mood", MOODS)
def test_a_vendor_that_fails_costs_its_connections_and_probes_and_its_job_ends_by_itself(
    vendor: MoodyVendor, mood: str
) -> None:
    account = account_at(vendor, **({"timeout": 1} if mood == "hang" else {}))
    job = taken(200, account)
    vendor.mood = mood
    with being_sent(job) as sending:
        wait_until(lambda: probes(account) >= 5, "probes are made")
        failing = condition(account)
        assert (failing.kind, failing.is_braked, failing.has_end) == (ConditionKind.FAILING, True, False)
        assert failing.tries and failing.answer and failing.mending.command.startswith("credential release")
        vendor.mood = "good"
        result_of(sending, "the job ends by itself")
    assert finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert job.in_doubt <= CONNECTIONS + probes(account), "not the whole list"
    assert job.in_doubt == len(vendor.of_mood(mood)) and job.accepted == 200 - job.in_doubt
    assert condition(account).works and not Credential.objects.get().braked_at


@pytest.mark.parametrize(("mood", "batch"), [("cut", 1), ("hang", 1), ("cut", 3)])
def test_a_relay_is_braked_as_well_and_a_round_of_mails_is_one_call(mood: str, batch: int) -> None:
    with moody_relay() as relay:
        known = {"host": "127.0.0.1", "port": relay.server_address[1], "tls": "none", "sender": "us@example.org"}
        settings = known | {"concurrency": CONNECTIONS, "batch": batch, "timeout": 1, "connect_timeout": 1}
        account = factories.credential(factories.vendor(adapter="smtp", settings=settings))
        job = taken(150, account)
        relay.mood = mood
        with being_sent(job) as sending:
            wait_until(lambda: probes(account) >= 4, "probes are made")
            relay.mood = "good"
            result_of(sending, "the job ends by itself")
        assert finalizer.finalise_job(job.pk)
        job.refresh_from_db()
        assert job.in_doubt <= CONNECTIONS * batch + probes(account)
        assert job.accepted == 150 - job.in_doubt and condition(account).works


class LosesAnswers(Postmark):
    """Takes each batch and answers 500 while it is ill."""

    ill = True

    def answer(self, called: Called) -> Answer:
        usual = super().answer(called)
        return Answer(500) if self.ill else usual


def test_a_described_vendor_of_batches_is_braked_and_a_batch_is_one_call() -> None:
    with LosesAnswers() as ill:
        settings = {"description": "postmark", "server": ill.url, "concurrency": "4", "batch": "10"}
        known = factories.vendor(adapter="described", settings=settings)
        account = factories.credential(known, secret={"server_token": SERVER_TOKEN})
        job = factories.campaign_with_job(300, of=account, status="DISPATCHED")
        of = {"sponsor": job.sponsor, "name": "main", "from_name": "Velma", "from_address": "velma@example.com"}
        Campaign.objects.filter(pk=job.campaign_id).update(identity=Identity.objects.create(**of))
        with being_sent(take_again(job)) as sending:
            wait_until(lambda: probes(account) >= 4, "probes are made")
            ill.ill = False
            result_of(sending, "the job ends by itself")
        assert finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert job.in_doubt <= 4 * 10 + probes(account), "connections in batches, probes of one letter"
    assert job.accepted == 300 - job.in_doubt and condition(account).works
    assert set(ill.books.values()) == {1} and len(ill.books) == 300


def test_two_senders_cost_their_connections(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    jobs = [taken(200, account), taken(200, account)]
    vendor.mood = "500"
    with ExitStack() as stack:
        each = [stack.enter_context(being_sent(job)) for job in jobs]
        wait_until(lambda: probes(account) >= 6, "probes are made")
        assert len(vendor.calls) <= 2 * CONNECTIONS + probes(account)
        vendor.mood = "good"
        for one in each:
            result_of(one, "it ends by itself, or lets its job go on later")
    assert len(vendor.of_mood("500")) <= 2 * CONNECTIONS + probes(account)
    for job in jobs:
        job.refresh_from_db()
        if job.status == "DISPATCHED":
            sent(take_again(job))
        else:
            assert finalizer.finalise_job(job.pk)
    assert sum(Job.objects.values_list("accepted", flat=True)) == 400 - len(vendor.of_mood("500"))


def braked(account: Credential, **columns: Any) -> None:
    columns = {"braked_at": timezone.now() - timedelta(minutes=5), "brake_wait": 0.1, **columns}
    Credential.objects.filter(pk=account.pk).update(**columns)


def test_a_prober_that_died_delays_the_next_probe_by_its_lease(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    braked(account)
    assert by_rows(brake.take_probe, account.pk, 60.0) == 1
    assert by_rows(brake.take_probe, account.pk, 60.0) is None, "one at a time"
    job = taken(20, account)
    assert sender.send_claimed_job(job.pk, job.fence).left and not vendor.calls
    braked(account, retry_after_until=timezone.now())
    assert send_the_rest(job).accepted == 20
    assert condition(account).works


def test_nobody_probes_while_an_operator_holds_the_brake(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    braked(account, brake_held_at=timezone.now())
    job = taken(20, account)
    assert sender.send_claimed_job(job.pk, job.fence).left and not vendor.calls
    assert not Claim.objects.exists()
    assert condition(account).kind == ConditionKind.SHUT and condition(account).is_held
    call_command("credential", "release", account.vendor.slug, account.name)
    assert send_the_rest(job).accepted == 20


def test_operators_hold_and_release_by_command_and_by_page(vendor: MoodyVendor, admin_client: Client) -> None:
    account = account_at(vendor)
    by_name = account.vendor.slug, account.name
    call_command("credential", "hold", *by_name)
    assert condition(account).is_held
    call_command("credential", "release", *by_name)
    assert condition(account).kind == ConditionKind.UNTRIED
    for action, is_held in (("hold_brakes", True), ("release_brakes", False)):
        asked = {"action": action, "_selected_action": [account.pk]}
        assert admin_client.post("/admin/vendors/credential/", asked, follow=True).status_code == 200
        assert condition(account).is_held is is_held
    assert LogEntry.objects.count() == 4, "who did it stands in the history"


def test_the_brakes_of_all_credentials_of_a_vendor_are_released_together(
    vendor: MoodyVendor, admin_client: Client
) -> None:
    account = account_at(vendor)
    second, works = factories.credential(account.vendor, "second"), factories.credential(account.vendor, "works")
    slug = account.vendor.slug
    for release in (
        lambda: call_command("vendor", "release", slug),
        lambda: admin_client.post(
            "/admin/vendors/vendor/", {"action": "release_brakes", "_selected_action": [account.vendor_id]}
        ),
    ):
        braked(account)
        braked(second, brake_held_at=timezone.now())
        release()
        for one in (account, second, works):
            one.refresh_from_db()
            assert one.braked_at is None and one.brake_held_at is None and one.retry_after_until is None
    assert LogEntry.objects.count() == 4, "an entry for each credential that had a brake"


def test_a_request_to_wait_ends_the_brake_and_is_kept(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    vendor.mood = "429"
    braked(account)
    job = taken(20, account)
    assert sender.send_claimed_job(job.pk, job.fence).left and len(vendor.calls) == 1
    account.refresh_from_db()
    assert account.braked_at is None and account.retry_after_until
    assert timedelta(minutes=55) < account.retry_after_until - timezone.now() < timedelta(minutes=61)
    assert condition(account).kind == ConditionKind.SHUT and condition(account).has_end
    braked(account)
    by_rows(limits.close_credential, account.pk, 30.0)
    account.refresh_from_db()
    assert account.braked_at is None and account.retry_after_until
    assert account.retry_after_until - timezone.now() < timedelta(minutes=6), "the time of a probe is no wait"


def test_what_is_older_than_the_last_release_puts_no_brake_on(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    assert by_rows(brake.put_on, account.pk, 1.0) and not by_rows(brake.put_on, account.pk, 1.0)
    assert not by_rows(brake.release_brake, account.pk, 5.0), "that answer came before the brake"
    assert by_rows(brake.release_brake, account.pk, 0.0) and not by_rows(brake.release_brake, account.pk, 0.0)
    assert not by_rows(brake.put_on, account.pk, 5.0)
    assert by_rows(brake.put_on, account.pk, 0.0), "doubts after the release"
    account.refresh_from_db()
    assert account.brake_wait == 0.2, "soon after a release the waits go on to grow"


def test_a_slow_vendor_is_not_braked(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    assert sent(taken(60, account)).accepted == 60
    assert not probes(account) and condition(account).works


def test_doubts_of_other_processes_brake_one_that_has_none_of_its_own() -> None:
    """Its own last doubt has no time; that must not be taken for an endless one."""
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        account = login(f"http://127.0.0.1:{nobody_listens.getsockname()[1]}", concurrency=CONNECTIONS)
        factories.condition(account, failing=timedelta(minutes=1), tries=50, doubts=50)
        job = taken(20, account)
        with being_sent(job) as sending:
            wait_until(lambda: Credential.objects.filter(pk=account.pk, braked_at__isnull=False).exists(), "braked")
            actions.stop_jobs([job.pk])
            result_of(sending, "the sender ends")
    job.refresh_from_db()
    assert not job.in_doubt


def waits_for_an_hour(account: Credential) -> bool:
    """Tells whether the wait that its vendor asked for is as it was."""
    account.refresh_from_db()
    left = (account.retry_after_until or timezone.now()) - timezone.now()
    return account.asked_wait == 3600.0 and timedelta(minutes=58) < left <= timedelta(hours=1)


def test_a_hold_without_a_brake_leaves_the_wait_that_the_vendor_asked_for(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    until = timezone.now() + timedelta(hours=1)
    Credential.objects.filter(pk=account.pk).update(retry_after_until=until, asked_wait=3600.0)
    assert configuration.hold_brake(account) and not configuration.hold_brake(account)
    assert waits_for_an_hour(account) and account.braked_at is None and condition(account).is_held
    by_rows(limits.close_credential, account.pk, 30.0)
    assert waits_for_an_hour(account), "another answer to a call from before"
    job = taken(20, account)
    assert sender.send_claimed_job(job.pk, job.fence).left and not vendor.calls and not Claim.objects.exists()
    assert configuration.release_brake(account) and not configuration.release_brake(account)
    assert waits_for_an_hour(account) and not condition(account).is_held


def test_a_hold_without_a_brake_keeps_calls_away_until_its_release(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    assert configuration.hold_brake(account)
    job = taken(20, account)
    assert sender.send_claimed_job(job.pk, job.fence).left and not vendor.calls and not Claim.objects.exists()
    assert configuration.release_brake(account)
    assert send_the_rest(job).accepted == 20


def test_a_hold_outlasts_the_probe_under_way_whatever_it_is_answered(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    braked(account, probe_no=4, brake_no=4)
    probe = by_rows(brake.take_probe, account.pk, 60.0)
    assert configuration.hold_brake(account)
    by_rows(brake.put_off_probe, account.pk, probe)
    by_rows(brake.give_back_probe, account.pk, probe)
    assert by_rows(brake.release_brake, account.pk, 0.0) is None, "a good answer does not end what a person holds"
    assert by_rows(brake.take_probe, account.pk, 60.0) is None
    account.refresh_from_db()
    assert account.brake_held_at and account.braked_at and account.brake_wait == 0.1


def test_a_repeat_of_a_doubt_takes_the_probe(vendor: MoodyVendor) -> None:
    """A repeat sends a letter: beside a probe it would be a second call at a vendor that gives no clear answers."""
    account = account_at(vendor, dedupe="yes")
    job = taken(1, account)
    vendor.mood = "500"
    with being_sent(job) as sending:
        result_of(sending, "the call ends in doubt")
    assert finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert len(vendor.calls) == 1 and job.in_doubt == 1
    called = timezone.now() - timedelta(minutes=5)
    Message.objects.update(sent_at=called, dequeued_at=called, in_doubt_at=called, settle_at=called)
    braked(account)
    taken_by_another = by_rows(brake.take_probe, account.pk, 60.0)
    reconciler.reconcile_due_doubts()
    assert len(vendor.calls) == 1, "another makes the probe"
    by_rows(brake.give_back_probe, account.pk, taken_by_another)
    Message.objects.update(settle_at=timezone.now())
    reconciler.reconcile_due_doubts()
    account.refresh_from_db()
    assert len(vendor.calls) == 2 and probes(account) == taken_by_another + 1
    assert account.braked_at and account.retry_after_until > timezone.now(), "the next one is put off"
    vendor.mood = "good"
    Message.objects.update(settle_at=timezone.now())
    braked(account, retry_after_until=timezone.now())
    reconciler.reconcile_due_doubts()
    account.refresh_from_db()
    assert len(vendor.calls) == 3 and account.braked_at is None and condition(account).works


@pytest.mark.slow("processes")
def test_with_a_release_by_hand_its_jobs_go_on_without_a_sweep(vendor: MoodyVendor) -> None:
    account = account_at(vendor)
    factories.caster(account.vendor)
    braked(account, retry_after_until=timezone.now() + timedelta(hours=1))
    job = factories.campaign_with_job(30, of=account, status="DISPATCHED")
    with programs.worker(queues=f"{account.vendor.queue},hub"):
        call_command("credential", "release", account.vendor.slug, account.name)
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is sent")


@pytest.mark.slow("processes")
def test_with_the_release_the_other_jobs_go_on_without_a_sweep(vendor: MoodyVendor) -> None:
    """Nobody has ever notified of the other job, and nothing sweeps: only the release rings."""
    account = account_at(vendor)
    factories.caster(account.vendor)
    job = taken(100, account)
    other = factories.campaign_with_job(30, of=account, status="DISPATCHED")
    vendor.mood = "500"
    with programs.worker(queues=f"{account.vendor.queue},hub"), being_sent(job) as sending:
        wait_until(lambda: probes(account) >= 3, "probes are made")
        vendor.mood = "good"
        result_of(sending, "the job ends by itself")
        wait_until(lambda: Job.objects.get(pk=other.pk).status == "LOGGED", "the other job is sent")
    other.refresh_from_db()
    assert other.accepted == 30
