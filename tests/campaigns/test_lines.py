"""One sender, several jobs: what stays open between them, and what must never reach the next one."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from django.db import connection

from campaigns import sender
from campaigns.models import Job
from campaigns.sender import lines
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, login, send_the_rest, taken
from tests.programs import wait_until
from tests.sandbox import Sandbox
from vendors.adapters import client
from vendors.models import Credential

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


class Attentive(http.server.ThreadingHTTPServer):
    """A vendor that takes everything and remembers which login came over which connection."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Clerk)
        self.seen: list[tuple[tuple[str, int], str]] = []
        self.open = 0
        self.lock = threading.Lock()


class Clerk(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Attentive

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.open += 1

    def finish(self) -> None:
        with self.server.lock:
            self.server.open -= 1
        super().finish()

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.seen.append((self.client_address, self.headers.get("X-Key", "")))
        answer = json.dumps({"id": letter["reference"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def attentive() -> Iterator[tuple[Attentive, str]]:
    with Attentive() as vendor:
        serving = threading.Thread(target=vendor.serve_forever)
        serving.start()
        try:
            yield vendor, f"http://127.0.0.1:{vendor.server_port}"
        finally:
            vendor.shutdown()
            serving.join()


def send(one: sender.Sender, job: Job) -> None:
    assert not one.send(job.pk, job.fence).left


OTHERS = """
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def others() -> int:
    """Connections to this database besides the test's own."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) {OTHERS}")
        return int(cursor.fetchone()[0])


def test_the_next_job_goes_over_the_connections_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "IDLE_MAX", 600.0)
    with attentive() as (vendor, url), closing(sender.Sender()) as one:
        account = login(url)
        for _ in range(3):
            send(one, taken(20, account))
        assert len(vendor.seen) == 60
        assert len({address for address, _ in vendor.seen}) <= CONCURRENCY
        assert others() == lines.ROWS_MOST


def test_a_sender_that_is_closed_leaves_nothing_open() -> None:
    with attentive() as (vendor, url):
        with closing(sender.Sender()) as one:
            send(one, taken(20, login(url)))
        wait_until(lambda: vendor.open == 0, "the vendor has seen all connections end")
        wait_until(lambda: others() == 0, "the database has, too")
    assert "sender" not in {thread.name for thread in threading.enumerate()}


def test_what_no_job_uses_is_closed_and_the_next_job_opens_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "KEPT", 0.01)
    with attentive() as (vendor, url), closing(sender.Sender()) as one:
        account = login(url)
        for total in (10, 20):
            send(one, taken(10, account))
            wait_until(lambda: vendor.open == 0 and others() == 0, "everything is closed")
            assert len(vendor.seen) == total


def test_an_edit_of_the_secret_makes_new_connections() -> None:
    with attentive() as (vendor, url), closing(sender.Sender()) as one:
        account = login(url)
        for key in ("old", "new"):
            account.secret = {"X-Key": key}
            account.save()
            send(one, taken(20, account))
        places = {key: {address for address, seen in vendor.seen if seen == key} for key in ("old", "new")}
        assert places["old"] and places["new"] and not places["old"] & places["new"]
        assert len(vendor.seen) == 40


def test_each_of_many_logins_is_called_with_its_own_secret_and_few_stay_open() -> None:
    with attentive() as (vendor, url), closing(sender.Sender()) as one:
        for number in range(lines.VENDORS_MOST + 2):
            account = login(url, concurrency=1)
            Credential.objects.filter(pk=account.pk).update(name=f"login {number}")
            account.secret = {"X-Key": str(number)}
            account.save()
            send(one, taken(2, account))
        assert [key for _, key in vendor.seen] == [str(n) for n in range(lines.VENDORS_MOST + 2) for _ in range(2)]
        wait_until(lambda: vendor.open <= lines.VENDORS_MOST, "the oldest are closed")


def test_connections_that_were_cut_between_two_jobs_cost_the_next_one_nothing(sandbox: Sandbox) -> None:
    """The database and the vendor were restarted while nobody was sending."""
    account = login(sandbox.url)
    with closing(sender.Sender()) as one:
        send(one, taken(20, account))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
        wait_until(lambda: others() == 0, "the database has cut them")
        sandbox.kill()
        sandbox.start()
        send(one, taken(20, account))
    for job in Job.objects.all():
        send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 40}


class Cut(Exception):
    """As a time limit interrupts a task."""


def test_the_open_calls_of_a_job_that_was_cut_off_never_reach_the_next_one(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=300.0)
    account = login(sandbox.url)
    cut, whole = taken(40, account), taken(20, account)

    def stopping() -> bool:
        if len(sandbox.books().entries) >= CONCURRENCY + 1:
            raise Cut
        return False

    with closing(sender.Sender()) as one:
        with pytest.raises(Cut):
            one.send(cut.pk, cut.fence, stopping)
        send(one, whole)
    assert sums()["accepted"] >= 20
    for job in (whole, cut):
        send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums().total() == 60
    assert len(sandbox.books().entries) <= 60
