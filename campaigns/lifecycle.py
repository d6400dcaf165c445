"""Which moves a job may make, and the one function that makes them (docs/states.md is made from this table).

Documents 000 (Rendered, Dispatched, Sending), 001 (the six states of a job) and 003 (the P_ states of a parent).
"""

from dataclasses import dataclass
from typing import Any

from django.db import models
from django.db.models import F, QuerySet


class Status(models.TextChoices):
    """What a job is in; leaf jobs first, then parents."""

    RENDERED = "RENDERED", "Rendered"
    READY = "READY", "Ready"
    DISPATCHED = "DISPATCHED", "Dispatched"
    ENQUEUED = "ENQUEUED", "Enqueued"
    SENDING = "SENDING", "Sending"
    RECOVERING = "RECOVERING", "Recovering"
    SENT = "SENT", "Sent"
    STOPPED = "STOPPED", "Stopped"
    LOGGED = "LOGGED", "Logged"
    P_QUEUED = "P_QUEUED", "Parent queued"
    P_ASSIGNING = "P_ASSIGNING", "Parent assigning"
    P_ASSIGNED = "P_ASSIGNED", "Parent assigned"
    P_FINISHED = "P_FINISHED", "Parent finished"
    P_STOPPED = "P_STOPPED", "Parent stopped"


S = Status
PARENTS = (S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED, S.P_FINISHED, S.P_STOPPED)
RUNNING = (S.ENQUEUED, S.SENDING)  # a sender holds the job and its lease
DONE = (S.LOGGED, S.P_FINISHED)
# The look-ups of document 000, in the words that people see.
GROUPS: dict[str, tuple[Status, ...]] = {
    "Rendered": (S.RENDERED,),
    "Dispatched": (S.READY, S.DISPATCHED, S.P_QUEUED),
    "Sending": (S.ENQUEUED, S.SENDING, S.RECOVERING, S.P_ASSIGNING, S.P_ASSIGNED),
    "Sent": (S.SENT, S.LOGGED, S.P_FINISHED),
    "Stopped": (S.STOPPED, S.P_STOPPED),
}


@dataclass(frozen=True, slots=True)
class Move:
    sources: tuple[Status, ...]
    target: Status
    who: str
    why: str


MOVES: dict[str, Move] = {
    # leaf jobs
    "dispatch": Move((S.RENDERED, S.READY), S.DISPATCHED, "dispatcher", "the casters of its vendor may take it"),
    "enqueue": Move((S.DISPATCHED, S.RECOVERING), S.ENQUEUED, "mailcaster", "a caster takes it and rings for a sender"),
    "send": Move((S.ENQUEUED,), S.SENDING, "sender", "its messages are copied to ops, ahead of the calls"),
    "put_back": Move(
        (S.ENQUEUED, S.SENDING), S.DISPATCHED, "sender", "no place in the window for a while, or shut down"
    ),
    "drain": Move((S.SENDING,), S.SENT, "sender", "nothing is left to pick"),
    "again": Move((S.SENT,), S.READY, "finalizer", "a call that seemed lost turned out never to have been made"),
    "recover": Move((S.ENQUEUED, S.SENDING), S.RECOVERING, "recovery", "the heartbeat is too old; goes first"),
    "stop": Move(
        (S.RENDERED, S.READY, S.DISPATCHED, S.ENQUEUED, S.SENDING, S.RECOVERING),
        S.STOPPED,
        "person",
        "no new call",
    ),
    "log": Move((S.SENT, S.STOPPED), S.LOGGED, "finalizer", "every call is answered or in doubt; results are in truth"),
    "retry": Move((S.LOGGED,), S.READY, "person", "the same row, so it keeps its age (document 001)"),
    # parent jobs
    "queue": Move((S.RENDERED, S.READY), S.P_QUEUED, "dispatcher", "large: it is cut into children (document 003)"),
    "assign": Move((S.P_QUEUED,), S.P_ASSIGNING, "mailcaster", "the first child is cut"),
    "assigned": Move((S.P_ASSIGNING,), S.P_ASSIGNED, "mailcaster", "nothing remains to be cut"),
    "finish": Move((S.P_ASSIGNED,), S.P_FINISHED, "finalizer", "all children are logged"),
    "rest": Move((S.P_ASSIGNED,), S.P_STOPPED, "finalizer", "all children are logged; what is not cut was stopped"),
    "stop_parent": Move((S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED), S.P_STOPPED, "person", "with all its children"),
    "retry_parent": Move(
        (S.P_STOPPED, S.P_FINISHED), S.P_ASSIGNING, "person", "its children go on, then the rest is cut"
    ),
    "reopen": Move(
        (S.P_STOPPED, S.P_FINISHED), S.P_ASSIGNED, "person", "a child of it is sent again; the rest stays uncut"
    ),
}


def move(jobs: "QuerySet[Any]", verb: str, **sets: Any) -> int:
    """Moves those of the jobs that may make this move; one conditional UPDATE. Returns how many did.

    Nothing else writes a status. A move that people make also counts the job's revision up, so that of two people
    who decide on the same picture of a job, exactly one wins.
    """
    step = MOVES[verb]
    if step.who == "person":
        sets.setdefault("revision", F("revision") + 1)
    return jobs.filter(status__in=step.sources).update(status=step.target, **sets)
