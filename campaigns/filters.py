"""The look-ups of document 000: jobs by sponsor, by status (one, or a group in people's words), by date."""

from datetime import date, datetime, time, timedelta

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from campaigns.models import Job
from campaigns.states import GROUPS, Status


def statuses(word: str) -> tuple[Status, ...]:
    """A status or a group, in any case. Raises ValueError, which names them all.

    Where a name is both, as Sent is, capitals as in SENT mean the status alone.
    """
    if word in Status:
        return (Status(word),)
    groups = {name.lower(): group for name, group in GROUPS.items()}
    found = groups.get(word.lower()) or tuple(status for status in Status if status == word.upper())
    if not found:
        raise ValueError(f"{word!r} is not a status; there are {', '.join(GROUPS)} and {', '.join(Status)}")
    return found


def moment(typed: str) -> datetime:
    """An ISO date (its first instant) or datetime; without a zone it is in the current one. Raises ValueError."""
    try:
        found: datetime | date | None = parse_date(typed) or parse_datetime(typed)
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{typed!r} is not a date or time: write 2026-03-01 or 2026-03-01T18:00")
    if not isinstance(found, datetime):
        found = datetime.combine(found, time())
    return timezone.make_aware(found) if timezone.is_naive(found) else found


def created(jobs: "QuerySet[Job]", since: str, until: str) -> "QuerySet[Job]":
    """Created in [since, until); an empty text leaves that side open."""
    if since:
        jobs = jobs.filter(created_at__gte=moment(since))
    return jobs.filter(created_at__lt=moment(until)) if until else jobs


def on_days(jobs: "QuerySet[Job]", first: str, last: str) -> "QuerySet[Job]":
    """Created on these days, both included, as a calendar shows a range."""
    return created(jobs, first, (moment(last) + timedelta(days=1)).isoformat() if last else "")
