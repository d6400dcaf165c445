"""The recipients of a campaign, by state and reason, some at a time: a campaign's ids are one block."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from campaigns import labels, progress
from campaigns.lifecycle import PARENTS, Status
from campaigns.models import Campaign, Job, Message
from campaigns.reports import reasons

FINAL = (Status.STOPPED, Status.LOGGED)
ON_A_PAGE = 50
AT_ONCE = 50_000  # messages that one statement looks at
SECONDS = 0.1  # for which the next ones are looked for; then the reader goes on from there


@dataclass(frozen=True, slots=True)
class RecipientsPage:
    """rows: with `word`, the label, and `why`, a sentence. after: where the next page begins; None: there is none."""

    rows: list[Any]
    after: int | None


def page(campaign: Campaign, channel: str, state: str = "", reason: str = "", after: int = 0) -> RecipientsPage:
    """The next recipients behind the message `after`.

    state: a label of labels.SHAPES, or empty; reason: a key of reasons. Looks for SECONDS at most: a page may be short,
    even empty, though there are more.
    """
    end, at = campaign.first_message + campaign.size, max(after + 1, campaign.first_message)
    found: list[Any] = []
    latest = time.monotonic() + SECONDS
    asked = _asked(state, reason)
    while at < end and len(found) <= ON_A_PAGE:
        until = min(end, at + AT_ONCE)
        found += asked.filter(id__gte=at, id__lt=until).order_by("id")[: ON_A_PAGE + 1 - len(found)]
        at = until
        if time.monotonic() > latest:
            break
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
