"""The operators' verbs in a browser that runs no scripts: by the links and the forms that are on their pages."""

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import resolve, reverse
from django.utils import timezone

from campaigns.models import Job, RecipientAnswer, Suppression, Topic
from mailhub.models import SavedLook
from mailhub.operations import views as operations
from tests import factories
from tests.campaigns.rows import in_doubt, logged, refused
from tests.celery_tasks import note
from tests.plain_browser import PlainBrowser, by_client
from vendors.models import Credential, Price, RateLimit, ReceiverWait, Vendor
from waiter import parking
from waiter.models import ParkedTask

pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db]
JOBS, ATTENTION = "/admin/campaigns/job/", "/admin/campaigns/message/attention/"
OURS = (
    "campaigns",
    "vendors",
    "waiter",
    "mailhub",
)  # other tables' pages are not made by us
# Nothing is posted there.
SHOW = {
    *("operations", "operations-pulse", "operations-throughput", "operations-workers", "operations-halt"),
    *(
        "operations-vendor",
        "operations-forecast",
        "operations-shares",
        "campaigns_job_parts",
        "campaigns_job_live",
        "printed_message",
    ),
}
ELSEWHERE = {
    "operations-recover": "only after a failover: tests/faults/test_recover_page.py",
    "vendors_vendorchange_decide": "by a second person: tests/vendors/test_second_person.py",
}
MADE: dict[str, dict[str, Any]] = {  # each with what is typed into its form, in an order in which they can be made
    "campaigns_sponsor": {"name": "Velma", "time_zone": "UTC"},
    "vendors_vendor": {
        "slug": "letters",
        "name": "Letters",
        "adapter": "http",
        "settings": '{"url": "http://127.0.0.1:9/"}',
    },
    "vendors_credential": {"vendor": "letters", "name": "second", "secret": '{"token": "t"}'},
    "vendors_mailcaster": {"vendor": "letters", "name": "MC9", "kind": "small-only"},
    "vendors_receiverdomain": {"domain": "firm.example", "receiver": "gmail"},
    "vendors_price": {
        "vendor": "letters",
        "since": "2026-01-01",
        "currency": "EUR",
        "per_unit": "0.01",
        "reason": "the contract",
    },
    "campaigns_identity": {"sponsor": "Velma", "name": "news", "from_address": "news@one.invalid"},
    "campaigns_topic": {"sponsor": "Velma", "name": "news", "title": "News"},
    "campaigns_entitlement": {"sponsor": "Velma", "vendor": "letters", "urgent": "single"},
    "campaigns_sponsorturn": {"sponsor": "Velma", "vendor": "letters", "weight": "3"},
    "campaigns_sponsorquota": {
        "sponsor": "Velma",
        "vendor": "letters",
        "most": "1000",
        "measure": "messages",
        "span": "day",
        "warn_percent": "80",
    },
    "campaigns_route": {
        "sponsor": "Velma",
        "name": "all",
        "channel": "email",
        "entries-0-position": "1",
        "entries-0-credential": "letters/second",
    },
    "campaigns_suppression": {
        "sponsor": "Velma",
        "channel": "email",
        "address": "zed@example.com",
        "reason": "by_hand",
    },
}


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


def test_every_verb_works_without_scripts(browser: PlainBrowser) -> None:
    vendors_look_ups_suppressions_tasks_and_the_audit(browser)
    what_needs_attention(browser)
    jobs(browser)
    topics(browser)
    rows(browser)
    names = {*(one.name for one in operations.urls()), *of_models()}
    assert SHOW | set(ELSEWHERE) <= names, "no longer there"
    submitted = {resolve(one.partition("?")[0]).url_name for one in browser.posted}
    assert names - SHOW - set(ELSEWHERE) - submitted == set(), "not tried without scripts"
    tried = {value for pairs in browser.values for name, value in pairs if name == "action"}
    assert actions() - tried == set(), "actions that are not tried without scripts"


def jobs(browser: PlainBrowser) -> None:
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
    campaign = waiting().campaign
    browser.open(reverse("admin:campaigns_campaign_change", args=[campaign.pk]))
    browser.submit("Save", bounce_limit="4")
    campaign.refresh_from_db()
    assert campaign.bounce_limit == 4, faults(browser)


def topics(browser: PlainBrowser) -> None:
    topic = Topic.objects.create(sponsor=factories.sponsor(), name="offers", title="Offers")
    for action, begins, archived in (("archive", "Archive", True), ("restore", "Restore", False)):
        browser.open("/admin/campaigns/topic/")
        browser.submit("Go", action=action, _selected_action=[str(topic.pk)])
        browser.submit(begins)
        topic.refresh_from_db()
        assert (topic.archived_at is not None) is archived, browser.text


def what_needs_attention(browser: PlainBrowser) -> None:
    for decision, begins in (("Ask", ""), ("It was sent", "It was sent"), ("Send again", "Send"), ("Give up", "Give")):
        logged(2, [in_doubt(), in_doubt()])
        browser.open(ATTENTION)
        causes = browser.page.xpath("//input[@name='cause']/@value")
        browser.submit(decision, cause=causes)
        if begins:
            confirm(browser, begins)
            assert not Job.objects.filter(in_doubt__gt=0).exists(), decision


def vendors_look_ups_suppressions_tasks_and_the_audit(browser: PlainBrowser) -> None:
    vendor = factories.vendor("post", settings={"url": "http://127.0.0.1:9/"})
    change = reverse("admin:vendors_vendor_change", args=[vendor.pk])
    browser.open(change)
    browser.follow("Pause…")
    confirm(browser, "Pause")
    browser.follow("Resume…")
    confirm(browser, "Resume")
    assert not Vendor.objects.get().paused
    browser.open(change)
    browser.submit("Save", **{"limits-0-units": "5", "limits-0-seconds": "60", "dispatch_at": "20:15:00"})
    assert RateLimit.objects.get().units == 5 and f"{Vendor.objects.get().dispatch_at}" == "20:15:00", browser.text

    until = timezone.now() + timedelta(hours=1)
    login = factories.credential(vendor, asked_wait=3600, retry_after_until=until)
    browser.open("/admin/vendors/credential/")
    browser.submit("Go", action="end_waits", _selected_action=[str(login.pk)])
    login.refresh_from_db()
    assert login.retry_after_until is None, browser.text
    for action, held in (("hold_brakes", True), ("release_brakes", False)):
        browser.open("/admin/vendors/credential/")
        browser.submit("Go", action=action, _selected_action=[str(login.pk)])
        login.refresh_from_db()
        assert (login.brake_held_at is not None) is held, browser.text
    browser.open(reverse("admin:vendors_credential_change", args=[login.pk]))
    browser.follow("Pause…")
    confirm(browser, "Pause")
    browser.follow("Resume this login…")
    confirm(browser, "Resume")
    login.refresh_from_db()
    assert not login.paused
    browser.open(reverse("admin:vendors_credential_change", args=[login.pk]))
    browser.follow("Check the login…")
    browser.submit("Check the login")
    assert "without sending" in browser.text
    Credential.objects.filter(pk=login.pk).update(asked_wait=3600, retry_after_until=until)
    browser.open(reverse("admin:vendors_credential_try", args=[login.pk]))
    browser.submit("Call ")
    login.refresh_from_db()
    assert login.retry_after_until is None, browser.text
    now = timezone.now()
    wait = {"since": now, "until": until, "seconds": 300.0, "cause": "us", "answer": "slow down"}
    ReceiverWait.objects.create(credential=login, receiver="gmail", **wait)
    browser.open(reverse("admin:vendors_credential_change", args=[login.pk]))
    browser.follow("Receivers that wait…")
    confirm(browser, "Call it again")
    assert not ReceiverWait.objects.exists(), browser.text

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

    for action, outcome in (("treat_as_stop", "stop"), ("mark_read", "read")):
        of = {"sponsor": sponsor, "channel": "sms", "kind": "sms", "sender": "+447946000001", "text": "no more"}
        answer = RecipientAnswer.objects.create(name=action, to="+447946000000", **of)
        browser.open("/admin/campaigns/recipientanswer/")
        browser.submit("Go", action=action, _selected_action=[str(answer.pk)])
        answer.refresh_from_db()
        assert answer.outcome == outcome, browser.text

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


def rows(browser: PlainBrowser) -> None:
    """What has a form: made, stored again and deleted by the admin's own pages."""
    for name, typed in MADE.items():
        browser.open(reverse(f"admin:{name}_add"))
        before = model_of(name).objects.count()
        browser.submit("Save", **{field: chosen(browser, field, value) for field, value in typed.items()})
        assert model_of(name).objects.count() == before + 1, (name, faults(browser))
        if f"{name}_change" in of_models():
            browser.open(reverse(f"admin:{name}_change", args=[model_of(name).objects.latest("pk").pk]))
            browser.submit("Save")
            assert not faults(browser), (name, faults(browser))
    row = Suppression.objects.latest("pk")
    for action in ("lift", "erase"):
        browser.open("/admin/campaigns/suppression/", [("q", row.address)])
        browser.submit("Go", action=action, _selected_action=[str(row.pk)])
    Suppression.objects.all().delete()
    Price.objects.all().delete()
    for name in reversed(MADE):
        if f"{name}_delete" in of_models():
            row = model_of(name).objects.latest("pk")
            browser.open(reverse(f"admin:{name}_delete", args=[row.pk]))
            browser.submit("Yes, I’m sure")
            assert not model_of(name).objects.filter(pk=row.pk).exists(), (name, browser.text)


def faults(browser: PlainBrowser) -> list[str]:
    return [one.text_content() for one in browser.page.xpath("//*[@class='errorlist' or @class='errornote']")]


def chosen(browser: PlainBrowser, field: str, value: str) -> str:
    """What is typed, or the value of the choice that is shown so."""
    options = browser.page.xpath(f"//select[@name='{field}']/option")
    return next((one.get("value") for one in options if value in (one.get("value"), one.text)), value)


def model_of(name: str) -> Any:
    return apps.get_model(*name.split("_"))


def asking() -> Any:
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="ann")
    return request


def pages() -> list[tuple[str, Any]]:
    found = admin.site._registry.items()
    return [(f"{of._meta.app_label}_{of._meta.model_name}", page) for of, page in found if of._meta.app_label in OURS]


def of_models() -> set[str]:
    """The names of the pages of our tables that may be posted to: those of their own, and the forms with a field."""
    names: set[str] = set()
    for name, page in pages():
        stock = {f"{name}_{one}" for one in ("changelist", "add", "history", "delete", "change")}
        names |= {one.name for one in page.get_urls() if one.name} - stock
        names |= {f"{name}_{one}" for one in ("add", "delete") if getattr(page, f"has_{one}_permission")(asking())}
        row = page.model()
        if page.has_change_permission(asking(), row):
            fields = set(flatten(page.get_fields(asking(), row))) - set(page.get_readonly_fields(asking(), row))
            names |= {f"{name}_change"} if fields else set()
    return names


def actions() -> set[str]:
    return {action for _name, page in pages() for action in page.get_actions(asking())}
