"""Document 000, as it reads: every evening the rendered jobs go to the vendor, five in any sixty seconds.

The thousand jobs run on a virtual clock through a real caster, the real throttle in a real Redis, and the real put
back; only the call itself takes no time. The document says "3 hrs"; by its own numbers the last five leave after
199 minutes: 11,940 s.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta

import pytest
from django.conf import settings
from redis import Redis

from campaigns import dispatcher, mailcaster, nights
from campaigns.claims import finalising
from campaigns.models import Job
from campaigns.states import GROUPS, move
from tests import factories as make
from tests.virtual import Desk
from vendors.limits import Grant, Wait
from vendors.models import Credential

pytestmark = pytest.mark.django_db

EVENING = datetime(2026, 3, 2, 18, 0, tzinfo=UTC)
LIMIT = (5, 60)


@pytest.fixture
def amazing_mail() -> Credential:
    """The print vendor: 5 in 60 s, its nightly dispatch at 18:00."""
    vendor = make.vendor("amazingmail", channel="print", limits=[LIMIT], casters=["small-only"], time_zone="UTC")
    type(vendor).objects.update(created_at=EVENING - timedelta(days=30), dispatch_at=time(18, 0))
    vendor.refresh_from_db()
    return make.credential(vendor)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        desk = Desk(redis)
        yield desk
        desk.clear()


def rendered(count: int, login: Credential, sponsor: str = "Velma") -> set[int]:
    """That many one-letter jobs, an hour before the evening."""
    first = make.campaign(count, of=login, by=make.sponsor(sponsor), messages=False)
    words = {"campaign": first, "sponsor": first.sponsor, "credential": login, "vendor": login.vendor, "size": 1}
    created = EVENING - timedelta(hours=1)
    jobs = [Job(**words, first_message=first.first_message + n, created_at=created) for n in range(count)]
    return {job.pk for job in Job.objects.bulk_create(jobs)}


def look_up(group: str) -> set[int]:
    """Admin Web: Sponsor 'Velma', Status, Date Filter custom range looking back a few days."""
    jobs = Job.objects.filter(campaign__sponsor__name="Velma", status__in=GROUPS[group])
    return set(jobs.filter(created_at__gte=EVENING - timedelta(days=3)).values_list("pk", flat=True))


def test_every_evening_all_rendered_jobs_are_dispatched_and_the_three_look_ups_find_them(amazing_mail):
    velmas = rendered(3, amazing_mail)
    rendered(1, amazing_mail, sponsor="somebody else")
    assert look_up("Rendered") == velmas
    assert not nights.run(amazing_mail.vendor, EVENING - timedelta(minutes=1)).jobs, "not before the evening"
    assert nights.run(amazing_mail.vendor, EVENING).jobs == 4
    assert look_up("Dispatched") == velmas and not look_up("Rendered")
    caster = mailcaster.idle_casters(amazing_mail.vendor_id)[0]
    claimed = mailcaster.claim(caster, EVENING)
    assert claimed and look_up("Sending") == {claimed.job_id}, "on its way to Amazing Mail"
    assert nights.run(amazing_mail.vendor, EVENING + timedelta(minutes=5)).jobs == 0, "once a night"


class Engine:
    """The vendor engine on the virtual clock: a caster takes a job, the throttle lets five go, the sixth waits."""

    def __init__(self, login: Credential, desk: Desk, limit: tuple[int, float]) -> None:
        self.login, self.desk = login, desk
        self.scope = desk.scope(limit)
        self.sent: list[float] = []
        self.requeued: Counter[int] = Counter()
        self._start = desk.clock.now

    @property
    def seconds(self) -> float:
        return self.desk.clock.now - self._start

    def now(self) -> datetime:
        return EVENING + timedelta(seconds=self.seconds)

    def run(self, until: float = float("inf")) -> None:
        """Until nothing waits, or so many seconds have passed."""
        while self.seconds < until:
            claimed = [mailcaster.claim(c, self.now()) for c in mailcaster.idle_casters(self.login.vendor_id)]
            if not any(claimed):
                opening = Credential.objects.get(pk=self.login.pk).full_until
                if opening is None or opening <= self.now():
                    return  # nothing waits
                self.desk.clock.advance((opening - self.now()).total_seconds())
            for claim in filter(None, claimed):
                self._send(claim.job_id, claim.fence)

    def _send(self, job_id: int, fence: int) -> None:
        answer = self.desk.ask(self.scope)
        if isinstance(answer, Grant):
            self.sent.append(self.seconds)
            self.desk.throttle.done(self.scope, answer.places())
            job = Job.objects.filter(pk=job_id)
            assert move(job, "send") and move(job, "drain") and move(job, "log", mailcaster=None)
        else:
            assert isinstance(answer, Wait)
            self.requeued[job_id] += 1
            opening = self.now() + timedelta(seconds=answer.seconds)
            Credential.objects.filter(pk=self.login.pk).update(full_until=opening)
            assert finalising.put_back(job_id, fence)


def test_a_thousand_jobs_at_five_in_sixty_seconds_end_after_11940_seconds(amazing_mail, desk):
    rendered(1000, amazing_mail)
    assert nights.run(amazing_mail.vendor, EVENING).jobs == 1000
    engine = Engine(amazing_mail, desk, LIMIT)
    engine.run()
    assert len(engine.sent) == 1000 and not Job.objects.exclude(status="LOGGED").exists()
    assert engine.seconds == 11_940
    assert Counter(engine.sent) == {60.0 * minute: 5 for minute in range(200)}
    assert sum(engine.requeued.values()) <= 995 and max(engine.requeued.values()) <= 2
    assert engine.sent == sorted(engine.sent)


def test_two_hundred_a_day_take_five_days_for_a_thousand_whatever_restarts(amazing_mail, desk):
    day = 86_400.0
    desk.throttle.rebuild(desk.vendor_id, 2, day, [])
    desk.generation = 2
    rendered(1000, amazing_mail)
    dispatcher.dispatch(now=EVENING)
    sent: list[float] = []
    for number in range(5):  # each day a new engine, as after a restart: all it knows is in the rows and in Redis
        engine = Engine(amazing_mail, desk, (200, day))
        engine._start -= number * day
        engine.run(until=number * day + 1)
        sent += engine.sent
    assert Counter(sent) == {number * day: 200 for number in range(5)}
