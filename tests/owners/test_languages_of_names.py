"""Apps, tables, fields, rows and permissions are German on German pages, and English where that is stored."""

from decimal import Decimal

import pytest
from babel.messages.pofile import read_po
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.urls import reverse
from django.utils import timezone, translation

from campaigns.models import (
    Approval,
    Claim,
    CostEntry,
    Entitlement,
    InboundMessage,
    Job,
    Message,
    MessageEvent,
    Resolution,
    RouteMove,
    Suppression,
    Webhook,
)
from tests import factories
from tests.owners.test_languages import GERMAN, OF_GERMAN
from tests.owners.test_languages_of_lists import OURS, cells
from vendors import prices
from vendors.history import Actor
from vendors.listing import row_title
from vendors.models import Price, Usage

AT = timezone.now().replace(year=2026, month=5, day=3)
PRICE = {"per_unit": Decimal("0.07"), "currency": "EUR", "since": AT.date()}


@pytest.fixture(scope="module")
def catalogue():
    with (OF_GERMAN / "django.po").open("rb") as file:
        return {one.id for one in read_po(file, locale="de") if one.id}


def test_each_table_and_each_field_of_a_page_has_a_german_name(catalogue):
    names = set()
    admin.autodiscover()  # which pages do when they are asked for, so in other tests
    with translation.override("en"):
        for model in (one for label in OURS for one in apps.get_app_config(label).get_models()):
            of = model._meta
            names |= {str(of.verbose_name), str(of.verbose_name_plural)}
            if model in admin.site._registry:
                names |= {str(field.verbose_name) for field in (*of.local_fields, *of.local_many_to_many)}
    assert len(names) > 250
    missing = {name for name in names if name.lower() not in ("id", "uuid")} - catalogue
    assert not missing


@pytest.mark.django_db
def test_apps_have_german_names_wherever_they_are_named(admin_client):
    factories.sponsor()
    page = cells(admin_client.get("/admin/", headers=GERMAN).text)
    assert {"Kampagnen", "Anbieter", "Geparkte Aufgaben"} <= page
    assert not {"Campaigns", "Vendors", "Waiter"} & page
    assert not [one for one in cells(admin_client.get("/admin/campaigns/", headers=GERMAN).text) if "Campaigns" in one]
    assert {"Campaigns", "Vendors", "Waiter"} <= cells(admin_client.get("/admin/").text)


@pytest.mark.parametrize(
    ("row", "english", "german"),
    [
        (Approval(campaign_id=4), "approval of campaign 4", "Freigabe der Kampagne 4"),
        (Job(pk=7), "job 7", "Auftrag 7"),
        (Message(pk=7), "message 7", "Nachricht 7"),
        (Claim(pk=7), "claim 7", "Reservierung 7"),
        (Webhook(pk=7), "webhook 7", "Webhook 7"),
        (Suppression(pk=7), "suppression 7", "Sperre 7"),
        (CostEntry(messages=3, day=AT.date()), "3 messages on 2026-05-03", "3 Nachrichten am 2026-05-03"),
        (CostEntry(messages=1, day=AT.date()), "1 message on 2026-05-03", "1 Nachricht am 2026-05-03"),
        (MessageEvent(kind="opened", message_id=7), "Opened of message 7", "Geöffnet: Nachricht 7"),
        (Resolution(decision="sent", message_id=7), "sent 7", "versandt 7"),
        (Resolution(decision="failed", message_id=7), "failed 7", "fehlgeschlagen 7"),
        (Resolution(decision="resend", message_id=7), "send again 7", "noch einmal senden 7"),
        (InboundMessage(to="+44", command=""), "message to +44", "Nachricht an +44"),
        (InboundMessage(to="+44", command="stop"), "stop to +44", "stop an +44"),
        (Price(**PRICE), "0.07 EUR from 2026-05-03", "0.07 EUR ab 2026-05-03"),
        (
            Price(**PRICE, per_message=Decimal("0.1")),
            "0.07 + 0.1 a message EUR from 2026-05-03",
            "0.07 + 0.1 je Nachricht EUR ab 2026-05-03",
        ),
        (Usage(units=3, at=AT.date()), "3 at 2026-05-03", "3, 2026-05-03"),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "_meta") else "",
)  # fmt: skip
def test_a_row_is_named_in_the_language_of_the_page(row, english, german):
    assert str(row) == english
    with translation.override("de"):
        assert str(row) == german


@pytest.mark.django_db
def test_who_may_use_what_and_what_went_where_is_german():
    login = factories.credential(factories.vendor("amazingmail"))
    sponsor = factories.sponsor("Library")
    entitlement = Entitlement(sponsor=sponsor, vendor=login.vendor)
    move = RouteMove(messages=1200, came_from=login, went_to=login)
    assert str(entitlement) == "Library may use amazingmail"
    with translation.override("de"):
        assert str(entitlement) == "Library darf amazingmail nutzen"
        assert str(move) == f"1.200 von {login} an {login}"
    assert str(move) == f"1,200 from {login} to {login}"


@pytest.mark.django_db
def test_a_rows_page_and_whatever_refers_to_it_have_its_german_name(admin_client):
    job = factories.campaign_with_job(2).campaign.jobs.get()
    Claim.objects.create(job=job, fence=1, at=AT, messages=[job.first_message])
    page = admin_client.get(reverse("admin:campaigns_claim_changelist"), headers=GERMAN).text
    assert "job " not in page.split("<tbody>")[1].split("</tbody>")[0]
    with translation.override("de"):
        assert row_title(job) == f"Auftrag {job.pk}"
    assert row_title(job) == f"Job {job.pk}"


@pytest.mark.django_db
def test_a_history_names_rows_in_english_whoever_made_them(admin_client):
    vendor = factories.vendor("amazingmail")
    sent = {"vendor": vendor.pk, "currency": "EUR", "per_unit": "0.07", "per_message": "0", "since": "2099-01-01"}
    assert admin_client.post("/admin/vendors/price/add/", sent, headers=GERMAN).status_code == 302
    assert {one.object_repr for one in LogEntry.objects.all()} >= {"0.07 EUR from 2099-01-01"}
    assert not LogEntry.objects.filter(object_repr__contains=" ab ")
    with translation.override("de"):
        later = AT.date().replace(year=2098)
        prices.add_price(Price(vendor=vendor, per_unit=Decimal(1), currency="EUR", since=later), Actor("ann"))
    assert not LogEntry.objects.filter(change_message__contains=" ab ")


@pytest.mark.django_db
def test_permissions_are_offered_in_german(admin_client):
    for path in ("/admin/auth/group/add/", f"/admin/auth/user/{admin_client.get('/').wsgi_request.user.pk}/change/"):
        page = cells(admin_client.get(path, headers=GERMAN).text)
        assert {
            "Kampagnen | Auftrag | Auftrag hinzufügen",
            "Kampagnen | Nachricht | Empfänger von Nachrichten sehen",
            "Anbieter | Preis | Preis ansehen",
        } <= page
        assert not [one for one in page if " | Can " in one]
    page = cells(admin_client.get("/admin/auth/group/add/").text)
    ours = [str(one) for one in Permission.objects.filter(content_type__app_label="campaigns")]
    assert set(ours) <= page
