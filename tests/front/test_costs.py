"""What vendors charge, for programs and on the admin's page: a sponsor and its users see their own."""

import csv
import io
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from campaigns.models import CostEntry
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, problem
from vendors import prices
from vendors.history import Actor
from vendors.models import Price

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
PAGE = "/admin/campaigns/costentry/"
SMS = {"channel": "sms", "settings": {"url": "http://127.0.0.1:9/letters", "unit": "segment"}}


def enter(program: Program, vendor: Any, day: date, messages: int, units: int) -> None:
    whose = {"sponsor": program.sponsor, "vendor": vendor, "credential": vendor.credentials.get()}
    CostEntry.objects.create(day=day, messages=messages, units=units, **whose)


def priced(vendor: Any, per_unit: str) -> None:
    prices.add_price(
        Price(vendor=vendor, per_unit=Decimal(per_unit), since=date(2024, 1, 1), currency="EUR"), Actor("ann")
    )


def test_a_program_sees_its_sponsors_costs_by_month_and_vendor() -> None:
    ours, theirs, vendor, other = Program(), Program(), api_vendor(), api_vendor()
    priced(vendor, "0.01")
    enter(ours, vendor, date(2025, 1, 31), 10, 30)
    enter(ours, vendor, date(2025, 2, 1), 1, 1)
    enter(ours, other, date(2025, 2, 1), 5, 5)
    enter(theirs, vendor, date(2025, 1, 31), 99, 99)
    found = ours.get("/api/v1/costs?from=2025-01&to=2025-02").json()["data"]
    assert {
        "month": "2025-01",
        "vendor": vendor.slug,
        "messages": 10,
        "units": 30,
        "currency": "EUR",
        "amount": "0.30",
        "in_doubt": 0,
        "in_doubt_amount": "0.00",
    } in found
    assert len(found) == 3 and found[-1]["month"] == "2025-01"
    assert [row["amount"] for row in found if row["vendor"] == other.slug] == [None]
    only = ours.get(f"/api/v1/costs?from=2025-01&to=2025-02&vendor={other.slug}").json()["data"]
    assert [row["messages"] for row in only] == [5]
    assert ours.get("/api/v1/costs").json() == {"data": []}, "those months are more than a year ago"
    enter(ours, vendor, prices.pricing_day(), 2, 2)
    assert [row["messages"] for row in ours.get("/api/v1/costs").json()["data"]] == [2]
    assert Program(ours.sponsor, "test").get("/api/v1/costs").json() == {"data": []}


@pytest.mark.parametrize(
    "asked", ["from=2025", "from=2025-13", "from=2025-02&to=2025-01", "from=1000-01", "to=9999-12"]
)
def test_what_is_no_time_is_refused(asked: str) -> None:
    problem(Program().get(f"/api/v1/costs?{asked}"), "validation", 422)


def test_a_dry_run_says_what_it_will_cost_and_a_real_one_nothing_of_it() -> None:
    program, vendor = Program(), api_vendor(**SMS)
    priced(vendor, "0.5")
    body = letter(vendor, ["+4915112345678", "+4915112345679"], body="a" * 161) | {"subject": ""}
    dry = program.send(body, None, "/api/v1/messages?dry_run=true").json()
    assert dry["cost"] == {"messages": 2, "units": 4, "exact": True, "currency": "EUR", "amount": "2.00"}
    assert program.send(body).json()["cost"] is None


def viewer(sponsor: Any = None, *codes: str) -> Client:
    user = User.objects.create(username=factories.unique("user"), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
    if sponsor:
        sponsor.users.add(user)
    client = Client()
    client.force_login(user)
    return client


def test_users_see_the_costs_of_their_sponsors_on_a_page_and_as_csv() -> None:
    ours, theirs, vendor = Program(), Program(), api_vendor()
    priced(vendor, "1.5")
    enter(ours, vendor, prices.pricing_day(), 3, 3)
    enter(theirs, vendor, prices.pricing_day(), 7_654_321, 1)
    client = viewer(ours.sponsor, "view_costentry")
    page = client.get(PAGE).content.decode()
    assert "4.50 EUR" in page and "7,654,321" not in page
    (row,) = csv.DictReader(io.StringIO(client.get(f"{PAGE}?csv=1").content.decode("utf-8-sig")))
    assert (row["sponsor"], row["messages"], row["amount"]) == (ours.sponsor.name, "3", "4.50")
    foreign = client.get(f"{PAGE}?sponsor={theirs.sponsor.pk}&csv=1").content.decode()
    assert len(foreign.splitlines()) == 1
    everything = viewer(None, "view_costentry", "all_sponsors").get(f"{PAGE}?csv=1").content.decode()
    assert len(everything.splitlines()) == 3
    assert "is not a month" in client.get(f"{PAGE}?from=x").content.decode()
    assert viewer(ours.sponsor).get(PAGE).status_code == 403


def test_a_price_is_added_in_the_admin_and_never_changed() -> None:
    vendor = api_vendor()
    client = viewer(None, "view_price", "add_price", "change_price", "delete_price", "view_vendor", "all_sponsors")
    typed = {"vendor": vendor.pk, "since": "2025-01-01", "currency": "EUR", "per_unit": "0.5", "per_message": "0"}
    add = "/admin/vendors/price/add/"
    assert client.post(add, typed).status_code == 302
    row = Price.objects.get()
    assert row.per_unit == Decimal("0.5") and row.entered_by.startswith("user")
    again = client.post(add, typed | {"per_unit": "0.4"})
    assert b"say why with a reason" in again.content and Price.objects.count() == 1
    assert client.post(add, typed | {"per_unit": "0.4", "reason": "a wrong list"}).status_code == 302
    assert b"not a currency" in client.post(add, typed | {"currency": "eur"}).content
    for path in ("change", "delete"):
        assert client.post(f"/admin/vendors/price/{row.pk}/{path}/", typed | {"per_unit": "9"}).status_code == 403
    assert sorted(Price.objects.values_list("per_unit", flat=True)) == [Decimal("0.4"), Decimal("0.5")]
