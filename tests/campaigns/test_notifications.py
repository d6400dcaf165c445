"""What is sent to a vendor's queue: one message for whatever waits, one for each job that a mailcaster has taken."""

import pytest
from django.core.management import call_command

from campaigns import tasks
from campaigns.models import Job
from tests import factories
from tests.celery_tasks import arguments, in_broker


@pytest.mark.django_db
def test_a_vendor_is_notified_once_for_all_its_jobs_and_each_job_that_is_taken_once_for_itself() -> None:
    vendor = factories.vendor(casters=["small-only"] * 2)
    jobs = [factories.campaign_with_job(of=factories.credential(vendor), status="RENDERED") for _ in range(3)]
    call_command("dispatch_jobs", vendor=vendor.slug, yes=True)
    assert {job.status for job in Job.objects.all()} == {"DISPATCHED"}
    assert on_the_queue(vendor.queue) == [("campaigns.tasks.cast", [vendor.pk])]
    tasks.cast(vendor.pk)
    taken = [("campaigns.tasks.send_job", [job.pk, 1]) for job in jobs[:2]]
    assert on_the_queue(vendor.queue)[1:] == taken


def on_the_queue(name: str) -> list[tuple[str, list[int]]]:
    return [(message["headers"]["task"], arguments(message)) for message in in_broker(name)]
