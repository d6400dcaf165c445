"""What happened by day and sponsor: each report, complaint and wish counts once; a later report corrects it."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.utils import timezone

from campaigns import day_counts, delivery_reports
from campaigns.models import DayCount, Message
from campaigns.suppression import unsubscribing
from campaigns.suppression.digests import digest, made_key
from campaigns.suppression.links import Subscription
from tests import factories
from tests.campaigns.rows import accepted, logged
from vendors.adapters.reports import Reported

pytestmark = pytest.mark.django_db
TODAY = datetime(2026, 1, 20, 12, tzinfo=UTC)


@pytest.fixture
def job():
    return logged(3, [accepted()] * 3)


def report(job, kind, at, number=0, **more):
    row = Message.objects.get(pk=job.first_message + number)
    delivery_reports.take(job.vendor_id, [Reported(row.reference, kind, at, **more)])


def counts(job):
    """Of each day with anything: delivered, bounced, complained, unsubscribed."""
    found = DayCount.objects.filter(sponsor=job.sponsor_id)
    days = {}
    for row in found:
        was = days.get(row.day, (0, 0, 0, 0))
        new = (row.delivered, row.bounced, row.complained, row.unsubscribed)
        days[row.day] = tuple(a + b for a, b in zip(was, new, strict=True))
    return {day.day: sums for day, sums in days.items() if any(sums)}


def test_a_report_counts_once_on_its_day_and_a_later_one_corrects_it(job):
    report(job, "delivered", TODAY)
    report(job, "delivered", TODAY)
    report(job, "delivered", TODAY - timedelta(days=1), 1)
    assert counts(job) == {20: (1, 0, 0, 0), 19: (1, 0, 0, 0)}
    report(job, "bounced", TODAY + timedelta(days=2), bounce="hard")
    assert counts(job) == {22: (0, 1, 0, 0), 19: (1, 0, 0, 0)}


def test_complaints_and_wishes_count_whoever_brings_them_however_often(job):
    for _ in range(2):
        report(job, "complained", TODAY)
        report(job, "unsubscribed", TODAY, 1)
    row = Message.objects.get(pk=job.first_message + 2)
    known = digest(made_key(), job.vendor.channel, row.recipient)
    for _ in range(2):
        unsubscribing.unsubscribe(Subscription(row.pk, known, job.sponsor_id, None, job.vendor.channel), "a link")
    today = timezone.now().day
    expected = {20: (0, 0, 1, 1)}
    expected[today] = tuple(a + b for a, b in zip(expected.get(today, (0,) * 4), (0, 0, 0, 1), strict=True))
    assert counts(job) == expected


def test_adding_up_changes_no_sum(job):
    for number in range(3):
        report(job, "delivered", TODAY, number)
    report(job, "bounced", TODAY, bounce="soft")
    before = counts(job)
    for _ in range(2):
        day_counts.sum_up()
        assert counts(job) == before == {20: (2, 1, 0, 0)}
    assert [row.summed for row in DayCount.objects.all()] == [True]
    report(job, "bounced", TODAY, 1, bounce="soft")
    day_counts.sum_up()
    assert counts(job) == {20: (1, 2, 0, 0)}
    assert DayCount.objects.count() == 1


def test_the_last_thirty_days_of_some_sponsors(job):
    other = logged(2, [accepted()] * 2)
    report(job, "delivered", timezone.now())
    days = day_counts.of_sponsors([job.sponsor_id])
    assert len(days) == 30 and days[-1].day == timezone.now().date()
    assert all(later.day - day.day == timedelta(days=1) for day, later in pairwise(days))
    assert (sum(day.sent for day in days), sum(day.delivered for day in days)) == (3, 1)
    assert sum(day.sent for day in day_counts.of_sponsors(None)) == 5
    assert sum(day.sent for day in day_counts.of_sponsors([other.sponsor_id])) == 2
    assert sum(day.sent for day in day_counts.of_sponsors([factories.sponsor().pk])) == 0
