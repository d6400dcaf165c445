"""Invariants after a pair of verbs: immediately, and after everything was driven to its end."""

from collections.abc import Iterator
from typing import Any

from django.db.models import Q

from campaigns.engine.lifecycle import CUT_SHORT
from campaigns.engine.merging import ACCEPTED
from campaigns.models import AnswerBatch, Job, Message, Resolution, Session
from campaigns.models.states import DONE, PARENTS, Status
from sandbox.vendor.books import Books
from tests.faults.checker import judge
from tests.interleaving.starts import State
from tests.interleaving.verbs import Verb

COUNTERS = ("accepted", "refused", "in_doubt", "expired", "suppressed", "delivered", "bounced")
QUIET = (Status.LOGGED, Status.STOPPED, Status.SENT)  # leaves that call nobody


def at_once(state: State, pair: tuple[Verb, Verb], *, in_order: bool) -> list[str]:
    """Check the immediate invariants. in_order: the second verb began after the end of the first."""
    return [*_broken(state, final=False), *_references(state, pair), *_stops(state, pair, in_order)]


def now(state: State) -> list[str]:
    """What must hold at any moment between two verbs."""
    return list(_broken(state, final=False))


def at_the_end(state: State) -> list[str]:
    return [*_broken(state, final=True), *_sessions()]


def _broken(state: State, *, final: bool) -> Iterator[str]:
    # A person's word that the vendor has it not is the person's, and so is what is sent again after it.
    starts = {
        "failed": ("P1: message {} was accepted", "P3: message {} is waiting"),
        "resend": ("P3: message {} is waiting",),
    }
    decided = Resolution.objects.exclude(decision="sent").values_list("message_id", "decision")
    persons = [start.format(id) for id, decision in decided for start in starts[decision]]
    yield from (one for one in judge(Books(state.letters), final=final) if not one.startswith(tuple(persons)))
    yield from _counters()
    yield from _accepted(state)
    yield from _families()
    yield from _ends()


def _counters() -> Iterator[str]:
    for job in Job.objects.exclude(status__in=PARENTS):
        wanted, found = rows_of(job), {name: getattr(job, name) for name in COUNTERS}
        if wanted != found:
            wrong = ", ".join(
                f"{name} {found[name]}, not {wanted[name]}" for name in COUNTERS if found[name] != wanted[name]
            )
            yield f"counters: job {job.pk} ({job.status}) says {wrong}"
    for parent in Job.objects.filter(status__in=PARENTS, remaining=0, finished_at__isnull=False):
        children = list(Job.objects.filter(parent=parent))
        for name in COUNTERS:
            if getattr(parent, name) != sum(getattr(child, name) for child in children):
                yield f"counters: parent {parent.pk}: {name} is not what its children say"


def rows_of(job: Job) -> dict[str, int]:
    """Return the right values of a leaf's counters, by its messages."""
    found = dict.fromkeys(COUNTERS, 0)
    for row in Message.objects.filter(id__gte=job.first_message, id__lt=job.end):
        found["accepted"] += row.message_id is not None
        found["refused"] += row.error_code not in (None, "expired", "suppressed")
        found["expired"] += row.error_code == "expired"
        found["suppressed"] += row.error_code == "suppressed"
        found["in_doubt"] += row.in_doubt_at is not None
        found["delivered"] += row.report == "delivered"
        found["bounced"] += row.report == "bounced"
    return found


def _accepted(state: State) -> Iterator[str]:
    """Check that an acceptance stands, from any reporter and in any order of events (promise P3)."""
    for id in sorted(state.reported - accepted()):
        yield f"P3: the acceptance of message {id} was reported, and does not stand"


def accepted() -> set[int]:
    """Return the messages accepted now or after the next merge."""
    appended = AnswerBatch.objects.values_list("messages", "kinds")
    waiting = {id for ids, kinds in appended for id, kind in zip(ids, kinds, strict=True) if kind == ACCEPTED}
    return waiting | set(Message.objects.filter(message_id__isnull=False).values_list("id", flat=True))


def _families() -> Iterator[str]:
    """Check that a finished parent hides no unfinished child (promise P5), nor one cut short by a stop."""
    cut_short = Job.objects.filter(CUT_SHORT)
    for child in Job.objects.filter(parent__status__in=(Status.P_STOPPED, Status.P_FINISHED)).select_related("parent"):
        parent: Any = child.parent
        if child.status not in (QUIET if parent.status == Status.P_STOPPED else (Status.LOGGED,)):
            yield f"P5: parent {parent.pk} is {parent.status}, its child {child.pk} is {child.status}"
        if parent.status == Status.P_FINISHED and cut_short.filter(pk=child.pk).exists():
            yield f"parent {parent.pk} is P_FINISHED, its child {child.pk} was stopped before all of it was called"
        if parent.finished_at and child.status != Status.LOGGED:
            yield f"parent {parent.pk} has ended, its child {child.pk} is {child.status}"


def _ends() -> Iterator[str]:
    """Check finished_at, because the audit covers a job for a day after it: only finished jobs have one."""
    for job in Job.objects.exclude(status=Status.P_STOPPED):
        if (job.status in DONE) != job.is_done:
            yield f"job {job.pk} is {job.status}, and finished_at is {job.finished_at}"


def _references(state: State, pair: tuple[Verb, Verb]) -> Iterator[str]:
    frees = sum(verb.frees for verb in pair)
    for id, uuid, resend_no in Message.objects.values_list("id", "uuid", "resend_no"):
        before_uuid, before_no = state.references[id]
        if str(uuid) != before_uuid or not before_no <= resend_no <= before_no + frees:
            yield f"P1: the reference of message {id} was {before_uuid}-{before_no}, is {uuid}-{resend_no}"


def _stops(state: State, pair: tuple[Verb, Verb], in_order: bool) -> Iterator[str]:
    """After a stop nothing sends any more, unless somebody sent again meanwhile (promise P5)."""
    sent_again = any(verb.frees for verb in (pair[1:] if in_order else pair))
    for verb in () if sent_again else pair[1:] if in_order and pair[0].frees else pair:
        if verb.stops is None:
            continue
        top = verb.stops(state)
        for job in Job.objects.filter(Q(pk=top) | Q(parent=top)):
            if job.status not in (*QUIET, *DONE, Status.P_STOPPED) and (job.remaining or not job.is_parent):
                yield f"P5: after {verb.name!r} job {job.pk} is {job.status}"


def _sessions() -> Iterator[str]:
    for session in Session.objects.select_related("job"):
        if session.finished_at and session.in_doubt != session.job.in_doubt:
            yield f"session {session.pk} says {session.in_doubt} in doubt, its job {session.job.in_doubt}"
