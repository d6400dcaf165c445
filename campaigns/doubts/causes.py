"""Messages in doubt by their cause: the job, the vendor, the minute of the call, and what was seen of it.

One bad minute of a vendor can put thousands in doubt, in a hundred parts of one job; a person decides about them
together. A route may leave parts of one job with different vendors, who are asked one by one.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from campaigns.lifecycle import PARENTS
from campaigns.models import Job, Message
from vendors import destinations
from vendors.instants import checked

MOST = 100_000  # doubts that are counted, the oldest
SHOWN = 100  # causes of a look
MINUTE = "%Y-%m-%dT%H:%MZ"


@dataclass(frozen=True, slots=True)
class DoubtLook:
    """Which doubts: of these sponsors (None: of all), of one sponsor, vendor or job (a parent with its children), with
    calls in [since, until)."""

    sponsors: Collection[int] | None = None
    sponsor: int | None = None
    vendor: int | None = None
    job: Job | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """What some messages in doubt have in common. job_id: the whole job, or a part that was asked for alone; vendor:
    its slug; minute: of their calls; seen: the vendor's text, None: whatever it is. The other fields are for people.
    asked_again: the first look-up to come, None: there is none. elsewhere: messages that were called elsewhere, or as
    somebody else, than their vendor is now: only a person can settle them.
    """

    job_id: int
    vendor: str
    minute: datetime
    seen: str | None
    messages: int = 0
    sponsor: str = ""
    campaign: str = ""
    asked_again: datetime | None = None
    elsewhere: int = 0

    @property
    def key(self) -> str:
        """By which pages and commands name it: 31 amazingmail 2026-11-22T03:32Z http 503."""
        named = f"{self.job_id} {self.vendor} {self.minute.astimezone(UTC):{MINUTE}}"
        return named if self.seen is None else f"{named} {self.seen}"


def named(key: str) -> Cause:
    """The cause of this key. Raises ValueError."""
    parts = key.split(" ", 3)
    if len(parts) < 3 or not parts[0].isdecimal() or len(parts[0]) > 18:
        raise ValueError(f"{key!r} names no cause: that begins with the number of a job, a vendor and a minute")
    job_id, vendor, minute, *seen = parts
    at = checked(datetime.strptime(minute, MINUTE).replace(tzinfo=UTC))
    return Cause(int(job_id), vendor, at, seen[0] if seen else None)


FOUND = """
SELECT {job}, v.slug, date_trunc('minute', d.sent_at, 'UTC'), {seen}, count(*), min(s.name), min(d.name),
    min(d.settle_at) FILTER (WHERE coalesce(d.destination, 0) = {number}),
    count(*) FILTER (WHERE coalesce(d.destination, 0) <> {number})
FROM (
    SELECT m.id, m.campaign_id, m.sent_at, m.settle_at, m.destination, m.error_sub_type, c.name, c.sponsor_id
    FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
    WHERE m.in_doubt_at IS NOT NULL AND {where} ORDER BY m.id LIMIT %(most)s
) d JOIN campaigns_job leaf ON leaf.campaign_id = d.campaign_id AND d.id >= leaf.first_message
    AND d.id < leaf.first_message + leaf.size AND leaf.status <> ALL(%(parents)s)
JOIN vendors_vendor v ON v.id = leaf.vendor_id JOIN vendors_credential l ON l.id = leaf.credential_id
JOIN campaigns_sponsor s ON s.id = d.sponsor_id
WHERE {of_vendor} GROUP BY 1, 2, 3, 4 ORDER BY count(*) DESC, 3, 1, 2, 4
"""
WHERE = {
    "sponsors": "c.sponsor_id = ANY(%(sponsors)s)",
    "sponsor": "c.sponsor_id = %(sponsor)s",
    "since": "m.sent_at >= %(since)s",
    "until": "m.sent_at < %(until)s",
    "job": "m.id >= %(first)s AND m.id < %(end)s",
}


def of(look: DoubtLook, texts: bool = True) -> list[Cause]:
    """The causes, those of most messages first, in one statement; at most SHOWN + 1. texts: whether they differ by what
    the vendor said, in which an address may stand."""
    given = {name: getattr(look, name) for name in (*WHERE, "vendor")}
    params = given | {"most": MOST, "parents": list(PARENTS), "limit": SHOWN + 1}
    if look.sponsors is not None:
        params["sponsors"] = list(look.sponsors)
    if job := params.pop("job"):
        params |= {"job": job.pk, "first": job.first_message, "end": job.end}
    statement = FOUND.format(
        number=destinations.NUMBER,
        # Of a part that is asked for alone a cause names only what is counted: a verb acts on no other part.
        job="%(job)s::bigint" if job else "coalesce(leaf.parent_id, leaf.id)",
        seen="coalesce(d.error_sub_type, '')" if texts else "NULL",
        where=" AND ".join([text for name, text in WHERE.items() if given[name] is not None] or ["true"]),
        of_vendor="v.id = %(vendor)s" if look.vendor is not None else "true",
    )
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} LIMIT %(limit)s", params)
        return [Cause(*row) for row in cursor.fetchall()]


def messages_of(cause: Cause) -> "QuerySet[Message]":
    """The messages of the cause that are in doubt now, in all parts of its job, oldest first."""
    job = Job.objects.filter(pk=cause.job_id).first()
    if job is None:
        return Message.objects.none()
    within = Q(sent_at__gte=cause.minute, sent_at__lt=cause.minute + timedelta(minutes=1))
    rows = Message.objects.filter(within, id__gte=job.first_message, id__lt=job.end, in_doubt_at__isnull=False)
    if cause.seen is not None:
        said = Q(error_sub_type=cause.seen)
        rows = rows.filter(said if cause.seen else said | Q(error_sub_type=None))
    leaves = Job.objects.filter(vendor__slug=cause.vendor, campaign=OuterRef("campaign"))
    around = leaves.filter(first_message__lte=OuterRef("id"), size__gt=OuterRef("id") - F("first_message"))
    return rows.filter(Exists(around.exclude(status__in=PARENTS))).order_by("id")


def version(rows: "QuerySet[Any]") -> tuple[list[int], str]:
    """The ids of these messages and a text that changes with them: a decision is made about what was shown."""
    found = list(rows.values_list("pk", "resend_no"))
    return [pk for pk, _ in found], f"{len(found)}-{hashlib.blake2b(repr(found).encode(), digest_size=9).hexdigest()}"
