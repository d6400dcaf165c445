"""Pages of webhooks: secrets shown once, calls, and posting again."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone

from campaigns.integrations.webhooks import events
from campaigns.models import Webhook, WebhookCall
from tests import factories
from tests.front.everything import everything
from tests.front.program import Program, api_vendor, fresh
from vendors.history import Actor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
URL = "https://receiver.example/hook"


@pytest.fixture
def sponsor(client):
    """Of Ann, who is an integrator and logged in."""
    ann = User.objects.create_user("ann", password="a long password")
    ann.groups.add(Group.objects.get(name="integrator"))
    client.force_login(ann)
    made = factories.sponsor()
    made.users.add(ann)
    return made


def token(page):
    return re.search(r'name="once" value="([^"]+)"', page.content.decode())[1]


def secret(page):
    return re.search(r'class="secret"[^>]*>([^<]+)<', page.content.decode())[1]


def test_who_may_not_see_recipients_sends_no_events_about_them_anywhere(client, sponsor):
    row, _ = events.add_program_webhook(sponsor.pk, URL, ["session.finished"], False, Actor("bob"))
    group = Group.objects.get(name="integrator")
    group.permissions.remove(Permission.objects.get(codename="see_recipients"))
    assert (
        client.get("/webhooks/").status_code == 200 and "Add a webhook" not in client.get("/webhooks/").content.decode()
    )
    posts = ("add", f"{row.pk}/rotate", f"{row.pk}/switch")
    assert {client.post(f"/webhooks/{one}/").status_code for one in posts} == {403}
    assert "Rotate" not in client.get(f"/webhooks/{row.pk}/").content.decode()


def test_a_webhook_is_added_once_and_its_secret_shown_to_this_form_alone(client, sponsor):
    given = {
        "sponsor": sponsor.pk,
        "url": URL,
        "events": ["session.finished"],
        "once": token(client.get("/webhooks/add/")),
    }
    first, second = client.post("/webhooks/add/", given), client.post("/webhooks/add/", given)
    row = Webhook.objects.get()
    assert (
        secret(first) == secret(second) == row.secret["key"] and first.headers["Cache-Control"] == "private, no-store"
    )
    assert row.secret["key"] not in client.get(f"/webhooks/{row.pk}/").content.decode()
    other = client.post("/webhooks/add/", given | {"once": token(client.get("/webhooks/add/"))})
    assert secret(other) != row.secret["key"] and Webhook.objects.count() == 2
    assert client.post("/webhooks/add/", given | {"once": "x"}).status_code == 422
    assert client.post("/webhooks/add/", given | {"url": "https://ann:pw@receiver.example/"}).status_code == 422
    assert Webhook.objects.count() == 2 and LogEntry.objects.filter(change_message="added").count() == 2


def test_a_second_press_of_new_secret_keeps_the_one_before(client, sponsor):
    row, old = events.create_webhook(sponsor, URL, [], test=False)
    once = token(client.get(f"/webhooks/{row.pk}/"))
    shown = {secret(client.post(f"/webhooks/{row.pk}/rotate/", {"once": once})) for _ in range(2)}
    row.refresh_from_db()
    assert shown == {row.secret["key"]} and row.secret["old"] == old


def test_an_event_is_posted_again_once_however_often_the_button_is_pressed(client, sponsor):
    things = everything(Program(sponsor), api_vendor()).things
    call = WebhookCall.objects.get(event=things["event_id"].removeprefix("evt_"))
    WebhookCall.objects.filter(pk=call.pk).update(tries=3, taken_at=timezone.now(), next_at=None, http_status=204)
    page = client.get(f"/webhooks/{call.webhook_id}/").content.decode()
    assert "message.sent" in page and "204" in page
    again = f"/webhooks/{call.webhook_id}/calls/{call.pk}/redeliver/"
    form = re.search(rf'action="{again}">.*?name="tries" value="(\d+)".*?name="taken" value="([^"]*)"', page)
    seen = {"tries": form[1], "taken": form[2].replace("+", "+")}
    client.post(again, seen)
    call.refresh_from_db()
    assert (call.tries, call.taken_at, call.next_at is None) == (0, None, False)
    WebhookCall.objects.filter(pk=call.pk).update(tries=1, taken_at=timezone.now(), next_at=None)
    client.post(again, seen)
    call.refresh_from_db()
    assert (call.tries, call.next_at) == (1, None), "it was posted meanwhile, and is not posted once more"
    assert LogEntry.objects.filter(change_message__contains="posted again").count() == 1
    for forged in ("2026-13-01T00:00", "0001-01-01T00:00:00+14:00"):
        assert client.post(again, seen | {"taken": forged}).status_code == 404
    assert client.post(again, seen | {"taken": "2026-12-01T10:00:00+16:00"}).status_code == 302
    assert LogEntry.objects.filter(change_message__contains="posted again").count() == 1
    assert f"evt_{call.event.hex}" in page, "the event keeps its id"


def test_off_on_and_remove(client, sponsor):
    row, _ = events.create_webhook(sponsor, URL, [], test=False)
    for to, enabled in (("off", False), ("off", False), ("on", True), ("on", True)):
        client.post(f"/webhooks/{row.pk}/switch/", {"to": to})
        row.refresh_from_db()
        assert row.enabled is enabled
    assert LogEntry.objects.count() == 2
    assert "cannot be undone" in client.post(f"/webhooks/{row.pk}/remove/").content.decode()
    client.post(f"/webhooks/{row.pk}/remove/", {"confirmed": "1"})
    assert not Webhook.objects.exists()


def test_a_webhook_of_another_sponsor_is_not_there(client, sponsor):
    row, _ = events.create_webhook(factories.sponsor(), URL, [], test=False)
    assert URL not in client.get("/webhooks/").content.decode()
    assert client.get(f"/webhooks/{row.pk}/").status_code == 404
    for verb in ("rotate", "switch", "remove", "calls/1/redeliver"):
        answer = client.post(f"/webhooks/{row.pk}/{verb}/", {"to": "off", "confirmed": "1", "tries": "0"})
        assert answer.status_code == 404
    assert Webhook.objects.get().enabled


def test_a_campaign_owner_changes_no_webhook(client, sponsor):
    row, _ = events.create_webhook(sponsor, URL, [], test=False)
    bob = User.objects.create_user("bob")
    bob.groups.add(Group.objects.get(name="campaign owner"))
    sponsor.users.add(bob)
    client.force_login(bob)
    assert client.get("/webhooks/add/").status_code == 403
    assert {client.post(f"/webhooks/{row.pk}/{verb}/").status_code for verb in ("rotate", "switch", "remove")} == {403}
