"""The forecast of classes, weights and floor, against what the throttle's own script gives on a virtual clock."""

from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from redis import Redis

from campaigns.engine.progress import progress_of_jobs
from campaigns.models import Job, SponsorTurn
from campaigns.reporting.forecast import eta
from tests import factories
from tests.shared_vendor import LATE, Process, SharedVendor, Sponsor
from vendors.mail_classes import MailClass

URGENT, USUAL, BULK = MailClass
LIMIT = 60  # a second
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen_clock")]
Waiting = list[tuple[str, int, int, MailClass]]  # sponsor, weight, messages, class


def foresee(waiting: Waiting, floor: int) -> dict[str, float]:
    """Return in how many seconds each job ends, by its sponsor and class, as the forecast says."""
    login = factories.credential(factories.at_work(factories.vendor(limits=[(LIMIT, 1)], floor=floor)))
    now, jobs = timezone.now(), dict[str, Job]()
    for name, weight, messages, mail_class in waiting:
        by = factories.sponsor(name)
        SponsorTurn.objects.get_or_create(sponsor=by, vendor=login.vendor, defaults={"weight": weight})
        facts: dict[str, Any] = {"of": login, "by": by, "status": "DISPATCHED", "mail_class": mail_class}
        jobs[f"{name}, {mail_class.word}"] = factories.campaign_with_job(messages, messages=False, **facts)
    rows = list(eta.select_related_rows(Job.objects.filter(pk__in=[job.pk for job in jobs.values()])))
    found = eta.forecast_jobs(rows, progress_of_jobs(rows), now)
    ends = {key: found[job.pk].ends_at for key, job in jobs.items()}
    return {key: (at - now).total_seconds() for key, at in ends.items() if at}


def live(waiting: Waiting, floor: int) -> dict[str, float]:
    """Return after how many seconds each job has got its last permit. Processes come back when they are told."""
    sponsors = [Sponsor(weight, messages, mail_class) for _name, weight, messages, mail_class in waiting]
    processes = [Process(f"p{key}", {key: LIMIT}, LATE) for key in range(len(waiting))]
    ends = dict[str, float]()
    with Redis.from_url(settings.REDIS_URL) as redis:
        vendor = SharedVendor(redis, LIMIT, sponsors, processes, 1, floor)
        while len(ends) < len(waiting):
            vendor.live(0.5)
            for (name, _weight, _messages, mail_class), sponsor in zip(waiting, sponsors, strict=True):
                if not sponsor.backlog:
                    ends.setdefault(f"{name}, {mail_class.word}", vendor.now)
        vendor.vendor.clear()
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
def test_the_forecast_end_of_each_class_is_what_happens(waiting: Waiting, floor: int) -> None:
    happened, foretold = live(waiting, floor), foresee(waiting, floor)
    assert foretold.keys() == happened.keys()
    for key, seconds in happened.items():
        assert foretold[key] == pytest.approx(seconds, rel=0.15, abs=6), (key, foretold, happened)
