"""Rounds of work in processes that can be killed or frozen at any failpoint, and the mail that they send."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any

from django.db import connection
from django.db.models import F
from django.utils import timezone

from campaigns.engine.journal import layout
from campaigns.models import Job, Message
from campaigns.models.states import DONE
from tests import factories, forks
from tests.programs import environment
from tests.tiers import demand_slow
from vendors.models import Vendor

CONCURRENCY = 4
MOST_ROUNDS = 12


class Driver:
    """tests/faults/driver.py as a process."""

    def __init__(self, log: IO[str], **more: str) -> None:
        demand_slow("a sender that is killed")
        self._log = log
        reads, writes = os.pipe()
        self._answers = open(reads)  # noqa: SIM115
        with open(writes, "wb") as answers:
            self._process = forks.start(
                ["-m", "tests.faults.driver"],
                env=environment(
                    **{"BROKER_URL": "memory://", "RESULT_BACKEND": "cache+memory://", "LEASE_SECONDS": "1e-9", **more}
                ),
                stdout=answers,
                stderr=log,
                pipe=True,
                start_new_session=True,
            )

    def round(self, points: str = "", *, stopping: bool = False) -> dict[str, Any]:
        """Runs a round; with points armed it may end killed or frozen. stopping: as while the worker shuts down."""
        return self._ask(points=points, stopping=stopping)

    def another_round(self) -> dict[str, Any]:
        """As `round`, by a process that may have run others before."""
        return self._ask(kept=True)

    def wake(self, pid: int, *, failing: bool = False) -> dict[str, Any]:
        """Wakes a frozen round. failing: it is expected to end with an error."""
        return self._ask(failing, wake=pid)

    def _ask(self, failing: bool = False, **request: Any) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        answer = self._answers.readline()
        result = json.loads(answer) if answer else {"end": "the driver is gone"}
        if (result["end"] in ("exit 0", "killed", "frozen")) == failing:
            raise AssertionError(f"not as expected: {result}\n{self._said()}")
        return result

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        assert self._process.stdin
        self._process.stdin.close()


@contextmanager
def driver(**more: str) -> Iterator[Driver]:
    with tempfile.TemporaryFile("w+") as log:
        made = Driver(log, **more)
        try:
            yield made
        finally:
            made.end()


@dataclass(frozen=True)
class Mail:
    """A large job that is cut into three children, and a small one, over one credential of one vendor."""

    vendor: Vendor
    parent: Job
    small: Job

    @property
    def done(self) -> bool:
        return not Job.objects.exclude(status__in=DONE).exists()


def mail(url: str, **settings: Any) -> Mail:
    """23 recipients: four answers are lost, two of them of letters that the vendor took, and three bounce."""
    settings = {"url": url, "timeout": 30, "settle_delay": 1, "concurrency": CONCURRENCY, **settings}
    vendor = factories.vendor(settings=settings, limits=[(1000, 1)], small_audience_threshold=10)
    for number in (1, 2):
        factories.caster(vendor, f"MC{number}", "large-priority", min_size=8, max_size=8, percentage=100)
    login = factories.credential(vendor)
    odd = {5: "lost", 6: "bounce", 9: "error", 14: "errorafter", 18: "bounce"}
    to = [f"{odd.get(number, 'somebody')}+{number}@sandbox.example" for number in range(20)]
    parent = factories.campaign_with_job(to, of=login, status="RENDERED")
    small = factories.campaign_with_job(
        [f"{who}@sandbox.example" for who in ("ann", "error+ben", "bounce+cat")], of=login, status="RENDERED"
    )
    return Mail(vendor, parent, small)


def an_hour_passes() -> None:
    """Lets an hour pass for messages in doubt, so that the vendor is asked again."""
    past = timedelta(hours=1)
    Message.objects.filter(in_doubt_at__isnull=False).update(
        sent_at=F("sent_at") - past, in_doubt_at=F("in_doubt_at") - past, settle_at=timezone.now() - past
    )


def lose_journals() -> None:
    """Loses what dead senders know of their calls, as with the disk of their container."""
    for path in layout.journal_folder().glob(f"*{layout.SUFFIX}"):
        path.unlink()


def finish(of: Mail, by: Driver) -> int:
    """Runs rounds until nothing is left to do; returns how many."""
    for number in range(1, MOST_ROUNDS):
        an_hour_passes()
        before = _state()
        by.another_round()
        if of.done and _state() == before:
            return number
    raise AssertionError(f"not done in {MOST_ROUNDS} rounds: {list(Job.objects.values('pk', 'status', 'waits_for'))}")


def _state() -> list[Any]:
    jobs = Job.objects.order_by("pk").values_list("pk", "status", "fence", "accepted", "refused", "in_doubt")
    return [*jobs, *Message.objects.order_by("pk").values_list("pk", "message_id", "error_code", "resend_no")]


OPEN_CALLS = """
SELECT count(*) FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id AND j.fence = c.fence,
    unnest(c.messages) AS u(id) JOIN campaigns_message m USING (id)
WHERE m.dequeued_at IS NULL
    AND NOT EXISTS (SELECT FROM campaigns_answerbatch a WHERE a.claim_id = c.id AND u.id = ANY(a.messages))
"""


def open_calls() -> int:
    """Calls that are open now, or were when their sender died: no answer is stored."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN_CALLS)
        return int(cursor.fetchone()[0])
