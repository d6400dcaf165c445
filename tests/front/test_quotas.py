"""Quotas over the API: 429 with the time of the renewal, 403 for what never fits, and never past it together."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.lists.intake import allocate_ids, requests
from campaigns.models import Job, Session, SponsorQuota
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests.front.program import Program, api_vendor, fresh, letter, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


def quota(program: Program, vendor: Any, span: str, most: int) -> SponsorQuota:
    return SponsorQuota.objects.create(sponsor=program.sponsor, vendor=vendor, span=span, measure="messages", most=most)


def addresses(many: int) -> list[str]:
    return [f"p{number}@sandbox.example" for number in range(many)]


def test_what_does_not_fit_today_comes_back_when_the_quota_is_renewed() -> None:
    program, vendor = Program(), api_vendor()
    quota(program, vendor, "day", 3)
    assert program.send(letter(vendor, addresses(2))).status_code == 202
    answer = program.send(letter(vendor, addresses(2)))
    found = problem(answer, "quota-used", 429)
    assert f"is 3 messages a day at {vendor.slug}: 2 are used, and this is 2 more" in found["detail"]
    renewed = datetime.fromisoformat(found["quota"].pop("renewed_at"))
    assert found["quota"] == {"vendor": vendor.slug, "span": "day", "measure": "messages", "limit": 3, "used": 2}
    assert (renewed.hour, renewed.minute, renewed.utcoffset()) == (0, 0, timedelta())
    assert 0 < int(answer.headers["Retry-After"]) <= 86_400
    assert Job.objects.count() == 1
    assert program.send(letter(vendor)).status_code == 202, "what fits is taken"


def test_what_never_fits_is_forbidden() -> None:
    program, vendor = Program(), api_vendor()
    quota(program, None, "month", 3)
    answer = program.send(letter(vendor, addresses(4)))
    assert "it never fits" in problem(answer, "quota-too-small", 403)["detail"]
    assert "Retry-After" not in answer.headers


def test_a_quota_in_flight_asks_to_come_back_soon() -> None:
    program, vendor = Program(), api_vendor()
    quota(program, vendor, "flight", 1)
    assert program.send(letter(vendor)).status_code == 202
    answer = program.send(letter(vendor))
    assert problem(answer, "quota-used", 429)["quota"]["renewed_at"] is None
    assert answer.headers["Retry-After"] == "60"
    Job.objects.update(status="LOGGED", finished_at=timezone.now())
    assert program.send(letter(vendor)).status_code == 202


def test_a_repeat_gets_its_first_answer_although_the_quota_is_used() -> None:
    program, vendor = Program(), api_vendor()
    quota(program, vendor, "day", 1)
    first = program.send(letter(vendor), "one")
    again = program.send(letter(vendor), "one")
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    problem(program.send(letter(vendor), "two"), "quota-used", 429)
    SponsorQuota.objects.update(most=0)
    assert program.send(letter(vendor), "one").content == first.content, "nor when it would never fit again"


def test_recipients_who_get_nothing_are_not_counted() -> None:
    program, vendor = Program(), api_vendor()
    lists.add_suppressions(program.sponsor.pk, "email", [NewSuppression("ben@sandbox.example", "stop")])
    quota(program, vendor, "day", 2)
    to = [f"{name}@sandbox.example" for name in ("ann", "ben", "cleo")]
    assert program.send(letter(vendor, to)).status_code == 202
    assert Job.objects.get().suppressed == 1
    problem(program.send(letter(vendor, "cleo@sandbox.example")), "quota-used", 429)
    assert program.send(letter(vendor, "ben@sandbox.example")).status_code == 202, "nothing of it is sent"


def test_an_edit_holds_with_the_next_request() -> None:
    program, vendor = Program(), api_vendor()
    assert program.send(letter(vendor)).status_code == 202
    row = quota(program, vendor, "day", 1)
    problem(program.send(letter(vendor)), "quota-used", 429)
    row.delete()
    assert program.send(letter(vendor)).status_code == 202


def test_a_quota_of_another_sponsor_is_nothing_to_this_one() -> None:
    ours, theirs, vendor = Program(), Program(), api_vendor()
    quota(theirs, vendor, "day", 0)
    assert ours.send(letter(vendor)).status_code == 202
    problem(theirs.send(letter(vendor)), "quota-too-small", 403)


def test_a_dry_run_says_what_a_quota_would_say() -> None:
    program, vendor = Program(), api_vendor()
    assert program.send(letter(vendor), path="/api/v1/messages?dry_run=true").json()["quotas"] == []
    row = quota(program, vendor, "month", 1)
    (warns,) = program.send(letter(vendor), path="/api/v1/messages?dry_run=true").json()["quotas"]
    assert "has used 1 of 1 messages a month" in warns
    row.delete()
    quota(program, vendor, "month", 0)
    (never,) = program.send(letter(vendor), path="/api/v1/messages?dry_run=true").json()["quotas"]
    assert "it never fits" in never
    assert not Session.objects.exists()


def test_a_retry_that_does_not_fit_is_refused_like_new_work() -> None:
    program, vendor = Program(), api_vendor()
    session = program.send(letter(vendor)).json()
    Job.objects.update(status="LOGGED", finished_at=timezone.now())
    quota(program, vendor, "day", 0)
    again = program.post(session["links"]["retry"])
    assert "and this is 1: it never fits" in problem(again, "quota-too-small", 403)["detail"]
    SponsorQuota.objects.update(most=1)
    assert program.post(session["links"]["retry"]).status_code == 202


def test_a_scheduled_session_that_a_quota_holds_says_so() -> None:
    program, vendor = Program(), api_vendor()
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    session = program.send(letter(vendor, send_at=soon)).json()
    Job.objects.update(not_before=None)
    quota(program, vendor, "flight", 0)
    held = program.get(session["links"]["self"]).json()["held"]
    assert held.startswith("the quota of ") and "it never fits" in held


def test_requests_of_several_sponsors_in_one_batch_are_each_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    free, limited, vendor = Program(), Program(), api_vendor()
    quota(limited, vendor, "day", 2)
    orders: dict[int, requests.Request] = {}
    real = requests.store_requests

    def seen(asked: Sequence[requests.Request]) -> list[requests.Stored]:
        orders.update((one.sponsor_id, one) for one in asked)
        return real(asked)

    monkeypatch.setattr(requests, "store_requests", seen)
    for program in (free, limited):
        program.send(letter(vendor))

    def request(program: Program, key: str) -> requests.Request:
        first = orders[program.sponsor.pk]
        return replace(first, session=uuid4(), idempotency_key=key, first_message=allocate_ids(1))

    asked = [request(by, f"k{number}") for number, by in enumerate((free, limited, free, limited, limited))]
    stored = real(asked)
    assert [one.job_id is not None for one in stored] == [True, True, True, False, False], "one was used before"
    assert [one.refusal is not None for one in stored] == [False, False, False, True, True]
    again = real(asked[:2])
    assert [(one.job_id, one.refusal) for one in again] == [(None, None)] * 2, "both are found by their keys"


@pytest.mark.django_db(transaction=True)
def test_many_requests_at_once_do_not_pass_a_quota_together() -> None:
    program, vendor = Program(), api_vendor()
    quota(program, vendor, "day", 5)
    at_once = Barrier(8)

    def send(number: int) -> int:
        try:
            at_once.wait(60)
            return int(program.send(letter(vendor), f"key-{number}").status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(8)))
    assert sorted(answers) == [202] * 5 + [429] * 3
    assert Job.objects.count() == 5


def test_a_sponsor_without_a_quota_is_stored_in_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    free, limited, vendor = Program(), Program(), api_vendor()
    quota(limited, vendor, "day", 2)
    asked: list[bool] = []
    real = requests._execute_store

    def seen(*given: Any) -> Any:
        asked.append(given[1] is None)
        return real(*given)

    monkeypatch.setattr(requests, "_execute_store", seen)
    assert free.send(letter(vendor)).status_code == 202
    assert asked == [False]
    assert limited.send(letter(vendor)).status_code == 202
    assert asked == [False, False, True]
