"""An owner reads his own quotas on his first page, and before he sends; no other sponsor's."""

import pytest
from django.urls import reverse

from campaigns.models import Campaign, SponsorQuota
from tests import factories
from tests.owners.test_wizard import SOON, ann, login, press, ready
from vendors.models import Vendor

__all__ = ["ann", "login"]
pytestmark = pytest.mark.django_db


def quota(sponsor, most, span="month", vendor=None):
    return SponsorQuota.objects.create(sponsor=sponsor, vendor=vendor, span=span, measure="messages", most=most)


def test_the_first_page_has_his_own_quotas_and_nobody_elses(client, login, ann):
    mine, other = ann.sponsors.get(), factories.sponsor()
    assert "Quotas" not in client.get("/").content.decode()
    quota(mine, 10), quota(other, 7_654_321)
    factories.campaign_with_job(9, status="DISPATCHED", of=login, by=mine, messages=False)
    page = client.get("/").content.decode()
    assert "has used 9 of 10 messages a month in all (90%)" in page and "nearly used" in page
    assert "7,654,321" not in page and other.name not in page


def test_the_check_page_says_what_does_not_fit_and_sends_nothing(client, login, ann):
    draft = ready(client, login)
    row = quota(ann.sponsors.get(), 1, vendor=login.vendor)
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    never = f"is 1 messages a month at {login.vendor.slug}, and this is 2: it never fits"
    assert never in page
    answer = press(client, draft, "send", **SOON)
    assert never in client.get(answer.headers["Location"]).content.decode()
    assert not Campaign.objects.exists()
    row.most = 2
    row.save()
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "has used 2 of 2 messages a month" in page, "a warning"
    press(client, draft, "send", **SOON)
    assert Campaign.objects.get().size == 2


def test_a_quota_at_another_vendor_is_not_asked(client, login, ann):
    draft = ready(client, login)
    quota(ann.sponsors.get(), 0, vendor=factories.vendor())
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "the quota of" not in page
    press(client, draft, "send", **SOON)
    assert Campaign.objects.exists()


def test_the_check_page_says_that_the_vendor_keeps_nothing_for_his_class(client, login, ann):
    draft = ready(client, login)
    page = reverse("draft_check", args=[draft.pk])
    assert "no floor" not in client.get(page).content.decode()
    Vendor.objects.update(floor=0)
    waits = f"{login.vendor.name} has no floor: bulk mail waits there as long as more urgent mail comes."
    assert waits.lower() in client.get(page).content.decode().lower()


def test_a_held_campaign_says_why_on_its_page(client, login, ann):
    mine = ann.sponsors.get()
    quota(mine, 5, span="flight", vendor=login.vendor)
    job = factories.campaign_with_job(6, of=login, by=mine, messages=False)
    page = client.get(reverse("campaign", args=[job.campaign_id])).content.decode()

    assert "Held: the quota of " in page and "it never fits" in page
