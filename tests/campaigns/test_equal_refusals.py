"""A run of equal refusals at the start of a job pauses the credential instead of refusing the list."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from campaigns.engine import sending
from campaigns.engine.finishing import finalizer
from campaigns.models import Job
from campaigns.operators import actions
from tests.ageing import make_older
from tests.faults.sending import login, take_again, taken
from vendors.health import EqualRefusals, HealthPolicy, at
from vendors.models import Credential
from vendors.outcomes import Accepted, InDoubt, Refused

CONCURRENCY = 4


class Account(http.server.BaseHTTPRequestHandler):
    """A vendor whose answers are the test's: `codes` by the beginning of the recipient, else `suspended` or an id."""

    protocol_version = "HTTP/1.1"
    suspended = True
    calls = 0

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).calls += 1
        taken = not self.suspended or letter["recipient"].startswith("good")
        answer = {"id": letter["reference"]} if taken else {"code": "suspended", "sub_type": "account"}
        body = json.dumps(answer).encode()
        self.send_response(200 if taken else 422)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def vendor() -> Iterator[Any]:
    handler: Any = type("Handler", (Account,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        handler.url = f"http://127.0.0.1:{server.server_port}"
        yield handler
        server.shutdown()


def paused(account: Credential) -> str:
    account.refresh_from_db()
    return account.paused_reason if account.paused else ""


def resume(account: Credential) -> None:
    Credential.objects.filter(pk=account.pk).update(paused=False, paused_reason="")


@pytest.mark.django_db(transaction=True)
def test_the_list_waits_the_reason_is_shown_and_health_suffers(vendor: Any, settings: Any) -> None:
    account = login(vendor.url)
    job = taken(200, account)
    assert sending.send(job.pk, job.fence).left
    assert "in a row were refused with the same words: suspended account: check the account" in paused(account)
    job.refresh_from_db()
    assert 20 <= job.refused <= 20 + CONCURRENCY and job.accepted == 0 and vendor.calls == job.refused
    health = at(settings.REDIS_URL).look(account.vendor_id, HealthPolicy.of(account.vendor))
    assert (health.good, health.bad) == (0, job.refused) and not health.accepting
    vendor.suspended = False
    resume(account)
    assert not sending.send(job.pk, take_again(job).fence).left
    assert finalizer.finalise(job.pk)
    job.refresh_from_db()
    assert job.accepted == 200 - job.refused
    actions.retry([job.pk])
    assert not sending.send(job.pk, take_again(job).fence).left
    assert finalizer.finalise(job.pk)
    job.refresh_from_db()
    assert (job.accepted, job.refused) == (200, 0)


@pytest.mark.django_db(transaction=True)
def test_it_is_counted_over_all_senders_of_a_job_at_five_a_minute(vendor: Any) -> None:
    account = login(vendor.url, (5, 60))
    job = taken(40, account)
    for _ in range(3):
        assert sending.send(job.pk, job.fence).left and not paused(account)
        make_older(account.vendor, 70)
        job = take_again(job)
    assert sending.send(job.pk, job.fence).left and vendor.calls == 20
    assert paused(account).startswith("20 messages in a row")


@pytest.mark.django_db(transaction=True)
def test_whoever_resumes_it_gives_the_job_as_many_again(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    job = taken(60, account)
    assert sending.send(job.pk, job.fence).left and vendor.calls == 20
    resume(account)
    assert sending.send(job.pk, take_again(job).fence).left and vendor.calls == 40
    assert paused(account).startswith("20 messages in a row")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("recipients", [19, ["good@example.org", *(f"bad{n}@example.org" for n in range(60))]])
def test_a_short_list_and_one_with_an_acceptance_are_refused_one_by_one(recipients: Any, vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    job = taken(recipients, account)
    assert not sending.send(job.pk, job.fence).left and not paused(account)
    assert Job.objects.get(pk=job.pk).refused == (19 if recipients == 19 else 60)


@pytest.mark.django_db(transaction=True)
def test_zero_in_the_settings_bears_any_number(vendor: Any, settings: Any) -> None:
    settings.EQUAL_REFUSALS = 0
    account = login(vendor.url)
    job = taken(40, account)
    assert not sending.send(job.pk, job.fence).left and not paused(account)


def test_what_counts_is_equal_in_a_row_and_not_of_one_recipient() -> None:
    def run(*answers: Any) -> bool:
        refusals = EqualRefusals(3)
        for answer in answers:
            refusals.note(answer)
        return refusals.too_many

    policy, other = Refused("550", "5.3.0"), Refused("554", "")
    assert run(policy, policy, policy)
    assert run(policy, policy, InDoubt("lost"), Refused("550", "5.1.1"), policy), "what says nothing of us is passed by"
    assert not run(policy, policy, other, policy, policy)
    assert not run(Accepted("1"), policy, policy, policy)
    assert not run(*[Refused("550", "5.1.1")] * 9) and not run(*[Refused("550", "5.2.2")] * 9)
    assert not run(*[Refused("unsendable", "no @")] * 9)
