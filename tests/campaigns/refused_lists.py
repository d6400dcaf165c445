"""A vendor that refuses everything with the same words, and lists that are sent over it."""

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.engine.finishing.sweep import run_sweep
from campaigns.engine.refusal_runs import putting_back, run_rows
from campaigns.engine.refusal_runs.run_rows import RunStatements
from campaigns.models import Job, RefusalRun, SponsorRefusalRun
from tests import factories
from tests.faults.sending import take_again
from tests.programs import wait_until
from vendors.models import Credential

CONCURRENCY = 4
LEASE = timedelta(minutes=5)


class Account(http.server.BaseHTTPRequestHandler):
    """A vendor whose answers are the test's: an id for who begins with `good`, else its refusal while suspended."""

    protocol_version = "HTTP/1.1"
    suspended = True
    refusal = {"code": "E_7113", "sub_type": "state 4"}
    calls = 0
    answers_slow: threading.Event  # who begins with `slow` waits for it

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).calls += 1
        if letter["recipient"].startswith("slow"):
            self.answers_slow.wait()
        taken = not self.suspended or letter["recipient"].startswith("good")
        answer = {"id": letter["reference"]} if taken else self.refusal
        body = json.dumps(answer).encode()
        self.send_response(200 if taken else 422)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def vendor() -> Iterator[Any]:
    handler: Any = type("Handler", (Account,), {"answers_slow": threading.Event()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        handler.url = f"http://127.0.0.1:{server.server_port}"
        yield handler
        handler.answers_slow.set()
        server.shutdown()


@pytest.fixture(autouse=True)
def no_other_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else sends over the credential, so nobody has to be waited for."""
    waits, now = f">= {run_rows.CONFIRMED}", ">= 0"
    monkeypatch.setattr(putting_back, "FULL", putting_back.FULL.replace(waits, now))
    for name in ("messages", "confirmed_statement"):
        asked = getattr(RunStatements, name)
        monkeypatch.setattr(RunStatements, name, property(lambda of, asked=asked: asked.fget(of).replace(waits, now)))


def taken(recipients: int | list[str], of: Credential) -> Job:
    """A leaf of the only sponsor, which a mailcaster has taken."""
    only = factories.sponsor("House")
    return take_again(factories.campaign_with_job(recipients, of=of, by=only, status="DISPATCHED"))


def paused(account: Credential) -> str:
    account.refresh_from_db()
    return account.paused_reason if account.paused else ""


def resume(account: Credential) -> None:
    Credential.objects.filter(pk=account.pk).update(paused=False, paused_reason="")


def failed(job: Job) -> int:
    job.refresh_from_db()
    return job.refused


def swept() -> None:
    """Sweeps until every run is put back."""
    runs = RefusalRun.objects, SponsorRefusalRun.objects
    wait_until(
        lambda: run_sweep(LEASE) and not any(of.filter(full_at__isnull=False).exists() for of in runs), "put back"
    )


def refused_so(code: str, sub_type: str) -> dict[str, Any]:
    now = timezone.now()
    ended = {"dequeued_at": now, "sent_at": now, "delivered_at": now}
    return {**ended, "error_code": code, "error_sub_type": sub_type, "cause": "unknown"}


def full_run(account: Credential, job: Job, number: int, full: float = 60.0) -> RefusalRun:
    """A run of the job's first messages, full for so many seconds."""
    at = timezone.now() - timedelta(seconds=full)
    messages = [job.first_message + n for n in range(number)]
    said = {"code": "E_7113", "sub_type": "state 4"}
    return RefusalRun.objects.create(credential=account, messages=messages, since=at, full_at=at, **said)
