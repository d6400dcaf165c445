"""A person's decision about an installation whose calls are held (failover/holding.py), recorded in the history."""

from campaigns.engine.failover import holding
from campaigns.models import Job, Message
from campaigns.operations.actions import stop_jobs, stoppable_condition
from vendors.history import Actor
from vendors.said import Said, gettext_noop

ONLY_ONE = Said(gettext_noop("the only installation with these rows: calls start again"))
COPY = Said(gettext_noop("a copy: what waited here was stopped, calls start again"))


def go_on(by: Actor, reason: str) -> None:
    """Decide that no other installation has these rows: everything waiting is sent. Raises holding.NotHeld."""
    holding.go_on(by, reason, ONLY_ONE)


def stop_copy(by: Actor, reason: str) -> int:
    """Decide that another installation sends these jobs: stop each, then let calls start. Returns the number of jobs.

    A doubt that the original may settle or repeat waits for a person here. Raises holding.NotHeld.
    """
    if holding.hold_reason() is None:
        raise holding.NotHeld("calls are not held: nothing was done")
    jobs = list(Job.objects.filter(stoppable_condition(), parent=None).order_by("pk").values_list("pk", flat=True))
    stop_jobs(jobs, by, reason or COPY)
    Message.objects.filter(in_doubt_at__isnull=False, settle_at__isnull=False).update(settle_at=None)
    holding.go_on(by, reason, COPY)
    return len(jobs)
