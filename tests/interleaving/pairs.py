"""One pair after the other: the rows are put back, the two verbs run, everything is driven to its end and judged."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils import timezone

from campaigns.engine import ground_truth
from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import claims
from campaigns.engine.doubts.resolve import CannotResolve
from campaigns.engine.finishing import finalizer, sweep
from campaigns.engine.sending import sender
from campaigns.integrations.results import writer
from campaigns.models import Job, Message
from campaigns.models.states import DONE, Status
from campaigns.operations import actions, pausing
from tests import calling
from tests.emptying import forget_keys
from tests.interleaving import judging
from tests.interleaving.starts import STARTS, Snapshots, State
from tests.interleaving.verb_thread import DEADLINE, Hangs, VerbThread, blocked
from tests.interleaving.verbs import NEVER, VERBS, Verb, claim_all, meet
from vendors.models import Vendor
from vendors.outcomes import Accepted

FATES = ("accepted", "refused", "none")
ROUNDS = 12  # to the end; each brings every job further
VACUUM = 300  # pairs


@dataclass(frozen=True, slots=True)
class Pair:
    """In this start `halted` stops before its statement number `gap`, and `other` runs in between."""

    start: str
    halted: str
    other: str
    gap: int

    def __str__(self) -> str:
        return f"{self.start}: {self.halted} halted at {self.gap}, {self.other} in between"


@dataclass(frozen=True, slots=True)
class Verdict:
    """problems: the broken promises as text. statement: before which one it was halted; "": it had ended before."""

    pair: Pair
    problems: tuple[str, ...]
    statement: str
    waited: bool


class Interleaver:
    """Two threads with connections of their own; this one restores the rows, watches and judges."""

    def __init__(self) -> None:
        connection.ensure_connection()
        self._snapshots = Snapshots()
        self._halted, self._other, self._later = (VerbThread(name) for name in ("halted", "other", "later"))
        self._lengths: dict[tuple[str, str], int] = {}
        self._number = 0

    def close(self) -> None:
        for thread in (self._halted, self._other, self._later):
            thread.close()
        self._snapshots.drop()

    def length(self, start: str, verb: str) -> int:
        """How many statements the verb has when nobody is in its way."""
        for _ in range(
            0 if (start, verb) in self._lengths else 2
        ):  # the first time it may have to look up what it keeps
            state = self._restore(start, _fate(verb, verb))
            self._halted.start(lambda state=state: VERBS[verb].act(state, self._halted))
            self._halted.wait()
            self._lengths[start, verb] = len(self._halted.statements)
        return self._lengths[start, verb]

    def _restore(self, start: str, fate: str | None) -> State:
        """With no key known, so that a verb makes the same statements each time."""
        state = self._snapshots.restore(start, fate or "none")
        forget_keys()
        return state

    def run(self, pair: Pair) -> Verdict:
        self._number += 1
        if self._number % VACUUM == 0:
            self._snapshots.vacuum()
        one, two = VERBS[pair.halted], VERBS[pair.other]
        state = self._restore(pair.start, _fate(pair.halted, pair.other))
        self._halted.start(lambda: one.act(state, self._halted), halt_at=pair.gap)
        if not self._halted.rests():
            raise Hangs(f"{pair}: {self._halted.statements[-1:]}")
        statement = self._halted.statements[-1] if not self._halted.ended() else ""
        self._other.start(lambda: two.act(state, self._other))
        waited = self._waits(pair)
        self._halted.go_on()
        self._halted.wait()
        self._other.wait()
        return Verdict(pair, tuple(self._judge(state, (one, two), not statement)), statement, waited)

    def _waits(self, pair: Pair) -> bool:
        """Until the other verb has ended (False), or waits for a lock (True)."""
        asking: Any = connection.connection
        for _ in range(int(DEADLINE / 0.005)):
            if self._other.rests(0.005):
                return False
            if blocked(asking, self._other):
                return True
        raise Hangs(f"{pair}: {self._other.statements[-1:]}")

    def _judge(self, state: State, pair: tuple[Verb, Verb], in_order: bool) -> Iterator[str]:
        for thread, verb in zip((self._halted, self._other), pair, strict=True):
            if thread.error is not None and not isinstance(thread.error, CannotResolve):
                yield f"{verb.name}: {type(thread.error).__name__}: {thread.error}".strip().replace("\n", " ")
        yield from judging.at_once(state, pair, in_order=in_order)
        self._later.start(lambda: to_the_end(state, self._later))
        self._later.wait()
        if self._later.error is not None:
            yield f"afterwards: {type(self._later.error).__name__}: {self._later.error}"
            return
        yield from judging.at_the_end(state)


def to_the_end(state: State, thread: VerbThread) -> None:
    """The sweep comes by, casters take what waits, senders send it; doubts are looked up; who stopped resumes."""
    _round_by_round(state, thread)
    for job in Job.objects.filter(parent=None):
        actions.retry_jobs([job.pk])
    _round_by_round(state, thread)
    for session_id in writer.left_behind():
        writer.write_result(session_id)


def _round_by_round(state: State, thread: VerbThread) -> None:
    for _ in range(ROUNDS):
        Vendor.objects.filter(paused=True).update(paused=False)
        pausing.resume_jobs(list(Job.objects.filter(paused_at__isnull=False).values_list("pk", flat=True)), "ann")
        Job.objects.filter(not_before__isnull=False).update(not_before=None)
        finalizer.merge_answers(NEVER)
        sweep.run_sweep(NEVER)
        for caster_id in mailcaster.idle_casters(state.vendor_id):
            mailcaster.claim_next_job(caster_id, timezone.now())
        for job in Job.objects.filter(status=Status.ENQUEUED):
            _send(state, thread, job)
        sweep.run_sweep(NEVER)
        open_jobs = Job.objects.exclude(status__in=(*DONE, Status.P_STOPPED))
        if not open_jobs.exists():
            return _settle(state, thread)
    states = ", ".join(f"{job.pk} {job.status}" for job in Job.objects.exclude(status__in=DONE))
    raise AssertionError(f"it comes to no end: {states}")


def _send(state: State, thread: VerbThread, job: Job) -> None:
    started = claims.start_job(job.pk, job.fence)
    if started is None:
        return
    lease = started.lease
    messages, claim, *_ = claim_all(state, lease, thread)
    answers = [(message.id, Accepted(state.has(message.reference) or "")) for message in messages]
    if claim:
        thread.run(lambda rows: calling.answer(rows, lease, claim, answers))
    sender.drain_job(lease, job.first_message, job.end)


def _settle(state: State, thread: VerbThread) -> None:
    doubts = Message.objects.filter(in_doubt_at__isnull=False)
    found = [(one.pk, id, one.resend_no) for one in doubts if (id := state.has(one.reference))]
    if found:
        thread.run(lambda rows: ground_truth.accept_messages(rows, found))


def _fate(one: str, two: str) -> str | None:
    """An outcome of the open call with which both verbs can happen."""
    return next((fate for fate in FATES if fate in VERBS[one].fates & VERBS[two].fates), None)


def combinations() -> list[tuple[str, str, str]]:
    """(start, the halted verb, the other one): all that can meet, in both orders."""
    return [
        (start, one.name, two.name)
        for start in STARTS
        for one in VERBS.values()
        for two in VERBS.values()
        if meet(one, two, start)
    ]


def every_gap(interleaver: Interleaver, start: str, halted: str, other: str) -> Iterator[Pair]:
    """Before each statement of the halted one but the first, and after its last: then the two happen in order."""
    for gap in range(2, interleaver.length(start, halted) + 2):
        yield Pair(start, halted, other, gap)


def some_pairs(interleaver: Interleaver, number: int, seed: int) -> Iterator[Pair]:
    """So many pairs, each of another combination; the same for the same seed."""
    drawn = random.Random(seed)
    for start, one, two in drawn.sample(combinations(), number):
        yield Pair(start, one, two, drawn.randint(2, max(2, interleaver.length(start, one))))
