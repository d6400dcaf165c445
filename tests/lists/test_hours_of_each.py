"""A campaign whose hours go by the clock of each recipient: who sleeps waits, and everybody else gets it."""

from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from campaigns.engine import audit, quiet_hours
from campaigns.engine import sending as sender
from campaigns.engine.quiet_hours import WHY, QuietHours
from campaigns.lists import intake
from campaigns.models import Campaign, Job, Message, Sponsor
from campaigns.reporting.forecast import campaign_states
from tests import factories
from tests.campaigns.test_quiet_hours import BERLIN, LONDON, NEW_YORK, NOWHERE, twilio
from tests.described.servers import Twilio
from tests.faults.sending import login, sent, take_again
from tests.sandbox import Sandbox
from vendors.history import Actor
from vendors.models import Credential, find_zone

TOKYO = "+81312345678"  # where no clock ever changes: in three hours it is three hours later
LETTER: dict[str, Any] = {"name": "May", "body": "Good day", "subject": "", "html": False}


def hours_of(zone: str, now: bool, at: datetime | None = None) -> intake.Hours:
    """Four hours that have begun an hour ago in this zone, or begin in three; at: the moment that counts as now."""
    local = (at or timezone.now()).astimezone(ZoneInfo(zone)).replace(second=0, microsecond=0)
    start = local + timedelta(hours=-1 if now else 3)
    return intake.Hours(start.time(), (start + timedelta(hours=4)).time(), "Pacific/Kiritimati", each=True)


def accepted(of: Credential, recipients: list[tuple[str, dict[str, Any]]], hours: intake.Hours, **more: Any) -> Job:
    factories.entitle([factories.sponsor()], [of.vendor])
    content = LETTER | ({"subject": "Hello"} if of.vendor.channel == "email" else {}) | more
    rows: Any = recipients
    job = intake.store_campaign(
        sponsor=Sponsor.objects.get(), credential=of, recipients=rows, at="now", hours=hours, by=Actor("ann"), **content
    )
    Job.objects.update(status="DISPATCHED")
    return take_again(job)


def quiet(hours: intake.Hours) -> QuietHours:
    return QuietHours(hours.end, hours.start, hours.zone)


@pytest.mark.django_db(transaction=True)
class TestSending:
    def test_an_sms_goes_by_the_clock_where_its_number_is(self) -> None:
        with Twilio() as server:
            hours = hours_of("Europe/London", now=True)
            numbers = [LONDON, BERLIN, NEW_YORK, NOWHERE]
            job = accepted(twilio(server), [(one, {}) for one in numbers], hours)
            opens = {one: quiet(hours).opening_of_number(one, timezone.now()) for one in numbers}
            assert opens[NEW_YORK] and not opens[LONDON]
            sender.send_claimed_job(job.pk, job.fence)
            waits = dict(Message.objects.filter(dequeued_at=None).values_list("recipient", "call_after"))
            assert waits == {to: at for to, at in opens.items() if at}
            assert len(server.books) == len(numbers) - len(waits)
            job.refresh_from_db()
            assert (job.status, job.waits_for, job.not_before) == ("DISPATCHED", WHY, min(waits.values()))
            assert not [one for one in audit.ask_all_questions() if not one.is_kept]
            Message.objects.update(call_after=None)  # in the morning
            Campaign.objects.update(each_from=None, each_to=None)
            Job.objects.update(not_before=None)
            assert sent(take_again(job)).accepted == len(numbers) and set(server.books.values()) == {1}

    def test_an_e_mail_goes_by_the_zone_that_the_list_says(self, sandbox: Sandbox) -> None:
        """Who names none is in that of the hours; so is one that was stored before unknown zones were refused."""
        hours = hours_of("Europe/London", now=True)
        zones = {"ann": "Europe/London", "bob": "America/New_York", "cy": "", "dee": "Atlantis/Poseidonis"}
        zones["eli"] = "america/new york"
        rows = [(f"{who}@sandbox.example", {"time_zone": zone}) for who, zone in zones.items()]
        job = accepted(login(sandbox.url), rows, hours)
        known = {who: (found,) if (found := find_zone(zone)) else () for who, zone in zones.items()}
        opens = {f"{who}@sandbox.example": quiet(hours).opens_in(zone, timezone.now()) for who, zone in known.items()}
        assert opens["bob@sandbox.example"] == opens["eli@sandbox.example"] and not opens["ann@sandbox.example"]
        sender.send_claimed_job(job.pk, job.fence)
        waits = dict(Message.objects.filter(dequeued_at=None).values_list("recipient", "call_after"))
        assert waits == {to: at for to, at in opens.items() if at}
        assert set(sandbox.books().recipients) == opens.keys() - waits.keys()

    def test_quiet_hours_of_the_sponsor_hold_as_well_and_a_transactional_one_keeps_its_own(self) -> None:
        with Twilio() as server:
            account = twilio(server)
            job = accepted(account, [(TOKYO, {})], hours_of("Asia/Tokyo", now=True))
            local = timezone.now().astimezone(ZoneInfo("Asia/Tokyo")).replace(second=0, microsecond=0)
            night = {"quiet_from": (local - timedelta(hours=2)).time(), "quiet_to": (local + timedelta(hours=2)).time()}
            Sponsor.objects.update(**night, time_zone="UTC")
            sender.send_claimed_job(job.pk, job.fence)
            assert not server.books and Message.objects.get().call_after == local + timedelta(hours=2)
            Campaign.objects.update(transactional=True)
            own = quiet(hours_of("Asia/Tokyo", now=False, at=local))
            Campaign.objects.update(each_from=own.end, each_to=own.start)
            Message.objects.update(call_after=None)
            Job.objects.update(not_before=None)
            job.refresh_from_db()
            take_again(job)
            sender.send_claimed_job(job.pk, job.fence)
            assert not server.books and Message.objects.get().call_after == local + timedelta(hours=3)


@pytest.mark.django_db
class TestDoors:
    def test_a_list_that_says_no_zone_is_refused_where_no_number_does(self) -> None:
        hours = hours_of("UTC", now=True)
        mail = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/"}))
        with pytest.raises(intake.BadInput, match="need a column time_zone"):
            accepted(mail, [("ann@example.com", {})], hours)
        assert not Campaign.objects.exists()
        with pytest.raises(intake.BadInput, match="begin and end with a minute"):
            intake.Hours(time(8, 0, 1), time(20), "UTC", each=True)

    def test_the_command_takes_them_and_says_so(self, tmp_path: Path) -> None:
        login = factories.credential(factories.vendor("texts", channel="sms", settings={"url": "http://127.0.0.1:9/"}))
        factories.entitle([factories.sponsor("Velma")], [login.vendor])
        (tmp_path / "list.csv").write_text(f"recipient\n{LONDON}\n")
        (tmp_path / "body.txt").write_text("Good day")
        given = [str(tmp_path / "list.csv"), "--sponsor", "Velma", "--vendor", "texts"]
        given += ["--body", str(tmp_path / "body.txt"), "--at", "now", "--hours-of-each"]
        with pytest.raises(CommandError, match="goes with --hours"):
            call_command("send_campaign", *given)
        call_command("send_campaign", *given, "--hours", "09:00-18:00", "--time-zone", "Europe/Paris")
        row = Campaign.objects.get()
        kept = (row.each_from, row.each_to, row.time_zone, row.hours_from)
        assert kept == (time(9), time(18), "Europe/Paris", None)
        assert quiet_hours.quiet_hours_of_campaign(row) == QuietHours(time(18), time(9), "Europe/Paris")

    def test_a_row_that_names_no_zone_of_the_list_is_a_bad_row_and_an_empty_one_is_not(self, tmp_path: Path) -> None:
        login = factories.credential(factories.vendor("mail", settings={"url": "http://127.0.0.1:9/"}))
        factories.entitle([factories.sponsor("Velma")], [login.vendor])
        (tmp_path / "list.csv").write_text("email,time_zone\nann@a.eu,\nbob@a.eu,Mars/Base\ncy@a.eu,UTC\n")
        (tmp_path / "body.txt").write_text("Good day")
        given = [str(tmp_path / "list.csv"), "--sponsor", "Velma", "--vendor", "mail", "--subject", "Hello"]
        given += ["--body", str(tmp_path / "body.txt"), "--at", "now", "--hours", "09:00-18:00", "--hours-of-each"]
        with pytest.raises(CommandError, match="row 3: time_zone: 'Mars/Base' is no time zone of the IANA list"):
            call_command("send_campaign", *given)
        assert not Campaign.objects.exists()
        call_command("send_campaign", *given, "--skip-bad-rows", str(tmp_path / "bad.csv"))
        assert set(Message.objects.values_list("recipient", flat=True)) == {"ann@a.eu", "cy@a.eu"}
        assert "Mars/Base" in (tmp_path / "bad.csv").read_text()

    def test_the_forecast_says_when_nobody_gets_it(self) -> None:
        login = factories.credential(factories.vendor(channel="sms", limits=[(1, 60)]))
        factories.at_work(login.vendor)
        job = accepted(login, [(LONDON, {}), (BERLIN, {})], intake.Hours(time(9), time(18), "UTC", each=True))
        state = campaign_states.states_of_campaigns([job.campaign_id])[job.campaign_id]
        assert "nobody gets it between 18:00 and 09:00 of his time" in state.why
