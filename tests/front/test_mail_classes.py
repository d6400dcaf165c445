"""Over the API a request has a class: as it names it, as its template says, or by its kind; and only if it may."""

from typing import Any

import pytest

from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.models import Campaign, Entitlement, Job
from campaigns.models.identities import Urgent
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
DRY = "/api/v1/messages?dry_run=true"


def several(asked: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "recipients": [{"to": f"ann{number}@example.com"} for number in range(3)]}


def add(program: Program, content: dict[str, Any]) -> Any:
    return program.client.post("/api/v1/templates", content, "application/json")


def allow(right: Urgent) -> None:
    Entitlement.objects.update(urgent=right)
    vendor_cache.forget_vendors()


def test_a_single_letter_is_urgent_and_a_list_is_bulk_unless_they_say_otherwise() -> None:
    program, vendor = Program(), api_vendor(channel="email")
    asked = letter(vendor)
    answers = [
        program.send(asked, "one"),
        program.send(several(asked), "list"),
        program.send({**asked, "mail_class": "bulk"}, "three"),
        program.send({**several(asked), "mail_class": "usual"}, "four"),
    ]
    assert [one.status_code for one in answers] == [202] * 4
    assert [one.json()["mail_class"] for one in answers] == ["urgent", "bulk", "bulk", "usual"]
    assert list(Job.objects.order_by("pk").values_list("mail_class", flat=True)) == [1, 3, 3, 2]
    assert list(Campaign.objects.order_by("pk").values_list("mail_class", flat=True)) == [1, 3, 3, 2]
    session = program.get(f"sessions/{answers[3].json()['id']}").json()
    assert session["mail_class"] == "usual"


def test_without_the_right_nothing_is_urgent() -> None:
    program, vendor = Program(), api_vendor(channel="email")
    asked = letter(vendor)
    program.send(asked, "before")
    refused = program.send({**several(asked), "mail_class": "urgent"}, "list")
    problem(refused, "forbidden", 403)
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/mail_class"]
    assert "only single letters may be urgent" in refused.json()["detail"]
    problem(program.send({**several(asked), "mail_class": "urgent"}, "", path=DRY), "forbidden", 403)
    allow(Urgent.NOTHING)
    assert program.send(asked, "usual").json()["mail_class"] == "usual"
    problem(program.send({**asked, "mail_class": "urgent"}, "urgent"), "forbidden", 403)
    allow(Urgent.ALL)
    assert program.send({**several(asked), "mail_class": "urgent"}, "all").json()["mail_class"] == "urgent"
    assert list(Job.objects.order_by("pk").values_list("mail_class", flat=True)) == [1, 2, 1]


@pytest.mark.parametrize("typed", ["URGENT", "", "first", 1, ["urgent"]])
def test_a_class_is_one_of_three_words(typed: Any) -> None:
    program, vendor = Program(), api_vendor(channel="email")
    refused = program.send({**letter(vendor), "mail_class": typed})
    problem(refused, "validation", 422)
    assert list(pointers(refused)) == ["/mail_class"]


def test_a_template_has_a_class_and_a_request_its_own() -> None:
    program, vendor = Program(), api_vendor(channel="email")
    content = {"name": "code", "channel": "email", "subject": "Hi", "body": "Hello", "mail_class": "usual"}
    made = add(program, content)
    assert (made.status_code, made.json()["mail_class"]) == (201, "usual")
    to = {"vendor": vendor.slug, "template": "code", "recipients": [{"to": "ann@example.com"}]}
    assert program.send(to, "one").json()["mail_class"] == "usual"
    assert program.send({**to, "mail_class": "urgent"}, "two").json()["mail_class"] == "urgent"
    assert add(program, {**content, "mail_class": "urgent"}).json()["mail_class"] == "urgent"
    assert program.send(to, "three").json()["mail_class"] == "urgent"
    many = {**to, "recipients": several({})["recipients"]}
    problem(program.send(many, "four"), "forbidden", 403)
    without = {name: value for name, value in content.items() if name != "mail_class"}
    assert add(program, without).json()["mail_class"] == "urgent", "it stays"
