"""What is stored of bounces and complaints: once, whoever reports it and how often."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from campaigns.engine import delivery_reports
from campaigns.models import Job, MessageEvent, Suppression
from campaigns.suppression import suppressing
from tests.campaigns.rows import accepted, in_doubt, logged, messages
from vendors.adapters.reports import Reported
from vendors.models import Vendor

pytestmark = pytest.mark.django_db


def event(job: Job, kind: MessageEvent.Kind, resend_no: int = 0) -> MessageEvent:
    (row,) = messages(job)
    return MessageEvent.objects.create(
        message=row, campaign_id=job.campaign_id, resend_no=resend_no, kind=kind, at=timezone.now(), source="receiver"
    )


def test_a_sending_of_a_message_has_one_event_of_each_kind() -> None:
    job = logged(1, [accepted()])
    for kind in MessageEvent.Kind:
        event(job, kind)
    event(job, MessageEvent.Kind.HARD_BOUNCE, resend_no=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        event(job, MessageEvent.Kind.COMPLAINT)
    assert MessageEvent.objects.of_sponsors([job.sponsor_id]).count() == 1 + len(MessageEvent.Kind)
    assert MessageEvent.objects.of_sponsors([]).count() == 0


def report(job: Job, kind: Any, **more: Any) -> delivery_reports.ReportsStored:
    (row,) = messages(job)
    return delivery_reports.store_reports(
        job.vendor_id, [Reported(row.reference, kind, timezone.now(), **more)], "relay"
    )


@pytest.mark.parametrize(
    ("kind", "more", "found", "reason"),
    [
        ("bounced", {"bounce": "hard", "code": "5.1.1"}, "hard_bounce", "bounced"),
        ("bounced", {}, "soft_bounce", None),
        ("bounced", {"bounce": "blocked"}, "blocked", None),
        ("complained", {}, "complaint", "complained"),
        ("delivered", {}, None, None),
    ],
)
def test_what_a_vendor_reports_is_an_event_and_suppresses_whom_it_must(
    kind: str, more: dict[str, Any], found: str | None, reason: str | None
) -> None:
    job = logged(1, [accepted()])
    assert [report(job, kind, **more).events for _ in range(2)] == [int(found is not None), 0]
    assert list(MessageEvent.objects.values_list("kind", "source", "code")) == (
        [(found, "relay", more.get("code", ""))] if found else []
    )
    assert list(Suppression.objects.values_list("reason", flat=True)) == ([reason] if reason else [])
    lifted = suppressing.ids_from_source(job.sponsor_id, job.vendor.channel, f"campaign {job.campaign_id}")
    assert len(lifted) == (reason == "bounced")


def test_a_complaint_proves_that_a_message_in_doubt_was_sent_and_is_no_delivery() -> None:
    job = logged(1, [in_doubt()])
    report(job, "complained")
    (row,) = messages(job)
    assert row.in_doubt_at is None and row.message_id and row.report is None
    report(job, "delivered")
    (row,) = messages(job)
    assert row.report == "delivered"


def test_soft_bounces_of_other_channels_than_e_mail_never_harden(settings: Any) -> None:
    settings.SOFT_BOUNCES = 1
    job = logged(1, [accepted()])
    Vendor.objects.filter(pk=job.vendor_id).update(channel="sms")
    report(job, "bounced")
    assert not Suppression.objects.exists()


def test_a_report_of_another_vendor_is_no_event() -> None:
    job, other = logged(1, [accepted()]), logged(1, [accepted()])
    (row,) = messages(job)
    reported = Reported(row.reference, "bounced", timezone.now(), bounce="hard")
    assert delivery_reports.store_reports(other.vendor_id, [reported]).unknown == (row.reference,)
    assert not MessageEvent.objects.exists() and not Suppression.objects.exists()
