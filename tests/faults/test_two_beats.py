"""Two beats at once, as after a mistake in a deployment: the night runs once, and nobody is called twice."""

from datetime import timedelta

import pytest
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from campaigns.models import DispatchRun, Job
from mailhub import installation
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import login
from tests.programs import worker
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from tests.workers import celery
from vendors.models import Vendor

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]


def test_two_beats_start_everything_twice_and_the_night_runs_once(sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    at = timezone.now() + timedelta(seconds=70)
    yesterday = timezone.now() - timedelta(days=1)
    night = {"dispatch_at": at.time().replace(second=0, microsecond=0), "time_zone": "UTC", "created_at": yesterday}
    Vendor.objects.filter(pk=account.vendor_id).update(**night)
    # Last night has run; the one in a minute has not.
    DispatchRun.objects.create(
        vendor=account.vendor, local_date=(at - timedelta(days=1)).date(), due_at=yesterday, finished_at=yesterday
    )
    factories.caster(account.vendor)
    job = factories.campaign_with_job(30, of=account, status="RENDERED")
    installation.sync_beat()
    with (
        celery("beat", "--pidfile=") as first,
        celery("beat", "--pidfile=") as second,
        worker(processes=2, queues=f"hub,{account.vendor.queue}"),
    ):
        sweeps = PeriodicTask.objects.filter(task="campaigns.tasks.sweep")
        first.until(lambda: sweeps.get().total_run_count >= 2)
        second.until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the night has come")
        runs = sweeps.get().total_run_count
        wait_until(lambda: sweeps.get().total_run_count >= runs + 4, "both go on")
    assert DispatchRun.objects.filter(vendor=account.vendor, local_date=at.date()).count() == 1
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 30}
