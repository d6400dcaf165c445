"""Document 000, as it reads: every evening the rendered jobs go to the vendor, five in any sixty seconds.

The thousand jobs go through a real caster, the real sender with its stream, and a real vendor that keeps books.
Nobody waits for a window: where nothing can go, everything that is stored is made older by that time, which is the same
as a clock that goes on. The document says "3 hrs"; by its own numbers the last five leave after 199 minutes: 11,940 s.
"""

import time as clocks
from bisect import bisect
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, time, timedelta

import pytest
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming.limits import LEAD
from campaigns.engine.dispatch import dispatcher, nightly
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import GROUPS
from campaigns.engine.sending import Sender
from campaigns.models import Job
from sandbox.vendor.books import worst_window
from tests import factories as make
from tests.ageing import make_older
from tests.sandbox import Sandbox
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


def rendered(count: int, login: Credential, sponsor: str = "Velma", each: int = 1) -> set[int]:
    """Jobs for that many letters, an hour before the evening. each: letters of a job."""
    first = make.campaign(count, of=login, by=make.sponsor(sponsor))
    fields = {"campaign": first, "sponsor": first.sponsor, "credential": login, "vendor": login.vendor, "size": each}
    created = EVENING - timedelta(hours=1)
    jobs = [Job(**fields, first_message=first.first_message + n, created_at=created) for n in range(0, count, each)]
    return {job.pk for job in Job.objects.bulk_create(jobs)}


def look_up(group: str) -> set[int]:
    """Admin Web: Sponsor 'Velma', Status, Date Filter custom range looking back a few days."""
    jobs = Job.objects.filter(campaign__sponsor__name="Velma", status__in=GROUPS[group])
    return set(jobs.filter(created_at__gte=EVENING - timedelta(days=3)).values_list("pk", flat=True))


def test_every_evening_all_rendered_jobs_are_dispatched_and_the_three_look_ups_find_them(amazing_mail):
    velmas = rendered(3, amazing_mail)
    rendered(1, amazing_mail, sponsor="somebody else")
    assert look_up("Rendered") == velmas
    assert not nightly.run_night(amazing_mail.vendor, EVENING - timedelta(minutes=1)).jobs, "not before the evening"
    assert nightly.run_night(amazing_mail.vendor, EVENING).jobs == 4
    assert look_up("Dispatched") == velmas and not look_up("Rendered")
    caster = mailcaster.idle_casters(amazing_mail.vendor_id)[0]
    claimed = mailcaster.claim_next_job(caster, EVENING)
    assert claimed and look_up("Sending") == {claimed.job_id}, "on its way to Amazing Mail"
    assert nightly.run_night(amazing_mail.vendor, EVENING + timedelta(minutes=5)).jobs == 0, "once a night"


class Engine:
    """One mailcaster's process. A moment is the seconds since it began, those that were skipped included."""

    def __init__(self, login: Credential, vendor: Sandbox) -> None:
        self.login, self.vendor = login, vendor
        self.put_back: Counter[int] = Counter()
        self._began = clocks.monotonic()
        self._skips: list[tuple[float, float]] = [(0.0, 0.0)]  # from when on so many seconds have been skipped

    def skip(self, seconds: float) -> None:
        make_older(self.login.vendor, seconds)
        self._skips.append((clocks.monotonic(), self._skips[-1][1] + seconds))

    def took(self) -> float:
        """Seconds of this machine: a slow one is late in each window."""
        return clocks.monotonic() - self._began

    def moments(self) -> list[float]:
        """When the vendor was called, by its own books."""
        return [self._moment(at) for at in self.vendor.books().arrivals()]

    def _moment(self, at: float) -> float:
        skipped = self._skips[bisect(self._skips, at, key=lambda skip: skip[0]) - 1][1]
        return at - self._began + skipped

    def run(self, sender: Sender) -> float:
        """Until a place is free only later: in how many seconds; 0: nothing waits any more."""
        while True:
            claimed = [
                mailcaster.claim_next_job(c, timezone.now()) for c in mailcaster.idle_casters(self.login.vendor_id)
            ]
            for claim in filter(None, claimed):
                self.put_back[claim.job_id] += sender.send_claimed_job(claim.job_id, claim.fence).left
                finalizer.finalise_job(claim.job_id)
            if not any(claimed):
                return self._closed_for()

    def begin_again(self) -> float:
        """A run by a sender of its own: all that it knows is in the rows and in Redis."""
        with closing(Sender()) as sender:
            return self.run(sender)

    def _closed_for(self) -> float:
        opens = Credential.objects.get(pk=self.login.pk).rate_limited_until
        return max(0.001, (opens - timezone.now()).total_seconds()) if opens and self._waiting() else 0.0

    def _waiting(self) -> bool:
        return Job.objects.exclude(status="LOGGED").exists()


HOUR = 3600.0


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(900)
@pytest.mark.slow("many")
def test_a_thousand_jobs_at_five_in_sixty_seconds_end_after_11940_seconds(amazing_mail, sandbox):
    type(amazing_mail.vendor).objects.update(settings={"url": sandbox.url})
    rendered(1000, amazing_mail)
    assert nightly.run_night(amazing_mail.vendor, EVENING).jobs == 1000
    engine = Engine(amazing_mail, sandbox)
    with closing(Sender()) as sender:
        while seconds := engine.run(sender):
            engine.skip(seconds + LEAD)
    assert not Job.objects.exclude(status="LOGGED", accepted=1).exists() and not sandbox.books().duplicates()
    moments = engine.moments()
    assert len(moments) == 1000 and worst_window(moments, 60) == 5
    whole = moments[-1] - moments[0]
    own = engine.took()
    assert 11_940 <= whole <= 1.01 * 11_940 + own, "the calls' own time and the margin for clocks come on top"
    assert sum(engine.put_back.values()) <= 1.05 * 995 and max(engine.put_back.values()) <= 4, "a job waits once"
    order = [job.pk for job in Job.objects.order_by("started_at")]
    assert order == sorted(order)


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(900)
@pytest.mark.slow("many")
def test_two_hundred_a_day_take_five_days_for_a_thousand_whatever_restarts(amazing_mail, sandbox):
    type(amazing_mail.vendor).objects.update(settings={"url": sandbox.url})
    limit = amazing_mail.vendor.limits.get()
    limit.units, limit.seconds = 200, 86_400.0
    limit.save()
    rendered(1000, amazing_mail, each=5)
    dispatcher.dispatch_rendered(now=EVENING)
    engine = Engine(amazing_mail, sandbox)
    days = []
    while seconds := engine.begin_again():
        if seconds > HOUR:  # a shorter wait is a slow machine's: a place that grew too old before its call
            days.append(len(sandbox.books().entries))
        engine.skip(seconds + LEAD)
    assert days == [200, 400, 600, 800] and len(sandbox.books().entries) == 1000
    assert worst_window(engine.moments(), 86_400) == 200
