"""Where a vendor's mail goes, and as whom, is changed by two persons."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client

from campaigns.models import Sponsor
from tests.described.test_descriptions import GOOD
from tests.vendors.test_admin import form, login_form
from tests.vendors.test_ownership import URL, alpha, beta, owned, page, user_of
from vendors import second_person
from vendors.models import Credential, Vendor, VendorChange

__all__ = ["alpha", "beta", "user_of"]
pytestmark = pytest.mark.django_db
ELSEWHERE = {"url": "http://127.0.0.1:2/elsewhere"}
MOVED = form(settings='{"url": "http://127.0.0.1:2/elsewhere"}', name="Moved")
Users = Callable[..., Client]


@pytest.fixture
def vendor(alpha: Sponsor, beta: Sponsor) -> Vendor:
    return owned(alpha, "own")


def decide(client: Client, change: VendorChange, decision: str = "confirm") -> Any:
    return client.post(f"/admin/vendors/vendorchange/{change.pk}/decide/", {"decision": decision}, follow=True)


def open_change() -> VendorChange:
    return VendorChange.objects.get(outcome="")


def where(vendor: Vendor) -> Any:
    row = Vendor.objects.get(pk=vendor.pk)
    secrets = [one.secret for one in Credential.objects.filter(vendor=vendor).order_by("pk")]
    return row.adapter, row.settings, row.sandbox, row.destination, secrets


def test_a_new_address_takes_effect_when_another_person_confirms_it(
    user_of: Users, alpha: Sponsor, vendor: Vendor
) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    before = where(vendor)
    ann.post(page(vendor), MOVED)
    assert where(vendor) == before and Vendor.objects.get(pk=vendor.pk).name == "Moved", "all else is changed at once"
    change = open_change()
    shown = ann.get(page(vendor)).content.decode()
    assert f"/vendorchange/{change.pk}/" in shown and "waits for a second person" in shown
    assert "somebody else has to confirm" in decide(ann, change).content.decode() and where(vendor) == before
    assert ELSEWHERE["url"] in bob.get(page(change)).content.decode()
    decide(bob, change)
    assert Vendor.objects.get(pk=vendor.pk).settings == ELSEWHERE
    assert vendor.credentials.get().secret == {} and vendor.credentials.get().paused, "as at every other door"
    written = " ".join(LogEntry.objects.values_list("change_message", flat=True))
    assert "asked for url" in written and "confirmed by" in written and "secret-of" not in written
    assert "does not wait any more" in decide(bob, change).content.decode()


def test_a_secret_waits_encrypted_and_is_nowhere_afterwards(user_of: Users, alpha: Sponsor, vendor: Vendor) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    login = vendor.credentials.get()
    ann.post(page(login), login_form(name=login.name, secret='{"X-Key": "brand-new"}'))
    change = open_change()
    assert vendor.credentials.get().secret == {"X-Key": "secret-of-own"} and change.secret == {"X-Key": "brand-new"}
    raw = (
        VendorChange.objects.filter(pk=change.pk).extra(select={"raw": "secret::text"}).values_list("raw", flat=True)[0]
    )
    assert "brand-new" not in raw
    for client in (ann, bob):
        for at in (page(change), page(change, "history"), page(login), page(login, "history")):
            assert "brand-new" not in client.get(at).content.decode()
    decide(bob, change)
    assert vendor.credentials.get().secret == {"X-Key": "brand-new"}
    assert VendorChange.objects.get().secret == {} and VendorChange.objects.get().outcome == "confirmed"


def test_a_second_credential_is_paused_and_without_its_secret_until_it_is_confirmed(
    user_of: Users, alpha: Sponsor, vendor: Vendor
) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    ann.post("/admin/vendors/credential/add/", login_form(vendor=vendor.pk, name="default", secret='{"X-Key": "mine"}'))
    made = Credential.objects.get(vendor=vendor, name="default")
    assert made.paused and made.secret == {}
    decide(bob, open_change())
    made.refresh_from_db()
    assert made.secret == {"X-Key": "mine"} and made.paused


@pytest.mark.parametrize("who", ["asker", "other"])
def test_what_is_withdrawn_or_refused_is_never_made(user_of: Users, alpha: Sponsor, vendor: Vendor, who: str) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    before = where(vendor)
    ann.post(page(vendor), MOVED)
    change = open_change()
    decide(ann if who == "asker" else bob, change, "refuse")
    decide(bob, change)
    change.refresh_from_db()
    assert change.outcome == ("withdrawn" if who == "asker" else "refused") and where(vendor) == before


def test_nobody_of_another_sponsor_sees_or_confirms_it_and_the_installations_people_do(
    user_of: Users, alpha: Sponsor, beta: Sponsor, vendor: Vendor
) -> None:
    before = where(vendor)
    user_of([alpha], "vendor admin").post(page(vendor), MOVED)
    change = open_change()
    for client in (user_of([beta], "vendor admin"), user_of([], "vendor admin")):
        assert client.get(page(change)).status_code == 302 and decide(client, change).status_code == 404
    for client in (user_of([alpha], "operator"), user_of([alpha], "auditor")):
        assert client.get(page(change)).status_code == 200 and decide(client, change).status_code == 403
    assert where(vendor) == before
    decide(user_of([], "vendor admin", "all sponsors"), change)
    assert Vendor.objects.get(pk=vendor.pk).settings == ELSEWHERE


def test_what_was_changed_meanwhile_is_not_overwritten(user_of: Users, alpha: Sponsor, vendor: Vendor) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    ann.post(page(vendor), MOVED)
    login = vendor.credentials.get()
    ann.post(page(login), login_form(name=login.name, secret='{"X-Key": "brand-new"}'))
    of_vendor, of_login = VendorChange.objects.filter(outcome="").order_by("pk")
    call_command("vendor", "set", "own", "url=http://127.0.0.1:3/third")
    for change in (of_vendor, of_login):
        assert "changed since" in decide(bob, change).content.decode()
        change.refresh_from_db()
        assert (change.outcome, change.secret) == ("outdated", {})
    assert Vendor.objects.get(pk=vendor.pk).settings == {"url": "http://127.0.0.1:3/third"}
    assert vendor.credentials.get().secret == {}


def test_the_newest_wish_takes_the_place_of_the_one_before(user_of: Users, alpha: Sponsor, vendor: Vendor) -> None:
    ann = user_of([alpha], "vendor admin")
    ann.post(page(vendor), MOVED)
    ann.post(page(vendor), form(settings='{"url": "http://127.0.0.1:4/"}'))
    assert list(VendorChange.objects.order_by("pk").values_list("outcome", flat=True)) == ["withdrawn", ""]


@pytest.mark.parametrize(
    ("said", "sponsors", "waits"), [("auto", 2, True), ("auto", 1, False), ("yes", 1, True), ("no", 2, False)]
)
def test_a_setting_says_when_a_second_person_is_needed(settings: Any, said: str, sponsors: int, waits: bool) -> None:
    settings.VENDOR_SECOND_PERSON = said
    for n in range(sponsors):
        Sponsor.objects.create(name=f"sponsor {n}")
    assert second_person.is_needed() is waits


def test_tuning_waits_for_nobody_and_neither_does_the_shell(user_of: Users, alpha: Sponsor, vendor: Vendor) -> None:
    ann = user_of([alpha], "vendor admin")
    ann.post(page(vendor), form(settings='{"url": "http://127.0.0.1:1/letters", "concurrency": 3}'))
    assert Vendor.objects.get(pk=vendor.pk).settings == {**URL, "concurrency": 3}
    call_command("vendor", "set", "own", "url=http://127.0.0.1:5/shell")
    assert Vendor.objects.get(pk=vendor.pk).settings["url"] == "http://127.0.0.1:5/shell"
    assert not VendorChange.objects.exists()


def test_who_confirms_sees_each_changed_line_of_a_description(user_of: Users, alpha: Sponsor, beta: Sponsor) -> None:
    stored = {"description": GOOD, "team": "red"}
    vendor = Vendor.objects.create(slug="pigeon", name="Pigeon", adapter="described", settings=stored, owner=alpha)
    Credential.objects.create(vendor=vendor, name="login", secret={"token": "of-us"})
    evil = GOOD.replace("https://api.pigeon.example/", "https://evil.example/")
    settings = json.dumps({**stored, "description": evil})
    user_of([alpha], "vendor admin").post(page(vendor), form(slug="pigeon", adapter="described", settings=settings))
    change = open_change()
    shown = user_of([alpha], "vendor admin").get(page(change)).content.decode()
    assert "https://evil.example/{settings.team}/letters" in shown and "https://api.pigeon.example/" in shown
    assert "documents =" not in shown, "lines that stay are left out"
    written = " ".join(LogEntry.objects.values_list("change_message", flat=True))
    assert "sha256" in written and "https://evil.example" not in written, "the history has its digest"
