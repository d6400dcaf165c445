"""When what waits for a vendor will have gone: from its limits, and from the calls that are in their windows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, F, Q, QuerySet, Sum, When
from django.db.models.functions import Greatest

from campaigns import progress
from campaigns.models import Job
from campaigns.prospects import QUEUED, later
from campaigns.states import PARENTS, S
from vendors.forecast import forecast
from vendors.limits import Limit, Scope
from vendors.models import Credential, RateLimit, Vendor
from vendors.throttle import Throttle

UNCALLED = Greatest(0, F("size") - F("accepted") - F("refused") - F("expired") - F("in_doubt"))
LEFT = Sum(Case(When(status__in=PARENTS, then=F("remaining")), default=UNCALLED), default=0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Of one vendor. messages: not called yet, of so many jobs (a child is its parent's).

    put_off: messages of jobs that wait for a time of their own; for_the_night: of those that wait for the nightly
    dispatch; neither is in the forecast. ends_at: when the last call can start; None: `unknown` says why.
    """

    jobs: int
    messages: int
    put_off: int
    for_the_night: int
    limits: tuple[Limit, ...]
    ends_at: datetime | None
    unknown: str


def outlook(vendor: Vendor, throttle: Throttle, now: datetime) -> Outlook:
    """Exact for one limit if calls take no time; their latency comes on top, once for each full window.

    Raises vendors.throttle.Unreachable.
    """
    jobs, in_line = Job.objects.filter(vendor=vendor), line(vendor.pk, now)
    waiting = _waiting(in_line)
    logins = list(vendor.credentials.filter(pk__in=waiting))
    unknown = _unknown(vendor, logins)
    ends = [] if unknown else list(_ends(vendor, logins, waiting, throttle, now))
    unknown = unknown or ("a limit is 0" if None in ends else "")
    seconds = max((one for one in ends if one is not None), default=0.0)
    return Outlook(
        jobs=in_line.filter(parent=None).count(),
        messages=sum(waiting.values()),
        put_off=left(jobs.filter(_own_time(now), status__in=QUEUED)),
        for_the_night=left(jobs.filter(status=S.RENDERED)),
        limits=tuple(Limit(row.units, row.seconds) for row in vendor.limits.all()),
        ends_at=None if unknown else later(now, seconds),
        unknown=unknown,
    )


def line(vendor_id: int, now: datetime) -> "QuerySet[Job]":
    """A vendor's jobs that wait for their turn, or have it: not for a time of their own, nor for the night."""
    return Job.objects.filter(vendor=vendor_id, status__in=QUEUED).exclude(_own_time(now))


def left(jobs: "QuerySet[Job]") -> int:
    """Messages that are not called yet, and those that are in a call now."""
    return int(jobs.aggregate(left=LEFT)["left"])


def _own_time(now: datetime) -> Q:
    return Q(not_before__gt=now) | Q(status=S.READY, campaign__send_at__gt=now)


def _waiting(in_line: "QuerySet[Job]") -> dict[int, int]:
    """By credential; what is in a call now has its place already."""
    found = dict(in_line.order_by().values_list("credential").annotate(left=LEFT))
    sending = {job.pk: job.credential_id for job in in_line.filter(status=S.SENDING)}
    for job_id, sums in progress.of_jobs(Job.objects.filter(pk__in=sending)).items():
        found[sending[job_id]] -= sums.in_flight
    return {login: left for login, left in found.items() if left > 0}


def _unknown(vendor: Vendor, logins: list[Credential]) -> str:
    if vendor.paused:
        return f"paused: {vendor.paused_reason}"
    paused = next((login for login in logins if login.paused), None)
    return f"credential {paused.name} paused: {paused.paused_reason}" if paused else ""


def _ends(
    vendor: Vendor, logins: list[Credential], waiting: Mapping[int, int], throttle: Throttle, now: datetime
) -> Iterator[float | None]:
    """Seconds from now until all has gone, by what holds it back: a credential's limits, the vendor's together."""
    for login in logins:
        start = max(now, login.closed_until or now)
        of_all, of_login = throttle.places(Scope(vendor.pk, login.pk, vendor.generation))
        delay, clock = (start - now).total_seconds(), start.timestamp()
        for whom, places, count in ((None, of_all, sum(waiting.values())), (login, of_login, waiting[login.pk])):
            seconds = forecast(count, _limits(vendor, whom), places, clock)
            yield None if seconds is None else delay + seconds


def _limits(vendor: Vendor, login: Credential | None) -> list[Limit]:
    rows = RateLimit.objects.filter(vendor=vendor, credential=login)
    return [Limit(row.units, row.seconds) for row in rows]
