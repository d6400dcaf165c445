"""An owner's first page: which campaigns, how they stand, what waits for the owner, and the last days."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from campaigns.doors import polling
from campaigns.models import Campaign, DayCount, Job
from campaigns.operations.pages import home
from campaigns.reporting import campaign_names, campaign_rows
from campaigns.reporting.pages import day_chart
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, logged

pytestmark = pytest.mark.django_db


def names(client, query=""):
    page = client.get(f"/?{query}").content.decode()
    return re.findall(r'id="campaign-\d+" href="[^"]+" title="([^"]+)"', page)


def text(client, query=""):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", client.get(f"/?{query}").content.decode())).split())


@pytest.fixture
def mine(owner):
    """Two sponsors of Ann's with a campaign in each state, and one campaign of somebody else."""
    velma, hooli = factories.sponsor("Velma"), factories.sponsor("Hooli")
    for sponsor in (velma, hooli):
        sponsor.users.add(owner)
    login = factories.credential()
    made = {}
    for name, status, sponsor in (
        ("Spring sale", "RENDERED", velma),
        ("spring news", "DISPATCHED", hooli),
        ("100% off_now", "READY", velma),
        ("Stopped one", "LOGGED", velma),
    ):
        campaign = factories.campaign(3, of=login, by=sponsor, name=name)
        ended = {"finished_at": timezone.now()} if status == "LOGGED" else {}
        made[name] = factories.job(campaign, status, **ended)
    factories.job(factories.campaign(3, of=login, name="Spring of others"), "READY")
    return made


def test_the_newest_come_first_and_nobody_elses(client, mine):
    assert names(client) == list(reversed(mine))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=spring", ["spring news", "Spring sale"]),
        ("q=SPRING+S", ["Spring sale"]),
        ("q=100%25", ["100% off_now"]),
        ("q=1__", []),
        ("state=night", ["Spring sale"]),
        ("state=going", ["100% off_now", "spring news"]),
        ("state=going&q=spring", ["spring news"]),
        ("state=nonsense&q=stop", ["Stopped one"]),
    ],
)
def test_search_and_states(client, mine, query, found):
    assert names(client, query) == found


def test_by_sponsor_but_never_anothers(client, mine):
    hooli, others = Job.objects.get(campaign__name="spring news"), Job.objects.get(campaign__name="Spring of others")
    assert names(client, f"sponsor={hooli.sponsor_id}") == ["spring news"]
    assert names(client, f"sponsor={others.sponsor_id}") == []
    assert client.get("/?sponsor=x").status_code == 400
    assert client.get("/?before=1e9").status_code == 400
    assert client.get("/?q=%00").status_code == 400


def test_an_empty_list_has_a_way_on(client, owner):
    alone = "You belong to no sponsor yet. Ask whoever runs mailhub to add you to one."
    for page in ("/", "/drafts/", "/templates/", "/suppressions/", "/senders/", "/senders/topics/", "/answers/"):
        assert alone in client.get(page).content.decode(), page
    factories.sponsor("Velma").users.add(owner)
    shown = text(client)
    assert "There is no campaign yet. New campaign" in shown and alone not in shown


@pytest.mark.parametrize("query", ["", "q=c", "state=going"])
def test_page_after_page(client, owner, monkeypatch, query):
    monkeypatch.setattr(campaign_rows, "ON_A_PAGE", 2)
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    for _ in range(5):
        factories.campaign_with_job(1, by=sponsor, status="DISPATCHED")
    seen, after = [], query
    while after is not None:
        seen += names(client, after)
        more = re.search(r'href="/\?([^"]*before=\d+[^"]*)"', client.get(f"/?{after}").content.decode())
        after = unescape(more[1]) if more else None
    assert seen == [one.name for one in Campaign.objects.all()]


def test_of_many_with_such_a_name_the_newest(client, mine, monkeypatch):
    monkeypatch.setattr(campaign_names, "MOST_NAMED", 1)
    assert names(client, "q=spring") == ["spring news", "Spring sale"]


def test_what_waits_for_the_owner(client, mine, owner):
    assert "Waits for you" not in text(client)
    Campaign.objects.filter(name="spring news").update(
        paused_at=timezone.now(), paused_by="mailhub", paused_reason="7 % bounced"
    )
    doubtful = logged(2, [accepted(), in_doubt()])
    doubtful.campaign.sponsor.users.add(owner)
    page = text(client)
    assert "spring news is paused by mailhub: 7 % bounced Let it go on" in page
    assert "has 1 message" not in page, "only an operator decides about doubts"
    owner.is_staff = True
    owner.save()
    owner.groups.add(Group.objects.get(name="operator"))
    page = client.get("/").text
    assert "has 1 message of which it is not known whether it was sent" in page
    assert f'href="/admin/attention/?job={doubtful.pk}"' in page or f"attention/?job={doubtful.pk}" in page
    assert names(client, "state=paused") == ["spring news"]
    assert names(client, "state=attention") == [doubtful.campaign.name]


def test_of_much_that_waits_the_newest_and_where_all_of_it_is(client, mine, owner, monkeypatch):
    Campaign.objects.update(paused_at=timezone.now(), paused_by="mailhub", paused_reason="7 % bounced")
    assert "All that are paused" not in text(client)
    monkeypatch.setattr(home, "MOST_NEEDS", 2)
    page = client.get("/").content.decode()
    assert page.count('id="need-') == 2 and "?state=paused" in page and "attention/" not in page


@pytest.mark.usefixtures("frozen_clock")
def test_the_list_follows_and_sends_nothing_that_is_known(client, mine, monkeypatch):
    monkeypatch.setattr(polling, "SHARE", 0)
    page = client.get("/?q=spring").content.decode()
    url, seen = unescape(re.search(r'hx-get="([^"]+)"', page)[1]), re.search(r'"seen": "([\w-]+)"', page)[1]
    assert client.get(url, {"q": "spring", "seen": seen}).status_code == 204
    Job.objects.filter(pk=mine["spring news"].pk).update(accepted=2)
    assert "2 of 3" in client.get(url, {"q": "spring", "seen": seen}).content.decode()


def test_the_last_days_as_a_chart_and_as_a_table(client, mine):
    assert "Nothing was sent in these days." in text(client)
    sponsor, today = mine["Spring sale"].sponsor, timezone.now().date()
    sent = logged(4, [accepted()] * 4)
    sent.campaign.sponsor.users.add(*sponsor.users.all())
    DayCount.objects.create(day=today, sponsor=sponsor, delivered=1500, bounced=3, complained=2, unsubscribed=1)
    DayCount.objects.create(
        day=today, sponsor_id=Job.objects.get(campaign__name="Spring of others").sponsor_id, bounced=99
    )
    page = text(client)
    assert "Sent 4 Delivered 1,500 Came back 3 Complaints 2 Unsubscribed 1" in page
    assert "the highest bar" not in page and "highest bar: 1,503" in page
    assert client.get("/").content.decode().count("<rect") >= 2
    assert "The last 30 days" not in text(client, "q=spring")


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (1, (1, 0)),
        (7, (8, 6, 4, 2, 0)),
        (41, (60, 40, 20, 0)),
        (1503, (2000, 1500, 1000, 500, 0)),
        (999, (1000, 500, 0)),
    ],
)
def test_the_axis_has_whole_numbers_with_room_above_the_highest_bar(most, shown):
    assert day_chart.scale_to(most) == shown
