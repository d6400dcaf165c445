"""The admin archives and restores topics as the owners' page and the command do; it asks first."""

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from campaigns.models import Sponsor, Topic
from tests import factories

pytestmark = pytest.mark.django_db
PAGE = "/admin/campaigns/topic/"


def operator(sponsor: Sponsor, *codes: str) -> Client:
    user = User.objects.create(username=factories.unique("user"), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
    sponsor.users.add(user)
    client = Client()
    client.force_login(user)
    return client


def press(client: Client, action: str, topics: list[Topic], **more: Any) -> str:
    chosen = {"action": action, "_selected_action": [one.pk for one in topics]}
    return client.post(PAGE, chosen | more, follow=True).content.decode()


def test_topics_are_archived_and_restored_once_after_a_question_and_only_those_of_the_user() -> None:
    sponsor = factories.sponsor()
    offers, news = (Topic.objects.create(sponsor=sponsor, name=one, title=one.title()) for one in ("offers", "news"))
    theirs = Topic.objects.create(sponsor=factories.sponsor(), name="other", title="Other")
    client = operator(sponsor, "view_topic", "change_topic")
    asked = press(client, "archive", [offers, theirs])
    assert "recipients can still unsubscribe" in asked and "Offers (" in asked and "Other" not in asked
    assert re.findall(r'name="_selected_action" value="(\d+)"', asked) == [str(offers.pk)]
    assert not Topic.objects.exclude(archived_at=None).exists(), "not confirmed yet"
    assert "1 archived." in press(client, "archive", [offers, theirs], confirmed="yes")
    assert "0 archived." in press(client, "archive", [offers], confirmed="yes")
    assert list(Topic.objects.exclude(archived_at=None)) == [offers]
    assert "Campaigns can name these topics again" in press(client, "restore", [offers, news])
    assert "1 restored." in press(client, "restore", [offers, news], confirmed="yes")
    assert not Topic.objects.exclude(archived_at=None).exists()
    kept = list(LogEntry.objects.order_by("pk").values_list("object_id", "change_message"))
    assert kept == [(str(offers.pk), "archived"), (str(offers.pk), "restored")]


def test_who_may_only_look_is_offered_neither() -> None:
    sponsor = factories.sponsor()
    topic = Topic.objects.create(sponsor=sponsor, name="offers", title="Offers")
    client = operator(sponsor, "view_topic")
    press(client, "archive", [topic], confirmed="yes")
    topic.refresh_from_db()
    assert topic.archived_at is None and 'value="archive"' not in client.get(PAGE).content.decode()
