"""Operators' lists and forms are German for who reads German, also where the rows and the models hold English."""

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Field
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone, translation

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.models import Job, Suppression
from campaigns.suppression import lists, refused
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.campaigns.rows import accepted, logged
from vendors import history
from vendors.history import Actor
from vendors.models import Mailcaster
from vendors.said import Said, show

pytestmark = pytest.mark.django_db
GERMAN = {"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"}
OURS = ("campaigns", "vendors", "mailhub", "waiter")


def chosen(model, name):
    """Whether a column or field is one whose values have names; languages are named in themselves."""
    field = next((one for one in model._meta.get_fields() if isinstance(one, Field) and one.name == name), None)
    return field is not None and bool(field.flatchoices) and name != "language"


@pytest.fixture
def request_of_all():
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser("root")
    return request


def cells(page):
    return {text.strip() for text in re.findall(r">([^<>]+)<", page)}


def test_no_list_and_no_form_names_a_choice_as_the_model_does(client, request_of_all):
    client.get("/login/")  # the pages' addresses are loaded with the first of them
    site = {model: one for model, one in admin.site._registry.items() if model._meta.app_label in OURS}
    shown = [(model, name) for model, one in site.items() for name in one.get_list_display(request_of_all)]
    assert len(shown) > 80
    assert not [(model.__name__, name) for model, name in shown if isinstance(name, str) and chosen(model, name)]
    seen = 0
    with translation.override("de"):
        for model, one in site.items():
            for name, field in one.get_form(request_of_all).base_fields.items():
                if chosen(model, name):
                    seen += 1
                    raw = dict(model._meta.get_field(name).flatchoices)
                    wanted = {value: str(translation.gettext(str(label))) for value, label in raw.items()}
                    assert {value: label for value, label in field.choices if label != "---------"} == wanted, (
                        model,
                        name,
                    )
    assert seen > 3


def test_a_vendors_list_and_form_are_german(admin_client):
    vendor = factories.vendor("old-print", limits=[(5, 60), (1200, 1)])
    Mailcaster.objects.create(vendor=vendor, name="a", kind="small-only")
    page = cells(admin_client.get("/admin/vendors/vendor/", headers=GERMAN).text)
    assert {"E-Mail", "5 je 60 s", "Grenzen"} <= {part for cell in page for part in (cell, *cell.split(", "))}
    assert "1.200 je Sekunde" in " ".join(page)
    assert not {"E-mail", "Limits"} & page
    assert "5 je 60 s" in admin_client.get("/admin/vendors/ratelimit/", headers=GERMAN).text
    assert "Nur kleine" in cells(admin_client.get("/admin/vendors/mailcaster/", headers=GERMAN).text)
    shown = cells(admin_client.get(f"/admin/vendors/vendor/{vendor.pk}/change/", headers=GERMAN).text)
    assert {"Grenzen", "Beschreibung:", "E-Mail", "Nur kleine", "Anfragen mindestens:"} <= shown
    assert not {"Rate limits", "Description:", "E-mail", "Small Only", "Min requests:"} & shown
    form = admin_client.get(f"/admin/vendors/vendor/{vendor.pk}/change/", headers=GERMAN).text
    assert "Speichern und neu hinzufügen" in form and "Sichern" not in form, "one word for Save on all pages"
    new = cells(admin_client.get("/admin/vendors/vendor/add/", headers=GERMAN).text)
    assert {"Pausiert", "Druck"} <= new
    assert not {"Paused", "Print", "Rate limits"} & new
    assert "Rate limits" in cells(admin_client.get("/admin/vendors/vendor/add/").text)


def test_a_campaigns_page_and_the_filter_of_days_are_german(admin_client):
    campaign = factories.campaign_with_job(2).campaign
    page = cells(admin_client.get("/admin/campaigns/campaign/", headers=GERMAN).text)
    assert "Angelegt:" in page
    assert "Created:" not in page
    login = campaign.credential
    type(login.vendor).objects.filter(pk=login.vendor_id).update(settings={})
    page = admin_client.get(f"/admin/campaigns/campaign/{campaign.pk}/change/", headers=GERMAN).text
    assert "HTML:" in cells(page)
    assert "Html:" not in cells(page)
    assert "Die Kosten sind nicht bekannt: Die Einstellungen des Anbieters" in page


@pytest.mark.parametrize(
    ("source", "german"),
    [
        (
            Said("campaign %(campaign)s, bounced: %(code)s", campaign="4", code="5.1.1"),
            "Kampagne 4, unzustellbar: 5.1.1",
        ),
        (Said("campaign %(campaign)s, bounced", campaign="4"), "Kampagne 4, unzustellbar"),
        (refused.source_of_refusal(4, "550", "5.1.1"), "Kampagne 4, abgelehnt: 550 5.1.1"),
        (
            Said("campaign %(campaign)s, soft bounces on %(count)s days", campaign="4", count=3),
            "Kampagne 4, vorübergehend unzustellbar an 3 Tagen",
        ),
        (Said("complaint, campaign %(campaign)s", campaign="4"), "Beschwerde, Kampagne 4"),
        (Said("unsubscribed, campaign %(campaign)s", campaign="4"), "abgemeldet, Kampagne 4"),
        (Said("one-click, campaign %(campaign)s", campaign="4"), "mit einem Klick, Kampagne 4"),
        (Said("link, campaign %(campaign)s", campaign="4"), "Link, Kampagne 4"),
        (Said("e-mail, campaign %(campaign)s", campaign="4"), "E-Mail, Kampagne 4"),
        (Said("inbound, %(vendor)s: %(number)s", vendor="sms", number="+4420"), "eingegangen, sms: +4420"),
        ("my list of May", "my list of May"),
    ],
)
def test_where_a_suppression_comes_from_is_german(source: str, german: str):
    with translation.override("de"):
        assert show(source) == german


def test_lists_of_suppressions_name_their_origin_and_reason_in_german(admin_client, client, owner):
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    new = [
        NewSuppression("a@own.example", "bounced", refused.source_of_refusal(4, "550", "5.1.1")),
        NewSuppression(
            "b@own.example",
            "bounced",
            Said("campaign %(campaign)s, soft bounces on %(count)s days", campaign="4", count=3),
        ),
    ]
    lists.add_suppressions(sponsor.pk, "email", new)
    lists.add_suppressions(None, "email", [NewSuppression("c@own.example", "by_hand")])
    wanted = {"Kampagne 4, abgelehnt: 550 5.1.1", "Kampagne 4, vorübergehend unzustellbar an 3 Tagen"}
    assert wanted <= cells(client.get("/suppressions/", headers=GERMAN).text)
    shown = admin_client.get("/admin/campaigns/suppression/", headers=GERMAN).text
    assert wanted | {"Dauerhaft unzustellbar", "E-Mail", "alle Mandanten"} <= cells(shown)
    assert "Aufheben: " in shown
    assert "Lift: " not in shown
    assert Suppression.objects.filter(source="campaign 4, refused: 550 5.1.1").count() == 1


def test_a_messages_page_has_a_german_state_and_german_dates(admin_client):
    at = timezone.now().replace(month=5, day=3, hour=14, minute=5, second=7)
    job = logged(1, [accepted() | {"sent_at": at, "delivered_at": at}])
    address = f"/admin/campaigns/message/{job.first_message}/change/"
    german, english = (admin_client.get(address, headers=one).text for one in (GERMAN, {}))
    shown = re.findall(r'<div class="readonly">([^<]*)', german)
    assert shown[0] == "Versandt"
    assert "3. Mai 14:05:07" in shown
    assert {"Sent", "3 May 14:05:07"} <= set(re.findall(r'<div class="readonly">([^<]*)', english))
    assert "Referenz:" in cells(german)


def test_a_history_page_names_the_row_in_german(admin_client):
    job = factories.campaign_with_job(1).campaign.jobs.get()
    history.record_changes(Actor("ann"), Job, [(job.pk, "job 7 dispatched")])
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/history/", headers=GERMAN).text
    assert f"<h1>Verlauf: Auftrag {job.pk}</h1>" in page
    assert f">job {job.pk}<" not in page
    english = admin_client.get(f"/admin/campaigns/job/{job.pk}/history/").text
    assert f"<h1>Change history: Job {job.pk}</h1>" in english


def test_a_template_is_offered_with_its_channel_in_german(client, owner):
    login = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/"}, casters=None))
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    factories.entitle([sponsor], [login.vendor])
    versions.add_version(sponsor.pk, "spring", "email", TemplateContent("Hi", "Good day"), Actor("ann"))
    page = client.get(reverse("new_campaign"), headers=GERMAN).text
    assert "spring, Version 1 (E-Mail)</option>" in page


def test_jobs_are_looked_up_by_states_in_peoples_words_with_the_machines_word_beside_them(admin_client):
    for headers, said in ((GERMAN, "Wartet auf Teilung"), ({}, "Parent queued")):
        page = admin_client.get("/admin/campaigns/job/?status=P_QUEUED", headers=headers).text
        assert f'<option value="P_QUEUED" selected>{said} (P_QUEUED)</option>' in page
        assert "<option>P_" not in page
    page = admin_client.get("/admin/campaigns/job/?status=Sent", headers=GERMAN).text
    assert '<option value="Sent" selected>Versandt</option>' in page


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("campaigns/job/?status=Gone", "ist kein Zustand; es gibt "),
        ("campaigns/job/?from=2026-13-01", "ist kein Datum und keine Zeit: Schreiben Sie 2026-03-01"),
        ("campaigns/campaign/?created_from=soon", "ist kein Datum und keine Zeit: Schreiben Sie 2026-03-01"),
        ("campaigns/message/attention/?from=soon", "ist kein Datum und keine Zeit: Schreiben Sie 2026-03-01"),
        ("campaigns/costentry/?from=soon", "ist kein Monat: Schreiben Sie ihn wie 2026-11"),
        ("campaigns/costentry/?from=2026-11&to=2026-01", "Bitte fragen Sie nach 1 bis "),
    ],
)
def test_a_look_up_that_is_not_understood_is_answered_in_german(admin_client, address, said):
    assert said in admin_client.get(f"/admin/{address}", headers=GERMAN).text
