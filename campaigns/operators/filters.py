"""The look-ups of document 000: jobs by status (a single one, or a group such as Sending) and by date.

The admin's list and the commands share them.
"""

from collections.abc import Container
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext_lazy

from campaigns import labels
from campaigns.lifecycle import DONE, GROUPS, PARENTS, Status
from campaigns.models import Job
from campaigns.models.jobs import DOUBTS, FAILED

REVERSED = gettext_lazy("the first day, %(first)s, is after the last, %(last)s")
DATES = {"created": "created_at", "dispatched": "dispatched_at", "sent": "finished_at"}
LEAVES = ~Q(status__in=PARENTS)
# Results of messages are counted in leaves.
PARTLY = FAILED & Q(status__in=DONE, accepted__gt=0) & ~DOUBTS
ENDS = {labels.FAILED: FAILED & LEAVES, labels.PARTLY_SENT: PARTLY & LEAVES, labels.ATTENTION: DOUBTS & LEAVES}


def by_status(word: str) -> Q:
    """Jobs with this status, in this group, or with a message of this result. Raises ValueError, which names them."""
    return end(word) or of_statuses(word, Status)


def of_statuses(word: str, among: Container[Status]) -> Q:
    """The same of a status or a group alone, of these statuses. Raises ValueError.

    A job that was stopped is LOGGED once its last calls are answered. It stays among the stopped ones: the rest was not
    sent.
    """
    found = statuses(word)
    by = Q(status__in=[one for one in found if one in among])
    if found == GROUPS["Sent"]:
        return by & Q(stopped_at=None)
    if found == GROUPS["Stopped"] and Status.LOGGED in among:
        return by | Q(status=Status.LOGGED, stopped_at__isnull=False)
    return by


def end(word: str) -> Q | None:
    """Jobs with a message of this result (of ENDS, in any case); None: it is no result."""
    return {name.lower(): found for name, found in ENDS.items()}.get(word.lower())


def statuses(word: str) -> tuple[Status, ...]:
    """The statuses that a status or a group names, in any case. Raises ValueError, which names them all.

    Where a name is both, like Sent, capitals as in SENT mean the status.
    """
    if word in Status:
        return (Status(word),)
    groups = {name.lower(): group for name, group in GROUPS.items()}
    found = groups.get(word.lower()) or tuple(status for status in Status if status == word.upper())
    if not found:
        raise ValueError(f"{word!r} is not a status; there are {', '.join((*GROUPS, *ENDS))} and {', '.join(Status)}")
    return found


def moment(typed: str) -> datetime:
    """Reads an ISO date, as its first moment, or a datetime; default is the current zone. Raises ValueError."""
    try:
        found: datetime | date | None = parse_date(typed) or parse_datetime(typed)
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{typed!r} is not a date or time: write 2026-03-01 or 2026-03-01T18:00")
    if not isinstance(found, datetime):
        found = datetime.combine(found, time())
    return timezone.make_aware(found) if timezone.is_naive(found) else found


def dated(jobs: "QuerySet[Job]", since: str, until: str) -> "QuerySet[Job]":
    """The jobs that were created in [since, until); an empty text leaves that side open. Raises ValueError."""
    return within(jobs, moment(since) if since else None, moment(until) if until else None, "created")


def within(jobs: "QuerySet[Any]", since: datetime | None, until: datetime | None, by: str) -> "QuerySet[Any]":
    """The rows whose date `by` (of DATES) is in [since, until); None leaves that side open."""
    column = DATES[by]
    if since:
        jobs = jobs.filter(**{f"{column}__gte": since})
    return jobs.filter(**{f"{column}__lt": until}) if until else jobs


def days(first: str, last: str) -> tuple[datetime | None, datetime | None]:
    """[since, until) from the first to the last day, both included, in the current zone. Raises ValueError."""
    return moment(first) if first else None, moment(last) + timedelta(days=1) if last else None
