"""The vendor's page for operators: who shares it, as a picture of the last hour with a table that says the same."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.models import Sponsor, SponsorTurn
from mailhub.operations import share_chart
from tests import factories
from vendors.models import Minute, Vendor

pytestmark = pytest.mark.django_db


def given(vendor: Vendor, sponsor: Sponsor, ago: int, units: int) -> None:
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=ago)
    Minute.objects.create(vendor=vendor, at=at, sponsor=sponsor.pk, share=0, accepted=units, units=units)


@pytest.fixture
def shared() -> tuple[Vendor, Sponsor, Sponsor]:
    """Anton was given 30 units in each of the last minutes, Velma with weight 2 twice as much; both wait."""
    vendor = factories.at_work(factories.vendor("mail", limits=[(60, 60)]))
    login = factories.credential(vendor)
    anton, velma = factories.sponsor("Anton"), factories.sponsor("Velma")
    SponsorTurn.objects.create(sponsor=velma, vendor=vendor, weight=2)
    for ago in range(1, 11):
        given(vendor, anton, ago, 20)
        given(vendor, velma, ago, 40)
    factories.campaign_with_job(500, of=login, by=anton, status="DISPATCHED", messages=False)
    factories.campaign_with_job(70, of=login, by=velma, status="DISPATCHED", messages=False)
    return vendor, anton, velma


def address(vendor: Vendor) -> str:
    return f"/admin/operations/vendors/{vendor.pk}/shares/"


def test_the_picture_and_the_table_say_who_was_given_what(
    shared: tuple[Vendor, Sponsor, Sponsor], admin_client: Client
) -> None:
    vendor, _anton, _velma = shared
    chart = share_chart.chart_of_vendor(vendor)
    assert [(row.name, row.weight, row.given, row.percent, row.waiting, row.part) for row in chart.rows] == [
        ("Velma", 2, 400, 67, 70, 67), ("Anton", 1, 200, 33, 500, 33),
    ]  # fmt: skip
    assert (chart.most, chart.limit) == (60, 60) and len(chart.bars) == 20
    heights = {look: sum(bar.height for bar in chart.bars if bar.look == look) for look in (1, 2)}
    assert heights[1] == pytest.approx(2 * heights[2], rel=0.02)
    page = admin_client.get(address(vendor)).content.decode()
    assert page.count("<rect") == 20 and 'role="img"' in page and 'class="limit"' in page
    cells = re.sub(r"<[^>]+>", " ", page)
    assert re.search(r"Velma\s+2\s+67%\s+70\s+400 \(67%\)", cells), cells
    shown = admin_client.get(f"/admin/vendors/vendor/{vendor.pk}/change/").content.decode()
    assert address(vendor) in shown


def test_at_a_vendor_of_one_sponsor_there_is_nothing_to_show(admin_client: Client) -> None:
    vendor = factories.vendor(limits=[(60, 60)])
    given(vendor, factories.sponsor("Anton"), 3, 20)
    assert admin_client.get(address(vendor)).content.decode().strip() == ""


def test_a_user_of_one_sponsor_sees_nothing_of_it_even_at_his_own_vendor(
    shared: tuple[Vendor, Sponsor, Sponsor],
) -> None:
    vendor, anton, _velma = shared
    Vendor.objects.filter(pk=vendor.pk).update(owner=anton)
    user = User.objects.create(username="ann", is_staff=True)
    user.groups.set(Group.objects.filter(name="operator"))
    anton.users.add(user)
    client = Client()
    client.force_login(user)
    assert client.get(address(vendor)).status_code == 403
    page = client.get(f"/admin/vendors/vendor/{vendor.pk}/change/").content.decode()
    assert "Limit" in page and address(vendor) not in page
    head = client.get(f"/admin/operations/vendors/{vendor.pk}/").content.decode()
    assert "Waiting" in head and "Velma" not in head


def test_many_sponsors_take_no_more_statements_and_a_bounded_table(
    shared: tuple[Vendor, Sponsor, Sponsor], admin_client: Client
) -> None:
    vendor = shared[0]

    def asked() -> int:
        with CaptureQueriesContext(connection) as seen:
            admin_client.get(address(vendor))
        return len(seen)

    asked()
    few = asked()
    for _ in range(30):
        given(vendor, factories.sponsor(), 2, 1)
    assert asked() == few
    chart = share_chart.chart_of_vendor(vendor)
    assert len(chart.rows) == share_chart.MOST_ROWS and chart.more == 12
    assert {bar.look for bar in chart.bars} == {0, 1, 2, 3, 4, 5}, "the rest are one colour"
    assert sum(bar.height for bar in chart.bars if bar.look == 0) > 0
