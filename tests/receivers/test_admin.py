"""Receivers on the pages of operators: their limits are edited with vendor and credential."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from tests import factories
from tests.vendors.test_admin import form, login_form
from vendors.models import Credential, RateLimit, ReceiverLimit, Vendor

pytestmark = pytest.mark.django_db
URL = {"url": "http://127.0.0.1:1/letters"}


@pytest.fixture
def admin_user(db: None) -> User:
    """Without a password: hashing one takes longer than a test."""
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


@pytest.fixture
def login() -> Credential:
    return factories.credential(factories.vendor("v", settings=URL, channel="email"), "login")


def rows(*typed: dict[str, Any]) -> dict[str, Any]:
    """Rows of the inline table as a browser posts them, all new unless they have an id."""
    there = sum("id" in row for row in typed)
    found: dict[str, Any] = {"receiver_limits-TOTAL_FORMS": len(typed), "receiver_limits-INITIAL_FORMS": there}
    for number, row in enumerate(typed):
        values = {"receiver": "gmail", "seconds": 60, "growth": 1.5, **row}
        found |= {f"receiver_limits-{number}-{name}": value for name, value in values.items()}
    return found


def at_vendor(of: Vendor) -> str:
    return f"/admin/vendors/vendor/{of.pk}/change/"


def at_login(of: Credential) -> str:
    return f"/admin/vendors/credential/{of.pk}/change/"


def test_limits_are_added_changed_and_removed_with_their_vendor(admin_client: Client, login: Credential) -> None:
    of = login.vendor
    assert admin_client.post(at_vendor(of), form(**rows({"units": 100}))).status_code == 302
    [limit] = ReceiverLimit.objects.all()
    assert (limit.vendor, limit.credential, limit.receiver, limit.units) == (of, None, "gmail", 100)
    after = Vendor.objects.get(pk=of.pk)
    assert after.limits_version > of.limits_version
    assert any(
        "limits of gmail: no limit → 100 per 60 s" in entry.get_change_message() for entry in LogEntry.objects.all()
    )
    admin_client.post(at_vendor(of), form(**rows({"id": limit.pk, "units": 50})))
    assert ReceiverLimit.objects.get().units == 50
    admin_client.post(at_vendor(of), form(**rows({"id": limit.pk, "units": 50, "DELETE": "on"})))
    assert not ReceiverLimit.objects.exists()
    assert Vendor.objects.get(pk=of.pk).limits_version > after.limits_version + 1


def test_a_limit_of_a_credential_holds_there_alone(admin_client: Client, login: Credential) -> None:
    of_vendor = ReceiverLimit.objects.create(vendor=login.vendor, receiver="yahoo", units=7, seconds=60)
    admin_client.post(at_login(login), login_form(**rows({"units": 5})))
    [limit] = login.receiver_limits.all()
    assert (limit.vendor, limit.units) == (login.vendor, 5)
    assert [one.pk for one in login.vendor.receiver_limits.filter(credential=None)] == [of_vendor.pk]
    page = admin_client.get(at_login(login)).content.decode()
    assert "5 per 60 s" in page and "7 per 60 s" not in page


def test_a_warm_up_shows_today_and_tomorrow(admin_client: Client, login: Credential) -> None:
    today = timezone.localdate().isoformat()
    admin_client.post(at_vendor(login.vendor), form(**rows({"units": 2000, "seconds": 86400, "grows_from": today})))
    ReceiverLimit.objects.update(grows_from=timezone.localdate() - timedelta(days=1))
    page = admin_client.get(at_vendor(login.vendor)).content.decode()
    assert "today 3,000 per day, tomorrow 4,500 per day" in page
    named, lists = page.count('aria-label="Receiver"'), page.count('<select name="receiver_limits-')
    assert named == lists > 0


def test_who_may_only_look_reads_limits_as_sentences(client: Client, login: Credential) -> None:
    vera = User.objects.create(username="vera", is_staff=True)
    codes = ("view_vendor", "view_credential", "view_ratelimit", "view_receiverlimit", "view_mailcaster")
    vera.user_permissions.set(Permission.objects.filter(codename__in=(*codes, "all_sponsors")))
    client.force_login(vera)
    of = login.vendor
    RateLimit.objects.create(vendor=of, units=5, seconds=60)
    ReceiverLimit.objects.create(vendor=of, receiver="yahoo", units=7, seconds=60)
    factories.caster(of, "MC1")
    page = client.get(at_vendor(of)).content.decode()
    assert "5 per 60 s" in page and "yahoo: 7 per 60 s" in page and "MC1: Large Priority, 2000 to 10000" in page
    Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason="http 401: refused")
    page = client.get(at_login(login)).content.decode()
    assert page.count("http 401: refused") == 1 and "Ask whoever runs mailhub." in page and "Resume" not in page
    assert "5 per 60 s" in page and page.count("None.") == 2


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (({"units": 5}, {"units": 6}), "Two limits of gmail have the same window"),
        (({"units": 5, "receiver": "gmial"},), "Select a valid choice"),
        (({"units": 5, "growth": 0.5},), "greater than or equal to 1"),
        (({"units": 5, "seconds": 0.01, "grows_from": "2026-01-01"},), "do not grow"),
    ],
)
def test_what_the_command_refuses_is_refused_here(
    admin_client: Client, login: Credential, typed: tuple[dict[str, Any], ...], why: str
) -> None:
    for at, page in ((at_vendor(login.vendor), form), (at_login(login), login_form)):
        answer = admin_client.post(at, page(**rows(*typed)))
        assert answer.status_code == 200 and why in answer.content.decode()
    assert not ReceiverLimit.objects.exists()


def test_vendors_of_other_channels_have_no_receivers(admin_client: Client) -> None:
    of = factories.credential(factories.vendor("sms", settings=URL, channel="sms")).vendor
    assert "receiver_limits" not in admin_client.get(at_vendor(of)).content.decode()


def test_a_form_without_these_rows_changes_none(admin_client: Client, login: Credential) -> None:
    ReceiverLimit.objects.create(vendor=login.vendor, receiver="yahoo", units=7, seconds=60)
    assert admin_client.post(at_vendor(login.vendor), form(name="New")).status_code == 302
    assert ReceiverLimit.objects.count() == 1 and Vendor.objects.get().name == "New"
