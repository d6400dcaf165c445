"""Forecasts the end of jobs, queues and batches from rate limits, the calls in their windows, and queued messages.

An end is given only if nothing but rate limits stands in the way (obstacles.py). Otherwise a reason is given.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import formats, timezone
from django.utils.translation import gettext as _

from campaigns.doors.labels import format_number
from campaigns.engine import prepared
from campaigns.engine.progress import Progress
from campaigns.engine.routes import moving
from campaigns.engine.routes.moving import RouteStay
from campaigns.models import HOLDING, Job
from campaigns.models.states import DONE, RUNNING, S
from campaigns.reporting.forecast import ahead, obstacles, queues
from campaigns.reporting.forecast.ahead import Ahead, SharedPlaces, SharingSponsor
from campaigns.reporting.forecast.obstacles import Obstacle
from campaigns.reporting.forecast.queues import LoginQueue, QueuePosition, SponsorQueue, VendorQueue
from campaigns.senders import entitlements
from vendors import ownership, redis_clients
from vendors.condition.values import ConditionKind
from vendors.instants import write_time
from vendors.limits.throttle import Throttle, ThrottleUnreachable
from vendors.limits.values import Limit, Scope
from vendors.mail_classes import MailClass
from vendors.remedies import Remedy
from vendors.said import show


def forecast_seconds(
    waiting: int, limits: Iterable[Limit], in_window: Sequence[float], now: float, latency: float = 0.0
) -> float | None:
    """Return the seconds from `now` until the last of `waiting` units is called; None while a limit is 0 (paused).

    `in_window`: unix seconds at which the vendor's latest calls ended or will end (Throttle.places). `latency`: seconds
    of a call; a permit is free again after window + latency. 1,000 jobs at 5 per 60 s end after 11,940 s (document
    000).

    Exact for one limit. With several limits never too late, and too early by less than all windows and latencies
    together. Assumes enough senders.
    """
    if waiting <= 0:
        return 0.0
    limits = tuple(limits)
    if any(limit.units == 0 for limit in limits):
        return None
    starts = (_nth_start(waiting, limit, in_window, now, latency) for limit in limits)
    return max(starts, default=0.0) + latency


def _nth_start(nth: int, limit: Limit, in_window: Sequence[float], now: float, latency: float) -> float:
    """Return the seconds until the nth call from now may start, as permits become free in turn."""
    rounds, number = divmod(nth - 1, limit.units)
    taken = sorted(min(over, now + latency) + limit.seconds - now for over in in_window)
    taken = [seconds for seconds in taken if seconds > 0][-limit.units :]
    free = limit.units - len(taken)
    first = 0.0 if number < free else taken[number - free]
    return first + rounds * (limit.seconds + latency)


# The columns that forecasts, lists and verbs read of a job and its related rows; only senders need the others.
READ = (
    *(field.name for field in Job._meta.concrete_fields),
    *(f"campaign__{one}" for one in (
        "name", "send_at", "hours_from", "hours_to", "each_from", "each_to", "time_zone", "deadline", "transactional",
        "size", "routed", "route", "paused_at", "paused_by", "paused_reason", "paused_reason_said", "stays_paused",
        "sponsor__name", "sponsor__quiet_from", "sponsor__quiet_to",
    )),
    *(f"vendor__{one}" for one in (
        "slug", "channel", "sandbox", "small_audience_threshold", "dispatch_at", "time_zone", "weekdays", "catch_up",
        "created_at",
    )),
    "credential__name", "credential__exclusive", "credential__rate_limited_until",
)  # fmt: skip
# Ordered as the index of holders is: ordered by id, the planner would walk through all jobs.
HOLDER = Subquery(
    Job.objects.filter(HOLDING, credential=OuterRef("credential"))
    .exclude(campaign=OuterRef("campaign"))
    .order_by("campaign_id")
    .values("id")[:1]
)
PATIENCE = 1.0  # seconds that a page waits for Redis
MOST_SPONSORS = 20  # of a vendor, whose ends are told
MOST_STAYS = 2  # other vendors of a route, in a line
MOST_PERMITS = 10_000  # read from one window
FOREVER = timedelta(days=3650).total_seconds()  # seconds; later ends are not shown
CallEnds = Sequence[float]  # unix seconds, as `in_window` of forecast
NO_CALLS: tuple[CallEnds, CallEnds] = (), ()


@dataclass(frozen=True, slots=True)
class Eta:
    """ends_at: about when the last call starts; None: unknown for the reason in obstacle, or nothing limits it."""

    ends_at: datetime | None = None
    obstacle: Obstacle | None = None


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The next step of a job and the forecast of its end, as texts for users; either may be "".

    stands: no new call is made meanwhile, for the reason in `next`. A rate limit does not count as one. remedy: a
    person's way to change that. plain: `next` for campaign owners, if it differs. halted: no vendor is called at all.
    brief: a reason that holds all jobs of the vendor or credential, in a few words. find_ahead: works out what goes
    before it, None while it stands; first_at, ends_at: about when its first and last call start. counted_at: when its
    place in the queue was counted, if earlier than the rest. stays: why no other vendor of its route takes it while its
    own one takes nothing, for operators; plain_stays: for owners.
    """

    next: str = ""
    ends: str = ""
    stands: bool = False
    remedy: Remedy | None = None
    plain: str = ""
    halted: bool = False
    brief: str = ""
    find_ahead: Callable[[], Ahead] | None = None
    first_at: datetime | None = None
    ends_at: datetime | None = None
    counted_at: datetime | None = None
    stays: str = ""
    plain_stays: str = ""

    @property
    def owner_sentence(self) -> str:
        return self.plain or self.next

    @property
    def ahead(self) -> Ahead | None:
        """What goes before it, None while it stands. Worked out when asked for, because lists do not tell it."""
        return self.find_ahead() if self.find_ahead else None

    def describe_ahead(self, now: datetime, *, is_operator: bool) -> str:
        """Describe the work before it and its beginning; "" if nothing goes before it. Names are for operators."""
        before = self.ahead
        said = (before.text_for_operators if is_operator else before.text_for_owners) if before else ""
        first = (
            _("first message about %(at)s") % {"at": format_about(self.first_at, now)} if said and self.first_at else ""
        )
        return "; ".join(filter(None, (said, first)))


def select_related_rows(jobs: "QuerySet[Job]", *more: str) -> "QuerySet[Job]":
    """Add the related rows that `forecast_jobs`, lists and verbs read. more: further columns of them."""
    return jobs.select_related("campaign__sponsor", "vendor", "credential").only(*READ, *more)


def forecast_jobs(
    jobs: Sequence[Any], sums: dict[int, Progress], now: datetime, *, recent: bool = False
) -> dict[int, JobForecast]:
    """Return forecasts by job id, with at most three statements and one round trip to Redis. jobs: from
    `select_related_rows`.

    Jobs with a route whose vendor takes nothing cost some statements more, whatever their number.

    recent: places in long queues may be some seconds old; two more round trips to Redis.
    """
    seen = queues.queues_of_jobs(jobs, now, recent=recent)
    pairs = {(job.vendor_id, job.credential_id) for job in jobs if job.vendor_id in seen}
    _read_call_ends([(seen[vendor], seen[vendor].logins[login]) for vendor, login in pairs])
    _say_what_holds(jobs)
    found = {job.pk: _forecast_job(job, sums[job.pk], seen.get(job.vendor_id), now) for job in jobs}
    return found | _with_stays(jobs, found)


def _with_stays(jobs: Iterable[Any], found: dict[int, JobForecast]) -> dict[int, JobForecast]:
    """Return the forecasts of the jobs that neither their vendor nor another one of their route takes."""
    held = [job for job in jobs if job.campaign.routed and found[job.pk].brief and not found[job.pk].halted]
    stays = moving.describe_stays(held)
    return {
        pk: replace(found[pk], stays=_join_stays(others, is_operator=True), plain_stays=_join_stays(others))
        for pk, others in stays.items()
        if all(one.why for one in others)
    }


def stays_of_queues(queues: Iterable[VendorQueue], now: datetime) -> dict[int, list[str]]:
    """Say by vendor id, for operators, why no other vendor takes the oldest routed job of a credential that takes none.

    Takes a fixed number of statements for any number of vendors and jobs; none if every credential works.
    """
    seen = {queue.vendor_id: queue for queue in queues if not queue.halted}
    logins = [login.id for queue in seen.values() for login in queue.logins.values() if _takes_nothing(queue, login)]
    if not logins:
        return {}
    jobs = list(select_related_rows(Job.objects.filter(pk__in=moving.oldest_routed(logins)).order_by("pk")))
    _say_what_holds(jobs)
    obstacles_of = {job.pk: obstacles.obstacle_of_job(job, seen[job.vendor_id], now) for job in jobs}
    found = _with_stays(jobs, {pk: JobForecast(brief=one.brief if one else "") for pk, one in obstacles_of.items()})
    said: dict[int, list[str]] = {}
    for job in jobs:
        if job.pk in found and (stays := found[job.pk].stays):
            name = _("job %(job)s") % {"job": job.pk}
            said.setdefault(job.vendor_id, []).append(f"{name}: {stays}")
    return said


def _takes_nothing(queue: VendorQueue, login: LoginQueue) -> bool:
    return bool(login.waiting) and bool(queue.shut or login.is_stuck or login.condition.kind is ConditionKind.SHUT)


def _join_stays(others: Iterable[RouteStay], *, is_operator: bool = False) -> str:
    """Name the first few vendors with their reasons. Owners read nothing of those that their sponsor may not use."""
    readable = [one for one in others if one.is_permitted or (is_operator and ownership.sees_all_sponsors())]
    said = [show(one.sentence if is_operator else one.for_sponsor) for one in readable[:MOST_STAYS]]
    return "; ".join(said)


_HOLDERS = prepared.ByKey(lambda: Job.objects.order_by().values_list("pk", HOLDER))


def _say_what_holds(jobs: Sequence[Any]) -> None:
    """Set what else, besides its vendor, may keep each job waiting.

    holder: the job of another campaign that uses its exclusive credential (document 001). held: why its sponsor may no
    longer send it, or "". paused_receivers: as a sentence, to which receivers its mail is paused, or "".
    """
    may_be_held = [job.pk for job in jobs if job.status in obstacles.MAY_BE_HELD]
    wait = [job.pk for job in jobs if job.credential.exclusive and job.status in queues.QUEUED]
    held = entitlements.held_reasons(may_be_held) if may_be_held else {}
    holders = dict(_HOLDERS.of(wait)) if wait else {}
    paused = obstacles.paused_receivers(jobs)
    for job in jobs:
        job.held, job.holder = held.get(job.pk, ""), holders.get(job.pk)
        job.paused_receivers = paused.get(job.pk, "")


def forecast_queue(queue: VendorQueue, now: datetime) -> Eta:
    """Forecast the time at which a vendor's queue is empty.

    Exact for one limit if calls take no time; their latency is added once for each full window.
    """
    if obstacle := obstacles.obstacle_of_queue(queue, now):
        return Eta(obstacle=obstacle)
    logins = [login for login in queue.logins.values() if login.queued]
    ends = [_forecast_last_call(queue, login, (queue.count_in_queue, login.queued), now) for login in logins]
    if unknown := next((one for one in ends if one.obstacle), None):
        return unknown
    last = max((one.ends_at for one in ends if one.ends_at), default=None)
    if last and queue.closes_at and queue.closes_at < last:
        return Eta(obstacle=Obstacle(_("sending hours of some end %(at)s") % {"at": write_time(queue.closes_at, now)}))
    return Eta(last)


def forecast_sponsors(queue: VendorQueue, now: datetime) -> list[tuple[SharingSponsor, Eta]]:
    """Return the sponsors that share a vendor, each with the forecast of its end; [] if fewer than two do.

    At most MOST_SPONSORS, those with most messages.
    """
    found = ahead.list_sharing(queue, now)
    if len(found) < 2 or obstacles.obstacle_of_queue(queue, now):
        return []
    return [(one, _end_of_sponsor(queue, one.sponsor, now)) for one in found[:MOST_SPONSORS]]


def _end_of_sponsor(queue: VendorQueue, sponsor: SponsorQueue, now: datetime) -> Eta:
    places = {one: SharedPlaces(queue, sponsor.id, now, one) for one in sponsor.classes}
    ends = []
    for (mail_class, login_id), queued in sponsor.by_class.items():
        login, of = queue.logins[login_id], places[mail_class]
        counts = of.place_at_vendor(sponsor.count(mail_class)), of.place_at_login(queued, login)
        ends.append(_forecast_last_call(queue, login, counts, now))
    return next((end for end in ends if end.obstacle), None) or max(
        ends, key=lambda end: (end.ends_at is not None, end.ends_at or now)
    )


def forecast_batch(
    queue: VendorQueue,
    login_id: int | None,
    sponsor_id: int | None,
    before: int,
    messages: int,
    now: datetime,
    mail_class: int = MailClass.BULK,
) -> Eta:
    """Forecast when this many messages of a sponsor end if they come last in its class, after `before` more.

    Without a sponsor they come after everything queued.
    """
    login = queue.logins.get(login_id or 0)
    if login is None:
        said = _("the vendor has no such credential")
        return Eta(obstacle=Obstacle(said, plain=_("the vendor has no such account")))
    if stopped := obstacles.obstacle_of_login(queue, login, now):
        return Eta(obstacle=stopped)
    more = before + messages
    if sponsor_id is None:
        return _forecast_last_call(queue, login, (queue.count_in_queue + more, login.queued + more), now)
    own, places = queue.sponsors.get(sponsor_id), SharedPlaces(queue, sponsor_id, now, mail_class, more)
    of_vendor, of_login = (own.count(mail_class), own.count(mail_class, login.id)) if own else (0, 0)
    return _forecast_last_call(
        queue, login, (places.place_at_vendor(of_vendor + more), places.place_at_login(of_login + more, login)), now
    )


def format_about(at: datetime | None, now: datetime) -> str:
    """Format a time for users, rounded up to the minute: 21:20 (3 h 19 min). A time in the past reads as now."""
    if at is None:
        return ""
    minutes = -(-(at - now) // timedelta(minutes=1))
    if minutes <= 0:
        return _("%(at)s (now)") % {"at": f"{timezone.localtime(now):%H:%M}"}
    local = timezone.localtime(now + timedelta(minutes=minutes))
    hours, rest = divmod(minutes, 60)
    days = _("%(days)s d %(hours)s h") % {"days": hours // 24, "hours": hours % 24}
    long = days if hours >= 48 else f"{hours} h {rest} min" if hours else f"{rest} min"
    return f"{local:%H:%M} ({long})" if hours < 20 else f"{formats.date_format(local, 'd M H:i')} ({long})"


def read_windows(queues: Iterable[VendorQueue]) -> None:
    """Read the windows of these vendors, and of their credentials with queued messages, in one round trip to Redis.

    `vendor_window` and `forecast_queue` then need no further trip.
    """
    wanted: list[tuple[VendorQueue, LoginQueue | None]] = []
    for queue in queues:
        wanted += [(queue, None), *((queue, login) for login in queue.logins.values() if login.queued)]
    _read_call_ends(wanted)


def _read_call_ends(wanted: Iterable[tuple[VendorQueue, LoginQueue | None]]) -> None:
    """Store in each queue the contents of its vendor's window and of this credential's; None: of the vendor alone."""
    asked = []
    for queue, login in wanted:
        limits = (*queue.limits, *login.limits) if login else queue.limits
        most = max((limit.units for limit in limits), default=0)
        queue.taken[login.id if login else 0] = NO_CALLS
        if most:
            asked.append((queue, login.id if login else 0, min(MOST_PERMITS, most)))
    if not asked:
        return
    scopes = [(Scope(queue.vendor_id, login_id, 0), most) for queue, login_id, most in asked]
    found: Sequence[Any]
    try:
        found = _make_throttle(settings.REDIS_URL).places_of(scopes)
    except ThrottleUnreachable:
        found = [None] * len(asked)
    for (queue, login_id, _most), taken in zip(asked, found, strict=True):
        queue.taken[login_id] = taken


def vendor_window(queue: VendorQueue) -> CallEnds | None:
    """Return the (expected) ends of the vendor's latest calls, after `read_windows`; None: Redis does not answer."""
    taken = queue.taken[0]
    return taken[0] if taken else None


@cache
def _make_throttle(url: str) -> Throttle:
    return Throttle(redis_clients.make_client(url, PATIENCE))


def _forecast_job(job: Any, sums: Progress, queue: VendorQueue | None, now: datetime) -> JobForecast:
    cut_short = job.status == S.LOGGED and job.stopped_at and sums.waiting
    if job.status in (S.STOPPED, S.P_STOPPED) or cut_short:
        by = {"who": job.stopped_by or _("somebody"), "at": write_time(job.stopped_at, now) if job.stopped_at else ""}
        return JobForecast((_("stopped by %(who)s at %(at)s") if by["at"] else _("stopped by %(who)s")) % by)
    if job.status == S.SENT:
        return JobForecast(_("waits for the last answers"))
    if queue is None or job.status in DONE:
        return JobForecast()
    if obstacle := obstacles.obstacle_of_job(job, queue, now):
        of = obstacle.reason, job.paused_receivers, True, obstacle.remedy, obstacle.plain, bool(queue.halted)
        return JobForecast(*of, obstacle.brief)
    login = queue.logins[job.credential_id]
    turn = _describe_wait(job, login, now) or _describe_turn(job, sums)
    if job.paused_receivers:  # its end is not known before a person lets them go on
        return JobForecast(turn, job.paused_receivers)
    position = queue.positions.get(job.pk)
    if position is None:
        far = _("no end is told beyond the vendor's first %(count)s jobs") % {"count": format_number(queues.NEAR)}
        return JobForecast(turn, far if queue.is_cut else "")
    places = SharedPlaces(queue, job.sponsor_id, now, job.mail_class)
    end = _forecast_last_call(
        queue, login, (places.place_at_vendor(position.of_vendor), places.place_at_login(position.of_login, login)), now
    )
    if end.obstacle or end.ends_at is None:
        return JobForecast(end.obstacle.reason, plain=end.obstacle.plain) if end.obstacle else JobForecast(turn)
    own = max(0, position.of_vendor - position.own)
    name = job.campaign.sponsor.name
    find_ahead = partial(ahead.queue_before_sponsor, queue, job.sponsor_id, own, job.mail_class, name)
    first = _forecast_first_call(job, sums, queue, login, position, places, now)
    if job.wait_after:
        waits = _("waits after its first %(count)s") % {"count": format_number(job.wait_after)}
        return JobForecast(turn, waits, find_ahead=find_ahead, first_at=first, counted_at=queue.counted_at)
    before = obstacles.end_obstacle(job, end.ends_at, now)
    ends = before.reason if before else _("ends about %(at)s") % {"at": format_about(end.ends_at, now)}
    return JobForecast(
        turn, ends, find_ahead=find_ahead, first_at=first, ends_at=end.ends_at, counted_at=queue.counted_at
    )


def _describe_wait(job: Any, login: LoginQueue, now: datetime) -> str:
    """Return the end of the wait of the job's credential, and its reason if unusual; empty if it may make calls."""
    if login.condition.kind is ConditionKind.SILENT:
        return login.describe_for_page(now)
    full = job.credential.rate_limited_until
    return _("rate-limited until %(at)s") % {"at": write_time(full, now)} if full and full > now else ""


def _forecast_first_call(
    job: Any,
    sums: Progress,
    queue: VendorQueue,
    login: LoginQueue,
    position: QueuePosition,
    places: SharedPlaces,
    now: datetime,
) -> datetime | None:
    """Forecast the first call of a job that has not begun; None for one that has."""
    if sums.open_messages < sums.size or sums.in_flight or job.status in RUNNING:
        return None
    first = position.of_vendor - position.own + 1, max(0, position.of_login - position.own) + 1
    return _forecast_last_call(
        queue, login, (places.place_at_vendor(first[0]), places.place_at_login(first[1], login)), now
    ).ends_at


def _describe_turn(job: Any, sums: Progress) -> str:
    if job.status == S.RECOVERING:
        return _("its sender was lost; goes first")
    if job.is_parent:
        done = {"done": format_number(sums.parts_done), "all": format_number(sums.parts)}
        return _("%(done)s of %(all)s parts done") % done if sums.parts else _("waits for a mailcaster")
    if job.status in RUNNING:
        return (
            _("%(count)s in flight") % {"count": format_number(sums.in_flight)} if sums.in_flight else _("being sent")
        )
    return _("waits for its turn")


def _forecast_last_call(queue: VendorQueue, login: LoginQueue, counts: tuple[int, int], now: datetime) -> Eta:
    """Forecast the call of the last message. counts: queued messages of the vendor and of its credential."""
    if not queue.limits and not login.limits:
        return Eta()
    taken = _call_ends(queue, login)
    if taken is None:
        said = _("Redis does not tell what is in the windows")
        return Eta(obstacle=Obstacle(said, plain=_("mailhub cannot tell at present")))
    # No sender asks before a full window has a place; after a loss of Redis, calls may stay in it for long.
    start = max(now, login.retry_after_until or now, login.full_until or now)
    seconds = 0.0
    for count, limits, window in zip(counts, (queue.limits, login.limits), taken, strict=True):
        found = forecast_seconds(queue.units(count), limits, window, start.timestamp())
        if found is None:
            return Eta(obstacle=Obstacle(_("a limit is 0")))
        seconds = max(seconds, found)
    if seconds >= FOREVER:
        return Eta(obstacle=Obstacle(_("ends in more than ten years")))
    return Eta(start + timedelta(seconds=seconds))


def _call_ends(queue: VendorQueue, login: LoginQueue) -> tuple[CallEnds, CallEnds] | None:
    """Return the (expected) ends of the vendor's and the credential's latest calls; None: Redis does not answer."""
    if login.id not in queue.taken:
        _read_call_ends([(queue, login)])
    return queue.taken[login.id]
