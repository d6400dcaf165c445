"""What a campaign costs is said before it is sent: exact where all letters were made, else named as an estimate."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from campaigns.lists import estimates
from campaigns.models import Campaign, Job, Message
from campaigns.suppression.links import SIZE, links_of
from campaigns.texts import templates
from tests import factories
from tests.campaigns.rows import manage
from tests.lists.test_intake_command import basics, files, nothing_is_stored, send, vendor
from vendors import prices
from vendors.history import Actor
from vendors.models import Credential, Price, Vendor

__all__ = ["files", "vendor"]
pytestmark = pytest.mark.django_db
SMS = {"url": "http://127.0.0.1:9/letters", "unit": "segment"}


def priced(of: Vendor, per_unit: str) -> None:
    prices.add_price(
        Price(vendor=of, per_unit=Decimal(per_unit), since=prices.pricing_day(), currency="EUR"), Actor("ann")
    )


def login(**fields: Any) -> Credential:
    return factories.credential(factories.vendor(channel="sms", settings=SMS, **fields))


def estimated(of: Credential, body: str, fields: list[dict[str, Any]], links: Any = None) -> estimates.Estimate:
    content = templates.compile_templates("", body, False, given={"unsubscribe_url": "x"} if links else {})
    recipients = [(f"+4915112{number:06}", one) for number, one in enumerate(fields)]
    found = estimates.estimate_recipients(of, Campaign(), content, links, recipients, len(recipients))
    assert found
    return found


def test_a_short_list_is_exact_letter_by_letter() -> None:
    of = login(limits=[(10, 60)])
    priced(of.vendor, "0.0075")
    found = estimated(of, "{{ text }}", [{"text": "a" * length} for length in (1, 160, 161, 306, 307)])
    assert (found.messages, found.units, found.is_exact, found.amount) == (5, 9, True, 9 * Decimal("0.0075"))
    assert found.estimate_facts()["amount"] == "0.0675" and "estimated" not in found.sentence(found.end.ends_at)


def test_a_long_list_is_estimated_from_every_so_many_th_letter_and_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(estimates, "MOST_MADE", 10)
    of = login()
    fields = [{"text": "a" * (1 if number < 80 else 200)} for number in range(100)]
    found = estimated(of, "{{ text }}", fields)
    assert (found.units, found.made, found.is_exact) == (120, 10, False), "the dear ones are at the end of the list"
    assert "about 120 SMS segments (estimated from 10 letters)" in found.sentence(timezone.now())


def test_what_takes_too_long_is_estimated_from_what_was_made(monkeypatch: Any) -> None:
    monkeypatch.setattr(estimates, "SECONDS", -1.0)
    found = estimated(login(), "{{ text }}", [{"text": "a" * 161}] * 7)
    assert (found.units, found.made) == (14, 1)


def test_a_vendor_that_counts_messages_needs_no_letter() -> None:
    of = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/letters"}))
    found = estimates.estimate_recipients(
        of, Campaign(), templates.compile_templates("", "x", False), None, iter(()), 1_000_000
    )
    assert (found.units, found.is_exact) == (1_000_000, True) and found.amount is None


def test_files_that_the_vendor_counts_are_not_looked_at_and_the_sentence_says_so() -> None:
    of = factories.credential(factories.vendor(adapter="smtp", settings={"host": "127.0.0.1", "tls": "none"}))
    content = templates.compile_templates("Hello", "x" * 2500, False)
    for size, units, exact in ((0, 1, True), (1, 3, False)):
        Vendor.objects.filter(pk=of.vendor_id).update(settings=of.vendor.settings | {"unit_kb": size})
        of.refresh_from_db()
        found = estimates.estimate_recipients(of, Campaign(has_files=True), content, None, [("ann@example.org", {})], 1)
        assert found and (found.units, found.is_exact) == (units, exact)
        assert ("1 message: about 3 mails by size without its files" in found.sentence(timezone.now())) is not exact


@pytest.mark.usefixtures("frozen_clock")
def test_more_units_end_later_than_as_many_messages() -> None:
    of = login(limits=[(10, 60)])
    factories.at_work(of.vendor)
    cheap, dear = (estimated(of, "x" * length, [{}] * 20) for length in (10, 500))
    assert dear.units == 4 * cheap.units
    assert (dear.end.ends_at - cheap.end.ends_at).total_seconds() == pytest.approx(6 * 60, abs=5)


@pytest.mark.usefixtures("frozen_clock")
def test_the_first_call_is_told_as_well_as_the_last_one() -> None:
    """Of what waits already, ten go in each minute: the first of these comes in the second one."""
    of = login(limits=[(10, 60)])
    factories.at_work(of.vendor)
    factories.campaign_with_job(15, of=of, status="DISPATCHED")
    now = timezone.now()
    found = estimated(of, "x", [{}] * 20)
    first, last = (one.ends_at - now for one in (found.start, found.end))
    assert first.total_seconds() == pytest.approx(60, abs=5) and last.total_seconds() == pytest.approx(180, abs=5)
    begin, end = (f"{timezone.localtime(one.ends_at):%H:%M}" for one in (found.start, found.end))
    assert "were it sent now, the first would go out" in found.sentence(now) and begin != end
    assert found.estimate_facts()["starts_at"] < found.estimate_facts()["ends_at"]
    assert "were it sent now, it would go out" in estimated(of, "x", [{}]).sentence(now)
    assert "the first would go out at once" in estimated(unlimited(), "x", [{}]).sentence(now)


def unlimited() -> Credential:
    of = login()
    factories.at_work(of.vendor)
    return of


def test_a_link_counts_with_the_length_that_it_will_have(settings: Any) -> None:
    settings.PUBLIC_URL = "https://mail.example.org"
    campaign = Campaign(transactional=False)
    links = links_of(campaign, "sms", frozenset(), None)
    url = len("https://mail.example.org/unsubscribe/") + SIZE
    body = "a" * (160 - url) + "{{ unsubscribe_url }}"
    assert estimated(login(), body, [{}], links).units == 1
    assert estimated(login(), "a" + body, [{}], links).units == 2


class TestDoors:
    def test_the_command_says_it_and_stores_nothing(self, vendor: Vendor, files: Path) -> None:
        factories.sponsor("Velma")
        priced(vendor, "0.25")
        assert "not known" in send(files, "--check")
        assert json.loads(send(files, "--check", "--json"))["messages"] is None
        Vendor.objects.update(settings={"url": "http://127.0.0.1:9/letters"})
        said = send(files, "--check")
        assert said.startswith("2 messages; 0.50 EUR at today's price; ") and nothing_is_stored()
        facts = json.loads(send(files, "--check", "--json"))
        assert (facts["messages"], facts["units"], facts["exact"], facts["amount"]) == (2, 2, True, "0.50")
        assert "0.50 EUR" in send(files, "--preview", "1") and nothing_is_stored()
        assert "2 messages; 0.50 EUR at today's price" in send(files), "it waits for the night, and can be stopped"

    def test_of_a_route_each_vendor_is_estimated_that_the_sponsor_may_use(self, vendor: Vendor, files: Path) -> None:
        factories.sponsor("Velma")
        dearer = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/letters"}))
        Vendor.objects.update(settings={"url": "http://127.0.0.1:9/letters"})
        priced(vendor, "0.25")
        priced(dearer.vendor, "1")
        manage("route", "add", "mail", vendor.slug, dearer.vendor.slug)
        order = [str(files / "people.csv"), *basics(files), "--check", "--route", "mail"]
        del order[order.index("--vendor") : order.index("--vendor") + 2]
        said = manage("send_campaign", *order).splitlines()
        assert said[0].startswith(f"by {vendor.slug}/default: 2 messages; 0.50 EUR")
        assert said[1].startswith(f"by {dearer}: 2 messages; 2.00 EUR") and len(said) == 2
        found = [json.loads(line) for line in manage("send_campaign", *order, "--json").splitlines()]
        assert [(one["by"], one["amount"]) for one in found] == [
            (f"{vendor.slug}/default", "0.50"),
            (str(dearer), "2.00"),
        ]
        assert nothing_is_stored()

    def test_a_stored_campaign_is_estimated_on_its_page_until_it_is_sent(self) -> None:
        of = login()
        priced(of.vendor, "2")
        job: Job = factories.campaign_with_job(3, of=of)
        Campaign.objects.filter(pk=job.campaign_id).update(body="{{ text }}")
        Message.objects.filter(campaign=job.campaign_id).update(params={"text": "b" * 161})
        client = Client()
        client.force_login(User.objects.create(username="admin", is_staff=True, is_superuser=True))
        page = f"/admin/campaigns/campaign/{job.campaign_id}/change/"
        assert "3 messages: 6 SMS segments; 12.00 EUR at today" in client.get(page).content.decode()
        Job.objects.filter(pk=job.pk).update(units=2, accepted=1)
        assert "2 units so far" in client.get(page).content.decode()
        Job.objects.filter(pk=job.pk).update(units=0, accepted=0)
        Campaign.objects.filter(pk=job.campaign_id).update(body="{{ text")
        assert "not known: " in client.get(page).content.decode()
