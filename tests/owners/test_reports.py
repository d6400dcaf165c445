"""Downloads and the page to be printed: of one's own campaigns, masked for who may not see recipients."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission

from campaigns.models import Message
from tests import factories
from tests.campaigns.rows import accepted, logged, refused

pytestmark = pytest.mark.django_db


@pytest.fixture
def campaign(owner):
    made = logged(4, [accepted()] * 3 + [refused()])
    made.campaign.sponsor.users.add(owner)
    Message.objects.filter(campaign=made.campaign).update(params={"name": "Ann"})
    return made.campaign


def content(answer):
    assert answer.status_code == 200
    return answer.content


def test_all_recipients_or_those_who_were_not_reached(client, campaign):
    path = f"/campaigns/{campaign.pk}/report.csv"
    answer = client.get(path)
    assert answer["Content-Disposition"] == f'attachment; filename="{campaign.name}-{campaign.pk}.csv"'
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    whole = content(answer).decode("utf-8-sig").splitlines()
    assert len(whole) == 5 and whole[1].startswith("r1@sandbox.example,Ann,Sent")
    failed = content(client.get(path, {"state": "failed"})).decode().splitlines()
    assert len(failed) == 2 and failed[1].startswith("r4@sandbox.example,Ann,Failed")
    assert content(client.get(f"/campaigns/{campaign.pk}/report.xlsx"))[:2] == b"PK"
    assert client.get(f"/campaigns/{campaign.pk}/report.pdf").status_code == 404


def test_without_the_permission_addresses_are_masked_and_fields_left_out(client, campaign, owner):
    owner.groups.get().permissions.remove(Permission.objects.get(codename="see_recipients"))
    text = content(client.get(f"/campaigns/{campaign.pk}/report.csv")).decode()
    assert "r…@sandbox.example" in text and "r1@" not in text and "Ann" not in text


@pytest.mark.parametrize("page", ["report/", "report.csv", "report.xlsx"])
def test_nothing_of_another_sponsors_campaign(client, owner, page):
    theirs = factories.campaign_with_job(3).campaign
    assert client.get(f"/campaigns/{theirs.pk}/{page}").status_code == 404
    client.logout()
    assert client.get(f"/campaigns/{theirs.pk}/{page}").status_code == 302


def test_the_page_to_be_printed_says_each_recipient_once(client, campaign):
    answer = client.get(f"/campaigns/{campaign.pk}/report/")
    page = " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())
    assert "Accepted by the vendor, which reports no deliveries 3 75.0% Failed 1 25.0% All 4" in page
    assert "The vendor has refused it, with its code bounce. 1" in page
    widths = [
        float(one)
        for one in re.findall(
            r'<rect class="(?:sent|failed)" x="[\d.]+" y="0" width="([\d.]+)" height="28"', answer.content.decode()
        )
    ]
    assert sum(widths) == 720
