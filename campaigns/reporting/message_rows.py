"""Pages of a campaign's recipients, by state and reason, over the campaign's block of ids.

Each job stores its number of messages in each state, in the statements that store the ends (the audit compares both).
So only jobs with such messages are searched.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.models import Campaign, Job, Message
from campaigns.models.states import PARENTS, Status
from campaigns.reporting import reasons

FINAL = (Status.STOPPED, Status.LOGGED)
ON_A_PAGE = 50
AT_ONCE = 20_000  # messages searched by a statement
SECONDS = 0.05  # time for a page; the next page continues from there
COUNTS: dict[str, Callable[[Job], int]] = {
    labels.SENT: lambda job: job.accepted - job.delivered - job.bounced,
    labels.DELIVERED: lambda job: job.delivered,
    labels.BOUNCED: lambda job: job.bounced,
    labels.FAILED: lambda job: job.refused,
    labels.EXPIRED: lambda job: job.expired,
    labels.SUPPRESSED: lambda job: job.suppressed,
    labels.ATTENTION: lambda job: job.in_doubt,
}
KEPT = ("accepted", "refused", "expired", "suppressed", "in_doubt", "delivered", "bounced")


@dataclass(frozen=True, slots=True)
class RecipientsPage:
    """A page. Each row has `word`, its label, and `why`, a sentence. after: start of the next page, or None."""

    rows: list[Any]
    after: int | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of one job, from `first` to before `end`; `messages` of them have the state asked for."""

    first: int
    end: int
    messages: int


def find_stretches(campaign_id: int, first: int, end: int, state: str) -> list[Stretch] | None:
    """Return the stretches of these messages that contain some in a state; None if the counts cannot tell."""
    if state not in COUNTS:
        return None
    found = []
    mine = Job.objects.filter(campaign=campaign_id, first_message__lt=end)
    columns = ("status", "first_message", "size", "remaining", "remaining_suppressed", "finished_at", *KEPT)
    for job in mine.only(*columns).order_by("first_message"):
        begins, many = job.first_message, COUNTS[state](job)
        ended = job.is_done and not job.remaining  # its counts are then the sums of its parts
        if job.status in PARENTS and not ended and state != labels.SUPPRESSED and many > 0:
            return None  # learned before the job was cut, as after a takeover: no part counts these
        if job.status in PARENTS:  # only the rest that has not been cut is counted by no child
            begins, many = job.end - job.remaining, job.remaining_suppressed if state == labels.SUPPRESSED else 0
        if many > 0 and max(first, begins) < min(end, job.end):
            found.append(Stretch(max(first, begins), min(end, job.end), many))
    return sorted(found, key=lambda one: one.first)


def page_of_recipients(
    campaign: Campaign, channel: str, state: str = "", reason: str = "", after: int = 0, cause: str = ""
) -> RecipientsPage:
    """Return the next recipients after the message `after`. The search takes SECONDS at most.

    state: a label of labels.SHAPES, or empty. reason: a key of reasons. cause: an AnswerCause. A page may be short,
    even empty, though more recipients follow.
    """
    end, at = campaign.first_message + campaign.size, max(after + 1, campaign.first_message)
    found: list[Any] = []
    asked, where = _rows_asked_for(state, reason, cause), find_stretches(campaign.pk, at, end, state)
    latest, late = time.monotonic() + SECONDS, False
    for one in [Stretch(at, end, campaign.size)] if where is None else where:
        at = one.first
        while at < one.end and len(found) <= ON_A_PAGE and not late:
            until = min(one.end, at + AT_ONCE)
            found += asked.filter(id__gte=at, id__lt=until).order_by("id")[: ON_A_PAGE + 1 - len(found)]
            at, late = until, time.monotonic() > latest
        if at < one.end or len(found) > ON_A_PAGE:
            break
    else:
        at = end
    rows = found[:ON_A_PAGE]
    add_labels(rows)
    for row in rows:
        row.why = reasons.reason_of_message(row, channel)
    if len(found) > ON_A_PAGE:
        return RecipientsPage(rows, rows[-1].pk)
    return RecipientsPage(rows, at - 1 if at < end else None)


def _rows_asked_for(state: str, reason: str, cause: str) -> "QuerySet[Message]":
    rows = Message.objects.defer("params")
    if state:
        rows = rows.filter(labels.SHAPES[state])
    if cause:
        rows = rows.filter(cause=cause)
    return reasons.failed_for_reason(rows, reason) if reason else rows


def add_labels(rows: Sequence[Any]) -> None:
    """Add its label to each message, with two statements for all of them."""
    if not rows:
        return
    ids = [row.pk for row in rows]
    near = Job.objects.filter(campaign__in={row.campaign_id for row in rows}, first_message__lte=max(ids))
    jobs = [job for job in near.exclude(status__in=PARENTS) if job.end > min(ids)]
    called = progress.messages_in_flight(job.pk for job in jobs)
    still = [range(job.first_message, job.end) for job in jobs if job.status in FINAL]
    for row in rows:
        stopped = any(row.pk in span for span in still)
        row.word = labels.label_of_message(row, in_flight=row.pk in called, stopped=stopped)
