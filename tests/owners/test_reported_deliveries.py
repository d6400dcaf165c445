"""Delivered is shown where the vendor reports it; otherwise each door says that sent means accepted by the vendor."""

import json
import re
from html import unescape
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from campaigns.models import Message
from tests import factories
from tests.campaigns.rows import accepted, logged, recount, refused
from tests.front.program import Program, api_vendor, fresh, letter
from vendors import report_keys
from vendors.models import Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
ACCEPTED = "The vendor reports no deliveries: “sent” means that it has accepted the message."


def text(client, path):
    page = unescape(re.sub(r"<[^>]+>", " ", client.get(path).content.decode()))
    return " ".join(page.split())


def reports(vendor: Vendor) -> None:
    """From now on the vendor sends delivery reports that a key proves."""
    Vendor.objects.filter(pk=vendor.pk).update(settings={**vendor.settings, "receipts": True})
    report_keys.rotate_key(Vendor.objects.get(pk=vendor.pk), timezone.now())


@pytest.fixture
def campaign(owner):
    """Three sent and one failed, by a relay."""
    vendor = factories.vendor(adapter="smtp", settings={"host": "127.0.0.1", "port": 9})
    made = logged(4, [accepted()] * 3 + [refused()], of=factories.credential(vendor))
    made.campaign.sponsor.users.add(owner)
    return made.campaign


def test_a_relay_shows_no_delivered_anywhere(client, campaign):
    path = f"/campaigns/{campaign.pk}/"
    page, report, home = text(client, path), text(client, f"{path}report/"), text(client, "/")
    assert "Sent 3" in page and ACCEPTED in page and "Delivered" not in page
    assert "Accepted by the vendor, which reports no deliveries 3 75.0%" in report and "yet" not in report
    assert "Sent 3 Came back 0" in home and "Delivered" not in home
    assert "The vendors report no deliveries: “sent” means that they have accepted the messages." in home
    assert "Delivered" not in text(client, f"{path}recipients/")


def test_a_vendor_that_reports_shows_delivered_from_the_first_message_on(client, campaign):
    vendor = campaign.credential.vendor
    Vendor.objects.filter(pk=vendor.pk).update(adapter="http", settings={"url": "http://127.0.0.1:9/"})
    vendor.refresh_from_db()
    path = f"/campaigns/{campaign.pk}/"
    assert "Delivered" not in text(client, path)
    reports(vendor)
    page, report, home = text(client, path), text(client, f"{path}report/"), text(client, "/")
    assert "Sent 3 Delivered 0" in page and ACCEPTED not in page
    assert "Sent, nothing reported yet 3" in report
    assert "Sent 3 Delivered 0" in home and "report no deliveries" not in home
    assert "Delivered" in text(client, f"{path}recipients/")


def test_a_key_is_needed_before_reports_are_expected(client, campaign):
    Vendor.objects.update(adapter="http", settings={"url": "http://127.0.0.1:9/", "receipts": True})
    assert "Delivered" not in text(client, f"/campaigns/{campaign.pk}/")


def test_what_has_been_reported_is_shown_whatever_the_settings_say(client, campaign):
    job = campaign.jobs.get()
    Message.objects.filter(pk=job.first_message).update(report="delivered", report_at=timezone.now(), report_no=0)
    recount(job)
    assert "Delivered 1" in text(client, f"/campaigns/{campaign.pk}/")


def test_home_says_how_many_went_by_vendors_that_report_nothing(client, campaign):
    other = factories.vendor(settings={"url": "http://127.0.0.1:9/"})
    reports(other)
    logged(2, [accepted()] * 2, of=factories.credential(other), by=campaign.sponsor)
    home = text(client, "/")
    assert "Sent 5 Delivered 0" in home
    assert "3 of those sent went by vendors that report no deliveries." in home


def test_the_command_says_so(campaign):
    out = StringIO()
    call_command("report", str(campaign.pk), stdout=out)
    assert "4 recipients: 3 sent, 1 failed; the vendor reports no deliveries" in out.getvalue()
    out = StringIO()
    call_command("report", str(campaign.pk), "--json", stdout=out)
    assert json.loads(out.getvalue())["reports_deliveries"] is False


def test_the_api_says_so(fresh):
    program, vendor = Program(factories.sponsor("Velma")), api_vendor()
    said = program.send(letter(vendor))
    assert program.get(said.json()["links"]["self"]).json()["reports_deliveries"] is False
    reports(vendor)
    assert program.get(said.json()["links"]["self"]).json()["reports_deliveries"] is True
