"""The forecast of classes, weights and floor, against what the throttle's own script gives on a virtual clock."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from redis import Redis

from campaigns.engine.progress import of_jobs
from campaigns.models import Job, SponsorTurn
from campaigns.reporting.forecast import eta
from tests import factories
from tests.virtual import HOLD, VirtualVendor
from vendors.limits.values import Grant, SharedAsk, SponsorShare
from vendors.mail_classes import MailClass

URGENT, USUAL, BULK = MailClass
LIMIT = 60  # a second
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen_clock")]
Waiting = list[tuple[str, int, int, MailClass]]  # sponsor, weight, messages, class


@pytest.fixture
def vendor() -> Iterator[VirtualVendor]:
    with Redis.from_url(settings.REDIS_URL) as redis:
        vendor = VirtualVendor(redis, reach=600)
        yield vendor
        vendor.clear()


def foresee(waiting: Waiting, floor: int) -> dict[str, float]:
    """Return in how many seconds each job ends, by its sponsor and class, as the forecast says."""
    login = factories.credential(factories.at_work(factories.vendor(limits=[(LIMIT, 1)], floor=floor)))
    now, jobs = timezone.now(), dict[str, Job]()
    for name, weight, messages, mail_class in waiting:
        by = factories.sponsor(name)
        SponsorTurn.objects.get_or_create(sponsor=by, vendor=login.vendor, defaults={"weight": weight})
        facts: dict[str, Any] = {"of": login, "by": by, "status": "DISPATCHED", "mail_class": mail_class}
        jobs[f"{name}, {mail_class.word}"] = factories.campaign_with_job(messages, messages=False, **facts)
    rows = list(eta.described(Job.objects.filter(pk__in=[job.pk for job in jobs.values()])))
    found = eta.of_jobs(rows, of_jobs(rows), now)
    ends = {key: found[job.pk].ends_at for key, job in jobs.items()}
    return {key: (at - now).total_seconds() for key, at in ends.items() if at}


def live(vendor: VirtualVendor, waiting: Waiting, floor: int) -> dict[str, float]:
    """Return after how many seconds each job has got its last permit.

    All ask as each window opens, in any order, and again right after.
    """
    order = random.Random(1)
    scope = vendor.scope((LIMIT, 1))
    left = {f"{name}, {of.word}": messages for name, _weight, messages, of in waiting}
    ids = {name: number for number, name in enumerate(sorted({one[0] for one in waiting}), start=1)}
    ends, seconds = dict[str, float](), 0
    while left:
        for name, weight, _messages, mail_class in order.sample(waiting, len(waiting)) * 2:
            key = f"{name}, {mail_class.word}"
            if key not in left:
                continue
            share = SponsorShare(ids[name], weight, mail_class)
            ask = SharedAsk(key, {share: left[key]}, floor=floor)
            answer = vendor.throttle.acquire(scope, left[key], HOLD, asker=ask)
            if isinstance(answer, Grant):
                vendor.throttle.done(scope, answer.places())
                left[key] -= answer.units
            if not left[key]:
                ends[key] = seconds + 1.0
                del left[key]
        vendor.clock.advance(1.0)
        seconds += 1
    return ends


@pytest.mark.parametrize("floor", [0, 10, 40])
@pytest.mark.parametrize(
    "waiting",
    [
        [("Anton", 1, 3_000, BULK), ("Velma", 1, 540, URGENT)],
        [("Anton", 1, 1_800, BULK), ("Velma", 3, 1_200, BULK), ("Otto", 1, 900, URGENT)],
        [("Anton", 1, 1_200, BULK), ("Velma", 2, 600, USUAL), ("Otto", 1, 600, USUAL), ("Anton", 1, 900, URGENT)],
    ],
)
def test_the_forecast_end_of_each_class_is_what_happens(vendor: VirtualVendor, waiting: Waiting, floor: int) -> None:
    happened, foretold = live(vendor, waiting, floor), foresee(waiting, floor)
    assert foretold.keys() == happened.keys()
    for key, seconds in happened.items():
        assert foretold[key] == pytest.approx(seconds, rel=0.15, abs=6), (key, foretold, happened)
