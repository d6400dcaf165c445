"""Tests that a writer who forbids calls gets a turn between overlapping claims; later claims wait (promise P5).

PostgreSQL lets a new share lock pass an update that waits. If only such an update locked the row, claims could follow
one another without end.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from campaigns.engine.claiming import claims, limits
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.claiming.rebuild import rebuild_window
from campaigns.engine.doubts import queries
from campaigns.engine.failover import guard
from campaigns.models import Claim, Job, Message, Store, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import calling
from tests.campaigns.rows import in_doubt, logged
from tests.campaigns.test_claims_and_answers import claim, locked, sending
from tests.campaigns.test_claims_that_wait import called, in_doubt_of, limit_edited, limit_of_login_edited, scope_of
from tests.faults.sending import meanwhile
from tests.lock_waits import count_lock_waits
from tests.vendors.test_admin import form, login_form
from tests.waiting import DEADLINE, wait_until
from vendors import configuration, locks, redis_clients
from vendors.condition import brake
from vendors.limits.throttle import Throttle
from vendors.models import Credential, RateLimit, Vendor

pytestmark = pytest.mark.django_db(transaction=True)
URL, ELSEWHERE = "http://127.0.0.1:1/letters", "http://127.0.0.1:2/letters"
Writer = Callable[[Job], Any]


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    """The store's row is there for all tests."""
    before = Store.objects.values().get()
    yield
    Store.objects.update(**before)


def by_page(path: str, fields: dict[str, Any]) -> None:
    client = Client()
    client.force_login(User.objects.get(username="ann"))
    answer = client.post(path, fields)
    assert answer.status_code == 302, answer.context["errors"]


def vendor_paused_by_command(job: Job) -> None:
    call_command("vendor", "pause", job.vendor.slug, "--json")


def vendor_paused_by_page(job: Job) -> None:
    by_page(f"/admin/vendors/vendor/{job.vendor_id}/pause/", {"confirmed": "1", "was": "running", "reason": "tests"})


def credential_paused_by_command(job: Job) -> None:
    call_command("credential", "pause", job.vendor.slug, job.credential.name, "--json")


def credential_paused_by_page(job: Job) -> None:
    page = f"/admin/vendors/credential/{job.credential_id}/pause/"
    by_page(page, {"confirmed": "1", "was": "running", "reason": "tests"})


def credential_paused_by_sender(job: Job) -> None:
    calling.by_sender(lambda rows: limits.pause_credential(rows, job.credential_id, "login refused"))


def asked_to_wait(job: Job) -> None:
    calling.by_sender(lambda rows: limits.close_credential(rows, job.credential_id, 60.0))


def braked(job: Job) -> None:
    assert calling.by_sender(lambda rows: brake.put_on(rows, job.credential_id, 0.0))


def brake_held(job: Job) -> None:
    assert configuration.hold_brake(job.credential)


def backed_off(job: Job) -> None:
    calling.by_sender(lambda rows: limits.back_off(rows, job.credential_id))


def settings_changed_by_command(job: Job) -> None:
    call_command("vendor", "set", job.vendor.slug, f"url={ELSEWHERE}", "--yes", "--json")


def settings_changed_by_page(job: Job) -> None:
    page = f"/admin/vendors/vendor/{job.vendor_id}/change/"
    by_page(page, form(slug=job.vendor.slug, name=job.vendor.name, settings=f'{{"url": "{ELSEWHERE}"}}'))


def secret_changed_by_command(job: Job) -> None:
    call_command("credential", "set", job.vendor.slug, job.credential.name, "--set", "X-Key=new", "--yes", "--json")


def secret_changed_by_page(job: Job) -> None:
    page = f"/admin/vendors/credential/{job.credential_id}/change/"
    by_page(page, login_form(name=job.credential.name, secret='{"X-Key": "new"}'))


def limit_set_by_command(job: Job) -> None:
    call_command("vendor", "limit", job.vendor.slug, "1/60", "--json")


def limit_of_credential_set_by_command(job: Job) -> None:
    call_command("vendor", "limit", job.vendor.slug, "1/60", "--credential", job.credential.name, "--json")


def limit_set_by_page(job: Job) -> None:
    limit = {"limits-TOTAL_FORMS": 1, "limits-0-units": 5, "limits-0-seconds": 60, "limits-0-vendor": job.vendor_id}
    fields = form(slug=job.vendor.slug, name=job.vendor.name, **limit)
    by_page(f"/admin/vendors/vendor/{job.vendor_id}/change/", fields)
    assert RateLimit.objects.exists()


def limit_of_credential_set_by_page(job: Job) -> None:
    limit = {"limits-TOTAL_FORMS": 1, "limits-0-units": 5, "limits-0-seconds": 60}
    fields = login_form(name=job.credential.name, **limit, **{"limits-0-credential": job.credential_id})
    by_page(f"/admin/vendors/credential/{job.credential_id}/change/", fields)
    assert RateLimit.objects.exists()


def window_rebuilt(job: Job) -> None:
    with redis_clients.make_client(settings.REDIS_URL) as redis:
        rebuild_window(Throttle(redis), job.vendor_id, job.vendor.generation)


def tables_to_be_migrated(_job: Job) -> None:
    guard.close_before_migration()


def store_adopted(_job: Job) -> None:
    Store.objects.update(adoptions=Store.objects.get().adoptions + 1)


def marked_as_full(job: Job) -> None:
    calling.by_sender(lambda rows: limits.mark_limit_full(rows, job.credential_id, 60.0))


def no_longer_full(job: Job) -> None:
    calling.by_sender(lambda rows: limits.undo_full(rows, job.vendor_id))


def served(job: Job) -> None:
    calling.by_sender(lambda rows: limits.record_good_answer(rows, job.credential_id))


def reached(job: Job) -> None:
    calling.by_sender(lambda rows: limits.record_reached(rows, job.credential_id))


def suppressed(_job: Job) -> None:
    lists.add_suppressions(None, "email", [NewSuppression("nobody@sandbox.example", "bounced", "tests")])
    assert Suppression.objects.exists()


FORBID: list[Writer] = [
    vendor_paused_by_command, vendor_paused_by_page, credential_paused_by_command, credential_paused_by_page,
    credential_paused_by_sender, asked_to_wait, braked, brake_held, backed_off, settings_changed_by_command,
    settings_changed_by_page,
    secret_changed_by_command, secret_changed_by_page, limit_set_by_command, limit_of_credential_set_by_command,
    limit_set_by_page, limit_of_credential_set_by_page, limit_edited, limit_of_login_edited, window_rebuilt,
    tables_to_be_migrated, store_adopted,
]  # fmt: skip
CHANGE: list[Writer] = [marked_as_full, no_longer_full, served, reached, suppressed]


def ready(job: Job) -> Job:
    """Its vendor can be edited on pages, and each writer has something to change."""
    User.objects.create(username="ann", is_staff=True, is_superuser=True)
    Vendor.objects.filter(pk=job.vendor_id).update(settings={"url": URL})
    now = timezone.now()
    Credential.objects.filter(pk=job.credential_id).update(
        rate_limited_until=now + timedelta(minutes=5), asked_wait=5.0, unreached_since=now - timedelta(minutes=5)
    )
    return Job.objects.select_related("vendor", "credential").get(pk=job.pk)


class Claiming:
    """Claims for a job in state SENDING."""

    def __init__(self) -> None:
        self.job = ready(sending(4))

    async def allow(self, rows: Any) -> Any:
        return await calling.claim(rows, self.job, Lease(self.job.pk, self.job.fence))

    def ask(self) -> bool:
        return claim(self.job).claim is not None


class LookingUp:
    """Calls for a doubt: a look-up, and another one."""

    is_repeat = False

    def __init__(self) -> None:
        self.job = ready(logged(1, [{**in_doubt(), "settle_at": timezone.now()}]))
        destination = Vendor.objects.get().destination + Credential.objects.get().destination
        Message.objects.update(destination=destination)
        self.doubt, self.scope = in_doubt_of(self.job), scope_of(self.job)

    async def allow(self, rows: Any) -> Any:
        return await queries.allow_look_up(rows, self.scope, self.doubt, 30)

    def ask(self) -> bool:
        return bool(called(self.job, self.doubt, self.is_repeat, self.scope))


class Repeating(LookingUp):
    """A look-up, and a repeat that comes then."""

    is_repeat = True


Kind = type[Claiming] | type[LookingUp]
SLOW = pytest.mark.slow("many")
KINDS = pytest.mark.parametrize(
    "kind", [Claiming, pytest.param(LookingUp, marks=SLOW), pytest.param(Repeating, marks=SLOW)]
)


@contextmanager
def one_under_way(calls: Claiming | LookingUp) -> Iterator[None]:
    """During the block a claim, or a call for a doubt, has all its locks and is allowed, but is not committed yet."""
    allowed, may_end = threading.Event(), threading.Event()

    async def hold(rows: Any) -> Any:
        async with rows.transaction():
            found = await calls.allow(rows)
            allowed.set()
            may_end.wait(DEADLINE)
        return found

    with meanwhile(calling.by_sender, hold) as first:
        try:
            wait_until(lambda: allowed.is_set() or first.done(), "it is allowed")
            yield
        finally:
            may_end.set()
        assert first.result(), "it was allowed"


def rows_are_free(job: Job) -> bool:
    """Return True if a claim could lock vendor and credential. Raises LockNotAvailable."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM vendors_vendor WHERE id = %s FOR SHARE NOWAIT", [job.vendor_id])
        cursor.execute("SELECT FROM vendors_credential WHERE id = %s FOR SHARE NOWAIT", [job.credential_id])
    return True


def shared(job: Job) -> None:
    """Take the turns that a claim takes, in this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {locks.SHARED}", {"vendor": job.vendor_id, "credential": job.credential_id})


def asked_behind(writer: Writer, calls: Claiming | LookingUp) -> bool:
    """Whether a claim is allowed that is asked for while the writer waits for another one."""
    with ExitStack() as threads:
        with one_under_way(calls):
            writing = threads.enter_context(meanwhile(writer, calls.job))
            wait_until(lambda: writing.done() or count_lock_waits() == 1, "the writer waits")
            assert not writing.done(), f"it did not wait: {writing.result()}"
            assert rows_are_free(calls.job), "it waits before its first row"
            later = threads.enter_context(meanwhile(calls.ask))
            wait_until(lambda: later.done() or count_lock_waits() == 2, "the later one waits, too")
            assert not later.done(), f"it passed the writer, and was {'' if later.result() else 'not '}allowed"
        writing.result()
        return later.result()


@KINDS
@pytest.mark.parametrize("writer", FORBID)
def test_what_is_asked_for_while_a_writer_waits_comes_after_him_and_is_not_allowed(writer: Writer, kind: Kind) -> None:
    """A look-up sends no letter, so a brake does not keep it away."""
    calls = kind()
    assert asked_behind(writer, calls) is (writer is braked and kind is LookingUp)
    assert Claim.objects.count() == (kind is Claiming), "the one that was under way"


@KINDS
@pytest.mark.parametrize("writer", CHANGE)
def test_what_is_asked_for_while_a_writer_waits_comes_after_him_whatever_he_writes(writer: Writer, kind: Kind) -> None:
    """A repeat does not see new suppressions, so it is not allowed by them."""
    assert asked_behind(writer, kind()) is (writer is not suppressed or kind is not Repeating)


@pytest.mark.parametrize("writer", [no_longer_full, served, reached, backed_off, credential_paused_by_sender])
def test_a_writer_who_finds_nothing_to_change_waits_for_no_claim(writer: Writer) -> None:
    """Senders ask for that after claims and answers, each time."""
    job = Claiming().job
    Credential.objects.update(
        rate_limited_until=None, asked_wait=None, unreached_since=None, paused=True,
        retry_after_until=timezone.now() + timedelta(minutes=5),
    )  # fmt: skip
    with ExitStack() as threads, transaction.atomic():
        shared(job)
        writing = threads.enter_context(meanwhile(writer, job))
        wait_until(lambda: writing.done() or count_lock_waits(), "it ends")
        assert writing.done(), "it waits"
        writing.result()


@pytest.mark.parametrize("writer", [vendor_paused_by_command, credential_paused_by_sender, limit_edited])
def test_a_claim_that_waits_for_its_job_holds_up_no_writer(writer: Writer) -> None:
    """Who has the job locked may be an operator, for as long as he likes."""
    calls = Claiming()
    with ExitStack() as threads:
        with locked(Job.objects.filter(pk=calls.job.pk)):
            later = threads.enter_context(meanwhile(calls.ask))
            wait_until(lambda: later.done() or count_lock_waits() == 1, "the claim waits for its job")
            writing = threads.enter_context(meanwhile(writer, calls.job))
            wait_until(lambda: writing.done() or count_lock_waits() == 2, "the writer ends")
            assert writing.done(), "it waits"
            writing.result()
        assert later.result() is False


def turn_taken(job: Job) -> None:
    locks.take_turn(job.vendor_id)


def turn_of_credential_taken(job: Job) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {locks.CREDENTIAL_ALONE} FROM vendors_credential WHERE id = %s", [job.credential_id])


@pytest.mark.parametrize("take", [turn_taken, turn_of_credential_taken])
def test_a_job_whose_claim_would_wait_for_a_turn_counts_as_locked_until_that_is_over(take: Writer) -> None:
    """So other streams of its process are not held up by it (joint.py)."""
    held, free = sending(1), sending(1)

    async def locked_now(rows: Any) -> set[int]:
        return await claims.find_locked_jobs(rows, [held.pk, free.pk])

    with ExitStack() as threads:
        with transaction.atomic():
            take(held)
            assert calling.by_sender(locked_now) == {held.pk}
            in_line = threads.enter_context(
                meanwhile(calling.by_sender, lambda rows: claims.queue_for_locks(rows, held.pk))
            )
            wait_until(lambda: in_line.done() or count_lock_waits() == 1, "it stands in the line")
            assert not in_line.done()
        in_line.result()
    assert calling.by_sender(locked_now) == set()


def test_a_job_counts_as_locked_while_a_writer_waits_for_another_claim() -> None:
    calls = Claiming()
    with ExitStack() as threads:
        with one_under_way(calls):
            writing = threads.enter_context(meanwhile(vendor_paused_by_command, calls.job))
            wait_until(lambda: writing.done() or count_lock_waits() == 1, "the writer waits")
            assert calling.by_sender(lambda rows: claims.find_locked_jobs(rows, [calls.job.pk])) == {calls.job.pk}
        writing.result()
