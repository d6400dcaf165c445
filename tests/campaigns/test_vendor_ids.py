"""A vendor that cannot carry our reference reports by its own ids, also before they are known here."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from campaigns import audit, delivery_reports, ground_truth, lifecycle, vendor_ids
from campaigns.claiming.claims import Lease, OpenClaim
from campaigns.models import Claim, Job, VendorMessageId, WaitingReport
from tests import calling, factories
from tests.campaigns.rows import called, in_doubt, logged, messages, refused
from vendors.adapters.reports import Reported
from vendors.models import Vendor
from vendors.outcomes import Accepted, InDoubt, Outcome

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BY_ID = {"url": "http://127.0.0.1:9/letters", "receipts": True, "receipts_by_id": True}


def sending(recipients: int = 2, **settings: Any) -> Job:
    """A job with letters in flight over a vendor that reports by its own ids."""
    vendor = factories.vendor(settings=BY_ID | settings)
    job = factories.campaign_with_job(recipients, of=factories.credential(vendor), status="SENDING")
    factories.claim(job, at=called())
    return job


def answer(job: Job, outcomes: Sequence[Outcome]) -> None:
    """The calls are answered, and the answers merged."""
    claim = Claim.objects.get(job=job)
    of = OpenClaim(claim.pk, claim.at, len(claim.messages))
    rows = list(zip(range(job.first_message, job.end), outcomes, strict=True))
    calling.by_sender(lambda connected: calling.answer(connected, Lease(job.pk, claim.fence), of, rows))
    with transaction.atomic():
        lifecycle.hold([job.pk])  # whoever holds a job merges


def report(job: Job, *said: tuple[str, Any]) -> delivery_reports.ReportsStored:
    return delivery_reports.take(job.vendor_id, [Reported("", kind, NOON, name) for name, kind in said], "sms")


def stored(job: Job) -> list[str | None]:
    return [row.report for row in messages(job)]


@pytest.mark.django_db(transaction=True)
def test_a_report_finds_its_letter_by_the_vendors_id_once_it_was_accepted() -> None:
    job = sending()
    answer(job, [Accepted("SM1"), Accepted("SM2")])
    for _ in range(2):
        assert report(job, ("SM2", "delivered"), ("SM1", "bounced")).unknown == ()
    assert stored(job) == ["bounced", "delivered"]
    assert VendorMessageId.objects.count() == 2 and not WaitingReport.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_is_reported_before_the_answer_of_the_call_waits_and_counts_when_it_is_known() -> None:
    job = sending()
    said = report(job, ("SM1", "delivered"), ("SM9", "opened"))
    assert (said.changed, said.unknown) == (0, ()), "nobody knows yet that SM9 is none of ours"
    assert delivery_reports.take_waiting() == 0
    answer(job, [Accepted("SM1"), InDoubt("cut")])
    assert delivery_reports.take_waiting() == 1
    assert stored(job)[0] == "delivered" and WaitingReport.objects.get().name == "SM9"
    assert [check for check in audit.run() if not check.ok] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("shape", [in_doubt(), refused()], ids=["in doubt", "refused"])
def test_an_acceptance_that_is_learned_later_is_known_too(shape: Any) -> None:
    job = logged(1, [shape])
    Vendor.objects.filter(pk=job.vendor_id).update(reports_by_id=True)
    report(job, ("SM1", "delivered"))
    calling.by_sender(lambda connected: ground_truth.accept(connected, [(job.first_message, "SM1")]))
    assert delivery_reports.take_waiting() == 1 and stored(job) == ["delivered"]


@pytest.mark.django_db(transaction=True)
def test_other_vendors_cost_no_row() -> None:
    job = sending(receipts_by_id=False)
    answer(job, [Accepted("v-1"), Accepted("v-2")])
    assert report(job, ("v-1", "delivered")).unknown == ("v-1",)
    assert not VendorMessageId.objects.exists() and not WaitingReport.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_ids_of_one_vendor_name_no_letters_of_another() -> None:
    one, other = sending(), sending()
    answer(one, [Accepted("SM1"), Accepted("SM2")])
    report(other, ("SM1", "delivered"))
    assert stored(one) == [None, None] and WaitingReport.objects.get().vendor_id == other.vendor_id


def test_what_nobody_can_tell_of_any_more_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    job = sending()
    report(job, ("SM8", "delivered"), ("SM9", "delivered"))
    row = messages(job)[0]
    facts = {"vendor_id": job.vendor_id, "message": row.pk, "uuid": row.uuid, "resend_no": 0}
    for name, age in (("SM1", vendor_ids.KEPT), ("SM2", timedelta(0))):
        VendorMessageId.objects.create(name=name, at=timezone.now() - age - timedelta(minutes=1), **facts)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE campaigns_waitingreport SET at = now() - interval '8 days' WHERE name = 'SM8'")
    assert delivery_reports.take_waiting() == 0
    assert WaitingReport.objects.get().name == "SM9" and VendorMessageId.objects.get().name == "SM2"
    assert "1 reports of sms name no letter" in caplog.text


def test_whatever_a_vendor_calls_a_letter_is_stored() -> None:
    job = sending()
    assert report(job, ("\0\ud800", "delivered"), ("x" * 5000, "delivered"), ("", "delivered")).changed == 0
    assert WaitingReport.objects.count() == 1


def test_how_a_vendor_reports_follows_its_settings_whoever_changes_them() -> None:
    vendor = factories.vendor(settings=BY_ID)
    assert vendor.reports_by_id
    vendor.settings = BY_ID | {"receipts_by_id": False}
    vendor.save()
    vendor.refresh_from_db()
    assert not vendor.reports_by_id
