"""The filters of document 000: jobs by status (a single one, or a group such as Sending) and by date.

The admin's list and the commands share them.
"""

from collections.abc import Container
from datetime import datetime, time, timedelta
from typing import Any

from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext_lazy

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.engine.lifecycle import GROUPS, group_condition
from campaigns.models import Job
from campaigns.models.jobs import DOUBTS, FAILED
from campaigns.models.states import DONE, PARENTS, S, Status
from vendors.instants import FIRST, LAST, check_offset, convert_to_utc
from vendors.said import Said

REVERSED = gettext_lazy("the first day, %(first)s, is after the last, %(last)s")
DATES = {"created": "created_at", "dispatched": "dispatched_at", "sent": "finished_at"}
MOST_HELD = 1001
LEAVES = ~Q(status__in=PARENTS)
# Results of messages are counted in leaves.
PARTLY = FAILED & Q(status__in=DONE, accepted__gt=0) & ~DOUBTS
UNDER_WAY = (
    S.READY, S.DISPATCHED, S.ENQUEUED, S.SENDING, S.RECOVERING, S.SENT, S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED,
)  # fmt: skip
CALLED_OR_CUT = [one for one in UNDER_WAY if one != S.P_ASSIGNED]
# The status is a literal and the order is this one. Otherwise the planner would expect few jobs and sort them all.
OF_STATUS = f"""(
    SELECT id, parent_id, credential_id FROM campaigns_job
    WHERE vendor_id = v.id AND status BETWEEN '{{status}}' AND '{{status}}'
    ORDER BY vendor_id DESC, status DESC, id DESC LIMIT {MOST_HELD}
)"""
# Whole jobs with a paused part: of each vendor with a shut credential the newest in each status, and those of the
# newest paused campaigns. An array makes the planner look them up by id; of a subquery it may expect so many rows that
# it walks through all jobs.
HELD = f"""campaigns_job.id = ANY(ARRAY(
    WITH {progress.SHUT}
    SELECT coalesce(j.parent_id, j.id) FROM (SELECT DISTINCT vendor_id AS id FROM shut) v CROSS JOIN LATERAL (
        {" UNION ALL ".join(OF_STATUS.format(status=one.value) for one in CALLED_OR_CUT)}
    ) j WHERE j.credential_id IN (SELECT id FROM shut)
    UNION ALL SELECT j.id FROM (
        SELECT id FROM campaigns_campaign WHERE paused_at IS NOT NULL ORDER BY id DESC LIMIT {MOST_HELD}
    ) c CROSS JOIN LATERAL (
        SELECT id, status FROM campaigns_job WHERE campaign_id = c.id AND parent_id IS NULL OFFSET 0
    ) j WHERE j.status <> ALL('{{{",".join(progress.STILL)}}}'::text[])
))"""
ENDS = {
    labels.FAILED: FAILED & LEAVES,
    labels.PARTLY_SENT: PARTLY & LEAVES,
    labels.ATTENTION: DOUBTS & LEAVES,
    labels.PAUSED: Q(RawSQL(HELD, (), output_field=BooleanField())),
}


def filter_by_status(word: str) -> Q:
    """Return a filter for a status, a group, or a name of `filter_by_end`. Raises ValueError, which lists them."""
    return filter_by_end(word) or filter_by_group(word, Status)


def filter_by_group(word: str, among: Container[Status]) -> Q:
    """Return a filter for a status or group, in any case, limited to `among`. Raises ValueError, which lists them.

    If a name is both, like Sent, capitals as in SENT mean the status.
    """
    if group := next((name for name in GROUPS if name.lower() == word.lower() and word not in Status), ""):
        return group_condition(group, among)
    if word.upper() not in Status:
        known = Said("%(groups)s and %(names)s", groups=", ".join((*GROUPS, *ENDS)), names=", ".join(Status))
        raise ValueError(Said("%(word)s is not a status; there are %(known)s", word=repr(word), known=known))
    return Q(status__in=[one for one in Status if one == word.upper() and one in among])


def filter_by_end(word: str) -> Q | None:
    """Return a filter for jobs with a message of this result or a paused one (ENDS, in any case), or None."""
    return {name.lower(): found for name, found in ENDS.items()}.get(word.lower())


def parse_moment(typed: str) -> datetime:
    """Parse an ISO date (its first moment) or datetime, by default in the current zone. Raises ValueError.

    The result is clamped to [FIRST, LAST], between which all rows lie.
    """
    try:
        day = parse_date(typed)
        found = datetime.combine(day, time()) if day else parse_datetime(check_offset(typed))
        if found:
            return convert_to_utc(found) if found.tzinfo else min(max(timezone.make_aware(found), FIRST), LAST)
    except ValueError:
        pass
    raise ValueError(Said("%(word)s is not a date or time: write 2026-03-01 or 2026-03-01T18:00", word=repr(typed)))


def created_between(jobs: "QuerySet[Job]", since: str, until: str) -> "QuerySet[Job]":
    """Select jobs created in [since, until); an empty text leaves that side open. Raises ValueError."""
    return dated_within(jobs, parse_moment(since) if since else None, parse_moment(until) if until else None, "created")


def dated_within(jobs: "QuerySet[Any]", since: datetime | None, until: datetime | None, by: str) -> "QuerySet[Any]":
    """Select rows whose date `by` (a key of DATES) is in [since, until); None leaves that side open."""
    column = DATES[by]
    if since:
        jobs = jobs.filter(**{f"{column}__gte": since})
    return jobs.filter(**{f"{column}__lt": until}) if until else jobs


def parse_days(first: str, last: str) -> tuple[datetime | None, datetime | None]:
    """Return [since, until) from the first to the last day inclusive, in the current zone. Raises ValueError."""
    return parse_moment(first) if first else None, parse_moment(last) + timedelta(days=1) if last else None
