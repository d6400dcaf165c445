"""The decisions that a page offers about a job: which are legal now, and one call to make each.

A page shows numbers with a version of the job, and the decision applies only to that version.
"""

from collections.abc import Mapping, Sequence

from campaigns.approvals import approval_rules
from campaigns.engine.decisions import JobDecision
from campaigns.engine.doubts.resolve import count_decisions
from campaigns.engine.lifecycle import MOVES
from campaigns.engine.progress import Progress
from campaigns.models import Job, Resolution
from campaigns.models.states import DONE, S, Status
from campaigns.operations import actions, pausing
from vendors.history import Actor

STOPPABLE = MOVES["stop"].sources + MOVES["stop_parent"].sources
LEGAL: dict[str, tuple[Status, ...]] = {
    "dispatch": MOVES["dispatch"].sources,
    "stop": STOPPABLE,
    "pause": STOPPABLE,
    "resume": tuple(S),
    "retry": (*DONE, S.STOPPED, S.P_STOPPED),
    "resend": (*DONE, S.P_STOPPED),
    "sent": (*DONE, S.P_STOPPED),
}
DOUBTS = {"resend": Resolution.Decision.RESEND, "sent": Resolution.Decision.SENT}  # decisions about doubts
_DECIDES = {
    "stop": actions.stop_jobs,
    "dispatch": actions.dispatch_jobs,
    "pause": pausing.pause_jobs,
    "resume": pausing.resume_jobs,
}


def is_legal(verb: str, job: Job, sums: Progress) -> bool:
    """Return True if the verb is legal for the job now.

    Doubts are settled once the job and all its children have ended; a parent with a live child may be stopped. A paused
    job may be resumed, and must be before a retry. One that waits for its approval may be paused beyond that, and
    nobody may resume it. The job of a paused campaign should come with its approval, which is otherwise read.
    """
    if job.paused_at and verb == "retry":
        return False
    if job.paused_at and verb == "pause":
        waits = approval_rules.is_undecided(job.campaign) and not job.campaign.stays_paused
        return waits and job.status in LEGAL[verb]
    if verb == "resume":
        return job.paused_at is not None and not approval_rules.is_barred(job.campaign)
    if verb == "stop" and job.is_parent and sums.moving:
        return True
    ended = sums.in_doubt > 0 and sums.parts == sums.parts_done
    return job.status in LEGAL[verb] and (ended or verb not in DOUBTS)


def offered_verbs(job: Job, sums: Progress) -> list[str]:
    """Return the verbs that the job's own state allows. The approval is checked when one is chosen."""
    ended = sums.in_doubt > 0 and sums.parts == sums.parts_done
    found = [verb for verb, states in LEGAL.items() if job.status in states and (ended or verb not in DOUBTS)]
    if job.is_parent and sums.moving and "stop" not in found:
        found.append("stop")
    paused = job.paused_at is not None
    return [verb for verb in found if verb != ("retry" if paused else "resume")]


def shown_versions(verb: str, jobs: Sequence[Job]) -> Mapping[int, int]:
    """Return a version of each job, to recognise a stale page."""
    return count_decisions(job.pk for job in jobs) if verb in DOUBTS else {job.pk: job.revision for job in jobs}


def decide_if_shown(
    verb: str, job_id: int, by: Actor, reason: str, shown: int, *, expired: bool = False
) -> list[JobDecision]:
    """Make the decision if the job is still as shown. expired: a retry also sends expired messages.

    Raises CannotResolve for a decision about doubts without a reason.
    """
    if verb in DOUBTS:
        return actions.settle_jobs([job_id], DOUBTS[verb], by, reason, shown)
    if verb == "retry":
        return actions.retry_jobs([job_id], shown, expired, by, reason)
    return _DECIDES[verb]([job_id], by, reason, shown)
