"""What only many at once can show, over real sockets with two processes: each key once, each message once."""

import json
import threading
from base64 import b64encode
from collections import Counter
from uuid import uuid4

import pytest
from django.test import Client

from campaigns.engine import delivery_reports
from campaigns.integrations.api.receipts import known_vendors
from campaigns.models import Campaign, Job, Message, Session
from tests.front import server
from tests.front.program import Program, api_vendor, fresh, letter
from tests.front.vendor import receipt, reporting
from tests.waiting import DEADLINE, joined

__all__ = ["fresh"]
GUARDS = ("X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy")
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def front(django_db_setup):
    with server.serving(workers=2, threads=4) as running:
        yield running


def at_once(number, ask):
    """So many threads ask at the same moment; their answers."""
    gate, answers = threading.Barrier(number), [None] * number

    def go(place):
        gate.wait(DEADLINE)
        answers[place] = ask(place)

    threads = [threading.Thread(target=go, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    joined(*threads)
    return answers


def test_200_clients_with_the_same_idempotency_key_make_one_session(front):
    program, vendor = Program(requests_per_minute=0), api_vendor()
    answers = at_once(200, lambda _: front.send(program.token, letter(vendor), "the only one"))
    codes = Counter(code for code, _, _ in answers)
    assert set(codes) <= {202, 409} and codes[202] >= 1, codes
    for code, headers, content in answers:
        if code == 409:
            assert content["type"] == "urn:mailhub:problem:idempotency-key-in-use" and headers["retry-after"] == "1"
    assert len({content["id"] for code, _, content in answers if code == 202}) == 1
    assert [model.objects.count() for model in (Session, Campaign, Job, Message)] == [1, 1, 1, 1]
    last = front.send(program.token, letter(vendor), "the only one")
    assert last[0] == 202 and last[1]["idempotent-replayed"] == "true"


def test_many_requests_share_transactions_and_each_gets_its_own_session_and_messages(front):
    program, vendor = Program(requests_per_minute=0), api_vendor()

    def ask(place):
        addresses = [f"p{place}-{number}@sandbox.example" for number in range(1 + place % 3)]
        return front.send(program.token, letter(vendor, addresses), f"key {place}")

    answers = at_once(60, ask)
    assert {code for code, _, _ in answers} == {202}
    for place, (_, _, content) in enumerate(answers):
        session = Session.objects.select_related("job").get(idempotency_key=f"key {place}")
        mine = Message.objects.filter(campaign=session.job.campaign_id)
        assert session.name == content["id"] and content["accepted"] == session.job.size == 1 + place % 3
        assert sorted(mine.values_list("recipient", flat=True)) == [
            f"p{place}-{number}@sandbox.example" for number in range(1 + place % 3)
        ]
        assert sorted(mine.values_list("id", flat=True)) == list(range(session.job.first_message, session.job.end))
    assert Message.objects.count() == sum(1 + place % 3 for place in range(60))


def test_of_different_bodies_under_one_key_exactly_one_is_taken(front):
    program, vendor = Program(requests_per_minute=0), api_vendor()
    answers = at_once(12, lambda place: front.send(program.token, letter(vendor, f"p{place}@sandbox.example"), "one"))
    codes = Counter(code for code, _, _ in answers)
    assert codes[202] == 1 and set(codes) <= {202, 409, 422}, codes
    assert Message.objects.count() == Session.objects.count() == 1


def test_a_revoked_key_is_dead_in_every_process_within_a_second(front):
    from django.utils import timezone

    from campaigns.models import ApiKey
    from tests.programs import wait_until

    program = Program()
    assert {code for code, _, _ in at_once(8, lambda _: front.ask("GET", "/api/v1/services", program.token))} == {200}
    ApiKey.objects.update(revoked_at=timezone.now())
    wait_until(
        lambda: {front.ask("GET", "/api/v1/services", program.token)[0] for _ in range(12)} == {401},
        "no process lets it in",
    )


def test_reports_past_the_middleware_are_answered_as_by_all_of_django(front):
    """The server takes them by a shorter way; what it says is the same, and what is not for it goes the long one."""
    reporter = reporting()
    slug, body = reporter.row.slug, json.dumps({"receipts": [receipt(f"{uuid4()}-0")]})
    place = f"/api/v1/receipts/{slug}"
    signed, forged = (
        reporter.signed(body, reporter.secret),
        reporter.signed(body, f"whsec_{b64encode(bytes(24)).decode()}"),
    )
    many = json.dumps({"receipts": [receipt("a-0")] * (delivery_reports.MOST + 1)})
    codes = []
    for method, path, sent, headers in (
        ("POST", place, body, signed),
        ("POST", place, body, signed),
        ("POST", place, body, forged),
        ("POST", place, body, {}),
        ("POST", place, "{", reporter.signed("{", reporter.secret)),
        ("POST", place, '{"receipts": [{}]}', reporter.signed('{"receipts": [{}]}', reporter.secret)),
        ("POST", place, many, reporter.signed(many, reporter.secret)),
        ("POST", f"{place}?a=%00", body, signed),
        ("POST", f"{place}-of-nobody", body, signed),
        ("POST", f"{place}/", body, signed),
        ("GET", place, "", signed),
        ("PUT", place, body, signed),
        ("POST", place, body, signed | {"Host": "elsewhere.example"}),
    ):
        headers = {"Host": "localhost", "Content-Type": "application/json", **headers}
        known_vendors.forget_all()
        long = Client().generic(method, path, sent, "application/json", headers=headers)
        connection = front.connection()
        connection.request(method, path, sent, headers)
        short = connection.getresponse()
        content, named = short.read(), dict(long.items())
        named.pop("Content-Length", None)  # of JSON with other blanks
        connection.close()
        assert short.status == long.status_code, path
        if "Allow" in named:  # a set of strings, whose order each process has for itself
            assert set(named.pop("Allow").split(", ")) == set(short.headers["Allow"].split(", ")), path
            del short.headers["Allow"]
        assert {name: short.headers[name] for name in named} == named, path
        assert len(short.headers) <= len(named) + 3, "and Content-Length, Date, Server"
        assert short.status not in (202, 401) or set(GUARDS) <= set(named), path
        assert content == long.content or json.loads(content) == long.json(), path
        codes.append(short.status)
    assert codes == [202, 202, 401, 401, 422, 422, 422, 422, 401, 404, 401, 405, 400]
