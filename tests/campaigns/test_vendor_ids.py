"""A vendor that cannot carry our reference reports by its own ids, also before they are known here."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from redis import Redis

from campaigns import tasks
from campaigns.engine import audit, delivery_reports, ground_truth, lifecycle, vendor_ids
from campaigns.engine.claiming.claims import Lease, OpenClaim
from campaigns.engine.doubts import resolve
from campaigns.models import Claim, Job, Message, MessageEvent, VendorMessageId, WaitingReport
from campaigns.operations import actions
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
    Claim.objects.filter(job=job).update(destination=0)
    return job


def answer(job: Job, outcomes: Sequence[Outcome]) -> None:
    """The calls are answered, and the answers merged."""
    claim = Claim.objects.get(job=job)
    of = OpenClaim(claim.pk, claim.at, len(claim.messages))
    rows = list(zip(range(job.first_message, job.end), outcomes, strict=True))
    calling.by_sender(lambda connected: calling.answer(connected, Lease(job.pk, claim.fence), of, rows))
    with transaction.atomic():
        lifecycle.hold_jobs([job.pk])  # whoever holds a job merges


def report(job: Job, *said: tuple[str, Any]) -> delivery_reports.ReportsStored:
    return delivery_reports.store_reports(job.vendor_id, [Reported("", kind, NOON, name) for name, kind in said], "sms")


def stored(job: Job) -> list[str | None]:
    return [row.report for row in messages(job)]


def take_later() -> int:
    """Takes what waits, when all of it is to be looked at."""
    WaitingReport.objects.update(look_at=timezone.now())
    return delivery_reports.take_waiting()


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
    assert delivery_reports.take_waiting() == 0, "it was looked at a moment ago"
    assert take_later() == 1
    assert stored(job)[0] == "delivered" and WaitingReport.objects.get().name == "SM9"
    assert [check for check in audit.ask_all_questions() if not check.is_kept] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("shape", [in_doubt(), refused()], ids=["in doubt", "refused"])
def test_an_acceptance_that_is_learned_later_is_known_too(shape: Any) -> None:
    job = logged(1, [shape])
    Vendor.objects.filter(pk=job.vendor_id).update(reports_by_id=True)
    report(job, ("SM1", "delivered"))
    calling.by_sender(lambda connected: ground_truth.accept_messages(connected, [(job.first_message, "SM1", 0)]))
    assert delivery_reports.take_waiting() == 1 and stored(job) == ["delivered"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["its sender", "a look-up", "its sender, after the job was logged"])
def test_an_acceptance_that_comes_after_a_person_sent_it_again_is_of_the_first_sending(how: str) -> None:
    """Its bounce undoes no delivery of the second one, and shows where there is no second one."""
    job = sending(1)
    claim = Claim.objects.get(job=job)
    of = OpenClaim(claim.pk, claim.at, len(claim.messages))
    answer(job, [InDoubt("cut")])
    Job.objects.filter(pk=job.pk).update(status="LOGGED", fence=2)
    resolve.resolve_doubts([job.first_message], "resend", "they rang", "ann")
    if how == "a look-up":
        calling.by_sender(lambda connected: ground_truth.accept_messages(connected, [(job.first_message, "SM0", 0)]))
    else:
        late = [(job.first_message, Accepted("SM0"))]
        calling.by_sender(lambda connected: calling.answer(connected, Lease(job.pk, claim.fence), of, late))
        if how == "its sender":
            Job.objects.filter(pk=job.pk).update(status="SENDING", fence=3)
            with transaction.atomic():
                lifecycle.hold_jobs([job.pk])
        else:
            Job.objects.filter(pk=job.pk).update(status="LOGGED", fence=3)
            ground_truth.accept_late([job.pk])
    row = messages(job)[0]
    assert (row.message_id, row.resend_no) == ("SM0", 1)
    assert VendorMessageId.objects.values_list("name", "resend_no").get() == ("SM0", 0)
    report(job, ("SM0", "bounced"))
    assert stored(job) == ["bounced"] and MessageEvent.objects.get().resend_no == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("second", ["failed by a person", "refused by the vendor"])
def test_an_acceptance_of_the_first_sending_is_known_as_that_however_the_second_ended(second: str) -> None:
    job = sending(1)
    claim = Claim.objects.get(job=job)
    of = OpenClaim(claim.pk, claim.at, len(claim.messages))
    answer(job, [InDoubt("cut")])
    resolve.resolve_doubts([job.first_message], "failed", "never came", "ann")
    Job.objects.filter(pk=job.pk).update(status="LOGGED", fence=2)
    actions.retry_jobs([job.pk])
    assert messages(job)[0].resend_no == 1
    row = Message.objects.filter(pk=job.first_message)
    now = timezone.now()
    if second == "refused by the vendor":
        row.update(dequeued_at=now, sent_at=now, error_code="550", delivered_at=now)
        Job.objects.filter(pk=job.pk).update(status="LOGGED", refused=1, fence=3)
        actions.retry_jobs([job.pk])
        assert messages(job)[0].resend_no == 2
    else:
        row.update(dequeued_at=now, sent_at=now, in_doubt_at=now)
        resolve.resolve_doubts([job.first_message], "failed", "again", "ann")
    late = [(job.first_message, Accepted("SM0"))]
    calling.by_sender(lambda connected: calling.answer(connected, Lease(job.pk, claim.fence), of, late))
    Job.objects.filter(pk=job.pk).update(status="SENDING", fence=4)
    with transaction.atomic():
        lifecycle.hold_jobs([job.pk])
    assert VendorMessageId.objects.values_list("name", "resend_no").get() == ("SM0", 0)


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


def known(job: Job, name: str, message: int = 0) -> None:
    """A letter of the job has this id."""
    row = messages(job)[message]
    facts = {"vendor_id": job.vendor_id, "message": row.pk, "uuid": row.uuid, "resend_no": 0}
    VendorMessageId.objects.create(name=name, **facts)


def waits(vendor_id: int, name: str, kind: str, source: str = "sms") -> None:
    said = {"kind": kind, "at": NOON.isoformat(), "note": "", "bounce": "soft", "code": ""}
    WaitingReport.objects.create(vendor_id=vendor_id, name=name, kind=kind, said=said, source=source)


def test_a_waiting_report_that_cannot_be_taken_keeps_back_no_other(caplog: pytest.LogCaptureFixture) -> None:
    job = sending()
    for name, kind in (("SM1", "of a newer version"), ("SM2", "delivered")):
        waits(job.vendor_id, name, kind)
    known(job, "SM1")
    known(job, "SM2", 1)
    assert delivery_reports.take_waiting() == 1 and stored(job) == [None, "delivered"]
    left = WaitingReport.objects.get()
    assert left.name == "SM1" and left.look_at > timezone.now(), "it is tried again, but not at once"
    assert f"a waiting report of sms cannot be taken yet: row {left.pk}" in caplog.text


def test_the_sweep_does_all_else_before_it_takes_what_waits(settings: Any) -> None:
    """Also if taking fails as a whole, other vendors are notified."""
    vendor = factories.vendor()
    factories.caster(vendor)
    factories.campaign_with_job(1, of=factories.credential(vendor), status="DISPATCHED")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE campaigns_waitingreport RENAME TO elsewhere")
    with pytest.raises(DatabaseError), transaction.atomic():
        tasks.sweep()
    with Redis.from_url(settings.REDIS_URL) as broker:
        assert broker.llen(vendor.queue) == 1


def test_what_a_vendor_repeats_waits_once_as_it_was_last_said() -> None:
    job = sending()
    for minute in (1, 3, 2):
        at = NOON + timedelta(minutes=minute)
        delivery_reports.store_reports(job.vendor_id, [Reported("", "delivered", at, "SM1")] * 2, "sms")
    report(job, ("SM1", "bounced"))
    assert sorted(WaitingReport.objects.values_list("kind", "said__at")) == [
        ("bounced", NOON.isoformat()),
        ("delivered", (NOON + timedelta(minutes=3)).isoformat()),
    ]


def test_reports_of_letters_of_somebody_else_are_looked_at_ever_less_often_and_are_not_kept_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vendor_ids, "MOST_WAIT", 2)
    job = sending()
    report(job, ("SM1", "delivered"), ("SM2", "delivered"))
    assert report(job, ("SM3", "delivered")).unknown == ("SM3",)
    WaitingReport.objects.filter(name="SM2").update(at=timezone.now() - timedelta(days=1))
    assert delivery_reports.take_waiting() == 0
    waiting = {row.name: (row.look_at - timezone.now()).total_seconds() for row in WaitingReport.objects.all()}
    assert 0 < waiting["SM1"] < 600 and 3000 < waiting["SM2"] <= 3600


def test_an_id_of_several_letters_names_none() -> None:
    """Two credentials of a vendor may be two accounts, and each counts for itself."""
    job, other = sending(1), sending(1)
    known(job, "7")
    row = messages(other)[0]
    VendorMessageId.objects.create(vendor_id=job.vendor_id, name="7", message=row.pk, uuid=row.uuid, resend_no=0)
    assert report(job, ("7", "bounced")).changed == 0 and take_later() == 0
    assert stored(job) == stored(other) == [None] and WaitingReport.objects.get().name == "7"


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


def moves(job: Job) -> None:
    """The vendor is called at another server from now on, which gives ids of its own."""
    Vendor.objects.filter(pk=job.vendor_id).update(settings=BY_ID | {"url": "http://127.0.0.1:10/letters"})


@pytest.mark.django_db(transaction=True)
def test_an_id_names_no_letter_that_was_called_where_the_vendor_was_before() -> None:
    """The other server has given the same id to a letter of somebody else, perhaps."""
    job = sending(1)
    answer(job, [Accepted("SM1")])
    moves(job)
    report(job, ("SM1", "bounced"))
    assert stored(job) == [None] and not MessageEvent.objects.exists()
    assert take_later() == 0, "nor later"


@pytest.mark.django_db(transaction=True)
def test_a_report_that_waits_is_of_where_the_vendor_was_called_when_it_came() -> None:
    job = sending(2)
    report(job, ("SM1", "bounced"))
    moves(job)
    report(job, ("SM2", "bounced"))
    answer(job, [Accepted("SM1"), Accepted("SM2")])
    assert take_later() == 1 and stored(job) == ["bounced", None], "both were called before the move"


@pytest.mark.parametrize(("minutes", "timed"), [(0, True), (1, True), (1, False)], ids=["same", "later", "untimed"])
@pytest.mark.django_db(transaction=True)
def test_a_report_that_is_repeated_after_a_move_is_of_where_the_vendor_was_called_when_it_came_first(
    minutes: int, timed: bool
) -> None:
    job = sending(1)
    for at in (NOON, NOON + timedelta(minutes=minutes)):
        delivery_reports.store_reports(job.vendor_id, [Reported("", "bounced", at, "SM1", timed=timed)], "sms")
        moves(job)
    answer(job, [Accepted("SM1")])
    assert take_later() == 1 and stored(job) == ["bounced"], "the call was made before the move"


@pytest.mark.django_db(transaction=True)
def test_a_report_with_our_reference_counts_wherever_the_vendor_is_called_now() -> None:
    """Nobody else knows the reference."""
    job = sending(1)
    answer(job, [InDoubt("cut")])
    moves(job)
    [row] = messages(job)
    delivery_reports.store_reports(job.vendor_id, [Reported(row.reference, "delivered", NOON, "SM1")], "sms")
    assert stored(job) == ["delivered"] and messages(job)[0].in_doubt_at is None
    report(job, ("SM1", "bounced"))
    assert stored(job) == ["delivered"], "the id was learned of a call made elsewhere"
