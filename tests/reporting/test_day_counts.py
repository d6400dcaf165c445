"""What happened by day and sponsor: each report, complaint and wish counts once; a later report corrects it."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine import day_counts, delivery_reports
from campaigns.engine.suppressed.digests import digest_address, made_key
from campaigns.models import CostEntry, DayCount, Message
from campaigns.suppression import unsubscribing
from campaigns.suppression.links import Subscription
from tests import factories
from tests.campaigns.rows import accepted, logged
from tests.terminal import Terminal
from vendors.adapters.reports import Reported

pytestmark = pytest.mark.django_db
TODAY = datetime(2026, 1, 20, 12, tzinfo=UTC)


def january(day):
    return date(2026, 1, day)


@pytest.fixture
def job():
    return logged(3, [accepted()] * 3)


def report(job, kind, at, number=0, **more):
    row = Message.objects.get(pk=job.first_message + number)
    delivery_reports.store_reports(job.vendor_id, [Reported(row.reference, kind, at, **more)])


def counts(job):
    """Of each day with anything: delivered, bounced, complained, unsubscribed."""
    found = DayCount.objects.filter(sponsor=job.sponsor_id)
    days = {}
    for row in found:
        was = days.get(row.day, (0, 0, 0, 0))
        new = (row.delivered, row.bounced, row.complained, row.unsubscribed)
        days[row.day] = tuple(a + b for a, b in zip(was, new, strict=True))
    return {day: sums for day, sums in days.items() if any(sums)}


def test_a_report_counts_once_on_its_day_and_a_later_one_corrects_it(job):
    report(job, "delivered", TODAY)
    report(job, "delivered", TODAY)
    report(job, "delivered", TODAY - timedelta(days=1), 1)
    assert counts(job) == {january(20): (1, 0, 0, 0), january(19): (1, 0, 0, 0)}
    report(job, "bounced", TODAY + timedelta(days=2), bounce="hard")
    assert counts(job) == {january(22): (0, 1, 0, 0), january(19): (1, 0, 0, 0)}


def test_complaints_and_wishes_count_whoever_brings_them_however_often(job):
    for _ in range(2):
        report(job, "complained", TODAY)
        report(job, "unsubscribed", TODAY, 1)
    row = Message.objects.get(pk=job.first_message + 2)
    known = digest_address(made_key(), job.vendor.channel, row.recipient)
    before = timezone.now().date()
    for _ in range(2):
        unsubscribing.unsubscribe_link(Subscription(row.pk, known, job.sponsor_id, None, job.vendor.channel), "a link")
    days = before, timezone.now().date()  # the database says which: a day may end meanwhile
    assert counts(job) in [{january(20): (0, 0, 1, 1), day: (0, 0, 0, 1)} for day in days]


def test_adding_up_changes_no_sum(job):
    for number in range(3):
        report(job, "delivered", TODAY, number)
    report(job, "bounced", TODAY, bounce="soft")
    before = counts(job)
    for _ in range(2):
        day_counts.sum_up()
        assert counts(job) == before == {january(20): (2, 1, 0, 0)}
    assert [row.summed for row in DayCount.objects.all()] == [True]
    report(job, "bounced", TODAY, 1, bounce="soft")
    day_counts.sum_up()
    assert counts(job) == {january(20): (1, 2, 0, 0)}
    assert DayCount.objects.count() == 1


@pytest.mark.usefixtures("frozen_clock")
def test_the_last_thirty_days_of_some_sponsors(job):
    other = logged(2, [accepted()] * 2)
    report(job, "delivered", timezone.now())
    days = day_counts.sum_days([job.sponsor_id])
    assert len(days) == 30 and days[-1].day == timezone.now().date()
    assert all(later.day - day.day == timedelta(days=1) for day, later in pairwise(days))
    assert (sum(day.sent for day in days), sum(day.delivered for day in days)) == (3, 1)
    assert sum(day.sent for day in day_counts.sum_days(None)) == 5
    assert sum(day.sent for day in day_counts.sum_days([other.sponsor_id])) == 2
    assert sum(day.sent for day in day_counts.sum_days([factories.sponsor().pk])) == 0


def manage(*typed):
    out = io.StringIO()
    call_command("days", *typed, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("frozen_clock")
def test_the_command_shows_the_days_of_one_sponsor_or_of_all_as_a_table_objects_and_a_file(job, tmp_path):
    other, today = logged(2, [accepted()] * 2), timezone.now().date().isoformat()
    CostEntry.objects.update(day=today)  # called two hours ago, which just after midnight was yesterday
    report(job, "delivered", timezone.now())
    report(job, "bounced", timezone.now(), 1, bounce="hard")
    rows = [json.loads(line) for line in manage("--sponsor", job.sponsor.name, "--json").splitlines()]
    assert len(rows) == 30
    own = {"day": today, "sent": 3, "delivered": 1, "bounced": 1, "complained": 0, "unsubscribed": 0}
    assert rows[-1] == own
    of_all = [json.loads(line)["sent"] for line in manage("--days", "2", "--json").splitlines()]
    assert of_all == [0, 5]
    table = manage("--sponsor", other.sponsor.name, "--days", "7").splitlines()
    assert table[-1].split() == ["together", "2", "0", "0", "0", "0"] and len(table) == 9
    file = tmp_path / "days.csv"
    assert manage("--csv", str(file)).endswith("30 rows\n")
    read = list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"))))
    assert len(read) == 30 and sum(int(row["sent"]) for row in read) == 5
    with pytest.raises(CommandError, match="is there already"):
        manage("--csv", str(file))


@pytest.mark.usefixtures("frozen_clock")
def test_the_command_fits_80_columns_whatever_the_sums(job, monkeypatch):
    DayCount.objects.create(day=timezone.now().date(), sponsor=job.sponsor, delivered=10**8, bounced=-(10**7))
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    call_command("days", stdout=out)
    lines = out.lines()
    assert max(map(len, lines)) <= 80 and len(lines) == 32
    assert lines[0].split() == ["day", "sent", "delivered", "bounced", "complained", "unsubscribed"]
    assert "100,000,000" in lines[-1] and "-10,000,000" in lines[-2]


@pytest.mark.parametrize(
    ("typed", "why"),
    [(["--days", "0"], "1 to 366"), (["--days", "367"], "1 to 366"), (["--sponsor", "nobody"], "there is no sponsor")],
)
def test_the_command_says_what_cannot_be_asked(typed, why):
    with pytest.raises(CommandError, match=why):
        manage(*typed)
