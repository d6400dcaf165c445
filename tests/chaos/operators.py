"""The operators' actions in the storm: stop, retry, and, as a last resort, settle messages in doubt."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from campaigns.engine.decisions import Verdict
from campaigns.models import Job, Message
from campaigns.models.jobs import read_reference
from campaigns.models.states import DONE, PARENTS, Status
from campaigns.operations import actions
from tests.chaos.crew import FREEZE
from tests.chaos.mail import StormVendor
from vendors.history import Actor

WHO = Actor("storm", None)
STOPPED_FOR = (4.0, 14.0)  # seconds until it is sent on
# Seconds after a stop in which a frozen sender may wake up and go on with a call that had begun.
UNDER_WAY = FREEZE[1] + 4.0


@dataclass
class Stop:
    """A job that was stopped: its messages, since when by the clock of the books, and when it is sent on."""

    job_id: int
    first: int
    end: int
    at: float
    retry_at: float


@dataclass
class Operators:
    """Several operators, one at a time each: they stop jobs, and some seconds later send the rest again."""

    by: random.Random
    done: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    ended: list[tuple[Stop, float]] = field(default_factory=list)  # with the time at which it was sent on
    _stopped: list[Stop] = field(default_factory=list)

    def stop(self) -> None:
        """One of the jobs that users see: a leaf, or a parent with its children; sometimes a child."""
        running = Job.objects.exclude(status__in=(*DONE, Status.STOPPED, Status.P_STOPPED))
        held = [(stop.first, stop.end) for stop in self._stopped]
        jobs = [job for job in running if all(job.end <= low or job.first_message >= high for low, high in held)]
        if not jobs:
            return
        job = self.by.choice(jobs)
        (answer,) = actions.stop_jobs([job.pk], WHO, "storm")
        if answer.verdict != Verdict.DONE:
            return
        now = time.time()
        self.done["stops"] += 1
        self._stopped.append(Stop(job.pk, job.first_message, job.end, now, now + self.by.uniform(*STOPPED_FOR)))

    def retry(self, *, all_of_them: bool = False) -> bool:
        """Retry jobs stopped for long enough. Returns True if none is stopped any more."""
        for stop in list(self._stopped):
            if all_of_them or time.time() >= stop.retry_at:
                self._retry(stop)
        return not self._stopped

    def _retry(self, stop: Stop) -> None:
        self._look_for_calls(stop)
        before = time.time()
        (answer,) = actions.retry_jobs([stop.job_id], by=WHO, reason="storm")
        if answer.verdict == Verdict.BUSY:  # not finalised yet
            return
        self.done["retries"] += answer.verdict == Verdict.DONE
        self.ended.append((stop, before))
        self._stopped.remove(stop)

    def _look_for_calls(self, stop: Stop) -> None:
        """P5 by the rows: nothing of it was allowed after the stop."""
        leaves = Job.objects.filter(first_message__gte=stop.first, first_message__lt=stop.end, stopped_at__isnull=False)
        for job in leaves.exclude(status__in=PARENTS):
            mine = Message.objects.filter(id__gte=job.first_message, id__lt=job.end, message_id=None)
            if late := mine.filter(sent_at__gt=job.stopped_at).count():
                self.breaches.append(f"P5: {late} messages of job {job.pk} were claimed after its stop")

    def settle(self, vendors: list[StormVendor]) -> int:
        """Settles what no vendor can tell by its books, as operators would by its report; returns how many."""
        settled = 0
        for one in vendors:
            accepted = {found.id for name in one.sandbox.books().accepted if (found := read_reference(name))}
            doubts = Message.objects.filter(in_doubt_at__isnull=False, campaign__credential__vendor=one.vendor)
            mine = set(doubts.values_list("pk", flat=True))
            for ids, decision in ((mine & accepted, "sent"), (mine - accepted, "resend")):
                if ids:
                    actions.settle_doubts(ids, decision, "the vendor's report", WHO.name)
            settled += len(mine)
        return settled

    def called_while_stopped(self, vendors: list[StormVendor]) -> list[str]:
        """P5 by the books: between a stop and its retry nothing comes in but what was under way."""
        calls = [
            (reference.id, entry.wall)
            for one in vendors
            for entry in one.sandbox.books().entries
            if (reference := read_reference(entry.reference))
        ]
        found = [
            f"P5: message {pk} of job {stop.job_id} was called {wall - stop.at:.1f} s after the stop"
            for stop, until in self.ended
            for pk, wall in calls
            if stop.first <= pk < stop.end and stop.at + UNDER_WAY < wall < until
        ]
        return found + self.breaches
