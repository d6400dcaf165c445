"""The operators' verbs in a browser that runs no scripts: by the links and the forms that are on their pages."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from campaigns.models import Job, Suppression
from mailhub.models import SavedLook
from tests import factories
from tests.campaigns.rows import in_doubt, logged, refused
from tests.celery_tasks import note
from tests.plain_browser import PlainBrowser, by_client
from vendors.models import RateLimit, Vendor
from waiter import parking
from waiter.models import ParkedTask

pytestmark = pytest.mark.django_db
JOBS, ATTENTION = "/admin/campaigns/job/", "/admin/campaigns/message/attention/"


@pytest.fixture
def browser() -> PlainBrowser:
    User.objects.create_superuser("ann", password="a long password")
    made = PlainBrowser(by_client(Client(enforce_csrf_checks=True)))
    made.open("/admin/login/", [("next", JOBS)])
    made.submit("Log in", username="ann", password="a long password")
    assert made.address == JOBS
    return made


def confirm(browser: PlainBrowser, begins: str, **typed: Any) -> None:
    browser.submit(begins, reason="as agreed", **typed)
    assert browser.status == 200 and not browser.page.xpath("//ul[@class='errorlist']"), browser.text


def test_jobs_are_decided_about_from_the_list_and_from_their_pages(browser: PlainBrowser) -> None:
    def waiting() -> Job:
        return factories.campaign_with_job(3, status="READY")

    doubtful = [logged(2, [in_doubt(), refused()]) for _ in range(2)]
    paused = waiting()
    for action, job, status in (
        ("dispatch_now", waiting(), "DISPATCHED"),
        ("pause", paused, "READY"),
        ("resume", paused, "READY"),
        ("stop", paused, "STOPPED"),
        ("retry", logged(2, [refused()]), "DISPATCHED"),
        ("mark_sent", doubtful[0], "LOGGED"),
        ("resend", doubtful[1], "DISPATCHED"),
    ):
        browser.open(JOBS, [("q", str(job.pk)), ("date", "any")])
        browser.submit("Go", action=action, _selected_action=[str(job.pk)])
        assert browser.page.xpath("//input[@name='confirmed']"), (action, browser.text)
        confirm(browser, browser.page.xpath("//input[@name='confirmed']")[0].get("value"))
        job.refresh_from_db()
        assert job.status == status, (action, browser.text)
    assert Job.objects.filter(in_doubt__gt=0).count() == 0
    other = waiting()
    browser.open(f"{JOBS}{other.pk}/change/")
    browser.submit("Stop")
    confirm(browser, "Stop")
    other.refresh_from_db()
    assert other.status == "STOPPED"


def test_what_needs_attention_is_settled_by_cause(browser: PlainBrowser) -> None:
    for decision, begins in (("Ask", ""), ("It was sent", "It was sent"), ("Send again", "Send"), ("Give up", "Give")):
        logged(2, [in_doubt(), in_doubt()])
        browser.open(ATTENTION)
        causes = browser.page.xpath("//input[@name='cause']/@value")
        browser.submit(decision, cause=causes)
        if begins:
            confirm(browser, begins)
            assert not Job.objects.filter(in_doubt__gt=0).exists(), decision


def test_vendors_look_ups_suppressions_tasks_and_the_audit(browser: PlainBrowser) -> None:
    vendor = factories.vendor("post", settings={"url": "http://127.0.0.1:9/"})
    change = reverse("admin:vendors_vendor_change", args=[vendor.pk])
    browser.open(change)
    browser.submit("Pause…")
    confirm(browser, "Pause")
    browser.submit("Resume…")
    confirm(browser, "Resume")
    assert not Vendor.objects.get().paused
    browser.open(change)
    browser.submit("Save", **{"limits-0-units": "5", "limits-0-seconds": "60", "dispatch_at": "20:15:00"})
    assert RateLimit.objects.get().units == 5 and f"{Vendor.objects.get().dispatch_at}" == "20:15:00", browser.text

    browser.open(JOBS, [("q", "winter")])
    browser.submit("Save", name="Winter")
    assert SavedLook.objects.get().name == "Winter"
    browser.submit("Forget “Winter”")
    assert not SavedLook.objects.exists()

    browser.open("/admin/campaigns/suppression/")
    browser.follow("Import")
    sponsor = factories.sponsor("Acme")
    browser.open(browser.address)
    file = {"file": ("stop.csv", b"address\nyan@example.com\n")}
    browser.submit("Import", files=file, sponsor=str(sponsor.pk))
    assert Suppression.objects.get().address == "yan@example.com", browser.text

    for action in ("release", "cancel"):
        note.apply_async(["here"], queue="no-queue", countdown=7200)
        row = ParkedTask.waiting.latest("pk")
        browser.open("/admin/waiter/parkedtask/")
        browser.submit("Go", action=action, _selected_action=[str(row.pk)])
        browser.submit("Yes, I am sure")
        row = ParkedTask.objects.filter(pk=row.pk).first()
        assert row is None or action == "cancel" or row.due_at <= parking.now(), action

    browser.open("/admin/")
    browser.follow("Show the last audit")
    browser.submit("Ask all rows now")
    assert "no breach" in browser.text
