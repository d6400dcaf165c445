"""Where a vendor's mail goes, and as whom, is changed by two persons."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client

from campaigns.engine.routes.entries import closed_credentials
from campaigns.models import Sponsor
from tests import factories
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


def test_the_only_credential_is_not_replaced_by_removing_it(user_of: Users, alpha: Sponsor, beta: Sponsor) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    vendor = Vendor.objects.create(slug="bare", name="Bare", adapter="http", settings=URL, owner=alpha)
    login = factories.credential(vendor, secret={"X-Key": "of-us"})
    ann.post(page(login, "delete"), {"post": "yes"})
    assert not vendor.credentials.exists()
    ann.post(
        "/admin/vendors/credential/add/", login_form(vendor=vendor.pk, name=login.name, secret='{"X-Key": "mine"}')
    )
    made = vendor.credentials.get()
    assert made.paused and made.secret == {}
    ann.post(page(made), login_form(name=made.name))
    assert "somebody else has to confirm" in decide(ann, open_change()).content.decode()
    assert vendor.credentials.get().secret == {}
    decide(bob, open_change())
    made = vendor.credentials.get()
    assert made.secret == {"X-Key": "mine"}
    ann.post(page(made, "delete"), {"post": "yes"})
    assert not vendor.credentials.exists() and not VendorChange.objects.exists(), "it goes with what was asked for it"


def begin_route(client: Client, alpha: Sponsor, *logins: Credential) -> None:
    """A route of the sponsor over these, in this order."""
    rows = {"entries-TOTAL_FORMS": len(logins), "entries-INITIAL_FORMS": 0}
    for n, login in enumerate(logins):
        rows |= {f"entries-{n}-position": n + 1, f"entries-{n}-credential": login.pk, f"entries-{n}-weight": 0}
    about = {"sponsor": alpha.pk, "name": "news", "channel": "email", "patience": 60}
    assert client.post("/admin/campaigns/route/add/", about | rows).status_code == 302


def add_vendor(client: Client, alpha: Sponsor) -> Credential:
    """A vendor with a credential, which the sponsor may use."""
    client.post("/admin/vendors/vendor/add/", form(slug="new", owner=alpha.pk, settings=json.dumps(ELSEWHERE)))
    made = Vendor.objects.get(slug="new")
    client.post("/admin/vendors/credential/add/", login_form(vendor=made.pk, name="default"))
    client.post("/admin/campaigns/entitlement/add/", {"sponsor": alpha.pk, "vendor": made.pk, "credential": ""})
    factories.caster(made)
    return made.credentials.get()


def take_work(*logins: Credential) -> list[bool]:
    """Of each, whether a route leads work to it."""
    found = closed_credentials([one.pk for one in logins], 60)
    return [not found[one.pk] for one in logins]


def test_no_route_of_one_person_leads_mail_to_a_new_vendor(user_of: Users, alpha: Sponsor, vendor: Vendor) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    factories.entitle([alpha], [vendor])
    of_new, of_old = add_vendor(ann, alpha), vendor.credentials.get()
    begin_route(ann, alpha, of_new, of_old)
    assert take_work(of_new, of_old) == [False, True]

    def resume(client: Client) -> str:
        at = f"/admin/vendors/vendor/{of_new.vendor_id}/pause/"
        return client.post(at, {"confirmed": "1", "was": "paused", "reason": "go"}, follow=True).content.decode()

    for client in (ann, bob):
        assert "waits until a second person confirms" in resume(client), "whoever resumes it asks for it"
        assert take_work(of_new, of_old) == [False, True]
    assert "somebody else has to confirm" in decide(bob, open_change()).content.decode()
    assert ELSEWHERE["url"] in ann.get(page(open_change())).content.decode()
    decide(ann, open_change())
    assert take_work(of_new, of_old) == [True, True]
    written = " ".join(LogEntry.objects.values_list("change_message", flat=True))
    assert "asked for new vendor" in written and "confirmed by" in written
    ann.post(f"/admin/vendors/vendor/{of_new.vendor_id}/pause/", {"confirmed": "1", "was": "going", "reason": "why"})
    assert take_work(of_new) == [False]
    resume(ann)
    assert take_work(of_new) == [True], "it was confirmed once"


def test_a_new_vendor_is_confirmed_as_it_is_by_then(user_of: Users, alpha: Sponsor, beta: Sponsor) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    made = add_vendor(ann, alpha).vendor
    first = open_change()
    ann.post(page(made), form(slug="new", settings='{"url": "http://127.0.0.1:3/third"}'))
    made.refresh_from_db()
    assert made.settings["url"] == "http://127.0.0.1:3/third", "nothing is called there yet"
    assert "does not wait any more" in decide(bob, first).content.decode()
    call_command("vendor", "set", "new", "url=http://127.0.0.1:4/fourth")
    assert "changed since" in decide(bob, open_change()).content.decode()
    made.refresh_from_db()
    assert made.paused
    call_command("vendor", "resume", "new")
    made.refresh_from_db()
    assert not made.paused, "a shell needs nobody"


def test_a_shells_pause_of_a_new_vendor_takes_its_second_person_away_from_nobody(
    user_of: Users, alpha: Sponsor, beta: Sponsor
) -> None:
    ann, bob = user_of([alpha], "vendor admin"), user_of([alpha], "vendor admin")
    made = add_vendor(ann, alpha).vendor
    for _ in range(2):
        call_command("vendor", "pause", "new", reason="an incident")
    assert "changed since" in decide(bob, open_change()).content.decode(), "that pause holds"
    ann.post(f"/admin/vendors/vendor/{made.pk}/pause/", {"confirmed": "1", "was": "paused", "reason": "go"})
    made.refresh_from_db()
    assert made.paused and made.paused_reason.endswith("confirms it; an incident")
    decide(bob, open_change())
    made.refresh_from_db()
    assert (made.paused, made.paused_reason) == (False, "")


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
