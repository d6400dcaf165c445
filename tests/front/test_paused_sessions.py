"""A program pauses its session, lets it go on, and hears of a pause; it may ask for the first N only."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.integrations.webhooks import events
from campaigns.models import ComplaintPause, Job, WebhookCall
from campaigns.operations import pausing
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, problem
from vendors.history import Actor
from vendors.models import ReceiverWait

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def program() -> Program:
    return Program()


def send(program: Program, **members: Any) -> dict[str, Any]:
    addresses = [f"p{number}@sandbox.example" for number in range(5)]
    answer = program.send(letter(api_vendor(), addresses, **members))
    assert answer.status_code == 202, answer.content
    links: dict[str, str] = answer.json()["links"]
    return links


def test_a_program_pauses_its_session_and_lets_it_go_on(program: Program, settings: Any) -> None:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    events.create_webhook(program.sponsor, "http://127.0.0.1:8443/hook", ["session.paused"], test=False)
    links = send(program)
    paused = program.post(links["pause"]).json()
    assert paused["changed"] and paused["session"]["status"] == "paused"
    assert paused["session"]["paused"] == f"by {program.key.prefix}"
    assert not program.post(links["pause"]).json()["changed"]
    problem(program.post(links["retry"]), "state-conflict", 409)
    (call,) = WebhookCall.objects.all()
    posted = json.loads(call.body)
    assert (posted["type"], posted["data"]["reason"]) == ("session.paused", f"by {program.key.prefix}")
    resumed = program.post(paused["session"]["links"]["resume"]).json()
    assert resumed["changed"] and (resumed["session"]["status"], resumed["session"]["paused"]) == ("waiting", None)
    assert not program.post(paused["session"]["links"]["resume"]).json()["changed"]


def test_a_session_names_the_providers_to_which_it_waits_for_an_operator(program: Program) -> None:
    links = send(program)
    assert program.get(links["self"]).json()["paused_providers"] == []
    of = {"complaints": 4, "accepted": 1000, "limit": 0.3}
    for sponsor in (program.sponsor, factories.sponsor()):
        ComplaintPause.objects.create(sponsor=sponsor, receiver="gmail", since=timezone.now(), **of)
    [paused] = program.get(links["self"]).json()["paused_providers"]
    assert {**of, "provider": "gmail"}.items() <= paused.items() and paused["since"]
    single = program.send(letter(api_vendor())).json()["links"]["self"]
    assert program.get(single).json()["paused_providers"] == []


def test_a_session_names_the_receiving_domains_that_asked_to_slow_down(program: Program) -> None:
    links = send(program)
    assert program.get(links["self"]).json()["waiting_receivers"] == []
    job, soon = Job.objects.get(), timezone.now() + timedelta(minutes=5)
    wait: dict[str, Any] = {
        "since": timezone.now(),
        "until": soon,
        "seconds": 300.0,
        "cause": "us",
        "answer": "192.0.2.1",
    }
    ReceiverWait.objects.create(credential=job.credential, receiver="gmail", **wait)
    ReceiverWait.objects.create(credential=factories.credential(), receiver="yahoo", **wait)
    ReceiverWait.objects.create(credential=job.credential, receiver="client-of-another.example", **wait)
    named = {one["receiver"] for one in program.get(links["self"]).json()["waiting_receivers"]}
    assert named == {"gmail", "client-of-another.example"}, "nobody else is there"
    factories.sponsor()
    [waits] = program.get(links["self"]).json()["waiting_receivers"]
    assert (waits["receiver"], waits["refuses"]) == ("gmail", False) and set(waits) == {
        *("receiver", "since", "until", "refuses")
    }


def test_a_program_sends_to_the_first_n_and_has_limits_of_its_own(program: Program) -> None:
    send(program, first=2, bounce_limit=5, complaint_limit=0)
    job = Job.objects.select_related("campaign").get()
    assert (job.status, job.remaining, job.wait_after) == ("P_QUEUED", 5, 2)
    assert (job.campaign.bounce_limit, job.campaign.complaint_limit) == (5, 0)
    send(program, first=5)
    assert Job.objects.latest("pk").wait_after is None  # all of them are the first
    refused = program.send(letter(api_vendor(), "ann@sandbox.example", first=0, bounce_limit=101))
    pointers = {one["pointer"] for one in problem(refused, "validation", 422)["errors"]}
    assert pointers == {"/first", "/bounce_limit"}


def test_nobody_elses_session_can_be_paused_nor_without_the_right_to(program: Program) -> None:
    links = send(program)
    for verb in ("pause", "resume"):
        problem(Program().post(links[verb]), "not-found", 404)
        problem(Program(program.sponsor, scopes=("send", "read")).post(links[verb]), "forbidden", 403)


def test_what_an_operator_pauses_a_program_sees(program: Program) -> None:
    links = send(program)
    pausing.pause_jobs([Job.objects.get().pk], Actor("ann"), "the picture is missing")
    seen = program.get(links["self"]).json()
    assert (seen["status"], seen["paused"], seen["counts"]["waiting"]) == ("paused", "the picture is missing", 5)
