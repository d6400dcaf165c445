"""Owners find what one of their recipients got; nobody else's."""

import pytest
from django.contrib.auth.models import Group, User

from campaigns.doors import public_ids
from campaigns.doors.front.keys import keyring
from campaigns.models import Job, Message
from tests.campaigns.rows import accepted, logged
from tests.front.program import Program, api_vendor, fresh, letter, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    made = logged(1, [accepted("v-1")])
    Message.objects.filter(pk=made.first_message).update(recipient="Ann@sandbox.example")
    return made


def log_in(client, group: str, *sponsors) -> None:
    user = User.objects.create_user("ann")
    user.groups.add(Group.objects.get(name=group))
    for one in sponsors:
        one.users.add(user)
    client.force_login(user)


def test_one_box_finds_her_letter_with_all_that_happened(client, job):
    log_in(client, "campaign owner", job.sponsor)
    assert "Exactly, as in the list" in client.get("/find/").content.decode()
    page = client.post("/find/", {"what": "ann@SANDBOX.example"}).content.decode()
    assert job.campaign.name in page and "Accepted by the vendor" in page and "v-1" in page
    assert job.campaign.name in client.get("/find/", {"message": job.first_message}).content.decode()
    assert job.campaign.name not in client.get("/find/", {"what": "ann@sandbox.example"}).content.decode()
    assert "Nothing was found" in client.post("/find/", {"what": "bob@sandbox.example"}).content.decode()


def test_who_sees_another_sponsor_finds_nothing_and_who_sees_no_recipients_no_page(client, job):
    log_in(client, "campaign owner", logged(1, []).sponsor)
    assert "Nothing was found" in client.post("/find/", {"what": "ann@sandbox.example"}).content.decode()
    assert "Nothing was found" in client.get("/find/", {"message": job.first_message}).content.decode()
    user = User.objects.get()
    user.groups.set([Group.objects.get(name="viewer")])
    assert client.post("/find/", {"what": "ann@sandbox.example"}).status_code == 403


def test_a_program_finds_by_a_body_what_its_mode_has_sent(job):
    live = Program(job.sponsor)
    answer = live.send({"text": "ann@sandbox.example"}, None, "/api/v1/recipients/find").json()
    assert [one["id"] for one in answer["data"]] == [public_ids.id_of_number("msg", job.first_message)]
    assert answer["data"][0]["status"] == "sent" and "Accepted by the vendor" in str(answer["data"][0]["events"])
    test = Program(job.sponsor, "test")
    vendor = api_vendor(sandbox=True)
    assert test.send(letter(vendor, "ann@sandbox.example")).status_code == 202
    found = test.send({"text": "ann@sandbox.example"}, None, "/api/v1/recipients/find").json()["data"]
    assert len(found) == 1 and found[0]["id"] != public_ids.id_of_number("msg", job.first_message)
    assert len(live.send({"text": "ann@sandbox.example"}, None, "/api/v1/recipients/find").json()["data"]) == 1
    sender = Program(job.sponsor, scopes=("send",))
    keyring.forget_callers()
    problem(sender.send({"text": "ann@sandbox.example"}, None, "/api/v1/recipients/find"), "forbidden", 403)
