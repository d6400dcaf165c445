"""To stay with a job until it is over."""

from time import sleep

from campaigns.management.bars import Bars
from campaigns.models import Job
from campaigns.progress import Progress, of_jobs
from campaigns.states import DONE, Status

POLL_SECONDS = 0.5
OVER = (*DONE, Status.STOPPED, Status.P_STOPPED)


def follow(job: Job) -> Progress:
    """Returns when the job is logged, finished or stopped, with what became of its messages. Refreshes the job."""
    with Bars() as bars:
        show = bars.sending(job.size)
        while True:
            job.refresh_from_db()
            sums = of_jobs([job])[job.pk]
            show(job.size - sums.open)
            if job.status in OVER:
                return sums
            sleep(POLL_SECONDS)


def ending(job: Job, sums: Progress) -> str:
    """One line for people."""
    counts = {
        "accepted": sums.accepted,
        "refused": sums.refused,
        "expired": sums.expired,
        "in doubt": sums.in_doubt,
        "not sent": sums.open,
    }
    return f"{job.status}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
