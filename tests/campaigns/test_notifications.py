"""What is sent to a vendor's queue: one message for whatever waits, one for each job that a mailcaster has taken."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from campaigns import tasks
from campaigns.models import Job
from tests import factories
from tests.celery_tasks import arguments, in_broker
from vendors.models import Credential


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


def paused_vendor(login: Credential) -> None:
    call_command("vendor", "pause", login.vendor.slug)


def paused_credential(login: Credential) -> None:
    call_command("credential", "pause", login.vendor.slug, login.name)


def asked_to_wait(login: Credential) -> None:
    until = timezone.now() + timedelta(hours=1)
    Credential.objects.filter(pk=login.pk).update(asked_wait=3600.0, retry_after_until=until)


def shut_by_a_limit(login: Credential) -> None:
    call_command("vendor", "limit", login.vendor.slug, "0/60")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("keep", "command"),
    [
        (paused_vendor, "vendor resume {vendor}"),
        (paused_credential, "credential resume {vendor} {name}"),
        (asked_to_wait, "credential resume {vendor} {name}"),
        (shut_by_a_limit, "vendor limit {vendor} 5/60"),
    ],
)
def test_whoever_ends_what_kept_jobs_wakes_the_mailcasters_at_once(
    keep: Callable[[Credential], None], command: str
) -> None:
    """Without it they wait for the next sweep."""
    login = factories.credential(factories.vendor(casters=["small-only"]))
    factories.campaign_with_job(of=login, status="DISPATCHED")
    keep(login)
    before = len(on_the_queue(login.vendor.queue))
    typed = command.format(vendor=login.vendor.slug, name=login.name).split()
    call_command(*typed)
    assert on_the_queue(login.vendor.queue)[before:] == [("campaigns.tasks.cast", [login.vendor_id])]
    if "resume" in command:
        call_command(*typed)
        assert len(on_the_queue(login.vendor.queue)) == before + 1, "there was nothing to end"
