"""Templates by the API: versions, and requests that name them."""

import json

import pytest

from campaigns.models import Campaign, TemplateVersion
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
WELCOME = {
    "name": "Welcome",
    "channel": "email",
    "subject": "Hello {{ name }}",
    "body": "Dear {{ name|default('you') }}",
}
TO = [{"to": "ann@sandbox.example", "fields": {"name": "Ann"}}]


def put(program, **more):
    return program.client.post("/api/v1/templates", json.dumps(WELCOME | more), content_type="application/json")


def by(name, **more):
    return {"template": name, "recipients": TO, **more}


def test_a_version_is_added_once_and_read():
    program = Program()
    made, again = put(program), put(program)
    assert (made.status_code, again.status_code) == (201, 200)
    assert made.headers["Location"] == "/api/v1/templates/Welcome?version=1"
    assert made.json() | {"made_at": ""} == again.json() | {"made_at": ""}
    assert put(program, body="Hi", based_on=1, remark="shorter").json()["version"] == 2
    problem(put(program, body="Ho", based_on=1), "state-conflict", 409)
    found = program.get("templates/Welcome").json()
    assert (found["version"], found["body"], found["fields"], found["optional"]) == (2, "Hi", ["name"], [])
    assert program.get("templates/Welcome?version=1").json()["fields"] == ["name"]
    assert found["made_by"] == program.key.prefix
    problem(program.get("templates/Welcome?version=3"), "not-found", 404)


def test_what_is_wrong_is_told_with_its_place_and_nothing_is_stored():
    program = Program()
    assert pointers(put(program, body="{% if %}")) == {"/body": "template"}
    assert pointers(put(program, subject="")) == {"/subject": "template"}
    assert pointers(put(program, headers=[{"name": "To", "value": "x"}])) == {"/headers": "template"}
    assert pointers(put(program, name="a@1")) == {"/name": "template"}
    assert not TemplateVersion.objects.exists()


def test_pages_of_templates_and_the_archived_ones():
    program = Program()
    for name in ("b c", "a", "d"):
        put(program, name=name)
    first = program.get("templates?limit=2").json()
    assert [one["name"] for one in first["data"]] == ["a", "b c"]
    assert [one["name"] for one in program.get(first["links"]["next"]).json()["data"]] == ["d"]
    assert program.post("templates/b%20c/archive").json() == {"changed": True, "archived": True}
    assert program.post("templates/b%20c/archive").json() == {"changed": False, "archived": True}
    assert [one["name"] for one in program.get("templates?archived=true").json()["data"]] == ["b c"]
    assert program.post("templates/b%20c/restore").json() == {"changed": True, "archived": False}


def test_a_request_by_a_template_freezes_what_its_version_says():
    program, vendor = Program(), api_vendor()
    put(program)
    put(program, body="Hi", based_on=1)
    sent = program.send(by("Welcome@1", vendor=vendor.slug), "one")
    assert sent.status_code == 202, sent.content
    stored = Campaign.objects.get()
    assert (stored.subject, stored.body, str(stored.template_version)) == (
        WELCOME["subject"],
        WELCOME["body"],
        "Welcome@1",
    )
    put(program, body="Ho", based_on=2)
    again = program.send(by("Welcome@1", vendor=vendor.slug), "one")
    assert again.json() == sent.json() and Campaign.objects.count() == 1
    shown = program.send(by("Welcome", vendor=vendor.slug, preview=1), path="/api/v1/messages?dry_run=true")
    assert shown.json()["preview"][0]["body"] == "Ho"


def test_a_template_and_a_body_or_neither_are_refused():
    program, vendor = Program(), api_vendor()
    put(program)
    both = program.send({**letter(vendor), "template": "Welcome"})
    assert pointers(both) == {"/subject": "template", "/body": "template"}
    assert pointers(program.send({"vendor": vendor.slug, "recipients": TO})) == {"/body": "missing"}
    assert pointers(program.send(by("Nobody", vendor=vendor.slug))) == {"/template": "template"}
    program.post("templates/Welcome/archive")
    assert pointers(program.send(by("Welcome", vendor=vendor.slug))) == {"/template": "template"}


def test_a_test_key_uses_templates_and_changes_none():
    live = Program()
    put(live)
    test = Program(live.sponsor, "test")
    assert test.get("templates/Welcome").json()["body"] == WELCOME["body"]
    problem(put(test, body="Hi"), "forbidden", 403)
    problem(test.post("templates/Welcome/archive"), "forbidden", 403)
    sandbox = api_vendor(sandbox=True)
    assert test.send(by("Welcome", vendor=sandbox.slug)).status_code == 202
