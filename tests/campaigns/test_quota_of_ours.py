"""An account's used-up quota: nobody is *Failed* for it, the credential waits, and the campaign ends by itself."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from tests import factories, programs
from tests.campaigns.test_rounds_of_mails import relay
from tests.faults.sending import send_the_rest, taken
from vendors.models import Credential
from vendors.testing.smtp_relay import Act, MisbehavingSmtp, say

pytestmark = pytest.mark.django_db(transaction=True)
QUOTA, EACH = 150, 300  # mails until the quota is used up; messages of each of two campaigns


@pytest.mark.parametrize(
    "reply",
    [
        "550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients",
        "554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException; Failed to process message",
    ],
)
def test_a_quota_that_is_used_up_in_the_middle_of_a_list_refuses_nobody(reply: str) -> None:
    to = [f"{'good' if n < 12 else 'later'}-{n}@example.org" for n in range(40)]
    over_quota = MisbehavingSmtp({"rcpt": say(reply)})
    with relay(over_quota) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
        account = factories.credential(factories.vendor(adapter="smtp", settings=known))
        job = taken(to, account)
        assert sending.send_claimed_job(job.pk, job.fence).left
        job.refresh_from_db()
        account.refresh_from_db()
        assert (job.refused, job.in_doubt) == (0, 0)
        assert not account.paused and account.retry_after_until > timezone.now() + timedelta(minutes=30)

        over_quota.acts = {}  # renewed
        Credential.objects.filter(pk=account.pk).update(retry_after_until=None)
        job = send_the_rest(job)
    assert (job.accepted, job.refused) == (40, 0) and set(over_quota.taken.values()) == {1}


class DailyQuota(MisbehavingSmtp):
    """A relay whose quota is used up after so many mails, and renewed after a while.

    It states the time, or only that the quota is used up: then `renewed` says when.
    """

    def __init__(self, most: int, *, states_time: bool) -> None:
        super().__init__()
        self.most, self.states_time, self.refused = most, states_time, 0
        self.renewed: datetime | None = None

    def act(self, phase: str, reference: str, wild: bool) -> Act | None:
        if phase != "rcpt" or len(self.taken) < self.most:
            return None
        if self.states_time:
            self.renewed = self.renewed or in_a_while()
        if self.renewed and datetime.now(UTC) >= self.renewed:
            return None
        self.refused += 1
        if not self.states_time:
            return say("554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException; Failed to process")
        stated = format_datetime(in_a_while() if self.renewed is None else self.renewed)
        return say(f"550 5.1.90 You have reached your daily limit for message recipients, try again after {stated}")

    @property
    def books(self) -> dict[str, int]:
        return self.taken


def in_a_while() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)


class HttpQuota(ThreadingHTTPServer):
    """A vendor whose quota is used up after so many letters, and renewed at the time that it states."""

    daemon_threads = True

    def __init__(self, most: int, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.most, self.status, self.refused = most, status, 0
        self.books: Counter[str] = Counter()
        self.renewed: datetime | None = None
        self.lock = threading.Lock()

    def take(self, reference: str) -> bool:
        """Take the letter, or refuse it for the quota."""
        with self.lock:
            if len(self.books) >= self.most:
                self.renewed = self.renewed or in_a_while()
                if datetime.now(UTC) < self.renewed:
                    self.refused += 1
                    return False
            self.books[reference] += 1
            return True


class _Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpQuota

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer, headers, status = {"id": letter["reference"]}, {}, 201
        if not self.server.take(letter["reference"]):
            assert self.server.renewed is not None
            status, stated = self.server.status, format_datetime(self.server.renewed, usegmt=True)
            said = f"this account has reached its sending limit; try again after {stated}"
            answer, headers = {"message": said}, {"Retry-After": stated} if status == 429 else {}
        content = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Write no lines about each call."""


@contextmanager
def http_quota(status: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    with HttpQuota(QUOTA, status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield (
            server,
            {"adapter": "http", "settings": {"url": f"http://127.0.0.1:{server.server_port}", "concurrency": 4}},
        )
        server.shutdown()


@contextmanager
def smtp_quota(*, states_time: bool) -> Iterator[tuple[Any, dict[str, Any]]]:
    quota = DailyQuota(QUOTA, states_time=states_time)
    with relay(quota) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 4}
        yield quota, {"adapter": "smtp", "settings": known}


@pytest.mark.slow("processes")
@pytest.mark.parametrize(
    "vendor_with_quota",
    [partial(smtp_quota, states_time=True), partial(smtp_quota, states_time=False),
     partial(http_quota, 420), partial(http_quota, 429)],
    ids=["550 with a time", "554 without a time", "420", "429"],
)  # fmt: skip
def test_two_senders_wait_for_the_quota_and_the_campaign_ends_by_itself(vendor_with_quota: Any) -> None:
    with vendor_with_quota() as (quota, known):
        vendor = factories.vendor(**known, casters=["small-only", "small-priority"])
        account = factories.credential(vendor)
        jobs = [factories.campaign_with_job(EACH, of=account, status="DISPATCHED") for _ in range(2)]
        queues = f"{vendor.queue},hub"
        with programs.worker(queues=queues), programs.worker(queues=queues), programs.sweeping():
            notify_vendors([vendor.pk])
            ended = Job.objects.filter(pk__in=[job.pk for job in jobs], status="LOGGED")
            if not getattr(quota, "states_time", True):
                hour = Credential.objects.filter(retry_after_until__gt=timezone.now() + timedelta(minutes=30))
                waiting = Job.objects.filter(status="DISPATCHED")
                programs.wait_until(lambda: hour.exists() and waiting.count() == 2, "both campaigns wait")
                quota.renewed = datetime.now(UTC)
                hour.update(retry_after_until=timezone.now())  # it has passed
            programs.wait_until(lambda: ended.count() == 2, "both campaigns end")
    account.refresh_from_db()
    assert not account.paused and quota.refused
    assert [(job.accepted, job.refused, job.in_doubt) for job in ended] == [(EACH, 0, 0)] * 2
    assert set(quota.books.values()) == {1} and len(quota.books) == 2 * EACH
    print(f"\nquota {QUOTA} of {2 * EACH}: {quota.refused} answers refused, 0 Failed, 0 in doubt")
