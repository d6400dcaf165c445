"""Nobody gets an SMS in the quiet hours of the place where the number is: it waits, and is sent or expires."""

import asyncio
import io
import os
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import phonenumbers
import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from phonenumbers import timezone as of_numbers
from phonenumbers.tzdata import TIMEZONE_DATA

from campaigns.engine import audit
from campaigns.engine import sending as sender
from campaigns.engine.quiet_hours import PUT_OFF, WHY, QuietHours, QuietWatch, zones_of
from campaigns.models import Campaign, Job, Message, Sponsor
from tests import factories
from tests.described.servers import ACCOUNT, TOKEN, Twilio
from tests.faults.sending import login, send_the_rest, sent, take_again, taken
from tests.front.program import Program, fresh
from tests.sandbox import Sandbox
from vendors.models import Credential, Vendor

__all__ = ["fresh"]
NIGHT = QuietHours(time(21), time(8), "Europe/London")
LONDON, NEW_YORK, BERLIN, TOLL_FREE, RUSSIA, NOWHERE = (
    "+442071234567", "+12125551234", "+493012345678", "+18005551234", "+79161234567", "+8835100012345",
)  # fmt: skip


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


class TestWhen:
    @pytest.mark.parametrize(
        ("number", "now", "opens"),
        [
            (LONDON, utc(2026, 1, 15, 20, 59), None),
            (LONDON, utc(2026, 1, 15, 21, 0), utc(2026, 1, 16, 8)),
            (LONDON, utc(2026, 1, 16, 7, 59), utc(2026, 1, 16, 8)),
            (LONDON, utc(2026, 1, 16, 8, 0), None),
            (NEW_YORK, utc(2026, 1, 15, 21, 0), None),
            (NEW_YORK, utc(2026, 1, 16, 2, 0), utc(2026, 1, 16, 13)),
            # London's clock is put forward at 01:00 UTC, and back at 01:00 UTC
            (LONDON, utc(2026, 3, 28, 22, 0), utc(2026, 3, 29, 7)),
            (LONDON, utc(2026, 10, 24, 22, 0), utc(2026, 10, 25, 8)),
            # where no zone is known: by the sponsor's
            (NOWHERE, utc(2026, 1, 15, 20, 59), None),
            (NOWHERE, utc(2026, 1, 15, 21, 0), utc(2026, 1, 16, 8)),
            # from Kaliningrad to Kamchatka there are only a few hours in which nobody sleeps
            (RUSSIA, utc(2026, 1, 15, 5, 59), utc(2026, 1, 15, 6)),
            (RUSSIA, utc(2026, 1, 15, 6, 0), None),
            (RUSSIA, utc(2026, 1, 15, 9, 0), utc(2026, 1, 16, 6)),
        ],
    )
    def test_by_the_clock_where_the_number_is(self, number: str, now: datetime, opens: datetime | None) -> None:
        assert NIGHT.opening_of_number(number, now) == opens

    def test_a_night_whose_end_is_skipped_ends_when_the_clock_moves(self) -> None:
        """In Berlin there is no 02:30 on 29 March 2026: it is 03:30 then."""
        night = QuietHours(time(21), time(2, 30), "UTC")
        assert night.opening_of_number(BERLIN, utc(2026, 3, 29, 0, 30)) == utc(2026, 3, 29, 1, 30)

    def test_zones_that_are_never_open_together_are_those_of_the_sponsor(self) -> None:
        most = QuietHours(time(11), time(9), "Europe/London")
        assert len(zones_of(TOLL_FREE)) > 30
        assert most.opening_of_number(TOLL_FREE, utc(2026, 1, 15, 9, 30)) is None
        assert most.opening_of_number(TOLL_FREE, utc(2026, 1, 15, 12, 0)) == utc(2026, 1, 16, 9)

    def test_zones_are_those_that_phonenumbers_says(self) -> None:
        """Of islands with the code +1 it says all of North America; their prefix says more."""
        for number in (LONDON, NEW_YORK, BERLIN, TOLL_FREE, RUSSIA, "+61412345678", "+5511912345678"):
            assert set(zones_of(number)) >= set(of_numbers.time_zones_for_number(phonenumbers.parse(number)))
        of_mobiles = [phonenumbers.example_number_for_type(one, 1) for one in phonenumbers.SUPPORTED_REGIONS]
        for number in filter(None, of_mobiles):
            known, ours = (
                set(of_numbers.time_zones_for_number(number)),
                set(zones_of(phonenumbers.format_number(number, 0))),
            )
            assert ours <= known if number.country_code == 1 else known - {"Etc/Unknown"} <= ours, number
        assert zones_of("+14413701234") == ("Atlantic/Bermuda",) and zones_of(NOWHERE) == ()


PREFIXES = sorted(TIMEZONE_DATA)
numbers = st.builds(lambda prefix, rest: f"+{prefix}{rest}", st.sampled_from(PREFIXES), st.from_regex("[0-9]{5}", fullmatch=True))  # fmt: skip  # noqa: E501
minutes = st.integers(0, 24 * 60 - 1).map(lambda m: time(m // 60, m % 60))
moments = st.integers(0, 2 * 365 * 86_400).map(lambda s: utc(2026, 1, 1) + timedelta(seconds=s))


def quiet_there(hours: QuietHours, zone: str, at: datetime) -> bool:
    """Written anew, from the clock alone."""
    clock = at.astimezone(ZoneInfo(zone)).time().replace(fold=0)
    if hours.start < hours.end:
        return hours.start <= clock < hours.end
    return clock >= hours.start or clock < hours.end


@settings(max_examples=400, deadline=None)
@given(numbers, minutes, minutes, moments)
def test_what_is_called_is_quiet_nowhere_and_what_waits_is_quiet_somewhere(
    number: str, start: time, end: time, now: datetime
) -> None:
    if start == end:
        return
    hours = QuietHours(start, end, "Asia/Kolkata")
    zones = zones_of(number)
    opens = hours.opening_of_number(number, now)
    if opens is None:
        here = not any(quiet_there(hours, zone, now) for zone in zones)
        assert here or not quiet_there(hours, hours.zone, now)
        return
    together = not any(quiet_there(hours, zone, opens) for zone in zones)
    assert now < opens and (together or not quiet_there(hours, hours.zone, opens))
    if together:  # and at no quarter of an hour before
        for number_ in range(1, 12):
            at = now + (opens - now) * number_ / 12
            assert any(quiet_there(hours, zone, at) for zone in zones)


@settings(max_examples=300, deadline=None)
@given(numbers, minutes, minutes, moments, st.floats(0, 1))
def test_what_is_found_for_all_prefixes_is_right_for_each_number_as_long_as_it_holds(
    number: str, start: time, end: time, now: datetime, later: float
) -> None:
    if start == end:
        return
    hours = QuietHours(start, end, "Asia/Kolkata")
    since, until = hours.steady_interval(now)
    assert since <= now < until <= now + timedelta(minutes=15)
    found = hours.openings_by_prefix(now)
    digits = number[1:]
    opens = next((found[digits[:n]] for n in range(len(digits), -1, -1) if digits[:n] in found), None)
    at = now + (until - now) * min(later, 0.999)
    expected = hours.opening_of_number(number, at)
    assert opens == expected


# --- sent -------------------------------------------------------------------------------------------------------------


def quiet(number: str, *, now: bool = True, **sponsor: Any) -> tuple[str, QuietHours]:
    """Quiet hours that began an hour ago where this number is (or begin in two hours), for four hours."""
    [zone, *_] = zones_of(number)
    local = timezone.now().astimezone(ZoneInfo(zone)).replace(second=0, microsecond=0)
    start = local - timedelta(hours=1) if now else local + timedelta(hours=2)
    hours = QuietHours(start.time(), (start + timedelta(hours=4)).time(), zone)
    Sponsor.objects.update(quiet_from=hours.start, quiet_to=hours.end, time_zone=hours.zone)
    return zone, hours


def twilio(server: Twilio, **fields: Any) -> Credential:
    options = {"description": "twilio", "account": ACCOUNT, "server": server.url, "from": "+15005550001"}
    options |= {"reports_to": "https://mail.example.com/api/v1/receipts/sms"}
    vendor = factories.vendor(adapter="described", channel="sms", settings=options, **fields)
    return factories.credential(vendor, "default", secret={"auth_token": TOKEN})


@pytest.mark.django_db(transaction=True)
class TestSending:
    def test_who_sleeps_waits_for_his_own_morning_and_the_others_go(self) -> None:
        with Twilio() as server:
            job = taken([NEW_YORK, LONDON, "+442071234568", BERLIN], twilio(server))
            _, hours = quiet(NEW_YORK)
            sent_some = sender.send_claimed_job(job.pk, job.fence)
            rows = {row.recipient: row for row in Message.objects.all()}
            expected = {to: hours.opening_of_number(to, timezone.now()) for to in rows}
            assert expected[NEW_YORK] and not expected[LONDON]
            waits = {to: row.call_after for to, row in rows.items() if not row.dequeued_at}
            assert waits == {to: at for to, at in expected.items() if at}
            assert len(server.books) == len(rows) - len(waits)
            job.refresh_from_db()
            assert sent_some.left and (job.status, job.waits_for) == ("DISPATCHED", WHY)
            assert job.not_before == min(waits.values()) and not [
                one for one in audit.ask_all_questions() if not one.is_kept
            ]
            # In the morning.
            Sponsor.objects.update(quiet_from=None, quiet_to=None)
            Message.objects.update(call_after=timezone.now())
            Job.objects.update(not_before=None)
            assert sent(take_again(job)).accepted == 4 and set(server.books.values()) == {1}

    def test_a_transactional_one_goes_at_once_and_so_does_e_mail(self, sandbox: Sandbox) -> None:
        with Twilio() as server:
            job = taken([NEW_YORK], twilio(server))
            mail = taken(["r1@sandbox.example"], factories.credential(factories.vendor(settings={"url": sandbox.url})))
            quiet(NEW_YORK)
            Campaign.objects.update(transactional=True)
            assert sent(job).accepted == 1
            Campaign.objects.update(transactional=False)
            assert sent(mail).accepted == 1

    def test_what_the_vendor_puts_off_into_the_night_waits_for_the_morning(self) -> None:
        """Put off by the vendor, the hours begin before it comes again."""
        with Twilio() as server:
            job = taken([NEW_YORK], twilio(server))
            _, hours = quiet(NEW_YORK)
            Message.objects.update(put_off_at=timezone.now(), call_after=timezone.now())
            sender.send_claimed_job(job.pk, job.fence)
            assert Message.objects.get().call_after == hours.opening_of_number(NEW_YORK, timezone.now())
            job.refresh_from_db()
            assert not server.books and job.waits_for == "some are to be tried again"

    def test_over_another_vendor_it_waits_as_well(self) -> None:
        """As after a move along a route, or a retry, which forgets call_after."""
        with Twilio() as server:
            job = taken([NEW_YORK], twilio(server))
            quiet(NEW_YORK)
            sender.send_claimed_job(job.pk, job.fence)
            other = twilio(server)
            Message.objects.update(call_after=None)
            Job.objects.update(vendor=other.vendor, credential=other, not_before=None)
            job.refresh_from_db()
            take_again(job)
            sender.send_claimed_job(job.pk, job.fence)
            job.refresh_from_db()
            assert not server.books and job.not_before and Message.objects.get().call_after == job.not_before

    def test_past_its_deadline_it_expires_and_says_why(self) -> None:
        with Twilio() as server:
            job = taken([NEW_YORK], twilio(server))
            _, hours = quiet(NEW_YORK)
            sender.send_claimed_job(job.pk, job.fence)
            Campaign.objects.update(deadline=timezone.now())
            job.refresh_from_db()
            job = send_the_rest_at_once(job)
            row, opens = Message.objects.get(), hours.opening_of_number(NEW_YORK, timezone.now())
            assert opens and row.error_code == "expired" and not server.books and job.expired == 1
            assert row.error_sub_type == f"quiet hours until {opens:%Y-%m-%d %H:%M} UTC"

    @pytest.mark.skipif(os.environ.get("MAILHUB_NIGHTLY") != "1", reason="it waits for a while: MAILHUB_NIGHTLY=1")
    def test_no_call_starts_when_the_night_has_begun_in_the_middle_of_a_job(self, sandbox: Sandbox) -> None:
        """It begins with a minute: what is not called by then waits."""
        sandbox.settings(latency_ms=500.0)
        job = taken([f"+1212555{number:04}" for number in range(200)], login(sandbox.url, concurrency=1))
        Vendor.objects.update(channel="sms")
        begins = (timezone.now() + timedelta(seconds=75)).replace(second=0, microsecond=0)
        local = begins.astimezone(ZoneInfo("America/New_York"))
        Sponsor.objects.update(quiet_from=local.time(), quiet_to=(local + timedelta(hours=4)).time(), time_zone="UTC")
        sender.send_claimed_job(job.pk, job.fence)
        called = Message.objects.filter(sent_at__isnull=False)
        assert 0 < called.count() == len(sandbox.books().recipients) < 200
        assert max(called.values_list("sent_at", flat=True)) < begins
        job.refresh_from_db()
        assert job.waits_for == WHY and job.not_before == begins + timedelta(hours=4)


def send_the_rest_at_once(job: Job) -> Job:
    Job.objects.update(not_before=None)
    return send_the_rest(job)


# --- doors ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
class TestDoors:
    def manage(self, *given: str) -> str:
        out = io.StringIO()
        call_command("sponsor", "set", "Velma", *given, stdout=out)
        return out.getvalue()

    def test_the_command_sets_them_and_takes_them_away(self) -> None:
        row = factories.sponsor("Velma")
        self.manage("--quiet-hours", "21:00-08:00", "--time-zone", "Europe/London")
        row.refresh_from_db()
        assert (row.quiet_from, row.quiet_to, row.time_zone) == (time(21), time(8), "Europe/London")
        assert '"quiet_hours":"21:00-08:00"' in self.manage("--language", "de", "--json")
        self.manage("--quiet-hours", "")
        row.refresh_from_db()
        assert (row.quiet_from, row.quiet_to) == (None, None)

    @pytest.mark.parametrize("given", ["21:00", "21:00-21:00", "25:00-08:00", "21:00:30-08:00", "21:00-08:00"])
    def test_the_command_says_what_is_wrong(self, given: str) -> None:
        factories.sponsor("Velma")
        with pytest.raises(CommandError):
            self.manage("--quiet-hours", given)  # the last one has no time zone

    def test_a_sponsor_is_checked_by_every_door(self) -> None:
        for wrong in (
            {"quiet_from": time(21)},
            {"quiet_from": time(21, 0, 1), "quiet_to": time(8), "time_zone": "UTC"},
        ):
            with pytest.raises(ValidationError):
                Sponsor(name="x", **wrong).full_clean()
        Sponsor(name="x", quiet_from=time(0), quiet_to=time(8), time_zone="UTC").full_clean()
        with pytest.raises(ValidationError):
            Sponsor(name="x", quiet_from=time(0), quiet_to=time(0), time_zone="UTC").full_clean()


@pytest.mark.django_db(transaction=True)
def test_a_session_says_when_it_goes_on() -> None:
    with Twilio() as server:
        account = twilio(server)
        program = Program()
        factories.entitle([program.sponsor], [account.vendor])
        letter = {"vendor": account.vendor.slug, "body": "Good day", "recipients": [{"to": NEW_YORK}]}
        answer = program.send(letter)
        assert answer.status_code == 202, answer.content
        where = answer.json()["links"]["self"]
        assert program.get(where).json()["due"] is None
        _, hours = quiet(NEW_YORK)
        job = take_again(Job.objects.get())
        sender.send_claimed_job(job.pk, job.fence)
        due = hours.opening_of_number(NEW_YORK, timezone.now())
        assert due and datetime.fromisoformat(program.get(where).json()["due"]) == due
        assert not server.books


@pytest.mark.django_db
def test_only_who_holds_the_job_puts_off() -> None:
    job = taken([NEW_YORK], factories.credential(factories.vendor(channel="sms")))
    params = {"job": job.pk, "fence": job.fence, "places": [""], "opens": [timezone.now() + timedelta(hours=1)]}
    params |= {"low": job.first_message, "high": job.end}
    with connection.cursor() as cursor:
        cursor.execute(PUT_OFF, params)
        assert cursor.rowcount == 0
        Job.objects.update(status="SENDING")
        cursor.execute(PUT_OFF, params | {"fence": job.fence - 1})
        assert cursor.rowcount == 0
        cursor.execute(PUT_OFF, params)
        assert cursor.rowcount == 1
        cursor.execute(PUT_OFF, params)
        assert cursor.rowcount == 0  # it waits for that already


def test_the_dates_of_these_tests_are_those_of_the_change_of_clocks() -> None:
    london = ZoneInfo("Europe/London")
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        before, after = (datetime.combine(day, time(hour), london).utcoffset() for hour in (0, 6))
        assert before != after


@pytest.mark.django_db
def test_a_clock_that_is_put_back_into_the_night_makes_a_sender_ask_again() -> None:
    """It was an hour ahead, in the morning; by the right clock it is night still."""
    asked: list[range] = []

    async def locking(question: Any) -> list[Any]:
        asked.append(range(1))
        return [QuietHours(time(21), time(8), "UTC")]

    campaign = factories.campaign_with_job([NEW_YORK]).campaign
    watch = QuietWatch(1, 1, campaign, "sms")
    morning = datetime(2026, 6, 1, 8, 5, tzinfo=UTC)
    for now in (morning, morning + timedelta(minutes=1), morning - timedelta(hours=1)):
        asyncio.run(watch.put_quiet_off(locking, range(1), now))
    assert len(asked) == 2, "once, and again after the clock was put back"
    assert watch.until and watch.until <= morning


def changes(zone: str, year: int = 2026) -> list[datetime]:
    """The moments at which the zone's clock is put forward or back."""
    hours = [utc(year, 1, 1) + timedelta(minutes=30 * n) for n in range(365 * 48)]
    offsets = [at.astimezone(ZoneInfo(zone)).utcoffset() for at in hours]
    return [hours[n] for n in range(1, len(hours)) if offsets[n] != offsets[n - 1]]


@pytest.mark.parametrize("zone", ["Europe/London", "Australia/Lord_Howe", "America/Santiago", "America/New_York"])
@pytest.mark.parametrize("hours", [(time(21), time(8)), (time(1, 30), time(2, 30)), (time(23, 45), time(0, 20))])
def test_by_each_clock_nobody_is_called_in_quiet_hours_also_where_it_changes(
    zone: str, hours: tuple[time, time]
) -> None:
    quiet, (start, end) = QuietHours(*hours, "UTC"), hours

    def sleeps(at: datetime) -> bool:
        clock = at.astimezone(ZoneInfo(zone)).time()
        return start <= clock < end if start < end else clock >= start or clock < end

    assert len(changes(zone)) == 2
    for change in changes(zone):
        for minutes in range(-15 * 60, 15 * 60, 5):
            now = change + timedelta(minutes=minutes)
            opens = quiet.opens_in((zone,), quiet.steady_interval(now)[0])
            assert (opens is not None) == sleeps(now), now
            assert opens is None or (opens > now and not sleeps(opens)), now
