"""A page that follows by itself shows the same as one that is loaded anew: every part, whatever has happened since."""

import re
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone

from campaigns.doors import polling
from campaigns.models import Approval, Campaign, CostEntry, Job, Message
from campaigns.operations import actions, pausing
from tests import factories
from tests.campaigns.rows import accepted, family, recount, refused
from vendors import prices
from vendors.history import Actor
from vendors.models import Price

pytestmark = pytest.mark.django_db
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr", "rect"}


class Elements(HTMLParser):
    """Where each element with an id begins and ends in a page."""

    def __init__(self, page):
        super().__init__()
        self.spans, self._open, self._page = {}, [], page
        self._lines = [0, *(found.end() for found in re.finditer("\n", page))]
        self.feed(page)

    def _at(self):
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("id"), self._at()))

    def handle_startendtag(self, tag, attrs):
        """An element of its own, as <rect/>, opens nothing."""

    def handle_endtag(self, tag):
        while self._open:
            opened, name, began = self._open.pop()
            if name:
                self.spans[name] = (began, self._page.index(">", self._at()) + 1)
            if opened == tag:
                return


def element(page, name):
    began, end = Elements(page).spans[name]
    return page[began:end]


def swapped(page, answer):
    """The page after htmx has put the elements of an answer in their places."""
    for name in ("live", *re.findall(r'id="([\w-]+)" hx-swap-oob="true"', answer)):
        new = element(answer, name).replace(' hx-swap-oob="true"', "")
        page = page.replace(element(page, name), new)
    return page


def texts(page):
    """What the page says, without what differs each time: clocks, keys, and digests."""
    page = re.sub(r'<p class="as-of">.*?</p>|<input type="hidden"[^>]*>|hx-vals=\'[^\']*\'', "", page, flags=re.DOTALL)
    return [" ".join(one.split()) for one in re.sub(r"<(?!a )[^>]+>", "\n", page).split("\n") if one.strip()]


@pytest.fixture
def follows(client, monkeypatch):
    """Loads a page, does something, polls, and compares with the page as it is loaded then."""
    monkeypatch.setattr(polling, "SHARE", 0)

    def compare(path, poll, happens):
        before = client.get(path).text
        happens()
        after = client.get(path).text
        assert texts(after) != texts(before), "nothing has happened"
        seen = re.search(r'"seen": "([\w-]+)"', before)[1]
        answer = client.get(poll, {"seen": seen}, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        assert texts(swapped(before, answer.text)) == texts(after)

    return compare


@pytest.fixture
def job(owner):
    """A large job that no mailcaster has begun to cut."""
    made = factories.campaign_with_job(200, status="P_QUEUED", remaining=200)
    made.campaign.sponsor.users.add(owner)
    Price.objects.create(
        vendor=made.vendor, currency="EUR", per_unit="0.07", per_message="0.01", since=prices.pricing_day()
    )
    return made


def call(job, *shapes):
    for number, shape in enumerate(shapes):
        Message.objects.filter(pk=job.first_message + number).update(dequeued_at=timezone.now(), **shape)
    recount(job)


def happenings(job):
    yield "paused", lambda: pausing.pause_jobs([job.pk], Actor("ann"), "wrong date")
    yield "goes on", lambda: pausing.resume_jobs([job.pk], Actor("ann"))
    yield "stopped", lambda: actions.stop_jobs([job.pk], Actor("ann"), "wrong date")
    ended = {"status": "LOGGED", "finished_at": timezone.now(), "remaining": 0}
    yield "ended", lambda: Job.objects.filter(pk=job.pk).update(**ended)


def test_decisions_and_the_end(client, job, follows):
    path = f"/campaigns/{job.campaign_id}/"
    for _name, happens in happenings(job):
        follows(path, f"{path}live/", happens)


def test_what_is_sent_and_fails_with_its_cost_and_downloads(client, owner, follows):
    made = factories.campaign_with_job(3, status="DISPATCHED")
    made.campaign.sponsor.users.add(owner)
    Price.objects.create(
        vendor=made.vendor, currency="EUR", per_unit="0.07", per_message="0.01", since=prices.pricing_day()
    )
    path = f"/campaigns/{made.campaign_id}/"
    follows(path, f"{path}live/", lambda: call(made, accepted(), refused()))
    page = client.get(path).text
    assert "XLSX of those not reached" in page and "Cost so far" in page


def test_parts_that_are_cut(client, owner, follows):
    parent, _children = family(parent="P_ASSIGNING", remaining=40, children=["DISPATCHED"], each=20)
    parent.campaign.sponsor.users.add(owner)
    path = f"/campaigns/{parent.campaign_id}/"

    def cut():
        first = parent.first_message + 20
        factories.job(parent.campaign, "DISPATCHED", parent=parent, first_message=first, size=20)
        Job.objects.filter(pk=parent.pk).update(remaining=20)

    follows(path, f"{path}live/", cut)
    assert 'hx-trigger="every 10s"' in client.get(f"{path}parts/", headers={"HX-Request": "true"}).text


def test_approval(client, owner, job, follows):
    owner.user_permissions.add(Permission.objects.get(codename="approve_campaign"))
    path = f"/campaigns/{job.campaign_id}/"
    asked = {"asked_kind": "user", "asked_by": "bob", "asked_at": timezone.now(), "recipients": 200, "frozen": {}}

    def ask():
        Approval.objects.create(campaign=job.campaign, sponsor=job.sponsor, digest="0" * 64, **asked)
        Campaign.objects.filter(pk=job.campaign_id).update(paused_at=timezone.now(), paused_by="mailhub")
        Job.objects.filter(pk=job.pk).update(paused_at=timezone.now())

    follows(path, f"{path}live/", ask)
    assert "Look at it and decide" in client.get(path).text


def test_the_last_days_on_the_first_page(client, job):
    page = client.get("/").text
    assert 'hx-get="/campaigns/days/"' in element(page, "last-days")
    CostEntry.objects.create(
        day=timezone.now().date(), sponsor=job.sponsor, vendor=job.vendor, credential=job.credential,
        messages=7, units=7,
    )  # fmt: skip
    answer = client.get("/campaigns/days/", headers={"HX-Request": "true"})
    assert texts(answer.text) == texts(element(client.get("/").text, "last-days"))
    known = client.get("/campaigns/days/", headers={"HX-Request": "true", "If-None-Match": answer.headers["ETag"]})
    assert known.status_code == 304
