"""What `--wait` shows on a terminal while a job is sent."""

import re
import sys

import pytest

from campaigns.models import Job
from campaigns.operations import following
from tests import factories
from tests.terminal import Terminal

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("width", [80, 120])
def test_who_waits_reads_the_forecast_and_no_end_of_a_rate_of_the_last_seconds(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five calls in the first second of a minute are no five a second."""
    vendor = factories.at_work(factories.vendor(limits=[(5, 60)]))
    job = factories.campaign_with_job(1000, status="DISPATCHED", of=factories.credential(vendor), messages=False)
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stderr", screen)
    looks = iter([{"accepted": 5}, {"accepted": 1000, "status": "LOGGED"}])
    monkeypatch.setattr(following, "sleep", lambda _seconds: Job.objects.filter(pk=job.pk).update(**next(looks)))
    assert following.follow_jobs([job.pk]).accepted == 1000
    lines = screen.lines()
    seen = " ".join(" ".join(lines).split())
    assert re.search(r"5 of 1,000, [^,]+, ends about \d\d:\d\d \(3 h 1\d min\)", seen), seen
    assert max(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)) for line in lines) <= width
