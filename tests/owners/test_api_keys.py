"""Pages of API keys: shown once, no more scopes than their maker may have, revoked for good."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.utils import timezone

from campaigns.doors.front import keys
from campaigns.doors.front.keys import keyring
from campaigns.models import ApiKey
from tests import factories

pytestmark = pytest.mark.django_db


def user(name, *groups):
    made = User.objects.create_user(name, password="a long password")
    made.groups.set(Group.objects.filter(name__in=groups))
    return made


@pytest.fixture
def sponsor(client):
    """Of Ann, who is an integrator and logged in."""
    ann = user("ann", "integrator")
    client.force_login(ann)
    made = factories.sponsor()
    made.users.add(ann)
    yield made
    keyring.forget_callers()


def form(client, sponsor, *scopes, **more):
    once = re.search(r'name="once" value="([^"]+)"', client.get("/keys/make/").content.decode())[1]
    return {"sponsor": sponsor.pk, "kind": "test", "scopes": scopes, "days": "90", "once": once, **more}


def shown(page):
    return re.search(r'class="secret"[^>]*>([^<]+)<', page.content.decode())[1]


def test_a_key_is_made_once_works_and_is_never_shown_again(client, sponsor):
    given = form(client, sponsor, "send", "read")
    first, second = client.post("/keys/make/", given), client.post("/keys/make/", given)
    row = ApiKey.objects.get()
    assert shown(first) == shown(second) and first.headers["Cache-Control"] == "private, no-store"
    assert keyring.find_caller(shown(first)).sponsor_id == sponsor.pk
    assert (row.made_by, row.scopes, row.kind) == ("ann", ["send", "read"], "test")
    assert timedelta(days=89) < row.expires_at - timezone.now() < timedelta(days=91)
    page = client.get("/keys/").content.decode()
    assert row.prefix in page and shown(first) not in page
    assert LogEntry.objects.get().change_message == f"key {row.prefix} made, test, for send, read"
    assert shown(client.post("/keys/make/", form(client, sponsor, "send"))) != shown(first)


def test_nobody_makes_or_extends_a_key_that_may_more_than_its_maker(client, sponsor):
    assert client.post("/keys/make/", form(client, sponsor, "ops")).status_code == 422
    assert client.post("/keys/make/", form(client, factories.sponsor(), "send")).status_code == 422
    assert not ApiKey.objects.exists()
    soon = timezone.now() + timedelta(days=1)
    row, _ = keys.create_key(sponsor, "live", ["send", "ops"], soon)
    assert "Extend" not in client.get("/keys/").content.decode()
    assert client.post(f"/keys/{row.pk}/extend/", {"days": ""}).status_code == 403
    both = user("olga", "integrator", "operator")
    sponsor.users.add(both)
    client.force_login(both)
    client.post(f"/keys/{row.pk}/extend/", {"days": ""})
    row.refresh_from_db()
    assert row.expires_at is None
    assert client.post("/keys/make/", form(client, sponsor, "ops")).status_code == 200


def test_a_revoked_key_stays_so(client, sponsor):
    row, _ = keys.create_key(sponsor, "live", ["send"], timezone.now() + timedelta(days=1))
    assert "cannot be undone" in client.post(f"/keys/{row.pk}/revoke/").content.decode()
    for _ in range(2):
        client.post(f"/keys/{row.pk}/revoke/", {"confirmed": "1"})
    row.refresh_from_db()
    assert row.revoked_at and LogEntry.objects.count() == 1
    client.post(f"/keys/{row.pk}/extend/", {"days": "365"})
    row.refresh_from_db()
    assert row.expires_at < timezone.now() + timedelta(days=2)


def test_a_key_of_another_sponsor_is_not_there(client, sponsor):
    row, _ = keys.create_key(factories.sponsor(), "live", ["send"])
    assert row.prefix not in client.get("/keys/").content.decode()
    for verb in ("revoke", "extend"):
        assert client.post(f"/keys/{row.pk}/{verb}/", {"confirmed": "1", "days": "30"}).status_code == 404


def test_who_is_no_integrator_sees_no_key(client, sponsor):
    client.force_login(user("bob", "campaign owner"))
    assert client.get("/keys/").status_code == client.get("/keys/make/").status_code == 403
