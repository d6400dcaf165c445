"""The API takes what its OpenAPI document allows, and nothing else: no value passes for one of another type."""

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import jsonschema_rs
import pytest

from campaigns.models import Job, Message, Session
from mailhub.front.api import api
from tests import factories
from tests.campaigns.rows import accepted, refused
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from tests.front.test_sessions import end
from tests.front.vendor import NOON, receipt, reporting

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
SCHEMA = api.get_openapi_schema(path_prefix="/api/v1/")
WRONG = (20261231, "20261231", "2026-12-31", 0, 1, 1.5, -1, True, "no", "1", "", None, [], [1], {}, {"a": 1}, "x\0")
YEAR = datetime.now(UTC).year + 2
SOON, LATER = f"{YEAR}-01-01T00:00:00Z", f"{YEAR}-01-02T00:00:00Z"


def bodies(vendor: Any, session: str) -> dict[tuple[str, str], dict[str, Any]]:
    """A good body for each operation that takes one as JSON, with as many members as go together."""
    mail = letter(vendor, recipients=[{"to": "ann@sandbox.example", "fields": {"n": 1}, "reference": "r"}])
    mail |= {"send_at": SOON, "first": 1, "html": False, "transactional": False, "skip_bad_recipients": False}
    mail |= {"bounce_limit": 5.5, "complaint_limit": 1, "metadata": {"a": "b"}, "preview": 0}
    mail |= {"hours": {"start": "09:00", "end": "17:00", "time_zone": "Europe/London", "of_each": False}}
    mail |= {"headers": [{"name": "X-Run", "value": "1"}], "mjml": False, "expires_at": LATER}
    held = {"address": "ann@sandbox.example", "reason": "by_hand", "since": "2026-01-01T00:00:00Z", "until": SOON}
    addresses = {"channel": "email", "addresses": ["ann@sandbox.example"]}
    template = {"name": "t", "channel": "email", "subject": "s", "body": "b", "html": False, "based_on": 0}
    return {
        ("post", "/api/v1/messages"): mail,
        ("patch", f"/api/v1/sessions/{session}"): {"bounce_limit": 5.5, "complaint_limit": 1},
        ("post", "/api/v1/suppressions"): {"channel": "email", "suppressions": [held]},
        ("post", "/api/v1/suppressions/lift"): addresses,
        ("post", "/api/v1/suppressions/erase"): addresses,
        ("post", "/api/v1/templates"): template,
        ("post", "/api/v1/webhooks"): {"url": "http://127.0.0.1:8443/hook", "events": ["message.failed"]},
        ("post", "/api/v1/recipients/find"): {"text": "ann@sandbox.example"},
    }


def changed(value: Any) -> Iterator[Any]:
    """The value with one member or item at a time, however deep, replaced by each of the wrong ones."""
    yield from WRONG
    if isinstance(value, dict):
        yield {**value, "unheard_of": 1}
        for name, inner in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            for wrong in changed(inner):
                yield {**value, name: wrong}
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            for wrong in changed(inner):
                yield [*value[:number], wrong, *value[number + 1 :]]


def allowed_by(operation: dict[str, Any]) -> Any:
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    whole = {**body, "components": SCHEMA["components"]}
    return jsonschema_rs.validator_for(whole, validate_formats=True).is_valid


def taking_json() -> dict[tuple[str, str], dict[str, Any]]:
    """Operations by method and path."""
    found = {}
    for path, methods in SCHEMA["paths"].items():
        for method, operation in methods.items():
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                found[method, path] = operation
    return found


OF_VENDORS = ("post", "/api/v1/receipts/{vendor}")


def test_what_the_document_does_not_allow_is_refused_by_every_operation_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django.conf.settings.WEBHOOK_NETWORKS", ["127.0.0.0/8"])
    settings = {"host": "127.0.0.1", "sender": "us@example.org"}
    vendor = api_vendor(adapter="smtp", settings=settings, channel="email")
    program = Program(requests_per_minute=0)
    session = program.send(letter(vendor)).json()["id"]
    good = bodies(vendor, session)
    documented = {key for key in taking_json() if key != OF_VENDORS}
    assert {(method, path.replace(session, "{session_id}")) for method, path in good} == documented
    tried = 0
    for (method, path), body in good.items():
        operation = SCHEMA["paths"][path.replace(session, "{session_id}")][method]
        is_allowed = allowed_by(operation)
        assert is_allowed(body), (path, body)
        sent = getattr(program.client, method)
        for wrong in changed(copy.deepcopy(body)):
            if is_allowed(wrong):
                continue
            tried += 1
            headers = {"Idempotency-Key": f"k{tried}"}
            answer = sent(path, json.dumps(wrong), content_type="application/json", headers=headers)
            assert answer.status_code == 422, (method, path, wrong, answer.content)
        assert Session.objects.count() == 1
        answer = sent(path, json.dumps(body), content_type="application/json", headers={"Idempotency-Key": "good"})
        assert answer.status_code < 300, (method, path, answer.content)
        Session.objects.exclude(pk=UUID(session.removeprefix("ses_"))).delete()
    assert tried > 500


NO_TIMES = [f"{YEAR}-01-01T{end}" for end in ("00:00:00+01:60", "00:00:00+24:00", "24:00:00Z")]


@pytest.mark.parametrize(
    "wrong", [20261231, "20261231", 0, 1798704000, "1798704000000", "2026-12-31", SOON[:-1], True, *NO_TIMES]
)
@pytest.mark.parametrize("name", ["send_at", "expires_at"])
def test_a_time_is_text_as_rfc_3339_writes_it(name: str, wrong: Any) -> None:
    program, vendor = Program(), api_vendor()
    assert list(pointers(program.send(letter(vendor, **{name: wrong})))) == [f"/{name}"]
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    "right", ["01-01T00:00:00.5+01:00", "01-01t00:00:00z", "12-31T23:59:60Z", "12-31T15:59:60-08:00"]
)
def test_every_time_that_rfc_3339_allows_is_taken(right: str) -> None:
    program = Program()
    assert program.send(letter(api_vendor(), send_at=f"{YEAR}-{right}")).json()["status"] == "scheduled"


@pytest.mark.parametrize(("past", "status"), [(timedelta(minutes=5), 202), (timedelta(days=1, minutes=5), 422)])
def test_what_was_due_days_ago_is_a_mistake_and_is_not_sent_now(past: timedelta, status: int) -> None:
    at = (datetime.now(UTC) - past).isoformat()
    assert Program().send(letter(api_vendor(), send_at=at)).status_code == status


@pytest.mark.parametrize(
    ("query", "messages"),
    [("sent", 2), ("SENT", 2), ("sent,failed", 3), ("Failed", 1), ("complete", None), ("", 3), ("sent,", None)],
)
def test_the_states_of_a_sessions_messages_are_named_as_those_of_its_report(query: str, messages: int | None) -> None:
    program = Program()
    links = program.send(letter(api_vendor(), to=[f"p{n}@sandbox.example" for n in range(3)])).json()["links"]
    end(Job.objects.get(), [accepted("v-0"), accepted("v-1"), refused()])
    answer = program.get(f"{links['messages']}?status={query}")
    report = program.get(f"{links['self']}/report?status={query}")
    if messages is None:
        problem(answer, "validation", 422)
        problem(report, "validation", 422)
    else:
        assert len(answer.json()["data"]) == messages
        assert len(report.content.splitlines()) == messages + 1


def test_the_next_page_asks_for_the_same_states() -> None:
    program = Program()
    links = program.send(letter(api_vendor(), to=[f"p{n}@sandbox.example" for n in range(3)])).json()["links"]
    end(Job.objects.get(), [accepted("v-0"), refused(), accepted("v-2")])
    first = program.get(f"{links['messages']}?status=sent,failed&limit=2").json()
    assert len(first["data"]) == 2 and len(program.get(first["links"]["next"]).json()["data"]) == 1


LONG = {
    "n": (123456789012345678901234567890, "123456789012345678901234567890"),
    "k": (18446744073709551616, "18446744073709551616"),
    "m": (18446744073709551615, "18446744073709551615"),
    "below": (-9223372036854775809, "-9223372036854775809"),
    "small": (7, "7"),
}


def test_a_letter_shows_the_digits_of_a_number_as_they_came() -> None:
    fields = {name: number for name, (number, _) in LONG.items()}
    body = " ".join(f"{{{{ {name} }}}}" for name in fields) + " {{ amount }}"
    asked = letter(
        api_vendor(), body=body, recipients=[{"to": "ann@sandbox.example", "fields": fields | {"amount": 0}}]
    )
    text = json.dumps(asked).replace('"amount": 0', '"amount": 12345678901234567.89')
    dry = text[:-1] + ', "preview": 1}'
    shown = Program().send(dry, None, "/api/v1/messages?dry_run=true").json()["preview"][0]["body"]
    assert shown == " ".join([*(digits for _, digits in LONG.values()), "12345678901234567.89"])


@pytest.mark.parametrize("digits", ["0.000001", "0.00001234", "1e-7", "1E+21", "1e22", "-2.5e-9", "123456789012345e10"])
def test_a_letter_never_shows_another_exponent_than_the_one_that_came(digits: str) -> None:
    asked = letter(api_vendor(), body="{{ n }}", recipients=[{"to": "ann@sandbox.example", "fields": {"n": 0}}])
    dry = json.dumps(asked).replace('"n": 0', f'"n": {digits}')[:-1] + ', "preview": 1}'
    shown = Program().send(dry, None, "/api/v1/messages?dry_run=true").json()["preview"][0]["body"]
    assert shown == digits


def test_a_body_with_a_coding_is_refused_by_its_name() -> None:
    program, vendor = Program(), api_vendor()
    for coding, status in (("gzip", 415), ("br", 415), ("Identity", 202)):
        answer = program.client.post(
            "/api/v1/messages",
            json.dumps(letter(vendor)),
            "application/json",
            headers={
                "Authorization": f"bearer  {program.token}",
                "Idempotency-Key": coding,
                "Content-Encoding": coding,
            },
        )
        assert answer.status_code == status, answer.content
        if status == 415:
            assert answer.headers["Accept-Encoding"] == "identity" and coding in answer.json()["detail"]


def test_a_body_in_another_encoding_is_told_by_its_byte() -> None:
    asked = json.dumps(letter(api_vendor()))
    for body in (asked.encode("utf-16"), asked.replace("{", '{"\u00e4": 1, ', 1).encode("latin-1")):
        answer = Program().send(body, None, "/api/v1/messages?dry_run=true")
        assert answer.status_code == 400 and "is not UTF-8" in answer.json()["detail"], answer.content


def test_another_long_number_under_the_same_key_is_no_repeat() -> None:
    program, vendor = Program(), api_vendor()

    def sent(number: int) -> Any:
        recipients = [{"to": "ann@sandbox.example", "fields": {"n": number}}]
        return program.send(letter(vendor, body="n={{ n }}", recipients=recipients), "key")

    assert sent(18446744073709551616).status_code == 202
    assert sent(18446744073709551616).headers["Idempotent-Replayed"] == "true"
    problem(sent(18446744073709551617), "idempotency-key-reused", 422)
    assert Message.objects.get().params == {"n": "18446744073709551616"}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("1e-99999999999999999999", 200),
        ("0e99999999999999999999", 200),
        ("[" * 253 + "1" + "]" * 253, 400),
        ("[" * 1_000 + "12345678901234567" + "]" * 1_000, 400),
        ("[" * 900 + "1" + "]" * 900, 400),
        ('[ {"a"  :1},' * 300 + "1" + "]" * 300, 400),
    ],
    ids=["small", "nought", "253 levels", "1,000 levels and a long number", "900 levels", "blanks before colons"],
)
def test_odd_json_is_refused_or_taken_and_never_an_error_of_ours(value: str, status: int) -> None:
    asked = json.dumps(letter(api_vendor(), recipients=[{"to": "ann@sandbox.example", "fields": {"n": 0}}]))
    answer = Program().send(asked.replace('"n": 0', f'"n": {value}'), None, "/api/v1/messages?dry_run=true")
    assert answer.status_code == status, answer.content


@pytest.mark.parametrize("letters", ["abcdefghijklmnop"[n:] + "abcdefghijklmnop"[:n] for n in range(16)])
def test_a_cursor_that_names_no_row_is_refused_or_leads_nowhere(letters: str) -> None:
    program, vendor = Program(requests_per_minute=0), api_vendor()
    links = program.send(letter(vendor)).json()["links"]
    hook = program.send({"url": "https://example.com/hook"}, path="/api/v1/webhooks").json()["id"]
    lists = {"msg": links["messages"], "cal": f"webhooks/{hook}/calls", "sup": "suppressions", "inb": "inbound"}
    for kind, path in lists.items():
        answer = program.get(f"{path}?cursor={kind}_{letters}")
        assert answer.status_code in (200, 422), answer.content


def test_head_is_answered_as_get_is_without_a_body() -> None:
    program = Program()
    links = program.send(letter(api_vendor())).json()["links"]
    end(Job.objects.get(), [accepted("v-0")])
    for path in (links["self"], links["messages"], "/api/v1/services", f"{links['self']}/report"):
        head, got = program.client.head(path), program.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["Content-Type"] == got.headers["Content-Type"]
    assert program.client.head("/api/v1/sessions/ses_0").status_code == 404
    assert program.client.head(f"{links['messages']}?stat=failed").status_code == 422
    assert program.client.head(links["stop"]).status_code == 405
    for door in ("receipts", "inbound"):  # a GET there may be a vendor's report
        assert program.client.head(f"/api/v1/{door}/{factories.unique('nobody')}").status_code == 405
    refused_verb = program.client.delete(links["self"])
    assert refused_verb.status_code == 405 and {"GET", "HEAD"} <= set(refused_verb.headers["Allow"].split(", "))


@pytest.mark.parametrize(
    "query",
    [
        *("dryrun=true", "dry-run=true", "Dry_Run=true", "dry_run[]=true", "dry_run=true&x=1"),
        *("dry_run=true&dry_run=false", "dry_run=false&dry_run=true", "dry_run=yes", "dry_run"),
    ],
)
def test_a_misspelt_dry_run_sends_nothing(query: str) -> None:
    assert problem(Program().send(letter(api_vendor()), path=f"/api/v1/messages?{query}"), "validation", 422)
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    "query",
    ["stat=sent", "status=sent&status=failed", "limit=5&limit=6", "limit=%2B5", "limit=05", "limit=5.0", "limit=%205"],
)
def test_a_query_that_the_document_does_not_know_is_refused(query: str) -> None:
    program = Program()
    page = program.send(letter(api_vendor())).json()["links"]["messages"]
    found = problem(program.get(f"{page}?{query}"), "validation", 422)["errors"]
    assert found[0]["parameter"] == query.partition("=")[0]
    assert program.get(f"{page}?limit=5").status_code == 200


@pytest.mark.parametrize("depth", range(3))
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_member_given_twice_is_refused_wherever_it_stands(depth: int, blank: str) -> None:
    text = json.dumps(letter(api_vendor(), recipients=[{"to": "ann@sandbox.example", "fields": {"n": "1"}}]))
    once = ('"subject": "Hello"', '"to": "ann@sandbox.example"', '"n": "1"')[depth]
    name, _, value = once.partition(": ")
    again = text.replace(once, f"{once}, {name}{blank}: {value.replace('1', '2').replace('ann', 'bob')}")
    assert "twice" in problem(Program().send(again), "bad-request", 400)["detail"]
    assert not Session.objects.exists()


def test_quotes_and_colons_in_texts_are_no_members() -> None:
    text = json.dumps(letter(api_vendor(), body='a ": b \\": c \\" : " :', name='": " :'))
    assert Program().send(text).status_code == 202
    assert Program().send(text.replace(r"\"", r"\u0022")).status_code == 202


@pytest.mark.parametrize("other", [" n ", "n\u200b"])
def test_two_fields_of_one_name_are_refused(other: str) -> None:
    mail = letter(api_vendor(), recipients=[{"to": "ann@sandbox.example", "fields": {"n": 1, other: 2}}])
    assert "/recipients/0/fields" in pointers(Program().send(mail))


@pytest.mark.parametrize("wrong", ["2030-12-31T18:00:00+25:00", "2030-02-30T18:00:00Z", "2030-12-31T24:00:00Z"])
def test_a_time_that_no_calendar_has_is_told_in_words(wrong: str) -> None:
    said = problem(Program().send(letter(api_vendor(), send_at=wrong)), "validation", 422)["detail"]
    assert "there is no such time" in said and "timedelta" not in said


@pytest.mark.parametrize("zone", ["localtime", "Factory", "posixrules"])
def test_a_zone_that_is_another_one_on_each_machine_is_none(zone: str) -> None:
    hours = {"start": "09:00", "end": "17:00", "time_zone": zone}
    assert "/hours" in pointers(Program().send(letter(api_vendor(), hours=hours)))


@pytest.mark.parametrize("asked", ["wait=0", "Wait=0", 'wait="0"', "respond-async, WAIT=0; x=1", "wait = 0"])
def test_a_preference_is_read_however_it_is_written(asked: str) -> None:
    program = Program()
    links = program.send(letter(api_vendor())).json()["links"]
    assert program.get(links["self"], prefer=asked).headers["Preference-Applied"] == "wait=0"


@pytest.mark.parametrize(
    "bad",
    [
        {"reference": "r", "status": "delivered", "at": 20261129},
        {"reference": "r", "status": "delivered", "at": "20261129"},
        {"reference": "r", "status": "arrived", "at": SOON},
        {"reference": 1, "status": "delivered", "at": SOON},
        {"status": "delivered", "at": SOON},
        {"reference": "r", "status": "delivered", "at": SOON, "unheard_of": 1},
        7,
    ],
)
def test_a_receipt_that_cannot_be_read_costs_no_other_one(bad: Any) -> None:
    program, vendor = Program(), reporting()
    links = program.send(letter(vendor.row)).json()["links"]
    end(Job.objects.get(), [accepted("v-0")])
    name = Message.objects.get().reference
    answer = vendor.post([bad, receipt(name)])
    said = answer.json()
    assert (answer.status_code, said["changed"], said["unknown"]) == (202, 1, [])
    assert said["refused"][0]["pointer"].startswith("/receipts/0")
    assert program.get(links["self"]).json()["counts"]["delivered"] == 1
    problem(vendor.post([bad]), "validation", 422)


def test_a_leap_second_is_a_time() -> None:
    vendor = reporting()
    Program().send(letter(vendor.row))
    end(Job.objects.get(), [accepted("v-0")])
    leap = receipt(Message.objects.get().reference) | {"at": NOON.strftime("%Y-%m-%dT11:59:60Z")}
    assert vendor.post([leap]).json() == {"changed": 1, "unknown": []}
