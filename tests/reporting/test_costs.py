"""What vendors charge: entries of what was accepted, once for each message, and amounts by the prices that hold."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine import delivery_reports, ground_truth
from campaigns.engine.doubts import resolve
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import hold_around, hold_jobs
from campaigns.engine.routes import moving
from campaigns.models import AnswerBatch, Campaign, CostEntry, Job, Message, ReportKind, Route, RouteEntry
from campaigns.models.states import Status
from campaigns.reporting import accounts
from tests import factories
from tests.campaigns.rows import in_doubt, logged, manage, sound
from vendors import prices
from vendors.adapters.reports import Reported
from vendors.history import Actor
from vendors.models import Price, Vendor

pytestmark = pytest.mark.django_db
DAY = date(2025, 6, 15)
BY = Actor("ann")


def entries(**those: Any) -> tuple[int, int]:
    """Messages and units of all entries of these."""
    rows = CostEntry.objects.filter(**those).values_list("messages", "units")
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def enter(job: Job, day: date, messages: int, units: int) -> None:
    CostEntry.objects.create(
        day=day, sponsor=job.sponsor, vendor=job.vendor, credential=job.credential, messages=messages, units=units
    )


def price(vendor: Vendor, per_unit: str, since: date, currency: str = "EUR", **more: Any) -> Price:
    row = Price(vendor=vendor, per_unit=Decimal(per_unit), since=since, currency=currency, **more)
    prices.add_price(row, BY)
    return row


def answer(job: Job, kinds: str, units: list[int] | None, **fields: Any) -> AnswerBatch:
    """What a sender appends for the first messages of the job."""
    ids = [job.first_message + number for number in range(len(kinds))]
    claim = factories.claim(job, list(range(len(kinds))), fence=fields.get("fence", job.fence))
    return AnswerBatch.objects.create(
        job=job, claim=claim, called_at=claim.at, last=True, messages=ids, kinds=kinds,
        codes=[f"v-{id}" for id in ids], units=units, **{"fence": job.fence, **fields},
    )  # fmt: skip


def accept(message_id: int) -> None:
    """What a look-up or a repeat has learned."""
    with transaction.atomic(), connection.cursor() as cursor:
        hold_around([message_id])
        answer = {"ids": [message_id], "codes": [f"v-{message_id}"], "notes": [None], "nos": [0]}
        cursor.execute(ground_truth.ACCEPT, answer)


def merge(job: Job) -> None:
    with transaction.atomic():
        hold_jobs([job.pk])


def test_what_a_sandbox_takes_is_charged_by_nobody() -> None:
    job, tried = factories.campaign_with_job(1), factories.campaign_with_job(1)
    Vendor.objects.filter(pk=tried.vendor_id).update(sandbox=True)
    for one in (job, tried):
        price(one.vendor, "0.05", DAY)
        enter(one, prices.pricing_day(), 3, 3)
        logged(2, [in_doubt()], of=one.credential)
    assert {one.vendor for one in accounts.accounts_of_months(*accounts.past_twelve_months())} == {job.vendor.slug}


class TestEntries:
    def test_what_is_accepted_is_entered_with_its_units_and_nothing_else_is(self) -> None:
        job = factories.campaign_with_job(4, status="SENDING")
        answer(job, "arda", [3, 2, 4, 1])
        merge(job)
        assert entries() == (2, 4) and CostEntry.objects.get().credential == job.credential
        merge(job)
        assert entries() == (2, 4)
        assert [row.units for row in Message.objects.order_by("id")] == [3, 2, 4, None]

    def test_an_answer_that_was_appended_twice_is_entered_once(self) -> None:
        job = factories.campaign_with_job(1, status="SENDING")
        one = answer(job, "a", None)
        one.pk = None
        one.save()
        merge(job)
        assert entries() == (1, 1)

    def test_a_late_acceptance_counts_on_the_day_of_its_call_with_the_units_of_that_call(self) -> None:
        job = factories.campaign_with_job(2, status="SENDING")
        answer(job, "da", [3, 1])
        merge(job)
        assert entries() == (1, 1)
        before = timezone.now() - timedelta(days=40)
        Message.objects.filter(pk=job.first_message).update(sent_at=before, in_doubt_at=before)
        for _ in range(2):
            with connection.cursor() as cursor:
                cursor.execute(
                    ground_truth.ACCEPT, {"ids": [job.first_message], "codes": ["x"], "notes": [None], "nos": [0]}
                )
        assert entries(day=before.astimezone(UTC).date()) == (1, 3) and entries() == (2, 4)

    def test_an_acceptance_after_the_job_was_logged_is_entered_once(self) -> None:
        job = logged(1, [in_doubt()])
        answer(job, "a", [5])
        for _ in range(2):
            finalizer.merge_answers(timedelta(seconds=-1))
        assert entries() == (1, 5) and not AnswerBatch.objects.exists()

    def test_a_report_that_comes_before_the_answer_is_charged_with_the_units_of_the_call(self) -> None:
        job = factories.campaign_with_job(2, status="SENDING")
        claim = factories.claim(job, [0, 1])
        type(claim).objects.filter(pk=claim.pk).update(units=[1, 5])
        late = Message.objects.get(pk=job.first_message + 1)
        assert delivery_reports.store_reports(
            job.vendor_id, [Reported(late.reference, ReportKind.DELIVERED, timezone.now())]
        )
        assert entries() == (1, 5)
        ids = [job.first_message, late.pk]
        AnswerBatch.objects.create(
            job=job, claim=claim, fence=job.fence, called_at=claim.at, last=True, messages=ids, kinds="aa",
            codes=["v-1", "v-2"], units=[1, 5],
        )  # fmt: skip
        merge(job)
        assert entries() == (2, 6)

    def test_what_went_by_another_vendor_is_charged_to_that_one_and_a_doubt_to_the_first(self) -> None:
        one, other = (factories.credential(factories.vendor(casters=["large-priority"])) for _ in range(2))
        route = Route.objects.create(name="mail", channel="email")
        for position, login in enumerate((one, other)):
            RouteEntry.objects.create(route=route, position=position, credential=login)
        campaign = factories.campaign(3, of=one)
        Campaign.objects.filter(pk=campaign.pk).update(route=route, routed=True)
        top = factories.job(campaign, "P_ASSIGNED")
        child = factories.job(campaign, "SENDING", parent=top, size=3, fence=1)
        answer(child, "d", [4])
        merge(child)
        Job.objects.filter(pk=child.pk).update(status="DISPATCHED")
        Vendor.objects.filter(pk=one.vendor_id).update(paused=True)
        assert moving.reroute_parent(top.pk).messages == 2
        (gone,) = Job.objects.filter(parent=top.pk, credential=other)
        Job.objects.filter(pk=gone.pk).update(status="SENDING", heartbeat_at=timezone.now(), started_at=timezone.now())
        gone.refresh_from_db()
        answer(gone, "aa", [2, 3])
        merge(gone)
        assert entries(credential=other) == (2, 5) and entries(credential=one) == (0, 0)
        price(one.vendor, "0.5", DAY)
        shown = {row.vendor: row for row in accounts.accounts_of_months(*accounts.past_twelve_months())}
        assert (shown[one.vendor.slug].in_doubt, shown[one.vendor.slug].in_doubt_amount) == (1, 2)
        for _ in range(2):
            accept(campaign.first_message)
        assert entries(credential=one) == (1, 4) and entries(credential=other) == (2, 5)

    def test_a_person_who_says_that_it_was_sent_enters_it_and_one_who_says_failed_does_not(self) -> None:
        job = logged(2, [in_doubt(), in_doubt()])
        Message.objects.filter(pk=job.first_message).update(units=2)
        resolve.resolve_doubts([job.first_message], "sent", "the vendor's list has it", "ann")
        resolve.resolve_doubts([job.first_message + 1], "failed", "it has not", "ann")
        assert entries() == (1, 2) and sound()

    def test_the_units_of_calls_whose_sender_was_lost_are_kept_for_what_is_learned_later(self) -> None:
        job = factories.campaign_with_job(2, status="SENDING", heartbeat_at=timezone.now() - timedelta(hours=1))
        claim = factories.claim(job, [0, 1])
        type(claim).objects.filter(pk=claim.pk).update(units=[4, 1])
        assert finalizer.recover_job(job.pk, timedelta(seconds=60)) and entries() == (0, 0)
        with connection.cursor() as cursor:
            cursor.execute(
                ground_truth.ACCEPT, {"ids": [job.first_message], "codes": ["x"], "notes": [None], "nos": [0]}
            )
        assert entries() == (1, 4)

    def test_a_part_of_a_job_is_entered_once_not_for_its_parent_too(self) -> None:
        campaign = factories.campaign(4)
        top = factories.job(campaign, "P_ASSIGNED")
        part = factories.job(campaign, "SENDING", parent=top, size=2, fence=1)
        answer(part, "aa", None)
        merge(part)
        with connection.cursor() as cursor:
            cursor.execute(
                ground_truth.ACCEPT, {"ids": [campaign.first_message + 3], "codes": ["x"], "notes": [None], "nos": [0]}
            )
        assert entries() == (3, 3)

    def test_finalising_again_and_again_changes_nothing(self) -> None:
        job = factories.campaign_with_job(1, status="SENT", fence=1)
        answer(job, "a", [2])
        assert [finalizer.finalise_job(job.pk) for _ in range(3)] == [True, False, False]
        assert entries() == (1, 2) and Job.objects.get(pk=job.pk).status == Status.LOGGED

    def test_adding_entries_up_changes_no_sum_and_leaves_one_a_day(self) -> None:
        job, other = factories.campaign_with_job(1), factories.campaign_with_job(1)
        for number in range(5):
            enter(job, DAY, number, 2 * number)
        enter(job, DAY - timedelta(days=1), 1, 1)
        enter(other, DAY, 7, 7)
        for _ in range(3):
            accounts.sum_up()
            assert CostEntry.objects.filter(summed=True).count() == CostEntry.objects.count() == 3
            assert entries() == (18, 28) and entries(sponsor=job.sponsor, day=DAY) == (10, 20)
            enter(job, DAY, 0, 0)

    def test_entries_outlive_messages_and_jobs(self) -> None:
        job = factories.campaign_with_job(1, status="SENDING")
        answer(job, "a", None)
        merge(job)
        Message.objects.all().delete()
        Job.objects.all().delete()
        assert accounts.accounts_of_months(*accounts.past_twelve_months())[0].messages == 1


class TestDoubts:
    def test_what_is_in_doubt_is_told_beside_what_is_charged_until_it_is_settled(self) -> None:
        job = logged(3, [in_doubt(), in_doubt(), in_doubt()])
        price(job.vendor, "0.5", date(2025, 1, 1), per_message=Decimal(1))
        Message.objects.filter(pk=job.first_message).update(units=3)
        (found,) = accounts.accounts_of_months(*accounts.past_twelve_months())
        assert (found.messages, found.amount, found.in_doubt, found.in_doubt_amount) == (0, 0, 3, Decimal("5.5"))
        assert found.doubtful == "3 (5.50 EUR)" and accounts.account_facts(found)["in_doubt_amount"] == "5.50"
        resolve.resolve_doubts([job.first_message], "sent", "the vendor's list has it", "ann")
        resolve.resolve_doubts([job.first_message + 1], "failed", "it has not", "ann")
        (found,) = accounts.accounts_of_months(*accounts.past_twelve_months())
        assert (found.messages, found.amount, found.in_doubt, found.in_doubt_amount) == (1, Decimal("2.5"), 1, 1.5)
        assert accounts.accounts_of_months(*accounts.past_twelve_months(), [job.sponsor_id + 1]) == []
        accept(job.first_message + 2)
        (found,) = accounts.accounts_of_months(*accounts.past_twelve_months())
        assert (found.messages, found.amount, found.in_doubt, found.doubtful) == (2, 4, 0, "")


class TestAmounts:
    def test_the_price_of_the_day_of_the_call_counts_exactly(self) -> None:
        job = factories.campaign_with_job(1)
        price(job.vendor, "0.0075", date(2025, 1, 1), per_message=Decimal("0.001"))
        price(job.vendor, "0.0033333333", date(2025, 2, 15), reason="the new contract")
        enter(job, date(2025, 2, 14), 2, 3)
        enter(job, date(2025, 2, 15), 2, 3)
        (found,) = accounts.accounts_of_months(date(2025, 2, 3), date(2025, 2, 4))
        assert found.amount == 3 * Decimal("0.0075") + 2 * Decimal("0.001") + 3 * Decimal("0.0033333333")
        assert (found.month, found.messages, found.units) == (date(2025, 2, 1), 4, 6)
        assert found.money == "0.0344999999 EUR"

    def test_currencies_and_days_without_a_price_are_rows_of_their_own(self) -> None:
        job = factories.campaign_with_job(1)
        price(job.vendor, "1", date(2025, 3, 10))
        price(job.vendor, "2", date(2025, 3, 20), "JPY", reason="moved")
        for day in (5, 15, 25):
            enter(job, date(2025, 3, day), 1, 1)
        found = accounts.accounts_of_months(date(2025, 3, 1), date(2025, 3, 1))
        assert [one.money for one in found] == ["1.00 EUR", "2 JPY", "no price"]
        assert accounts.sum_by_currency(found) == {"EUR": 1, "JPY": 2}

    def test_a_credentials_own_price_goes_before_its_vendors(self) -> None:
        job = factories.campaign_with_job(1)
        price(job.vendor, "5", DAY)
        price(job.vendor, "3", DAY, credential=job.credential)
        enter(job, DAY, 1, 1)
        assert [one.amount for one in accounts.accounts_of_months(DAY, DAY)] == [3]
        assert prices.price_on(job.vendor_id, job.credential_id, DAY).per_unit == 3
        assert prices.price_on(job.vendor_id, None, DAY).per_unit == 5
        assert prices.price_on(job.vendor_id, None, DAY - timedelta(days=1)) is None

    def test_a_correction_is_a_new_row_that_says_why_and_the_first_one_stays(self, frozen_clock: datetime) -> None:
        vendor, today = factories.vendor(), frozen_clock.date()
        price(vendor, "0.5", date(2025, 1, 1))
        for since in (date(2025, 1, 1), date(2024, 1, 1), date(2025, 6, 1)):
            with pytest.raises(prices.NotAPrice, match="say why"):
                price(vendor, "0.05", since)
        price(vendor, "0.05", date(2025, 1, 1), reason="a digit too few")
        assert prices.price_on(vendor.pk, None, date(2025, 5, 5)).per_unit == Decimal("0.05")
        assert Price.objects.count() == 2 and not prices.add_price(Price(
            vendor=vendor, per_unit=Decimal("0.05"), since=date(2025, 1, 1), currency="EUR"), BY)  # fmt: skip
        price(vendor, "1", today + timedelta(days=1))
        price(vendor, "2", today)
        assert prices.price_on(vendor.pk, None, today).per_unit == 2

    def test_a_sponsors_accounts_are_its_own(self) -> None:
        ours, theirs = factories.campaign_with_job(1), factories.campaign_with_job(1)
        enter(ours, DAY, 1, 1)
        enter(theirs, DAY, 2, 2)
        assert [one.messages for one in accounts.accounts_of_months(DAY, DAY, [ours.sponsor_id])] == [1]
        assert accounts.accounts_of_months(DAY, DAY, []) == []
        assert [one.messages for one in accounts.accounts_of_months(DAY, DAY, None, [theirs.vendor.slug])] == [2]

    def test_the_day_of_a_call_is_that_of_utc_whatever_the_zone(self) -> None:
        job = logged(1, [in_doubt() | {"sent_at": datetime(2025, 4, 30, 23, 59, 59, tzinfo=UTC)}])
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL TIME ZONE 'Asia/Tokyo'")
            cursor.execute(
                ground_truth.ACCEPT, {"ids": [job.first_message], "codes": ["x"], "notes": [None], "nos": [0]}
            )
        assert CostEntry.objects.get().day == date(2025, 4, 30)


class TestCommands:
    def test_prices_are_added_shown_and_explained(self) -> None:
        vendor = factories.vendor()
        assert "added" in manage("vendor", "price", vendor.slug, "0.0075", "EUR", "--since", "2025-01-01")
        assert "already so" in manage("vendor", "price", vendor.slug, "0.00750", "EUR", "--since", "2025-01-01")
        with pytest.raises(CommandError, match="say why with a reason"):
            manage("vendor", "price", vendor.slug, "0.008", "EUR", "--since", "2025-01-01")
        for wrong in (["x", "EUR"], ["-1", "EUR"], ["NaN", "EUR"], ["1e400", "EUR"], ["1", "EURO"], ["1", "XQQ"]):
            with pytest.raises(CommandError):
                manage("vendor", "price", "--", vendor.slug, *wrong)
        (row,) = [json.loads(line) for line in manage("vendor", "price", vendor.slug, "--json").splitlines()]
        assert (row["per_unit"], row["currency"], row["since"]) == ("0.0075", "EUR", "2025-01-01")

    def test_costs_are_a_table_objects_and_a_file_for_spreadsheets(self, tmp_path: Any) -> None:
        job = factories.campaign_with_job(1)
        type(job.sponsor).objects.filter(pk=job.sponsor_id).update(name='=HYPERLINK("x")')
        price(job.vendor, "0.1", date(2025, 1, 1))
        enter(job, date(2025, 1, 3), 3, 30)
        assert "3.00 EUR" in manage("costs", "--month", "2025-01") and "nothing" in manage("costs")
        (row,) = [json.loads(line) for line in manage("costs", "--month", "2025-01", "--json").splitlines()]
        assert (row["units"], row["amount"]) == (30, "3.00")
        file = tmp_path / "costs.csv"
        manage("costs", "--month", "2025-01", "--csv", str(file))
        (row,) = csv.DictReader(io.StringIO(file.read_text("utf-8-sig")))
        assert row["amount"] == "3.00" and row["sponsor"].startswith("'=") and row["month"] == "2025-01"
        with pytest.raises(CommandError, match="is there already"):
            manage("costs", "--month", "2025-01", "--csv", str(file))

    @pytest.mark.parametrize("wrong", ["2025", "2025-13", "2025-1", "x", "9999-12"])
    def test_what_is_no_month_is_explained(self, wrong: str) -> None:
        with pytest.raises(CommandError, match="write it like 2026-11"):
            call_command("costs", month=wrong)
