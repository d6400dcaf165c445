"""One sponsor's faults are his: at a vendor that two share they trip no breaker and no pause for the other one.

Elsewhere: dry runs and dear letters (tests/front/test_shares.py), webhooks that hang
(tests/front/test_slow_receivers.py).
"""

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from campaigns.engine import sending
from campaigns.engine.finishing.sweep import sweep
from campaigns.models import Job, RefusalRun, Sponsor
from tests import factories
from tests.faults.sending import login, sent, take_again
from vendors.health import HealthPolicy, HealthStatus, at
from vendors.models import Credential

pytestmark = pytest.mark.django_db(transaction=True)
LEASE = timedelta(minutes=5)
WIDE = 30  # connections: as many answers come before the first of them is heeded


class ManyLogins(http.server.BaseHTTPRequestHandler):
    """A vendor: who is `gone` is refused as unknown, and 401 is the answer to a wrong login."""

    protocol_version = "HTTP/1.1"
    together = threading.Barrier(WIDE)  # calls with a wrong login come together

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["x-login"] == "wrong":
            self.together.wait(120)
            status, answer = 401, {"code": "bad_login"}
        elif letter["recipient"].startswith("gone"):
            status, answer = 422, {"code": "unknown_recipient"}
        else:
            status, answer = 200, {"id": letter["reference"]}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def shared_login() -> Iterator[Credential]:
    """The credential that both sponsors may use."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 2 * WIDE

    handler: Any = type("Handler", (ManyLogins,), {"together": threading.Barrier(WIDE)})
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield login(f"http://127.0.0.1:{server.server_port}", concurrency=WIDE)
        handler.together.abort()
        server.shutdown()


@pytest.fixture
def anton() -> Sponsor:
    return factories.sponsor("Anton")


@pytest.fixture
def velma() -> Sponsor:
    return factories.sponsor("Velma")


def job_of(sponsor: Sponsor, recipients: list[str], of: Credential) -> Job:
    return take_again(factories.campaign_with_job(recipients, of=of, by=sponsor, status="DISPATCHED"))


def health_of(account: Credential) -> HealthStatus:
    return at(settings.REDIS_URL).look(account.vendor_id, HealthPolicy.of(account.vendor))


def nothing_stands(account: Credential) -> None:
    """Neither the credential nor its vendor is paused, braked or waits, and programs are not turned away."""
    account.refresh_from_db()
    account.vendor.refresh_from_db()
    assert not account.paused and not account.vendor.paused
    assert account.retry_after_until is None and account.rate_limited_until is None
    assert health_of(account).accepting, health_of(account)
    assert not RefusalRun.objects.exists()


def test_refused_addresses_of_one_sponsor_let_the_other_ones_mail_through(
    shared_login: Credential, anton: Sponsor, velma: Sponsor
) -> None:
    dead = sent(job_of(anton, [f"gone{number}@example.org" for number in range(150)], shared_login))
    assert (dead.refused, dead.accepted) == (150, 0)
    sweep(LEASE)
    nothing_stands(shared_login)
    mine = sent(job_of(velma, [f"reader{number}@example.org" for number in range(20)], shared_login))
    assert (mine.refused, mine.accepted) == (0, 20)


def test_wrong_logins_on_a_credential_of_his_own_pause_that_one_alone(
    shared_login: Credential, anton: Sponsor, velma: Sponsor
) -> None:
    """Many calls are under way as the first answer comes: all of them together are one bad sign of the vendor."""
    own = factories.credential(shared_login.vendor, secret={"X-Login": "wrong"})
    job = job_of(anton, [f"reader{number}@example.org" for number in range(2 * WIDE)], own)
    assert sending.send(job.pk, job.fence).left
    own.refresh_from_db()
    assert own.paused
    assert health_of(shared_login).bad <= 1, "his login says nothing about the vendor"
    sweep(LEASE)
    nothing_stands(shared_login)
    mine = sent(job_of(velma, [f"other{number}@example.org" for number in range(20)], shared_login))
    assert (mine.refused, mine.accepted) == (0, 20)
