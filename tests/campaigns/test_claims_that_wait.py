"""What waits for a lock, a claim or a call for a doubt, allows nothing that was forbidden meanwhile (promise P5)."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import contexts
from campaigns.engine.doubts import queries
from campaigns.engine.failover import guard
from campaigns.models import Claim, Job, Store
from campaigns.operations import actions, pausing
from tests import calling, factories
from tests.campaigns.rows import in_doubt, logged
from tests.campaigns.test_claims_and_answers import claim, sending, while_it_waits
from tests.campaigns.test_locks import breaches
from tests.faults.sending import meanwhile
from tests.lock_waits import count_lock_waits
from tests.waiting import wait_until
from vendors.models import Credential, RateLimit, Usage, Vendor

pytestmark = pytest.mark.django_db(transaction=True)


def login_paused(job: Job) -> None:
    Credential.objects.filter(pk=job.credential_id).update(paused=True)


def asked_to_wait(job: Job) -> None:
    until = timezone.now() + timedelta(minutes=1)
    Credential.objects.filter(pk=job.credential_id).update(retry_after_until=until)


def vendor_paused(job: Job) -> None:
    Vendor.objects.filter(pk=job.vendor_id).update(paused=True)


def window_rebuilt(job: Job) -> None:
    Vendor.objects.filter(pk=job.vendor_id).update(generation=job.vendor.generation + 1)


def limit_edited(job: Job) -> None:
    RateLimit.objects.create(vendor_id=job.vendor_id, units=1, seconds=60)


def limit_of_login_edited(job: Job) -> None:
    RateLimit.objects.create(vendor_id=job.vendor_id, credential_id=job.credential_id, units=1, seconds=60)


def tables_to_be_migrated(job: Job) -> None:
    guard.close_before_migration()


def store_adopted(job: Job) -> None:
    Store.objects.update(adoptions=Store.objects.get().adoptions + 1)


def store_taken_over(job: Job) -> None:
    Store.objects.update(timeline="000000AA")


def campaign_paused(job: Job) -> None:
    pausing.pause_jobs([job.pk], "ann")


def job_stopped(job: Job) -> None:
    actions.stop_jobs([job.pk])


Change = Callable[[Job], None]
FOR_ALL: list[Change] = [
    login_paused, asked_to_wait, vendor_paused, window_rebuilt, limit_edited, limit_of_login_edited,
    tables_to_be_migrated, store_taken_over,
]  # fmt: skip
FOR_CLAIMS = [*FOR_ALL, store_adopted, campaign_paused, job_stopped]
ROWS = pytest.mark.parametrize("row", [Job, Vendor, Credential])


@pytest.fixture(autouse=True)
def store() -> Any:
    """The store's row is there for all tests."""
    before = Store.objects.values().get()
    yield
    Store.objects.update(**before)


def lock(row: type[Any], job: Job) -> None:
    """As whoever edits something that no claim asks for."""
    key = {Job: job.pk, Vendor: job.vendor_id, Credential: job.credential_id}[row]
    name = "waits_for" if row is Job else "name"
    row.objects.filter(pk=key).update(**{name: "edited"})


@ROWS
@pytest.mark.parametrize("change", FOR_CLAIMS)
def test_a_claim_that_waits_for_a_row_claims_nothing_that_was_forbidden_meanwhile(
    change: Change, row: type[Any]
) -> None:
    job = sending(4)
    with while_it_waits(claim, job) as found:
        lock(row, job)
        change(job)
    assert found[0].claim is None and not found[0].nothing_waits
    assert not Claim.objects.exists() and not Usage.objects.exists()
    assert [one for one in breaches() if one.startswith("no call")] == []


@ROWS
def test_a_claim_that_waits_for_a_row_claims_when_nothing_was_forbidden(row: type[Any]) -> None:
    job = sending(4)
    with while_it_waits(claim, job) as found:
        lock(row, job)
    assert len(found[0].messages) == 4


def in_doubt_of(job: Job) -> queries.Doubt:
    async def due(rows: Any) -> Any:
        return await queries.lease_due_doubts(rows, job.credential_id, 1, 60)

    [doubt] = calling.by_sender(due)
    return doubt


def called(job: Job, doubt: queries.Doubt, is_repeat: bool, scope: Any) -> bool | None:
    async def call(rows: Any) -> bool | None:
        if is_repeat:
            return await queries.allow_repeat(rows, scope, doubt, 30, units=1, young=1e9, closes=None)
        return await queries.allow_look_up(rows, scope, doubt, 30)

    return calling.by_sender(call)


def scope_of(job: Job) -> Any:
    return calling.by_sender(lambda rows: contexts.read_vendor(rows, job.vendor_id, job.credential_id))


@pytest.mark.parametrize("row", [Vendor, Credential])
@pytest.mark.parametrize("change", FOR_ALL)
@pytest.mark.parametrize("is_repeat", [True, False])
def test_a_call_for_a_doubt_that_waits_for_a_row_is_not_allowed_when_it_was_forbidden_meanwhile(
    is_repeat: bool, change: Change, row: type[Any]
) -> None:
    job = logged(1, [{**in_doubt(), "settle_at": timezone.now()}])
    doubt, scope = in_doubt_of(job), scope_of(job)
    with while_it_waits(called, job, doubt, is_repeat, scope) as found:
        lock(row, job)
        change(job)
    assert found == [None]
    assert not Usage.objects.exists()


@pytest.mark.parametrize("change", FOR_ALL)
def test_a_repeat_that_waits_for_its_job_is_not_allowed_when_it_was_forbidden_meanwhile(change: Change) -> None:
    job = logged(1, [{**in_doubt(), "settle_at": timezone.now()}])
    doubt, scope = in_doubt_of(job), scope_of(job)
    with while_it_waits(called, job, doubt, True, scope) as found:
        lock(Job, job)
        change(job)
    assert found == [None]


@pytest.mark.parametrize("is_repeat", [True, False])
def test_a_call_for_a_doubt_that_waits_for_a_row_is_allowed_when_nothing_was_forbidden(is_repeat: bool) -> None:
    job = logged(1, [{**in_doubt(), "settle_at": timezone.now()}])
    doubt, scope = in_doubt_of(job), scope_of(job)
    with while_it_waits(called, job, doubt, is_repeat, scope) as found:
        lock(Credential, job)
    assert found == [True]


@pytest.mark.parametrize("edit", [limit_edited, limit_of_login_edited])
def test_who_edits_a_limit_locks_vendor_and_credential_in_the_order_of_a_claim(edit: Change) -> None:
    """In the other order each would wait for the other."""
    job = factories.campaign_with_job(1)
    with ExitStack() as stack:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT FROM vendors_vendor WHERE id = %s FOR SHARE", [job.vendor_id])
            editing = stack.enter_context(meanwhile(edit, job))
            wait_until(count_lock_waits, "the edit waits for the vendor")
            cursor.execute("SELECT FROM vendors_credential WHERE id = %s FOR SHARE NOWAIT", [job.credential_id])
        editing.result()
    assert RateLimit.objects.count() == 1


@pytest.mark.parametrize("edit", [limit_edited, limit_of_login_edited])
def test_who_edits_a_limit_leaves_the_vendor_to_those_who_store_a_row_of_it(edit: Change) -> None:
    """A caster that has locked an exclusive credential stores a child: else each would wait for the other."""
    job = factories.campaign_with_job(1)
    with ExitStack() as stack:
        with transaction.atomic(), connection.cursor() as cursor:
            assert mailcaster.is_credential_free(job)
            editing = stack.enter_context(meanwhile(edit, job))
            wait_until(count_lock_waits, "the edit waits for the credential")
            cursor.execute("SELECT FROM vendors_vendor WHERE id = %s FOR KEY SHARE NOWAIT", [job.vendor_id])
        editing.result()
    assert RateLimit.objects.count() == 1


def test_who_saves_the_page_of_a_credential_locks_its_vendor_first(admin_client: Client) -> None:
    """Its limits lock the vendor: after the credential, a call for a doubt and the page would wait for each other."""
    job = factories.campaign_with_job(1)
    Vendor.objects.update(settings={"url": "http://127.0.0.1:1/letters"})
    form: dict[str, Any] = {"limits-TOTAL_FORMS": 1, "limits-INITIAL_FORMS": 0, "name": job.credential.name}
    form |= {"limits-0-units": 5, "limits-0-seconds": 60, "limits-0-credential": job.credential_id}
    form |= {} if job.credential.exclusive else {"exclusive": "on"}
    page = f"/admin/vendors/credential/{job.credential_id}/change/"
    with ExitStack() as stack:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT FROM vendors_vendor WHERE id = %s FOR SHARE", [job.vendor_id])
            saving = stack.enter_context(meanwhile(admin_client.post, page, form))
            wait_until(lambda: saving.done() or count_lock_waits(), "the page waits for the vendor")
            cursor.execute("SELECT FROM vendors_credential WHERE id = %s FOR SHARE NOWAIT", [job.credential_id])
        saved = saving.result()
        assert saved.status_code == 302, saved.context["errors"]
    assert RateLimit.objects.count() == 1
    assert Credential.objects.get().exclusive is not job.credential.exclusive


@pytest.mark.parametrize("row", [Vendor, Credential])
def test_a_pause_that_waits_for_a_claim_begins_after_it(row: type[Any]) -> None:
    """Else the audit would see a call in a pause."""
    job = sending(1)
    pause = vendor_paused if row is Vendor else login_paused
    with ExitStack() as stack:
        with transaction.atomic():
            lock(row, job)
            pausing_it = stack.enter_context(meanwhile(pause, job))
            wait_until(count_lock_waits, "the pause waits")
            at = timezone.now()
            Usage.objects.create(vendor_id=job.vendor_id, credential_id=job.credential_id, at=at, until=at, units=1)
        pausing_it.result()
    paused = row.objects.get(paused=True)
    assert paused.paused_at > at
    assert breaches() == []
