"""A program's request waits for a person's approval where its sponsor demands one; no key of it decides that."""

import json
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User

from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.models import ApiKey, Approval, Job, Sponsor
from campaigns.operations import approving
from tests.front.program import Program, api_vendor, fresh, letter, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def program() -> Program:
    return Program()


def demand(program: Program, above: int | None) -> None:
    Sponsor.objects.filter(pk=program.sponsor.pk).update(approval_above=above)
    vendor_cache.forget_vendors()


def send(program: Program, number: int, **members: Any) -> dict[str, Any]:
    answer = program.send(letter(api_vendor(), [f"p{one}@sandbox.example" for one in range(number)], **members))
    assert answer.status_code == 202, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_a_request_above_the_number_waits_and_its_key_cannot_let_it_go(program: Program) -> None:
    demand(program, 2)
    assert send(program, 2)["approval"] is None
    answer = send(program, 3)
    assert answer["approval"] == "waiting"
    row, links = Approval.objects.get(), answer["links"]
    assert (row.asked_kind, row.asked_by, row.recipients) == ("key", program.key.prefix, 3)
    session = program.get(links["self"]).json()
    assert session["status"] == "paused" and session["approval"]["state"] == "waiting"
    assert "waits for approval" in session["paused"]
    problem(program.post(links["resume"]), "state-conflict", 409)
    assert Job.objects.get(session__isnull=False, campaign=row.campaign_id).paused_at
    assert program.post(links["pause"]).status_code == 202
    assert "then it stays paused" in program.get(links["self"]).json()["paused"]
    bob = User.objects.create_user("bob")
    bob.groups.add(Group.objects.get(name="campaign approver"))
    program.sponsor.users.add(bob)
    approving.decide_approval(row.campaign_id, "approved", bob)
    session = program.get(links["self"]).json()
    said = (session["status"], session["approval"]["state"], session["approval"]["by"])
    assert said == ("paused", "approved", "bob") and "stays paused" not in session["paused"]
    assert program.post(session["links"]["resume"]).status_code == 202
    assert program.get(links["self"]).json()["status"] == "waiting"


def test_a_refused_session_is_stopped_and_says_why(program: Program) -> None:
    demand(program, 0)
    links = send(program, 1)["links"]
    boss = User.objects.create_superuser("boss")
    approving.decide_approval(Approval.objects.get().campaign_id, "refused", boss, "not today")
    session = program.get(links["self"]).json()
    assert (session["status"], session["approval"]["remark"]) == ("stopped", "not today")
    problem(program.post(session["links"]["retry"]), "state-conflict", 409)


def test_a_test_send_and_a_repeat_ask_for_nothing_more(program: Program) -> None:
    demand(program, 0)
    assert send(program, 3, test_to="me@sandbox.example")["approval"] is None
    body = json.dumps(letter(api_vendor(), "a@sandbox.example"))
    first, again = (program.send(body, key="once") for _ in range(2))
    assert first.json() == again.json() and Approval.objects.count() == 1


def test_without_the_demand_a_request_costs_no_further_statement(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor, counted = api_vendor(), []
    execute = psycopg.Cursor.execute

    def counting(cursor: Any, *given: Any, **more: Any) -> Any:
        counted.append(given[0])
        return execute(cursor, *given, **more)

    def statements() -> int:
        counted.clear()
        assert program.send(letter(vendor)).status_code == 202
        return len(counted)

    monkeypatch.setattr(psycopg.Cursor, "execute", counting)
    for cache in ("vendor_cache", "keys"):  # a slow machine would read again between two requests
        monkeypatch.setattr(f"campaigns.doors.front.{cache}.FRESH", 3600.0)
    statements()  # what a process reads once
    asks_none = statements()
    demand(program, 1)
    statements()  # reads the sponsor anew
    assert statements() == asks_none
    demand(program, 0)
    statements()
    assert statements() > asks_none


def test_who_has_made_a_key_does_not_approve_what_it_asks_for(program: Program) -> None:
    demand(program, 0)
    ann = User.objects.create_user("ann")
    ann.groups.add(Group.objects.get(name="campaign approver"))
    program.sponsor.users.add(ann)
    ApiKey.objects.filter(pk=program.key.pk).update(made_by="ann")
    send(program, 1)
    row = Approval.objects.get()
    assert (row.asked_kind, row.asked_user) == ("key", ann.pk)
    with pytest.raises(approving.CannotDecide, match="ann has asked for it"):
        approving.decide_approval(row.campaign_id, "approved", ann)
