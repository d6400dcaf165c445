"""A vendor that says only later whether it takes a letter: that settles its doubt, and nothing else."""

from typing import Any

import pytest
from django.utils import timezone

from campaigns.engine import delivery_reports
from campaigns.models import Message
from tests.campaigns.rows import accepted, in_doubt, logged, messages, refused
from tests.campaigns.test_delivery_reports import NOON, broken, counters
from vendors.adapters.reports import Reported

pytestmark = pytest.mark.django_db


def take(job: Any, *said: tuple[str, Any], code: str = "") -> delivery_reports.ReportsStored:
    return delivery_reports.store_reports(job.vendor_id, [Reported(name, kind, NOON, code=code) for name, kind in said])


def ends(job: Any) -> list[str]:
    def end(row: Message) -> str:
        return row.message_id or row.error_code or ("in doubt" if row.in_doubt_at else "waits")

    return [end(row) for row in messages(job)]


def test_each_doubt_ends_as_the_vendor_says_however_often_it_says_so() -> None:
    job = logged(3, [in_doubt()] * 3)
    first, second, _ = messages(job)
    for _ in range(2):
        take(job, (first.reference, "accepted"), (second.reference, "refused"), code="no such street")
        assert ends(job) == [f"receipt:{first.reference}", "no such street", "in doubt"]
        assert counters(job) == (1, 1, 1, 0, 0) and broken() == []


def test_a_refusal_ends_no_letter_that_was_accepted_and_counts_as_failed_then() -> None:
    for said in (["accepted", "refused"], ["refused", "accepted"]):
        job = logged(1, [in_doubt()])
        (row,) = messages(job)
        take(job, *[(row.reference, kind) for kind in said])
        assert counters(job) == (1, 0, 0, 0, 1), said
    job = logged(1, [accepted()])
    take(job, (messages(job)[0].reference, "refused"))
    assert counters(job) == (1, 0, 0, 0, 1) and broken() == []


def test_acceptance_overrules_a_refusal_that_came_first() -> None:
    job = logged(2, [in_doubt(), refused()])
    first, second = (row.reference for row in messages(job))
    take(job, (first, "refused"))
    take(job, (first, "accepted"), (second, "accepted"))
    assert counters(job) == (2, 0, 0, 0, 0) and broken() == []


def test_a_refusal_of_an_earlier_sending_says_nothing_of_this_one() -> None:
    job = logged(1, [in_doubt()])
    (row,) = messages(job)
    Message.objects.filter(pk=row.pk).update(resend_no=1)
    take(job, (row.reference, "refused"))
    assert ends(job) == ["in doubt"]


def test_a_refusal_before_the_answer_of_its_call_is_told_and_changes_nothing() -> None:
    job = logged(1, [])
    (row,) = messages(job)
    assert take(job, (row.reference, "refused")).early == 1
    assert ends(job) == ["waits"]
    Message.objects.filter(pk=row.pk).update(dequeued_at=timezone.now(), sent_at=NOON, in_doubt_at=timezone.now())
    assert take(job, (row.reference, "refused"), code="expired").early == 0
    assert ends(job) == ["vendor: expired"]
