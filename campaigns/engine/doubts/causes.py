"""Messages in doubt grouped by cause: job, vendor, minute of the call, and the vendor's text.

One bad minute of a vendor can leave thousands in doubt across a hundred children of one job. A person decides about
them together. Children of a routed job may be with different vendors; each vendor is asked separately.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from campaigns.models import Job, Message
from campaigns.models.states import PARENTS
from vendors import destinations
from vendors.instants import check_instant

MOST = 100_000  # the oldest doubts, which are counted
SHOWN = 100  # causes in one list
MINUTE = "%Y-%m-%dT%H:%MZ"


@dataclass(frozen=True, slots=True)
class DoubtLook:
    """A filter for doubts; None: no restriction. A parent job includes its children. Calls are in [since, until)."""

    sponsors: Collection[int] | None = None
    sponsor: int | None = None
    vendor: int | None = None
    job: Job | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """What some messages in doubt have in common.

    job_id: the whole job, or a child if it was asked for alone. vendor: its slug. minute: of the calls. seen: the
    vendor's text; None: any. asked_again: the next look-up; None: there is none. elsewhere: messages called
    at another destination than their vendor calls now; only a person can settle them. The other fields are for display.
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
        """The name of the cause in pages and commands: 31 amazingmail 2026-11-22T03:32Z http 503."""
        named = f"{self.job_id} {self.vendor} {self.minute.astimezone(UTC):{MINUTE}}"
        return named if self.seen is None else f"{named} {self.seen}"


def parse_cause(key: str) -> Cause:
    """Parse a key. Raises ValueError."""
    parts = key.split(" ", 3)
    if len(parts) < 3 or not parts[0].isdecimal() or len(parts[0]) > 18:
        raise ValueError(f"{key!r} names no cause: that begins with the number of a job, a vendor and a minute")
    job_id, vendor, minute, *seen = parts
    at = check_instant(datetime.strptime(minute, MINUTE).replace(tzinfo=UTC))
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


def list_causes(look: DoubtLook, texts: bool = True) -> list[Cause]:
    """Return the causes with one statement, the largest first, at most SHOWN + 1.

    texts: whether to tell causes apart by the vendor's text, which may contain an address.
    """
    given = {name: getattr(look, name) for name in (*WHERE, "vendor")}
    params = given | {"most": MOST, "parents": list(PARENTS), "limit": SHOWN + 1}
    if look.sponsors is not None:
        params["sponsors"] = list(look.sponsors)
    if job := params.pop("job"):
        params |= {"job": job.pk, "first": job.first_message, "end": job.end}
    statement = FOUND.format(
        number=destinations.NUMBER,
        # If a child is asked for alone, the cause names only that child: a decision must not reach the others.
        job="%(job)s::bigint" if job else "coalesce(leaf.parent_id, leaf.id)",
        seen="coalesce(d.error_sub_type, '')" if texts else "NULL",
        where=" AND ".join([text for name, text in WHERE.items() if given[name] is not None] or ["true"]),
        of_vendor="v.id = %(vendor)s" if look.vendor is not None else "true",
    )
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} LIMIT %(limit)s", params)
        return [Cause(*row) for row in cursor.fetchall()]


def messages_of(cause: Cause) -> "QuerySet[Message]":
    """Select the cause's messages still in doubt, in all children of its job, oldest first."""
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


def version_of_messages(rows: "QuerySet[Any]") -> tuple[list[int], str]:
    """Return the messages' ids, and a text that changes with them and so identifies what a page has shown."""
    found = list(rows.values_list("pk", "resend_no"))
    return [pk for pk, _ in found], f"{len(found)}-{hashlib.blake2b(repr(found).encode(), digest_size=9).hexdigest()}"
