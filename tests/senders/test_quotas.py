"""Quotas of sponsors: use, refusals, held messages, and their release once room returns."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.engine.dispatch import dispatcher, nightly
from campaigns.engine.lifecycle import move
from campaigns.lists import intake
from campaigns.models import CostEntry, Entitlement, Job, Sponsor, SponsorQuota
from campaigns.models.states import S
from campaigns.operations import actions
from campaigns.senders import entitlements
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import read_book, read_quotas
from mailhub.diagnosis import machine_health
from tests import factories as make
from tests.campaigns.rows import in_doubt, logged, manage
from tests.reporting.test_costs import price
from vendors.history import Actor
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVE = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
NEXT = datetime(2026, 12, 1, 0, 0, tzinfo=UTC)
ANN = Actor("ann")


@pytest.fixture
def login() -> Credential:
    return make.credential(make.vendor(small_audience_threshold=10_000))


def quota(by: Sponsor, at: Vendor | None, span: str, most: Any, measure: str = "messages", **more: Any) -> SponsorQuota:
    return SponsorQuota.objects.create(sponsor=by, vendor=at, span=span, measure=measure, most=most, **more)


def job(login: Credential, by: Sponsor, size: int, status: str = S.READY, **fields: Any) -> Job:
    return make.campaign_with_job(size, status=status, of=login, by=by, messages=False, **fields)


def enter(login: Credential, by: Sponsor, day: date, messages: int, units: int = 0, summed: bool = False) -> None:
    CostEntry.objects.create(
        day=day, sponsor=by, vendor=login.vendor, credential=login, messages=messages, units=units or messages,
        summed=summed,
    )  # fmt: skip


def uses(by: Sponsor, now: datetime = NOON) -> list[int | str]:
    with connection.cursor() as cursor:
        book = read_book(cursor, read_quotas(cursor, [by.pk]), now)
    return [use.quota.write_rounded(use.used) for use in book.find_uses()]


def accept(login: Credential, by: Sponsor, many: int, **more: Any) -> Job:
    recipients = [(f"r{number}@sandbox.example", {}) for number in range(many)]
    facts = {"name": "Winter", "subject": "Hello", "body": "Good day", "html": False, "at": "now", "by": ANN, **more}
    return intake.store_campaign(sponsor=by, credential=login, recipients=recipients, **facts)


def state(one: Job) -> str:
    one.refresh_from_db()
    return one.status


# What is used


def test_a_day_has_used_what_was_accepted_and_what_is_still_to_be_called(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 1000)
    enter(login, by, NOON.date(), 100, summed=True)
    enter(login, by, NOON.date(), 20)
    enter(login, by, NOON.date() - timedelta(days=1), 500)
    job(login, by, 40, S.SENDING, accepted=10, refused=5, expired=3, suppressed=2)
    job(login, by, 7, S.DISPATCHED)
    job(login, by, 50, S.P_ASSIGNING, remaining=30, remaining_suppressed=4)
    job(login, by, 900, S.LOGGED, accepted=400)
    assert uses(by) == [100 + 20 + 20 + 7 + 26]


def test_refused_expired_and_suppressed_messages_are_not_used_and_doubts_are(login: Credential) -> None:
    by = make.sponsor()
    quota(by, None, "day", 1000)
    quota(by, None, "flight", 1000)
    job(login, by, 20, S.LOGGED, refused=5, expired=5, suppressed=4, in_doubt=6, finished_at=NOON)
    job(login, by, 20, S.LOGGED, in_doubt=20, finished_at=NOON - timedelta(days=1))
    assert uses(by) == [6, 0]


def test_a_month_ends_with_its_last_second_of_utc(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "month", 1000)
    quota(by, login.vendor, "day", 1000)
    enter(login, by, date(2026, 11, 1), 10)
    enter(login, by, date(2026, 11, 30), 5)
    enter(login, by, date(2026, 10, 31), 3)
    assert uses(by, EVE) == [15, 5]
    assert uses(by, NEXT) == [0, 0]


def test_work_for_a_later_day_is_used_on_that_day_and_in_flight_at_once(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 1000)
    quota(by, login.vendor, "month", 1000)
    quota(by, login.vendor, "flight", 1000)
    job(login, by, 30, S.READY, not_before=NEXT)
    job(login, by, 8, S.RENDERED)
    assert uses(by) == [8, 8, 38]
    assert uses(by, NEXT) == [38, 38, 38]


def test_units_and_money_come_from_the_accounts_and_the_price_of_the_day(login: Credential) -> None:
    by = make.sponsor()
    price(login.vendor, "0.10", date(2026, 11, 1))
    price(login.vendor, "0.20", date(2026, 11, 15), reason="dearer")
    quota(by, login.vendor, "month", 1000, "units")
    quota(by, login.vendor, "month", 1000, "money", currency="EUR")
    quota(by, login.vendor, "month", 1000, "money", currency="USD")
    enter(login, by, date(2026, 11, 10), 10, 20)
    enter(login, by, date(2026, 11, 20), 10, 20)
    job(login, by, 5, S.DISPATCHED)
    assert uses(by) == [20 + 20 + 10, "8.00 EUR", "0.00 USD"], "what waits has the mean of two units a message"


def test_a_quota_at_one_vendor_ignores_the_others_and_one_in_all_ignores_sandboxes(login: Credential) -> None:
    by, other = make.sponsor(), make.sponsor()
    there, sandbox = make.credential(make.vendor()), make.credential(make.vendor(sandbox=True))
    quota(by, login.vendor, "day", 1000)
    quota(by, None, "day", 1000)
    for one, many in ((login, 1), (there, 10), (sandbox, 100)):
        enter(one, by, NOON.date(), many)
        job(one, by, many, S.DISPATCHED)
    enter(login, other, NOON.date(), 5000)
    job(login, other, 5000, S.DISPATCHED)
    assert uses(by) == [2, 22]


# Where work comes in


def test_a_campaign_that_does_not_fit_today_is_refused_with_what_is_used_and_when_it_is_renewed(
    login: Credential,
) -> None:
    by = make.sponsor("Velma")
    quota(by, login.vendor, "day", 10)
    accept(login, by, 7)
    with pytest.raises(intake.BadInput) as refused:
        accept(login, by, 4)
    said = str(refused.value)
    assert f"the quota of Velma is 10 messages a day at {login.vendor.slug}: 7 are used, and this is 4 more" in said
    assert "It is renewed at " in said and said.endswith("00:00 UTC")
    assert Job.objects.filter(sponsor=by).count() == 1, "nothing of it is stored"
    accept(login, by, 3)


def test_a_campaign_that_is_larger_than_the_quota_never_fits(login: Credential) -> None:
    by = make.sponsor()
    quota(by, None, "month", 3)
    with pytest.raises(intake.BadInput, match=r"3 messages a month in all, and this is 4: it never fits"):
        accept(login, by, 4)


def test_a_long_list_is_refused_before_it_is_stored(login: Credential, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.lists.intake.storage.LONG", 5)
    by = make.sponsor()
    quota(by, None, "flight", 4)
    with CaptureQueriesContext(connection) as seen, pytest.raises(intake.BadInput, match="never fits"):
        accept(login, by, 5)
    assert not [one for one in seen if "INSERT" in one["sql"] or "COPY" in one["sql"]]


def test_work_for_tomorrow_asks_the_quota_of_tomorrow(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 10)
    accept(login, by, 10)
    later = timezone.now() + timedelta(days=2)
    accept(login, by, 9, at=later)
    with pytest.raises(intake.BadInput, match="9 are used, and this is 2 more"):
        accept(login, by, 2, at=later)


def test_an_edit_holds_with_the_next_campaign(login: Credential) -> None:
    by = make.sponsor()
    row = quota(by, login.vendor, "flight", 2)
    with pytest.raises(intake.BadInput, match="never fits"):
        accept(login, by, 3)
    row.most = 3
    row.save()
    accept(login, by, 3)
    with pytest.raises(intake.BadInput, match="It fits when other work has ended"):
        accept(login, by, 1)
    row.delete()
    accept(login, by, 1)


def test_a_sponsor_without_a_quota_costs_one_statement_and_no_lock(login: Credential) -> None:
    by, other = make.sponsor(), make.sponsor()
    quota(other, None, "day", 1)
    with CaptureQueriesContext(connection) as seen:
        accept(login, by, 1)
    asked = [one["sql"] for one in seen if "sponsorquota" in one["sql"]]
    assert len(asked) == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s", [by.pk])
        assert cursor.fetchone() == (0,)


@pytest.mark.django_db(transaction=True)
def test_two_campaigns_at_once_do_not_pass_a_quota_together() -> None:
    login, by = make.credential(make.vendor()), make.sponsor()
    quota(by, login.vendor, "day", 10)
    at_once = Barrier(4)

    def send(_: int) -> bool:
        try:
            at_once.wait(60)
            accept(login, by, 4)
        except intake.BadInput:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(send, range(4)))
    assert taken.count(True) == 2
    assert uses(by, timezone.now()) == [8]


def test_a_retry_adds_work_and_asks_the_quota(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 5)
    failed = make.campaign_with_job(6, status=S.LOGGED, of=login, by=by, accepted=0, finished_at=timezone.now())
    (answer,) = actions.retry_jobs([failed.pk], by=ANN)
    assert answer.verdict == "busy" and "is not sent again: the quota of" in answer.message
    assert isinstance(answer, actions.QuotaDecision) and answer.refusal and not answer.refusal.can_fit
    assert state(failed) == S.LOGGED
    SponsorQuota.objects.update(most=6)
    (answer,) = actions.retry_jobs([failed.pk], by=ANN)
    assert (answer.verdict, state(failed)) == ("done", S.DISPATCHED)


# Where work is dispatched


def night(login: Credential, when: datetime = NOON) -> None:
    """Run the vendor's night due then."""
    Vendor.objects.filter(pk=login.vendor_id).update(
        created_at=when - timedelta(days=30), dispatch_at=when.time(), time_zone="UTC"
    )
    nightly.run_night(Vendor.objects.get(pk=login.vendor_id), when)


def test_the_night_dispatches_what_fits_and_the_rest_goes_by_itself_when_the_day_is_new(login: Credential) -> None:
    by, other = make.sponsor(), make.sponsor()
    quota(by, login.vendor, "day", 10)
    created = NOON - timedelta(hours=1)
    fits, waits, small = (job(login, by, size, S.RENDERED, created_at=created) for size in (6, 7, 4))
    free = job(login, other, 500, S.RENDERED, created_at=created)
    night(login)
    assert [state(one) for one in (fits, waits, small, free)] == [S.DISPATCHED, S.READY, S.DISPATCHED, S.DISPATCHED]
    Job.objects.filter(pk__in=[fits.pk, small.pk]).update(status=S.LOGGED, finished_at=NOON)
    enter(login, by, NOON.date(), 10)
    assert dispatcher.dispatch_ready(now=EVE).jobs == 0
    assert dispatcher.dispatch_ready(now=NEXT).jobs == 1
    assert state(waits) == S.DISPATCHED


def test_a_held_job_says_why_and_goes_on_with_an_edit(login: Credential, monkeypatch: pytest.MonkeyPatch) -> None:
    by = make.sponsor()
    row = quota(by, login.vendor, "flight", 5)
    held = job(login, by, 6)
    assert dispatcher.free_and_ready() == []
    assert dispatcher.dispatch_ready([held.pk]).jobs == 0
    why = entitlements.held_reasons([held.pk])[held.pk]
    assert why.startswith("held: the quota of ") and why.endswith("it never fits. Send less, or have the quota raised")
    (answer,) = actions.dispatch_jobs([held.pk], ANN)
    assert answer.verdict == "busy" and why in answer.message
    row.most = 6
    row.save()
    assert entitlements.held_reasons([held.pk]) == {}
    assert dispatcher.free_and_ready() == [held.pk]
    assert dispatcher.dispatch_ready(dispatcher.free_and_ready()).jobs == 1


@pytest.mark.django_db(transaction=True)
def test_an_edit_rings_for_a_sweep_once_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []
    monkeypatch.setattr(dispatcher, "sweep_soon", lambda: rung.append(SponsorQuota.objects.count()))
    by = make.sponsor()
    with transaction.atomic():
        row = quota(by, None, "day", 1)
        assert rung == []
    row.most = 2
    row.save()
    row.delete()
    assert rung == [1, 1, 0]


def test_a_quota_in_flight_lets_the_next_job_go_when_one_has_ended(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "flight", 10)
    first, second = job(login, by, 8, S.DISPATCHED), job(login, by, 8)
    assert dispatcher.dispatch_ready().jobs == 0
    for verb in ("enqueue", "send", "drain", "log"):
        lease = {"fence": 1, "heartbeat_at": timezone.now()} if verb == "enqueue" else {}
        move(Job.objects.filter(pk=first.pk), verb, **lease)
    assert dispatcher.dispatch_ready().jobs == 1
    assert state(second) == S.DISPATCHED


def test_an_operator_reads_why_a_rendered_job_cannot_be_dispatched_now(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 5)
    waits = job(login, by, 6, S.RENDERED)
    (answer,) = actions.dispatch_jobs([waits.pk], ANN)
    assert answer.verdict == "busy" and "it never fits" in answer.message
    assert state(waits) == S.RENDERED, "it still waits for its night"


def test_a_job_past_its_deadline_is_not_held_so_its_messages_expire(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 0)
    late = make.job(
        make.campaign(3, of=login, by=by, messages=False, deadline=NOON - timedelta(days=9000)), created_at=NOON
    )
    assert dispatcher.dispatch_ready([late.pk]).jobs == 1


def test_doubts_that_are_sent_again_wait_for_the_quota(login: Credential) -> None:
    by = make.sponsor()
    quota(by, login.vendor, "day", 1)
    job(login, by, 1, S.DISPATCHED)
    doubted = logged(2, [in_doubt(), in_doubt()], of=login, by=by)
    answer = actions.settle_jobs([doubted.pk], "resend", ANN, "it never came")
    assert [one.verdict for one in answer] == ["done"]
    assert state(doubted) == S.READY
    SponsorQuota.objects.update(most=3)
    assert dispatcher.dispatch_ready(dispatcher.free_and_ready()).jobs == 1


def test_three_thousand_jobs_take_as_many_statements_as_thirty(login: Credential) -> None:
    by, other = make.sponsor(), make.sponsor()
    quota(by, login.vendor, "day", 1000)
    quota(by, None, "month", 2000)
    quota(other, None, "flight", 100)
    one = {who: make.campaign(1, of=login, by=who, messages=False) for who in (by, other)}

    def render(many: int) -> None:
        rows = [
            Job(
                campaign=of, sponsor=who, vendor=login.vendor, credential=login, status=S.READY, size=1,
                first_message=of.first_message,
            )
            for who, of in one.items() for _ in range(many // 2)
        ]  # fmt: skip
        Job.objects.bulk_create(rows)

    counts = []
    for many in (30, 3000):
        Job.objects.filter(status=S.DISPATCHED).update(status=S.READY)
        render(many - Job.objects.count())
        with CaptureQueriesContext(connection) as seen:
            assert dispatcher.dispatch_ready(batch=5000).jobs == min(many // 2, 1000) + min(many // 2, 100)
        counts.append(len(seen))
    assert counts[1] - counts[0] <= 1, "the one that notes warnings"


# Warnings, commands and pages


def test_a_warning_is_logged_once_a_period_and_shown_by_status(
    login: Credential, caplog: pytest.LogCaptureFixture
) -> None:
    by = make.sponsor("Velma")
    quota(by, login.vendor, "day", 10, warn_percent=50)
    accept(login, by, 4)
    assert not caplog.records and admission.find_warned() == []
    accept(login, by, 1), accept(login, by, 1)
    (warning,) = caplog.records
    sentence = f"Velma has used 5 of 10 messages a day at {login.vendor.slug} (50%); it is renewed at "
    assert warning.getMessage().startswith(f"quota: {sentence}")
    assert "Velma has used 6 of 10" in manage("status")
    SponsorQuota.objects.update(most=100)
    assert admission.find_warned() == [], "the quota was raised"


def test_a_quota_that_is_nearly_used_at_the_dispatch_is_told_by_every_door(
    login: Credential, admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The list came in before there was a quota."""
    by = make.sponsor("Velma")
    job(login, by, 9)
    quota(by, login.vendor, "day", 10)
    assert not caplog.records
    assert dispatcher.dispatch_ready().jobs == 1
    said = f"Velma has used 9 of 10 messages a day at {login.vendor.slug} (90%)"
    assert [said in one.getMessage() for one in caplog.records] == [True]
    assert manage("status").count("Velma has used 9 of") == 1
    assert said in admin_client.get("/admin/operations/pulse/").content.decode()
    (verdict,) = machine_health.look_at_quotas()
    assert said in str(verdict) and verdict.level == "warning"
    SponsorQuota.objects.update(most=100)
    (verdict,) = machine_health.look_at_quotas()
    assert verdict.level == "ok"


@pytest.mark.django_db(transaction=True)
def test_an_edit_that_makes_it_nearly_used_warns_at_once(login: Credential, caplog: pytest.LogCaptureFixture) -> None:
    by = make.sponsor("Velma")
    job(login, by, 9, S.DISPATCHED)
    row = quota(by, login.vendor, "day", 100)
    assert not [one for one in caplog.records if "quota" in one.getMessage()]
    manage("quota", "set", "Velma", "10", "messages", "day", "--vendor", login.vendor.slug)
    (warning,) = [one for one in caplog.records if "quota" in one.getMessage()]
    assert "Velma has used 9 of 10 messages a day" in warning.getMessage()
    row.refresh_from_db()
    assert [use.quota.id for use in admission.find_warned()] == [row.pk]


def test_a_quota_is_made_changed_listed_and_removed_by_command_and_its_history_tells(login: Credential) -> None:
    velma, slug = make.sponsor("Velma"), login.vendor.slug
    manage("quota", "add", "Velma", "1000", "messages", "day", "--vendor", slug)
    manage("quota", "add", "Velma", "250.50", "EUR", "month", "--warn", "90")
    row = SponsorQuota.objects.get(sponsor=velma, vendor=login.vendor)
    job(login, velma, 850, S.DISPATCHED)
    first, second = map(json.loads, manage("quota", "list", "--sponsor", "Velma", "--json").splitlines())
    money = first if first["what"] == "EUR" else second
    count = second if money is first else first
    assert {name: count[name] for name in ("most", "what", "span", "used", "percent", "warns", "vendor")} == {
        "most": "1000", "what": "messages", "span": "day", "used": "850", "percent": 85, "warns": True, "vendor": slug,
    }  # fmt: skip
    assert (money["most"], money["vendor"], money["warn_percent"], money["used"]) == ("250.5", None, 90, "0.00 EUR")
    manage("quota", "set", "Velma", "2000", "messages", "day", "--vendor", slug)
    row.refresh_from_db()
    assert (row.most, row.warn_percent) == (2000, 80)
    said = [one.change_message for one in LogEntry.objects.filter(object_id=str(row.pk)).order_by("pk")]
    assert [one.partition(" by ")[0] for one in said] == ["added", "most 1000 → 2000"]
    assert "removed" in manage("quota", "remove", "Velma", "messages", "day", "--vendor", slug)
    assert "was no quota" in manage("quota", "remove", "Velma", "messages", "day", "--vendor", slug)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("add", "Velma", "10", "EUR", "day"), "Money has a currency and goes with a month"),
        (("add", "Velma", "10", "Euro", "month"), "is not a currency|at most 3 characters"),
        (("add", "Velma", "1.5", "messages", "day"), "whole numbers"),
        (("add", "Velma", "1e15", "messages", "day"), "no more than 14 digits|less than or equal to"),
        (("add", "Velma", "many", "messages", "day"), "'many' is not a number"),
        (("add", "Velma", "NaN", "messages", "day"), "'NaN' is not a number"),
        (("add", "Velma", "5", "messages", "month"), "quota set changes it"),
        (("set", "Velma", "5", "units", "month"), "there is no such quota"),
        (("add", "Velma", "5", "units", "day", "--warn", "0"), "greater than or equal to 1"),
    ],
)
def test_a_bad_quota_is_refused_with_the_reason(given: tuple[str, ...], why: str) -> None:
    velma = make.sponsor("Velma")
    quota(velma, None, "month", 1)
    with pytest.raises(CommandError, match=why):
        call_command("quota", *given)
    assert SponsorQuota.objects.count() == 1


def test_the_database_keeps_a_quota_once_and_money_a_month(login: Credential) -> None:
    by = make.sponsor()
    quota(by, None, "day", 1)
    for wrong in (
        {"sponsor": by, "span": "day", "measure": "messages", "most": 2},
        {"sponsor": by, "span": "day", "measure": "money", "most": 2, "currency": "EUR"},
        {"sponsor": by, "span": "month", "measure": "money", "most": 2},
        {"sponsor": by, "span": "month", "measure": "messages", "most": -1},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            SponsorQuota.objects.create(**wrong)


def test_a_check_at_the_shell_says_what_a_quota_would_say(login: Credential, tmp_path: Path) -> None:
    velma = make.sponsor("Velma")
    file, body = tmp_path / "list.csv", tmp_path / "body.txt"
    file.write_text("email\nann@sandbox.example\nbob@sandbox.example\n")
    body.write_text("Good day")
    asked = ["send_campaign", str(file), "--sponsor", "Velma", "--vendor", login.vendor.slug, "--subject", "Hello"]
    asked += ["--body", str(body)]
    row = quota(velma, None, "month", 1)
    never = "the quota of Velma is 1 messages a month in all, and this is 2: it never fits"
    assert never in manage(*asked, "--check")
    assert never in json.loads(manage(*asked, "--check", "--json"))["quotas"][0]
    with pytest.raises(CommandError, match=f"nothing was stored\n{never}"):
        manage(*asked)
    row.most = 2
    row.save()
    assert "Velma has used 2 of 2 messages a month in all (100%)" in manage(*asked, "--check")
    assert "Job" in manage(*asked)


def test_a_check_at_the_shell_says_that_the_vendor_has_no_floor(login: Credential, tmp_path: Path) -> None:
    make.sponsor("Velma")
    file, body = tmp_path / "list.csv", tmp_path / "body.txt"
    file.write_text("email\nann@sandbox.example\nbob@sandbox.example\n")
    body.write_text("Good day")
    asked = ["send_campaign", str(file), "--sponsor", "Velma", "--vendor", login.vendor.slug, "--subject", "Hello"]
    asked += ["--body", str(body), "--check"]
    assert "no floor" not in manage(*asked) and json.loads(manage(*asked, "--json"))["floor"] == ""
    Vendor.objects.update(floor=0)
    waits = f"{login.vendor.name} has no floor: bulk mail waits there as long as more urgent mail comes"
    assert waits in manage(*asked) and json.loads(manage(*asked, "--json"))["floor"] == waits
    assert "no floor: usual mail waits" in manage(*asked, "--class", "usual")
    Entitlement.objects.update(urgent="all")
    assert "no floor" not in manage(*asked, "--class", "urgent")


def test_the_admin_edits_a_quota_at_once_and_shows_what_is_used(login: Credential, admin_client: Client) -> None:
    velma = make.sponsor("Velma")
    job(login, velma, 9, S.DISPATCHED)
    form = {
        "sponsor": velma.pk, "vendor": login.vendor_id, "most": "10", "measure": "messages", "currency": "",
        "span": "flight", "warn_percent": "80",
    }  # fmt: skip
    assert admin_client.post("/admin/campaigns/sponsorquota/add/", form).status_code == 302
    row = SponsorQuota.objects.get()
    page = admin_client.get("/admin/campaigns/sponsorquota/").content.decode()
    assert "10 messages in flight" in page and "90%" in page
    again = admin_client.post("/admin/campaigns/sponsorquota/add/", form).content.decode()
    assert "already exists" in again and SponsorQuota.objects.count() == 1
    change = f"/admin/campaigns/sponsorquota/{row.pk}/change/"
    assert f'value="{form["most"]}"' in admin_client.get(change).content.decode(), "without the column's places"
    assert admin_client.post(change, {"most": "9", "warn_percent": "70"}).status_code == 302
    assert "most" in LogEntry.objects.filter(object_id=str(row.pk)).latest("pk").change_message
    with pytest.raises(intake.BadInput, match="9 are used"):
        accept(login, velma, 1)
    assert "90%" not in admin_client.get(change).content.decode()


def test_a_user_of_one_sponsor_sees_no_quota_of_another_and_changes_none(login: Credential) -> None:
    mine, other = make.sponsor(), make.sponsor()
    row, _ = quota(mine, login.vendor, "day", 2), quota(other, login.vendor, "day", 5)
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__endswith="_sponsorquota"))
    mine.users.add(user)
    client = Client()
    client.force_login(user)
    page = client.get("/admin/campaigns/sponsorquota/").content.decode()
    assert mine.name in page and other.name not in page
    client.post(f"/admin/campaigns/sponsorquota/{row.pk}/change/", {"most": "9", "warn_percent": "80"})
    client.post(f"/admin/campaigns/sponsorquota/{row.pk}/delete/", {"post": "yes"})
    form = {
        "sponsor": mine.pk,
        "vendor": "",
        "most": "10",
        "measure": "messages",
        "span": "month",
        "warn_percent": "80",
    }
    client.post("/admin/campaigns/sponsorquota/add/", form)
    client.post("/admin/campaigns/sponsorquota/add/", {**form, "vendor": login.vendor_id})
    assert SponsorQuota.objects.get(sponsor=mine).most == 2, "the vendor's owner sets it"


def test_the_owner_of_a_vendor_sets_quotas_there_and_none_in_all() -> None:
    mine = make.sponsor()
    own = make.vendor(owner=mine)
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__endswith="_sponsorquota"))
    user.user_permissions.add(*Permission.objects.filter(content_type__app_label="vendors"))
    mine.users.add(user)
    client = Client()
    client.force_login(user)
    form = {
        "sponsor": mine.pk,
        "vendor": "",
        "most": "10",
        "measure": "messages",
        "span": "month",
        "warn_percent": "80",
    }
    client.post("/admin/campaigns/sponsorquota/add/", form)
    assert not SponsorQuota.objects.exists()
    client.post("/admin/campaigns/sponsorquota/add/", {**form, "vendor": own.pk})
    assert SponsorQuota.objects.get().vendor == own


def test_a_vendor_and_a_sponsor_can_be_deleted_with_their_quotas(admin_client: Client) -> None:
    for page, field in (("vendors/vendor", "vendor_id"), ("campaigns/sponsor", "sponsor_id")):
        row = quota(Sponsor.objects.create(name=f"of {page}"), make.vendor(), "day", 1)
        page = f"/admin/{page}/{getattr(row, field)}/delete/"
        assert admin_client.post(page, {"post": "yes"}).status_code == 302
        assert not SponsorQuota.objects.filter(pk=row.pk).exists()
