"""Approval by two people, in a browser: who asked cannot, another one looks at the letter and lets it go."""

import re

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from playwright.sync_api import Page, expect

from campaigns.lists import intake
from campaigns.models import Approval, Job
from tests import factories
from tests.browser.conftest import Browsing
from vendors.history import Actor

pytestmark = pytest.mark.django_db(transaction=True)
HTML = "<h1>Hello {{ name }}</h1><p>The library opens at nine. <img src='https://elsewhere.example/open.gif'></p>"


def become(window: Browsing, user: User) -> None:
    client = Client()
    client.force_login(user)
    cookie = {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": window.home}
    window.page.context.add_cookies([cookie])  # type: ignore[list-item]


def test_who_asked_cannot_and_another_person_lets_it_go(window: Browsing) -> None:
    of = factories.sponsor("City Library")
    of.approval_above = 1
    of.save()
    users = {name: User.objects.create_user(name, first_name=name.title()) for name in ("bea", "bob")}
    for user in users.values():
        user.groups.add(Group.objects.get(name="campaign approver"))
        of.users.add(user)
    login = factories.credential(factories.vendor("amazingmail", settings={"url": "http://127.0.0.1:9/letters"}))
    factories.entitle([of], [login.vendor])
    facts = {"name": "Winter hours", "subject": "We open at nine, {{ name }}", "body": HTML, "html": True}
    recipients = [(f"{name.lower()}@sandbox.example", {"name": name}) for name in ("Cem", "Dora", "Eli")]
    by = Actor("bea", users["bea"].pk)
    job = intake.store_campaign(sponsor=of, credential=login, recipients=recipients, by=by, at="now", **facts)
    path = f"/campaigns/{job.campaign_id}/approval/"
    become(window, users["bea"])
    page: Page = window.open(path)
    expect(page.get_by_text("You have asked for it yourself")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    become(window, users["bob"])
    page = window.open("/")
    page.get_by_role("link", name="Approvals 1").click()
    for width in (390, 1280):
        window.resize(width)
        window.fits("approvals")
    page.get_by_role("link", name="Winter hours").click()
    expect(page.get_by_text("no price is known")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("We open at nine, Dora")).to_be_visible()
    expect(page.frame_locator("iframe").get_by_role("heading", name="Hello Dora")).to_be_visible()
    for width in (1280, 390):
        window.resize(width)
        window.fits("approval")
    page.get_by_label("Remark").fill("Checked with the press office.")
    page.get_by_role("button", name="Approve: it goes to 3 recipients").dblclick()
    expect(page.get_by_text(re.compile("^Approved by bob, "))).to_be_visible()  # a second press may be told so too
    window.fits("approved")
    assert Approval.objects.get().decided_by == "bob" and Job.objects.get().paused_at is None
    assert any("violates" in one for one in window.console)
    window.strangers.clear()
    window.console[:] = [one for one in window.console if "elsewhere.example" not in one]  # what the frame refused
