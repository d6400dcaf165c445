"""Over the API a sponsor sees and uses its own vendors, credentials and sender identities, and no others."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.models import Campaign, Entitlement, Identity, Session
from campaigns.senders import entitlements
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
RELAY = {"host": "relay.example"}


def withdraw(program: Program, vendor: Any) -> None:
    Entitlement.objects.filter(sponsor=program.sponsor, vendor=vendor).delete()
    vendor_cache.forget_vendors()


def identity(program: Program, name: str, **fields: Any) -> Identity:
    address = f"{name}@velma.example"
    made = Identity.objects.create(sponsor=program.sponsor, name=name, from_address=address, **fields)
    vendor_cache.forget_vendors()
    return made


def campaign(answer: Any) -> Campaign:
    assert answer.status_code == 202, answer.content
    session = Session.objects.select_related("job__campaign").order_by("id").last()
    assert session
    return session.job.campaign


def test_a_vendor_that_was_not_offered_looks_like_one_that_is_not_there() -> None:
    ours, theirs, vendor = Program(), Program(), api_vendor()
    withdraw(theirs, vendor)
    assert [one["slug"] for one in ours.get("services").json()["data"]] == [vendor.slug]
    assert theirs.get("services").json()["data"] == []
    assert campaign(ours.send(letter(vendor))).sponsor == ours.sponsor
    foreign, unknown = theirs.send(letter(vendor)), theirs.send({**letter(vendor), "vendor": "nobody"})
    assert pointers(foreign) == pointers(unknown) == {"/vendor": "vendor"}
    assert foreign.content.replace(vendor.slug.encode(), b"nobody") == unknown.content
    assert pointers(theirs.send({**letter(), "channel": "email"})) == {"/channel": "channel"}
    dry = theirs.send(letter(vendor), path="/api/v1/messages?dry_run=true")
    assert pointers(dry) == {"/vendor": "vendor"}
    factories.entitle([theirs.sponsor], [vendor])
    assert campaign(theirs.send(letter(vendor))).sponsor == theirs.sponsor, "at once, for it is looked up anew"


def test_a_repeat_gets_its_first_answer_after_the_entitlement_is_gone() -> None:
    program, vendor = Program(), api_vendor()
    first = program.send(letter(vendor), "one")
    withdraw(program, vendor)
    again = program.send(letter(vendor), "one")
    assert (again.status_code, again.content, again.headers["Idempotent-Replayed"]) == (202, first.content, "true")
    problem(program.send(letter(vendor), "two"), "validation", 422)


def test_a_sponsor_sends_over_the_credential_that_it_may_use() -> None:
    ours, theirs, vendor = Program(), Program(), api_vendor()
    brand = factories.credential(vendor, "brand", paused=True, paused_reason="the bill of the brand")
    withdraw(ours, vendor)
    Entitlement.objects.create(sponsor=ours.sponsor, vendor=vendor, credential=brand)
    vendor_cache.forget_vendors()
    assert "credential paused" in problem(ours.send(letter(vendor)), "vendor-paused", 503)["detail"]
    type(vendor).objects.filter(pk=vendor.pk).update(owner=ours.sponsor)
    vendor_cache.forget_vendors()
    assert "the bill of the brand" in problem(ours.send(letter(vendor)), "vendor-paused", 503)["detail"]
    assert campaign(theirs.send(letter(vendor))).credential.name == "default"
    assert [one["paused"] for one in theirs.get("services").json()["data"]] == [None]
    type(brand).objects.filter(pk=brand.pk).update(paused=False)
    vendor_cache.forget_vendors()
    assert campaign(ours.send(letter(vendor))).credential == brand


def test_a_request_names_an_identity_of_its_sponsor_else_it_goes_out_as_the_default() -> None:
    ours, theirs = Program(), Program()
    relay, http = api_vendor(adapter="smtp", settings=RELAY), api_vendor()
    assert campaign(ours.send(letter(http))).identity is None
    assert pointers(ours.send(letter(relay))) == {"/identity": "identity"}
    main, spring = identity(ours, "main", default=True), identity(ours, "spring")
    identity(theirs, "theirs", default=True)
    identity(ours, "old", enabled=False)
    assert campaign(ours.send(letter(relay))).identity == main == campaign(ours.send(letter(http))).identity
    assert campaign(ours.send(letter(relay, identity="spring"))).identity == spring
    for name in ("theirs", "old", "nobody"):
        assert pointers(ours.send(letter(relay, identity=name))) == {"/identity": "identity"}
    names = [(one["name"], one["default"], one["signed"]) for one in ours.get("identities").json()["data"]]
    assert names == [("main", True, False), ("spring", False, False)]
    assert [one["from_address"] for one in theirs.get("identities").json()["data"]] == ["theirs@velma.example"]


def test_the_identity_that_is_called_as_the_vendor_goes_before_the_default_at_both_doors() -> None:
    program = Program()
    relay, other = (api_vendor(adapter="smtp", settings=RELAY) for _ in range(2))
    main, named = identity(program, "main", default=True), identity(program, relay.slug)
    assert (
        campaign(program.send(letter(relay))).identity
        == named
        == entitlements.choose_identity_for(program.sponsor, relay)
    )
    assert (
        campaign(program.send(letter(other))).identity
        == main
        == entitlements.choose_identity_for(program.sponsor, other)
    )
    assert campaign(program.send(letter(relay, identity="main"))).identity == main
    Identity.objects.filter(pk=named.pk).update(enabled=False)
    vendor_cache.forget_vendors()
    assert (
        campaign(program.send(letter(relay))).identity
        == main
        == entitlements.choose_identity_for(program.sponsor, relay)
    )


def test_a_session_says_that_it_is_held_and_why() -> None:
    program, vendor = Program(), api_vendor()
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    link = program.send(letter(vendor, send_at=later)).json()["links"]["self"]
    assert program.get(link).json()["held"] is None
    withdraw(program, vendor)
    assert program.get(link).json()["held"] == "its sponsor may not use this vendor or credential any more"
    factories.entitle([program.sponsor], [vendor])
    of = identity(program, "main", default=True, enabled=False)
    Campaign.objects.update(identity=of)
    session = program.get(link).json()
    assert (session["status"], session["held"]) == ("scheduled", "its sender identity is disabled")


def test_without_an_identity_a_channel_means_the_vendors_that_need_none() -> None:
    program = Program()
    api_vendor(slug="a-relay", adapter="smtp", settings=RELAY)
    other = api_vendor(slug="b-http")
    answer = program.send({**letter(), "channel": "email"})
    assert answer.json()["vendor"] == other.slug and campaign(answer).identity is None
    text = api_vendor(channel="sms")
    wrong = {**letter(text, to="+447700900123"), "identity": "main"}
    assert pointers(program.send(wrong)) == {"/identity": "identity"}
