"""Every verb of the owners' pages in a browser that runs no scripts: by the links and the forms that are on them."""

import io
from typing import Any

import pytest
import xlsxwriter
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import resolve

from campaigns.doors.front.keys import keyring
from campaigns.engine.finishing import finalizer
from campaigns.lists import intake
from campaigns.lists.drafts import checking
from campaigns.models import (
    ApiKey,
    Campaign,
    Draft,
    Identity,
    RecipientAnswer,
    Sponsor,
    Suppression,
    Template,
    Topic,
    Webhook,
)
from mailhub.owners import urls
from tests import factories
from tests.front.everything import everything
from tests.front.program import Program, api_vendor, fresh
from tests.plain_browser import PlainBrowser, by_client
from vendors.history import Actor

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db]
GROUPS = ("campaign owner", "integrator", "campaign approver")
MORE = ("add_topic", "change_topic", "delete_topic", "change_suppression", "add_identity", "change_identity")
LIST = (
    b"email,first_name\nann@example.com,Ann\nbob@example.com,Bob\nno address,Cy\nBOB@example.com,Bo\ndee@example.com,\n"
)
# Nothing is sent there by a form; a page of the wizard is shown at one address and kept at another.
SHOW = {
    *(
        "login",
        "home",
        "home-live",
        "home-days",
        "approvals",
        "approval-cost",
        "campaign",
        "campaign-live",
        "campaign-failures",
    ),
    *("campaign-parts", "campaign-recipients", "campaign-report", "campaign-download", "templates", "webhook"),
    *("template-version", "template-differences", "webhooks", "keys", "suppression-export", "suppression-file"),
    *("answers", "identities", "drafts", "draft_recipients", "draft_progress", "draft_bad_rows", "draft_preview"),
    *("draft_letter", "draft_letter_pdf", "draft_check", "draft_sent"),
    *("draft-typed", "template-typed"),  # the preview that follows a script
}
ELSEWHERE = {"identity": "asks the DNS: tests/owners/test_suppressions.py"}


@pytest.fixture
def sponsor() -> Sponsor:
    made = factories.sponsor("Acme")
    ann = User.objects.create_user("ann", "ann@own.example", "a long password")
    ann.groups.set(Group.objects.filter(name__in=GROUPS))
    ann.user_permissions.set(Permission.objects.filter(codename__in=MORE))
    made.users.add(ann)
    return made


@pytest.fixture
def browser(sponsor: Sponsor) -> PlainBrowser:
    """Ann's, logged in by the form."""
    made = PlainBrowser(by_client(Client(enforce_csrf_checks=True)))
    made.open("/drafts/")
    made.submit("Log in", username="ann", password="a long password")
    assert made.address == "/drafts/"
    return made


def test_every_verb_works_without_scripts(browser: PlainBrowser, sponsor: Sponsor) -> None:
    factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/"}, casters=None))
    the_wizard(browser)
    decisions(browser)
    approval(browser, sponsor)
    templates(browser)
    webhooks_and_keys(browser, sponsor)
    suppressions_and_topics(browser)
    identity(browser)
    answers(browser, sponsor)
    browser.open("/find/")
    browser.submit("Find", what="ann@example.com")
    assert "May" in browser.text
    browser.submit("Log out")
    assert browser.address.startswith("/login/")
    names = {one.name for one in urls.urls()}
    assert SHOW | set(ELSEWHERE) <= names, "no longer there"
    submitted = {resolve(one.partition("?")[0]).url_name for one in browser.posted}
    assert names - SHOW - set(ELSEWHERE) - submitted == set(), "not tried without scripts"


def list_with_a_hidden_row() -> bytes:
    made = io.BytesIO()
    with xlsxwriter.Workbook(made) as book:
        sheet = book.add_worksheet()
        for row, address in enumerate(["email", "ann@example.com", "bob@example.com"]):
            sheet.write_string(row, 0, address)
        sheet.set_row(2, None, None, {"hidden": True})
    return made.getvalue()


def checked_by_a_worker(browser: PlainBrowser) -> None:
    """As each spreadsheet is, for it may unpack to much."""
    assert checking.check_draft(Draft.objects.get(campaign=None).pk)
    browser.follow("Look again")


def the_wizard(browser: PlainBrowser) -> None:
    browser.open("/")
    browser.follow("New campaign")
    browser.submit("Keep, and go on", name="May", subject="Hello", text="Good day {{ first_name }}")
    browser.submit("Upload and check", files={"list": ("may.csv", LIST)})
    assert "the same recipient as in row 3" in browser.text
    browser.submit("Use these columns, and check again")
    browser.submit("Leave these 3 rows out, and go on")
    assert "Send 2 e-mails" in browser.buttons()
    browser.follow("Message")
    browser.submit("Keep", text="Good evening {{ first_name }}")
    Draft.objects.update(facts=None)  # as if its check had been lost
    browser.follow("Recipients")
    browser.submit("Check the list again")
    browser.submit("Leave these 3 rows out, and go on")  # asked anew, as other rows might be bad now
    browser.follow("Recipients")
    browser.follow("Look at the messages")
    letter = browser.page.find(".//iframe").get("src")
    assert "ann@example.com" in browser.text and letter.startswith(browser.address)
    browser.submit("Send the test")
    assert browser.status == 200
    browser.follow("Go on")
    browser.submit("Send 2 e-mails")
    assert "is stored, for 2 recipients" in browser.text
    browser.follow("New campaign")
    browser.submit("Keep, and go on", name="June", subject="Hello", text="Hi")
    browser.submit("Upload and check", files={"list": ("june.xlsx", list_with_a_hidden_row())})
    checked_by_a_worker(browser)
    browser.submit("Leave hidden rows out")
    checked_by_a_worker(browser)
    assert "They are left out." in browser.text
    browser.follow("Drafts")
    browser.submit("Delete June")
    assert "June” is deleted" in browser.text and not Draft.objects.filter(campaign=None).exists()


def decisions(browser: PlainBrowser) -> None:
    browser.open(f"/campaigns/{Campaign.objects.get(name='May').pk}/")
    for verb in ("Pause", "Let it go on", "Stop", "Send to those who were not reached"):
        for job_id in finalizer.jobs_to_finalise():
            finalizer.finalise_job(job_id)
        browser.follow(verb)
        browser.submit(verb, reason=f"because of {verb}")
        assert f"because of {verb}" in browser.text, browser.text
    browser.submit("Copy as new")
    assert Draft.objects.get(campaign=None).name == "Copy of May"


def approval(browser: PlainBrowser, sponsor: Sponsor) -> None:
    Sponsor.objects.update(approval_above=0)
    login = Campaign.objects.get(name="May").credential
    recipients: list[Any] = [("cy@example.com", {}), ("dee@example.com", {})]
    letter: dict[str, Any] = {"name": "Winter", "subject": "Hello", "body": "Good day", "html": False}
    intake.store_campaign(sponsor=sponsor, credential=login, recipients=recipients, by=Actor("bob"), at="now", **letter)
    Sponsor.objects.update(approval_above=None)
    browser.follow("Approvals")
    browser.follow("Winter")
    browser.submit("Approve: it goes to 2 recipients", remark="as agreed")
    assert "as agreed" in browser.text and "Approved" in browser.text


def answers(browser: PlainBrowser, sponsor: Sponsor) -> None:
    for number, (verb, outcome) in enumerate((("Treat as stop", "stop"), ("Mark as read", "read"))):
        of = {"sponsor": sponsor, "channel": "sms", "kind": "sms", "text": "no more"}
        writer = f"+44794600000{number}"
        made = RecipientAnswer.objects.create(name=verb, sender=writer, to="+447946000009", **of)
        browser.open("/answers/")
        browser.submit(f"{verb} {writer}")
        made.refresh_from_db()
        assert made.outcome == outcome, browser.text


def templates(browser: PlainBrowser) -> None:
    browser.follow("Templates")
    browser.follow("New template")
    browser.submit("Preview", name="Welcome", subject="Hello {{ name }}", body="Dear {{ name }}")
    browser.submit("Save")
    browser.submit("Show with these values")
    browser.follow("Edit")
    browser.submit("Save", body="Dearest {{ name }}")
    page = browser.address
    browser.submit("Keep the class", mail_class="usual")
    browser.submit("Archive")
    browser.open(page)
    browser.submit("Use it again")
    assert Template.objects.get().versions.count() == 2 and not Template.objects.get().archived_at


def webhooks_and_keys(browser: PlainBrowser, sponsor: Sponsor) -> None:
    everything(Program(sponsor), api_vendor())  # with a webhook that has a call
    browser.follow("Programs")
    browser.follow("https://receiver.example")
    browser.submit("Post again")
    browser.submit("New secret")
    browser.follow("I have it")
    browser.submit("Switch off")
    browser.submit("Switch on")
    browser.submit("Remove …")
    browser.submit("Remove")
    browser.follow("Add a webhook")
    browser.submit("Add", url="https://receiver.example/hook", events=["session.finished"])
    assert "it is shown once" in browser.text and Webhook.objects.filter(enabled=True).count() == 1
    browser.open("/keys/")
    browser.follow("Make a key")
    browser.submit("Make", scopes=["read"])
    browser.follow("I have it")
    browser.submit("Extend")
    browser.submit("Revoke …")
    browser.submit("Revoke")
    assert ApiKey.objects.exclude(revoked_at=None).exists()
    keyring.forget_callers()


def identity(browser: PlainBrowser) -> None:
    browser.open("/senders/")
    browser.follow("Add one for e-mail")
    browser.submit("Add", name="news", from_address="news@one.invalid")
    browser.follow("Change")
    browser.submit("Store", from_name="Acme News")
    assert Identity.objects.get().from_name == "Acme News"
    browser.submit("Disable")
    assert not Identity.objects.get().enabled
    browser.submit("Enable")
    assert Identity.objects.get().enabled
    browser.open("/senders/")
    browser.follow("Add one for SMS")
    browser.submit("Add", name="texts", sender_id="Acme")
    browser.follow("Change")
    browser.submit("Store", stop_texts="Schluss", help_answer="Call 0800 1")
    assert Identity.objects.get(name="texts").stop_texts == ["Schluss"]
    browser.open("/senders/")
    browser.follow("news")
    browser.submit("Make a key, and sign", selector="mailhub1")
    assert Identity.objects.get(name="news").dkim_selector == "mailhub1" and "v=DKIM1" in browser.text


def suppressions_and_topics(browser: PlainBrowser) -> None:
    browser.follow("Suppressions")
    browser.follow("Add an address")
    browser.submit("Suppress", address="zed@example.com")
    browser.follow("Import a file")
    file = {"file": ("stop.csv", b"address\nyan@example.com\n")}
    browser.submit("Import", files=file, sponsor=str(Sponsor.objects.get().pk), channel="email", reason="by_hand")
    assert browser.address == "/suppressions/", browser.text
    browser.submit("Look up", address="yan@example.com")
    browser.follow("Lift …")
    browser.submit("Lift", reason="she asked for it")
    assert Suppression.objects.filter(until=None).count() == 1
    browser.follow("Export")
    browser.submit("Download")
    assert "zed@example.com" in browser.text
    browser.open("/senders/topics/")
    browser.submit("Add", title="News", name="news")
    browser.submit("Rename", title="What is new")
    assert Topic.objects.get(name="news").title == "What is new"
    browser.submit("Archive")
    assert Topic.objects.get(name="news").archived_at
    browser.submit("Restore")
    assert not Topic.objects.get(name="news").archived_at
    browser.submit("Remove")
    assert not Topic.objects.filter(name="news").exists()
