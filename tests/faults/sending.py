"""Sends a job by a sender in a thread of this process: real rows, real sockets, no worker."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.engine.sending.sender import Sent
from campaigns.models import Job
from tests import factories
from tests.programs import wait_until
from tests.sandbox import Sandbox
from vendors.models import Credential, Vendor

T = TypeVar("T")
CONCURRENCY = 4


def login(url: str, *limits: tuple[int, float], **settings: Any) -> Credential:
    """A credential of a vendor at that address; by default its deadline is longer than any slow machine needs."""
    settings = {"url": url, "timeout": 30, "settle_delay": 1, "concurrency": CONCURRENCY, **settings}
    return factories.credential(factories.vendor(settings=settings, limits=limits))


def taken(recipients: int | list[str], of: Credential) -> Job:
    """Makes a leaf that a mailcaster has taken."""
    return take_again(factories.campaign_with_job(recipients, of=of, status="DISPATCHED"))


def take_again(job: Job) -> Job:
    """Takes the job as its vendor's mailcaster would."""
    job.refresh_from_db()
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=job.fence + 1, heartbeat_at=timezone.now())
    job.refresh_from_db()
    return job


def sent(job: Job) -> Job:
    """Sends the job until it is LOGGED."""
    sender.send_claimed_job(job.pk, job.fence)
    assert finalizer.finalise_job(job.pk), Job.objects.values("status", "waits_for").get(pk=job.pk)
    job.refresh_from_db()
    return job


def send_the_rest(job: Job) -> Job:
    """Sends the rest of the job, in whatever state a fault has left it; waits as long as the job has to."""
    for _ in range(20):
        finalizer.finalise_job(job.pk)
        job.refresh_from_db()
        if job.status == "LOGGED":
            return job
        if job.status in ("DISPATCHED", "RECOVERING"):
            wait_until(lambda: open_again(job), f"job {job.pk} may go on: {job.waits_for}")
            take_again(job)
        if job.status == "ENQUEUED":
            sender.send_claimed_job(job.pk, job.fence)
        else:
            finalizer.recover_job(job.pk, timedelta())
    raise AssertionError(f"job {job.pk} comes to no end: {job.status}, {job.waits_for}")


def open_again(job: Job) -> bool:
    now = timezone.now()
    times = Credential.objects.values_list("retry_after_until", "rate_limited_until")
    opens = [job.not_before, *times.get(pk=job.credential_id)]
    return all(until is None or until <= now for until in opens)


@contextmanager
def meanwhile(verb: Callable[..., T], *args: Any) -> Iterator["Future[T]"]:
    """Runs the verb in a thread with connections of its own while the block runs."""

    def run() -> T:
        try:
            return verb(*args)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(run)


@contextmanager
def being_sent(job: Job) -> Iterator["Future[Sent]"]:
    """The job is being sent during the block; an error in the block stops the sender."""
    over = threading.Event()
    with meanwhile(sender.send_claimed_job, job.pk, job.fence, over.is_set) as sending:
        try:
            yield sending
        except BaseException:
            over.set()
            raise


def calls(vendor: Sandbox, least: int) -> int:
    """Waits for that many calls; returns how many have come in."""
    return wait_until(lambda: (n := len(vendor.books().entries)) >= least and n, f"{least} calls at the vendor")


@contextmanager
def nobody_claims(vendor: Vendor) -> Iterator[None]:
    """Blocks claims of the vendor's messages during the block."""
    with transaction.atomic():
        Vendor.objects.select_for_update().get(pk=vendor.pk)
        yield
