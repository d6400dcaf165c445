"""Over the API a campaign names a topic, or is transactional if its sponsor may mark it so."""

from typing import Any

import pytest

from campaigns.models import Campaign, Message, Topic
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from vendors import history

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
DRY = "/api/v1/messages?dry_run=true"


def test_a_topic_is_one_of_the_sponsors_and_who_unsubscribed_from_it_gets_nothing_of_it() -> None:
    program, vendor = Program(), api_vendor(channel="email")
    offers = Topic.objects.create(sponsor=program.sponsor, name="offers", title="Weekly offers")
    asked = {**letter(vendor), "topic": "offers"}
    address = asked["recipients"][0]["to"]
    lists.add_suppressions(program.sponsor.pk, "email", [NewSuppression(address, "unsubscribed", topic_id=offers.pk)])
    assert program.send(asked, "one").status_code == program.send(letter(vendor), "two").status_code == 202
    assert list(Campaign.objects.order_by("id").values_list("topic", flat=True)) == [offers.pk, None]
    first, *_, last = Message.objects.order_by("campaign_id", "id").values_list("error_code", flat=True)
    assert (first, last) == ("suppressed", None)
    assert pointers(program.send({**asked, "topic": "others"})) == {"/topic": "topic"}
    found = program.get("suppressions").json()["data"]
    assert [one["topic"] for one in found] == ["offers"]


def test_a_program_lists_archives_and_restores_its_topics_and_none_names_an_archived_one() -> None:
    program, vendor = Program(), api_vendor(channel="email")
    Topic.objects.create(sponsor=program.sponsor, name="offers", title="Weekly offers")
    asked = {**letter(vendor), "topic": "offers"}
    accepted = program.send(asked, "one")
    assert program.post("topics/offers/archive").json() == {"changed": True, "archived": True}
    assert program.post("topics/offers/archive").json() == {"changed": False, "archived": True}
    assert program.get("topics").json()["data"] == [{"name": "offers", "title": "Weekly offers", "archived": True}]
    refused = program.send(asked, "two")
    assert pointers(refused) == {"/topic": "topic"} and "is archived: choose another one" in refused.json()["detail"]
    assert pointers(program.send({**asked, "preview": 1}, "", path=DRY)) == {"/topic": "topic"}
    assert "offers" not in program.send({**asked, "topic": "others"}).json()["detail"].partition("there are")[2]
    assert program.send(asked, "one").json() == accepted.json(), "a repeat of what was accepted before"
    problem(Program(program.sponsor, "test").post("topics/offers/restore"), "forbidden", 403)
    problem(Program(program.sponsor, scopes=("read",)).post("topics/offers/restore"), "forbidden", 403)
    assert program.post("topics/offers/restore").json() == {"changed": True, "archived": False}
    assert program.send(asked, "two").status_code == 202
    said = [one.change_message for one in history.latest_entries(Topic, Topic.objects.values_list("pk", flat=True), 9)]
    assert said == [f"restored by {program.key.prefix}", f"archived by {program.key.prefix}"]


def test_a_sponsor_may_mark_nothing_as_transactional_unless_it_is_allowed_to(settings: Any) -> None:
    settings.PUBLIC_URL = "https://mail.example.org"
    program, vendor = Program(), api_vendor(channel="email")
    asked = {**letter(vendor), "body": "{{ unsubscribe_url }}"}
    shown = program.send({**asked, "preview": 1}, "", path=DRY).json()["preview"]
    assert shown[0]["body"] == "https://mail.example.org/unsubscribe/preview"
    assert pointers(program.send({**letter(vendor), "transactional": True})) == {"/transactional": "transactional"}
    program.sponsor.may_be_transactional = True
    program.sponsor.save()
    lists.add_suppressions(program.sponsor.pk, "email", [NewSuppression(asked["recipients"][0]["to"], "unsubscribed")])
    assert program.send({**letter(vendor), "transactional": True}).status_code == 202
    assert Campaign.objects.get().transactional and not Message.objects.filter(error_code="suppressed").exists()
    refused = program.send({**asked, "transactional": True})
    assert "PUBLIC_URL" in refused.content.decode() and refused.status_code == 422
