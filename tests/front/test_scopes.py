"""A key opens what its scope says, of its own sponsor: each operation by a key of each single scope, own and foreign.

The operations and their scopes are those of the OpenAPI document. Each is sent with a body, and to a thing, by which it
is valid: a key with the right scope is seen to change a row by it, in a transaction that is rolled back.
"""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors.front.keys import Key
from campaigns.models import (
    ApiKey,
    Identity,
    Job,
    Route,
    RouteEntry,
    Session,
    Suppression,
    Topic,
    WebhookCall,
)
from campaigns.operations import pausing
from mailhub.front.api import api
from tests import factories
from tests.campaigns.rows import accepted, refused
from tests.front.everything import OF_VENDORS, TEMPLATE, TOPIC, Everything, everything, operations
from tests.front.program import Program, api_vendor, forget, fresh, letter, pointers
from tests.front.test_message_content import relay
from tests.front.test_sessions import end
from tests.row_digests import Rows, count_written, digest_rows, find_lost, rows_of, undo
from vendors.history import Actor
from vendors.models import Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
API = "/api/v1"
SCOPES = ("send", "read", "ops")
SUPPRESSED = "gone@sandbox.example"
# Which scopes open an operation. Who adds a scope to an operation adds it here, too.
OPENED_BY: dict[tuple[str, ...], set[str]] = {
    ("send",): {
        "post /messages",
        "post /files",
        "get /files/{file_id}",
        "delete /files/{file_id}",
        "post /templates",
        "post /templates/{template}/archive",
        "post /templates/{template}/restore",
        "post /topics/{topic}/archive",
        "post /topics/{topic}/restore",
    },
    ("read",): {
        "get /answers",
        "get /costs",
        "get /days",
        "get /inbound",
        "get /messages/{message_id}",
        "get /sessions/{session_id}",
        "get /sessions/{session_id}/messages",
        "get /sessions/{session_id}/reasons",
        "get /sessions/{session_id}/report",
        "get /suppressions",
        "post /recipients/find",
    },
    ("ops",): {
        "post /answers/{answer_id}/read",
        "post /answers/{answer_id}/stop",
        "patch /sessions/{session_id}",
        "post /sessions/{session_id}/pause",
        "post /sessions/{session_id}/resume",
        "post /sessions/{session_id}/retry",
        "post /sessions/{session_id}/stop",
        "post /suppressions",
        "post /suppressions/erase",
        "post /suppressions/lift",
        "get /webhooks",
        "post /webhooks",
        "get /webhooks/{webhook_id}",
        "delete /webhooks/{webhook_id}",
        "post /webhooks/{webhook_id}/rotate",
        "get /webhooks/{webhook_id}/calls",
        "post /webhooks/{webhook_id}/calls/{event_id}/redeliver",
    },
    ("send", "read"): {"get /templates", "get /templates/{template}"},
    ("send", "read", "ops"): {"get /services", "get /identities", "get /topics"},
}
SENDING = "post /messages"
LOOK_UPS = {"post /recipients/find"}  # what is looked for is posted, since addresses stand in logs
ADDRESSES = {"channel": "email", "addresses": [SUPPRESSED]}
BODIES: dict[str, Any] = {
    "patch /sessions/{session_id}": {"bounce_limit": 7},
    "post /webhooks": {"url": "https://other.example/hook"},
    "post /suppressions": {"channel": "email", "suppressions": [{"address": "new@example.com", "reason": "stop"}]},
    "post /suppressions/lift": ADDRESSES,
    "post /suppressions/erase": ADDRESSES,
    "post /recipients/find": {"text": "ann@sandbox.example"},
    "post /templates": {"name": "Another", "channel": "email", "subject": "Hello", "body": "Good day"},
    "post /files": b"another file",
}


@dataclass
class Owned:
    """What a sponsor has: of each operation the things in a state that it is for."""

    program: Program
    vendor: Any
    all: Everything
    sessions: dict[str, Session]
    archived: dict[str, str]

    def address(self, operation: str) -> str:
        """Where it is sent to, with the revision that is asked for."""
        method, _, path = operation.partition(" ")
        verb = path.rpartition("/")[2]
        things = dict(self.all.things)
        if verb == "restore":
            things |= self.archived
        if (session := self.sessions.get(verb, self.sessions["waiting"] if method == "patch" else None)) is not None:
            things["session_id"] = f"ses_{session.pk.hex}"
        query = f"?revision={Job.objects.get(session=session).revision}" if verb in ("resume", "retry") else ""
        return API + path.format(**things) + query


def owned() -> Owned:
    """A sponsor with a bit of everything, and with sessions that wait, are paused, and have failed."""
    program, vendor = Program(), api_vendor()
    mine = everything(program, vendor)
    sessions = dict[str, Session]()
    for name in ("waiting", "paused", "failed"):
        answer = program.send(letter(vendor, [f"{name}-{number}@sandbox.example" for number in range(3)]))
        assert answer.status_code == 202, answer.content
        sessions[name] = Session.objects.filter(sponsor=program.sponsor).latest("created_at")
    pausing.pause_jobs([Job.objects.get(session=sessions["paused"]).pk], Actor("ann"), "the picture is missing")
    end(Job.objects.get(session=sessions["failed"]), [accepted(), refused(), refused()])
    of = {"pause": "waiting", "stop": "waiting", "resume": "paused", "retry": "failed"}
    for verb, name in of.items():
        sessions[verb] = sessions[name]
    content = TemplateContent("Hello", "Good day")
    template = versions.add_version(
        program.sponsor.pk, f"{TEMPLATE}-archived", "email", content, Actor("ann")
    ).version.template
    versions.archive_template(template, Actor("ann"))
    topic = f"{TOPIC}-archived"
    Topic.objects.create(sponsor=program.sponsor, name=topic, title=topic, archived_at=timezone.now())
    body = {"channel": "email", "suppressions": [{"address": SUPPRESSED, "reason": "stop"}]}
    answer = program.send(body, None, f"{API}/suppressions")
    assert answer.status_code == 200 and Suppression.objects.filter(sponsor=program.sponsor).exists(), answer.content
    WebhookCall.objects.filter(webhook__sponsor=program.sponsor).update(taken_at=timezone.now(), next_at=None)
    return Owned(program, vendor, mine, sessions, {"template": template.name, "topic": topic})


def ask(by: Program, operation: str, about: Owned) -> Any:
    """Sends the operation with a valid body. In this way a program of another sponsor asks for what it has not got."""
    method = operation.partition(" ")[0]
    body = letter(about.vendor) if operation == SENDING else BODIES.get(operation, {})
    text = body if isinstance(body, bytes) else json.dumps(body) if method in ("post", "patch") else ""
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    headers = {"Idempotency-Key": "of the matrix"} if operation == SENDING else {}
    return by.client.generic(method.upper(), about.address(operation), text, kind, headers=headers)


def documented() -> dict[str, set[str]]:
    """The scopes that open each operation, as the OpenAPI document says."""
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    return {
        f"{method} {path.removeprefix(API)}": {
            scope for way in paths[path][method]["security"] for scope in way[Key.__name__]
        }
        for method, path in operations()
        if path != OF_VENDORS
    }


def read(answer: Any) -> str:
    """All that an answer tells."""
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return content.decode(errors="replace") + str(answer.headers)


@dataclass
class Answered:
    """How an operation was answered, how many rows that wrote, and the tables in which a row of before was changed."""

    operation: str
    response: Any
    content: str
    rows: int
    lost: list[str]

    @property
    def is_change(self) -> bool:
        return not self.operation.startswith("get ") and self.operation not in LOOK_UPS

    @property
    def state(self) -> tuple[int, str]:
        """Its status, and what kind of problem it is."""
        status = self.response.status_code
        return status, "" if status < 400 else self.response.json()["type"].rpartition(":")[2]


def answered(by: Program, operation: str, about: Owned, before: Rows) -> Answered:
    """Asks, and undoes what that has changed. Only a change is worth looking at all rows."""

    def step() -> tuple[Any, str, list[str]]:
        written = count_written()
        response = ask(by, operation, about)
        return response, read(response), find_lost(before) if count_written() > written else []

    (response, content, lost), rows = undo(step)
    return Answered(operation, response, content, rows, lost)


def find_fault(found: Answered, is_open: bool, is_own: bool, secrets: set[str]) -> str:
    """Why an answer is not as it has to be; empty: it is."""
    if not is_open:
        is_right = found.state == (403, "forbidden") and found.rows == 0
        return "" if is_right else f"a key without the scope gets {found.state} and writes {found.rows} rows"
    if is_own:
        is_right = found.state[0] < 300 and (found.rows > 0) == found.is_change
        return "" if is_right else f"its own sponsor gets {found.state} and writes {found.rows} rows: {found.content}"
    if shown := [one for one in secrets if one in found.content]:
        return f"another sponsor reads {shown}"
    if "{" in found.operation:
        is_right = found.state == (404, "not-found") and found.rows == 0
        return "" if is_right else f"another sponsor gets {found.state} and writes {found.rows} rows"
    is_right = found.state[0] < 300 and found.lost == []
    return "" if is_right else f"another sponsor gets {found.state} and changes rows of {found.lost}: {found.content}"


def note_use() -> None:
    """Each key was used tomorrow, so that no request writes when it was used."""
    ApiKey.objects.update(last_used_at=timezone.now() + timedelta(days=1))


def test_each_operation_says_which_scopes_open_it() -> None:
    assert documented() == {one: set(scopes) for scopes, some in OPENED_BY.items() for one in some}


@pytest.mark.slow("many")
def test_a_key_of_one_scope_does_what_is_documented_with_things_of_its_own_sponsor_alone() -> None:
    ours, theirs = owned(), Program()
    secrets = ours.all.secrets - {TEMPLATE, TOPIC}  # names, which are in the addresses that are asked for
    programs = [(Program(of.sponsor, scopes=(scope,)), scope, of) for scope in SCOPES for of in (ours.program, theirs)]
    note_use()
    before, foreign = digest_rows(), rows_of([ours.program.sponsor.pk])
    found = list[str]()
    for program, scope, of in programs:
        for operation, scopes in documented().items():
            answer = answered(program, operation, ours, before)
            if fault := find_fault(answer, scope in scopes, of is ours.program, secrets):
                found.append(f"{operation} with {scope}: {fault}")
    assert found == [], "\n".join(found)
    assert find_lost(before) == [] and rows_of([ours.program.sponsor.pk]) == foreign


def test_a_letter_that_names_things_of_another_sponsor_is_refused_as_if_they_were_not_there() -> None:
    ours, theirs, vendor = Program(), Program(), relay()
    mine, login = everything(ours, api_vendor()), vendor.credentials.get()
    for sponsor, name in ((ours.sponsor, "news"), (ours.sponsor, "main"), (theirs.sponsor, "main")):
        address = f"{factories.unique(name)}@one.example"
        Identity.objects.create(
            sponsor=sponsor, name=name, channel="email", from_address=address, default=name == "main"
        )
    route = Route.objects.create(sponsor=ours.sponsor, name="mails", channel="email")
    RouteEntry.objects.create(route=route, position=1, credential=login)
    owner = Vendor.objects.create(slug="of-us-alone", name="Ours", adapter="smtp", settings={"host": "relay.example"})
    factories.credential(owner, "default")
    factories.entitle([ours.sponsor], [owner])
    Vendor.objects.filter(pk=owner.pk).update(owner=ours.sponsor)
    note_use()
    forget()
    plain = letter(vendor)
    bare = {name: value for name, value in plain.items() if name not in ("vendor", "subject", "body")}
    asked: dict[str, dict[str, Any]] = {
        "/template": {**bare, "vendor": vendor.slug, "template": mine.things["template"]},
        "/topic": {**plain, "topic": mine.things["topic"]},
        "/identity": {**plain, "identity": "news"},
        "/route": {**letter(), "route": "mails"},
        "/vendor": letter(owner),
        "/attachments/0/file": {**plain, "attachments": [{"name": "a.pdf", "file": mine.things["file_id"]}]},
    }
    for place, body in asked.items():
        own, rows = undo(lambda body=body: ours.send(body))
        assert own.status_code == 202 and rows, (place, own.content)
        foreign, rows = undo(lambda body=body: theirs.send(body))
        assert place in pointers(foreign) and rows == 0, foreign.content
    entry = {"address": "new@example.com", "reason": "unsubscribed", "topic": mine.things["topic"]}
    body = {"channel": "email", "suppressions": [entry]}
    own, rows = undo(lambda: ours.send(body, None, f"{API}/suppressions"))
    assert own.status_code == 200 and rows, own.content
    foreign, rows = undo(lambda: theirs.send(body, None, f"{API}/suppressions"))
    assert pointers(foreign) == {"/suppressions/0/topic": "topic"} and rows == 0
