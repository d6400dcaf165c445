"""A permit that is returned can be granted at once: no sender waits for a window that is not full any more."""

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.models import Job
from campaigns.operations import actions
from tests import factories
from tests.faults.rounds import Driver
from tests.faults.sending import login, take_again
from tests.sandbox import Sandbox

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


def test_a_grant_that_is_cancelled_reopens_what_another_sender_closed_for_a_minute(
    vendor: Sandbox, driver: Driver
) -> None:
    account = login(vendor.url, (4, 60))
    factories.caster(account.vendor, kind="small-only")
    first = factories.campaign_with_job(4, of=account, status="DISPATCHED")
    frozen = driver.round("after_grant:1:STOP")
    assert frozen["end"] == "frozen", "with all permits of the window"
    second = take_again(factories.campaign_with_job(1, of=account, status="DISPATCHED"))
    assert sending.send_claimed_job(second.pk, second.fence).left
    account.refresh_from_db()
    assert account.rate_limited_until and account.rate_limited_until > timezone.now()
    actions.stop_jobs([first.pk])
    driver.wake(frozen["pid"])  # claims nothing, and cancels its permits
    account.refresh_from_db()
    assert account.rate_limited_until is None
    driver.round()
    second.refresh_from_db()
    assert (second.status, second.accepted) == ("LOGGED", 1)


def test_a_job_of_one_letter_takes_one_permit(vendor: Sandbox, driver: Driver) -> None:
    account = login(vendor.url, (4, 60))
    factories.caster(account.vendor, kind="small-only")
    first = factories.campaign_with_job(1, of=account, status="DISPATCHED")
    frozen = driver.round("after_grant:1:STOP")
    others = [take_again(factories.campaign_with_job(1, of=account, status="DISPATCHED")) for _ in range(3)]
    assert not any(sending.send_claimed_job(job.pk, job.fence).left for job in others), "three permits were left"
    driver.wake(frozen["pid"])
    first.refresh_from_db()
    too_late = first.waits_for == "rate limit reached"  # it was frozen for longer than a grant is good for
    assert first.status == "LOGGED" or (first.status == "DISPATCHED" and too_late)
    assert not Job.objects.exclude(pk=first.pk).exclude(status__in=("SENT", "LOGGED")).exists()
