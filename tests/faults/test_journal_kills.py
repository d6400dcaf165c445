"""Fault 3: a sender process is killed at random moments at full speed, again and again, and its journal is read.

For each kill two figures: the calls that would be in doubt by the rows alone, and those that are. KILLS=1000 for more;
the sums are written with `-s`.
"""

import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from django.db import connection

from campaigns.engine.finishing import journals
from campaigns.engine.journal import layout
from campaigns.models import Job, Message
from tests import factories, forks
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import login, open_again, send_the_rest, take_again, taken
from tests.programs import environment
from tests.receivers.relays import serve_relay
from tests.sandbox import Sandbox
from tests.tiers import demand_slow
from tests.waiting import wait_until
from vendors.models import Credential

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(7200)]
KILLS = int(os.environ.get("KILLS", "25"))
STREAMS, AT_ONCE, EACH = 3, 8, 400
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


class Killer:
    """tests/faults/killing.py as a process."""

    def __init__(self, log: IO[str], folder: Path) -> None:
        demand_slow("a sender that is killed")
        reads, writes = os.pipe()
        self._answers = open(reads)  # noqa: SIM115
        with open(writes, "wb") as answers:
            self._process = forks.start(
                ["-m", "tests.faults.killing"],
                env=environment(LEASE_SECONDS="300", JOURNALS_OF_TEST=str(folder)),
                stdout=answers,
                stderr=log,
                pipe=True,
                start_new_session=True,
            )

    def start(self, jobs: Sequence[Job]) -> int:
        return int(self._say(json.dumps([(one.pk, one.fence) for one in jobs])))

    def reap(self) -> str:
        return self._say("reap").strip()

    def _say(self, line: str) -> str:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        answer = self._answers.readline()
        assert answer, "the killer is gone"
        return answer

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        assert self._process.stdin
        self._process.stdin.close()


@pytest.fixture
def killer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    """With a folder of its own: workers of other tests look at the common one, and whoever looks locks a journal."""
    monkeypatch.setattr(layout, "FOLDER", str(tmp_path / "journals"))
    with tempfile.TemporaryFile("w+") as log:
        made = Killer(log, tmp_path / "journals")
        try:
            yield made
        finally:
            made.end()


class Relay:
    """Takes all mails, and keeps whom they were for."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        self.taken.append(envelope.rcpt_tos[0])
        return "250 taken"


@contextmanager
def relay() -> Iterator[tuple[Relay, int]]:
    made = Relay()
    with serve_relay(made) as port:
        yield made, port


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(SESSIONS)
        return int(cursor.fetchone()[0])


def mail(of: Credential, number: int) -> list[Job]:
    return [taken([f"a{number}-{stream}-{n}@sandbox.example" for n in range(EACH)], of) for stream in range(STREAMS)]


def kill_again_and_again(of: Credential, called: Callable[[], int], most: int, killer: Killer) -> tuple[int, int]:
    """Kills that many senders; returns the sums of doubts by the rows alone, and with the journals.

    most: calls that can be open in one process.
    """
    chance = random.Random(of.pk)
    jobs, alone, marked, kills = mail(of, 0), 0, 0, 0
    idle = sessions()
    while kills < KILLS:
        before, doubts = called(), sums()["in doubt"]
        child = killer.start(jobs)
        wait_until(lambda before=before: called() > before, "a call", every=0.002)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.1))  # any moment will do: it is what the test is about
        os.kill(child, signal.SIGKILL)
        if killer.reap() == "killed":
            kills += 1
        wait_until(lambda: sessions() <= idle, "PostgreSQL has done what the dead process asked")
        alone += rounds.open_calls()
        journals.read_journals()
        found = sums()["in doubt"] - doubts
        marked += found
        assert found <= most and rounds.open_calls() == 0
        jobs = go_on(jobs) or mail(of, kills)
    for job in jobs:
        send_the_rest(job)
    return alone, marked


def go_on(jobs: list[Job]) -> list[Job]:
    """Takes those of the jobs again that have something left."""
    left = []
    for job in jobs:
        job.refresh_from_db()
        waits = Message.objects.filter(id__gte=job.first_message, id__lt=job.end, dequeued_at=None).exists()
        if waits and job.status in ("RECOVERING", "DISPATCHED", "ENQUEUED"):  # else nobody would be called
            wait_until(lambda job=job: open_again(job), "the job may go on")  # type: ignore[misc]
            left.append(take_again(job) if job.status != "ENQUEUED" else job)
        else:
            send_the_rest(job)
    return left


def test_kills_at_random_leave_only_open_calls_in_doubt(sandbox: Sandbox, killer: Killer) -> None:
    sandbox.settings(latency_ms=5.0)
    account = login(sandbox.url, concurrency=AT_ONCE)
    called = lambda: len(sandbox.books().entries)  # noqa: E731
    alone, marked = kill_again_and_again(account, called, STREAMS * AT_ONCE, killer)
    print(f"{KILLS} kills over HTTP: {alone} in doubt by the rows alone, {marked} with the journal")
    assert judge(sandbox.books()) == [] and marked <= alone
    doubted = set(Message.objects.filter(in_doubt_at__isnull=False).values_list("uuid", flat=True))
    assert len(doubted) == marked


@pytest.mark.parametrize("batch", [1, 5])
def test_the_same_over_smtp(batch: int, killer: Killer) -> None:
    with relay() as (books, port):
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org"}
        known |= {"concurrency": 4, "batch": batch}
        account = factories.credential(factories.vendor(adapter="smtp", settings=known, channel="email"))
        alone, marked = kill_again_and_again(account, lambda: len(books.taken), STREAMS * 4, killer)
        print(f"{KILLS} kills over SMTP by {batch}: {alone} in doubt by the rows alone, {marked} with the journal")
        assert [to for to, times in Counter(books.taken).items() if times > 1] == []
        sent = set(Message.objects.filter(message_id__isnull=False).values_list("recipient", flat=True))
        doubted = set(Message.objects.filter(in_doubt_at__isnull=False).values_list("recipient", flat=True))
        assert sent <= set(books.taken) and set(books.taken) <= sent | doubted
        assert marked <= alone and sums()["waiting"] == 0
