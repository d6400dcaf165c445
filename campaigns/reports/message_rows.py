"""The recipients of a campaign, by state and reason, some at a time: a campaign's ids are one block.

How many messages each of its jobs has in a state is kept with the job, in the statements that store the ends (the audit
counts both). So of a campaign of a million only those parts are read that have some.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from campaigns import labels, progress
from campaigns.lifecycle import PARENTS, Status
from campaigns.models import Campaign, Job, Message
from campaigns.reports import reasons

FINAL = (Status.STOPPED, Status.LOGGED)
ON_A_PAGE = 50
AT_ONCE = 20_000  # messages that one statement looks at
SECONDS = 0.05  # for which the next ones are looked for; then the reader goes on from there
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
    """rows: with `word`, the label, and `why`, a sentence. after: where the next page begins; None: there is none."""

    rows: list[Any]
    after: int | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of one job, from `first` up to `end`, of which so many are in the state that was asked for."""

    first: int
    end: int
    messages: int


def stretches(campaign_id: int, first: int, end: int, state: str) -> list[Stretch] | None:
    """Where among these messages of a campaign those in a state are, by their ids; None: nothing tells."""
    if state not in COUNTS:
        return None
    found = []
    mine = Job.objects.filter(campaign=campaign_id, first_message__lt=end)
    columns = ("status", "first_message", "size", "remaining", "remaining_suppressed", "finished_at", *KEPT)
    for job in mine.only(*columns).order_by("first_message"):
        begins, many = job.first_message, COUNTS[state](job)
        ended = job.is_done and not job.remaining  # then its counts are the sums of its parts
        if job.status in PARENTS and not ended and state != labels.SUPPRESSED and many > 0:
            return None  # learned of messages before they were cut, as after a takeover: none of its parts counts them
        if job.status in PARENTS:  # of which only what is not cut yet is in none of its children
            begins, many = job.end - job.remaining, job.remaining_suppressed if state == labels.SUPPRESSED else 0
        if many > 0 and max(first, begins) < min(end, job.end):
            found.append(Stretch(max(first, begins), min(end, job.end), many))
    return sorted(found, key=lambda one: one.first)


def page(campaign: Campaign, channel: str, state: str = "", reason: str = "", after: int = 0) -> RecipientsPage:
    """The next recipients behind the message `after`.

    state: a label of labels.SHAPES, or empty; reason: a key of reasons. Looks for SECONDS at most: a page may be short,
    even empty, though there are more.
    """
    end, at = campaign.first_message + campaign.size, max(after + 1, campaign.first_message)
    found: list[Any] = []
    asked, where = _asked(state, reason), stretches(campaign.pk, at, end, state)
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
    with_labels(rows)
    for row in rows:
        row.why = reasons.of_message(row, channel)
    if len(found) > ON_A_PAGE:
        return RecipientsPage(rows, rows[-1].pk)
    return RecipientsPage(rows, at - 1 if at < end else None)


def _asked(state: str, reason: str) -> "QuerySet[Message]":
    rows = Message.objects.defer("params")
    if state:
        rows = rows.filter(labels.SHAPES[state])
    return reasons.having(rows, reason) if reason else rows


def with_labels(rows: Sequence[Any]) -> None:
    """Adds to each message its label, in two statements for all of them."""
    if not rows:
        return
    ids = [row.pk for row in rows]
    near = Job.objects.filter(campaign__in={row.campaign_id for row in rows}, first_message__lte=max(ids))
    jobs = [job for job in near.exclude(status__in=PARENTS) if job.end > min(ids)]
    called = progress.in_flight(job.pk for job in jobs)
    still = [range(job.first_message, job.end) for job in jobs if job.status in FINAL]
    for row in rows:
        stopped = any(row.pk in span for span in still)
        row.word = labels.of_message(row, in_flight=row.pk in called, stopped=stopped)
