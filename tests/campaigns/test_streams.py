"""How many streams run and which jobs wait for one: what an idle mailcaster would take, and nothing else."""

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.engine.finishing import sweep as sweeper
from campaigns.models import Job, Store
from campaigns.reporting.forecast import streams
from campaigns.reporting.forecast.streams import VendorStreams
from tests import factories
from tests.campaigns.rows import family, logged
from tests.workers import worker
from vendors.models import Credential, Mailcaster, RateLimit, Vendor

HOUR = timedelta(hours=1)


def of(vendor: Vendor) -> VendorStreams:
    return next(one for one in streams.streams_of_vendors() if one.vendor_id == vendor.pk)


def dispatched(kind: str = "small-only", size: int = 3, **login: Any) -> Job:
    """A job that has waited for an hour, at a vendor with one idle mailcaster."""
    vendor = factories.vendor(casters=[kind], limits_since=an_hour_ago())
    status = "P_QUEUED" if size >= vendor.small_audience_threshold else "DISPATCHED"
    return factories.campaign_with_job(
        size, of=factories.credential(vendor, **login), status=status, messages=False, dispatched_at=an_hour_ago()
    )


def an_hour_ago() -> Any:
    return timezone.now() - HOUR


def busy_with_another(job: Job) -> None:
    caster = job.vendor.mailcasters.get()
    factories.campaign_with_job(1, of=job.credential, status="SENDING", mailcaster=caster, status_at=an_hour_ago())


def held_by_another_campaign(job: Job) -> None:
    Credential.objects.filter(pk=job.credential_id).update(exclusive=True)
    factories.campaign_with_job(1, of=job.credential, status="RECOVERING", not_before=timezone.now() + HOUR)


def login(**fields: Any) -> Callable[[Job], object]:
    return lambda job: Credential.objects.filter(pk=job.credential_id).update(**fields)


def nothing(job: Job) -> None:
    pass


KEPT: dict[str, Callable[[Job], object]] = {
    "vendor paused": lambda job: Vendor.objects.filter(pk=job.vendor_id).update(paused=True),
    "credential paused": login(paused=True),
    "limit of 0": lambda job: RateLimit.objects.create(vendor=job.vendor, units=0, seconds=60),
    "credential's limit of 0": lambda job: RateLimit.objects.create(
        vendor=job.vendor, credential=job.credential, units=0, seconds=60
    ),
    "Retry-After": login(retry_after_until=timezone.now() + HOUR),
    "window full": login(rate_limited_until=timezone.now() + HOUR),
    "put off": lambda job: Job.objects.filter(pk=job.pk).update(not_before=timezone.now() + HOUR),
    "mailcaster disabled": lambda job: Mailcaster.objects.filter(vendor=job.vendor_id).update(enabled=False),
    "mailcaster takes large ones": lambda job: Mailcaster.objects.filter(vendor=job.vendor_id).update(
        kind="large-only"
    ),
    "mailcaster busy": busy_with_another,
    "credential serves another campaign": held_by_another_campaign,
    "store taken over": lambda job: Store.objects.update(timeline="another"),
    "tables migrated": lambda job: Store.objects.update(tables=""),
    "cut whole": lambda job: Job.objects.filter(pk=job.pk).update(status="P_ASSIGNING", remaining=0),
}
GOES: dict[str, Callable[[Job], object]] = {
    "nothing": nothing,
    "Retry-After over": login(retry_after_until=timezone.now() - HOUR),
    "window free": login(rate_limited_until=timezone.now() - HOUR),
    "its own time has come": lambda job: Job.objects.filter(pk=job.pk).update(not_before=timezone.now() - HOUR),
    "recovered": lambda job: Job.objects.filter(pk=job.pk).update(status="RECOVERING"),
    "exclusive and free": login(exclusive=True),
}


@pytest.mark.django_db
class TestWhatWaits:
    @pytest.fixture(autouse=True)
    def late(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After longer than a slow machine takes for a test; what is late here has waited for an hour."""
        monkeypatch.setattr(streams, "LATE", 600.0)

    @pytest.mark.parametrize("why", [*KEPT, *GOES])
    def test_a_job_waits_for_a_stream_exactly_if_an_idle_mailcaster_takes_it(self, why: str) -> None:
        job = dispatched()
        {**KEPT, **GOES}[why](job)
        seen = of(job.vendor)
        claimed = mailcaster.claim_next_job(job.vendor.mailcasters.get().pk, timezone.now())
        assert (seen.waiting == 1) is (claimed is not None) is (why in GOES), (seen, claimed)
        assert (seen.late == 1) is (why in GOES)

    @pytest.mark.parametrize("kind", list(mailcaster.ORDER))
    @pytest.mark.parametrize("size", [3, 300])
    def test_a_mailcaster_waits_for_the_jobs_of_its_kind(self, kind: str, size: int) -> None:
        job = dispatched(kind, size)
        seen = of(job.vendor)
        assert (seen.waiting == 1) is (
            mailcaster.claim_next_job(job.vendor.mailcasters.get().pk, timezone.now()) is not None
        )

    def test_it_waits_since_nothing_else_keeps_it(self) -> None:
        job = dispatched(rate_limited_until=timezone.now() - timedelta(minutes=10))
        assert 600 <= of(job.vendor).oldest < 1800

    @pytest.mark.parametrize("paused", [Vendor, Credential])
    def test_what_a_pause_has_kept_waits_since_its_end(self, paused: type[Vendor] | type[Credential]) -> None:
        job = dispatched()
        row = paused._default_manager.filter(pk=job.vendor_id if paused is Vendor else job.credential_id)
        row.update(paused=False)
        assert of(job.vendor).late == 1, "it was not paused"
        row.update(paused=True)
        row.update(paused=False, paused_reason="")
        seen = of(job.vendor)
        assert (seen.waiting, seen.late) == (1, 0) and seen.oldest < streams.LATE

    def test_what_a_limit_of_0_has_kept_waits_since_it_was_raised(self) -> None:
        job = dispatched()
        limit = RateLimit.objects.create(vendor=job.vendor, units=0, seconds=60)
        RateLimit.objects.filter(pk=limit.pk).update(units=5)
        seen = of(job.vendor)
        assert (seen.waiting, seen.late) == (1, 0) and seen.oldest < streams.LATE

    def test_what_a_mailcaster_has_taken_and_no_sender_has_begun_waits_since_then(self) -> None:
        job = dispatched()
        assert mailcaster.claim_next_job(job.vendor.mailcasters.get().pk, timezone.now()) is not None
        seen = of(job.vendor)
        assert (seen.running, seen.waiting, seen.late) == (0, 1, 0) and seen.oldest < streams.LATE
        Job.objects.filter(pk=job.pk).update(status_at=an_hour_ago(), heartbeat_at=timezone.now())
        assert of(job.vendor).late == 1, "the sweep renews its heartbeat, and it waits for as long as it does"

    def test_a_mailcaster_that_is_idle_between_two_jobs_is_no_alarm(self) -> None:
        job = dispatched()
        assert of(job.vendor).late == 1
        last = logged(1, [], of=job.credential)
        seen = of(job.vendor)
        assert (seen.waiting, seen.late) == (1, 0), "a job of the vendor has just ended"
        Job.objects.filter(pk=last.pk).update(finished_at=an_hour_ago())
        assert of(job.vendor).late == 1

    def test_children_and_parents_wait_too(self) -> None:
        top, _ = family(parent="P_ASSIGNING", remaining=30, children=["RECOVERING", "LOGGED"])
        factories.caster(top.vendor, "MC1", "large-priority")
        assert of(top.vendor).waiting == 2


@pytest.mark.django_db
def test_a_stream_is_a_job_whose_sender_lives() -> None:
    login = factories.credential()
    factories.campaign_with_job(1, of=login, status="SENDING")
    factories.campaign_with_job(1, of=login, status="SENDING", heartbeat_at=an_hour_ago())
    factories.campaign_with_job(1, of=login, status="STOPPED", stopped_at=timezone.now(), heartbeat_at=timezone.now())
    factories.campaign_with_job(1, of=login, status="STOPPED", stopped_at=timezone.now())
    assert of(login.vendor).running == 2


@pytest.mark.django_db
def test_the_alarm_says_why_and_only_of_vendors_with_late_jobs() -> None:
    alone, read = dispatched(), dispatched()
    factories.at_work(read.vendor, slots=3)
    texts = streams.late_alarms(
        one for one in streams.streams_of_vendors() if one.vendor_id in (alone.vendor_id, read.vendor_id)
    )
    texts_of_an_hour = [re.sub(r"\b36\d\d s", "an hour", text) for text in texts]
    assert sorted(texts_of_an_hour) == sorted(
        [
            f"vendor {alone.vendor.slug}: 1 job could be sent and no sender has begun for an hour: "
            f"no worker reads the queue vendor.{alone.vendor.slug}",
            f"vendor {read.vendor.slug}: 1 job could be sent and no sender has begun for an hour: "
            "the workers' log has to tell",
        ]
    )
    assert streams.late_alarms([of(factories.vendor())]) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("processes")
def test_the_alarm_comes_when_nobody_takes_a_letter_and_goes_when_a_worker_does(
    capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = {"url": "http://127.0.0.1:9/"}
    vendor = factories.vendor(casters=["small-only"], settings=url, limits_since=an_hour_ago())
    soon = timezone.now() + HOUR
    job = factories.campaign_with_job(1, of=factories.credential(vendor), status="DISPATCHED", status_at=soon)
    factories.beat_sends()
    call_command("status", "--check")
    assert capsys.readouterr().out == ""
    Job.objects.filter(pk=job.pk).update(status_at=an_hour_ago())  # nobody has taken it
    assert of(vendor).late
    with pytest.raises(CommandError):
        call_command("status", "--check")
    assert f"no worker reads the queue {vendor.queue}" in capsys.readouterr().out
    with caplog.at_level(logging.WARNING):
        sweeper.run_sweep(HOUR)
    assert f"not sent: vendor {vendor.slug}: 1 job could be sent" in caplog.text
    with worker(vendor.queue, "hub") as running:
        notify_vendors([vendor.pk])
        running.until(lambda: Job.objects.get(pk=job.pk).heartbeat_at)
        running.until(lambda: not of(vendor).late)
    factories.beat_sends()
    call_command("status", "--check")
