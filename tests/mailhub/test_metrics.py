"""/metrics: read with Prometheus's own parser, from rows and Redis; the same at every process, bounded, and guarded."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from prometheus_client.parser import text_string_to_metric_families

from campaigns.engine import audit
from campaigns.models import Audited, Job, Session, Sponsor, Webhook, WebhookCall
from mailhub.monitoring import metrics
from tests import factories
from tests.campaigns.rows import in_doubt, logged
from tests.front.server import Server, serving
from tests.mailhub.test_probes import DatabaseSocket, get
from tests.private_redis import PrivateRedis
from tests.waiting import wait_until
from vendors import redis_clients
from vendors.limits.throttle import Throttle
from vendors.limits.values import Grant, Limit, Scope
from vendors.models import Minute, RateLimit, Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
TOKEN = "prometheus-may-look"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Series:
    """Each sample once, by its name and labels."""
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    found = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
    assert len(found) == len(samples), "a series is there twice"
    return found


def read() -> Series:
    return parsed(metrics.metrics_text().decode())


def value(found: Series, name: str, **labels: str) -> float | None:
    return found.get((f"mailhub_{name}", frozenset(labels.items())))


def minute(vendor: Vendor, **counts: int) -> None:
    """Of the next hour, so that it is not yesterday's when a day ends within the test."""
    at = (timezone.now() + timedelta(hours=1)).replace(second=0, microsecond=0)
    Minute.objects.create(vendor=vendor, at=at, share=0, **counts)


def session(sponsor: Sponsor) -> Session:
    job, key = factories.campaign_with_job(1, by=sponsor), str(uuid4())
    return Session.objects.create(id=uuid4(), sponsor=sponsor, job=job, idempotency_key=key, fingerprint=b"", answer="")


def scraped(server: Server) -> Series:
    reply = get(server, "/metrics", Authorization=f"Bearer {TOKEN}")
    assert reply.status == 200, reply.text
    return parsed(reply.text)


def test_it_tells_of_each_vendor_what_runs_waits_and_came_of_it() -> None:
    vendor = factories.at_work(factories.vendor("post", limits=[(5, 60), (100, 3600)], casters=["small-only"]), slots=7)
    login = factories.credential(vendor)
    factories.campaign_with_job(3, of=login, status="SENDING", mailcaster=vendor.mailcasters.get())
    factories.campaign_with_job(4, of=login, status="DISPATCHED")
    later = timezone.now() + timedelta(hours=1)
    factories.campaign_with_job(6, of=login, status="DISPATCHED", not_before=later)
    factories.campaign_with_job(9, of=login, status="RENDERED")
    minute(vendor, accepted=20, refused=3, in_doubt=1)
    logged(2, [in_doubt()])
    found = read()
    assert value(found, "up", part="database") == value(found, "up", part="redis") == 1
    assert value(found, "streams", vendor="post") == 1
    assert value(found, "streams_limit", vendor="post") == 7
    assert value(found, "messages_waiting", vendor="post", state="queued") == 3 + 4
    assert value(found, "messages_waiting", vendor="post", state="put_off") == 6
    assert value(found, "messages_waiting", vendor="post", state="night") == 9
    assert value(found, "outcomes_total", vendor="post", outcome="accepted") == 20
    assert value(found, "outcomes_total", vendor="post", outcome="refused") == 3
    assert value(found, "outcomes_total", vendor="post", outcome="in_doubt") == 1
    assert value(found, "messages_in_doubt") == 1
    assert value(found, "window_limit", vendor="post", seconds="60") == 5
    assert value(found, "window_used", vendor="post", seconds="3600") == 0
    assert value(found, "vendor_blocked", vendor="post") == 0
    assert value(found, "halted") == 0


def test_windows_and_calls_in_flight_are_those_of_the_throttle() -> None:
    vendor = factories.vendor("post", limits=[(5, 60)])
    login = factories.credential(vendor)
    scope = Scope(vendor.pk, login.pk, 1, (Limit(5, 60),))
    with redis_clients.make_client(settings.REDIS_URL) as client:
        throttle = Throttle(client)
        throttle.rebuild(vendor.pk, 1, 60, [])
        grant = throttle.acquire(scope, 3, hold=3600)
        assert isinstance(grant, Grant)
        found = read()
        assert value(found, "window_used", vendor="post", seconds="60") == 3
        assert value(found, "calls_in_flight", vendor="post") == 3
        throttle.done(scope, grant.places()[:2])
    wait_until(lambda: value(read(), "calls_in_flight", vendor="post") == 1, "two are over")
    assert value(read(), "window_used", vendor="post", seconds="60") == 3


def test_what_a_pause_holds_is_stopped_and_its_jobs_are_counted() -> None:
    paused, limited, going = (factories.vendor(slug) for slug in ("paused", "limited", "going"))
    for vendor in (paused, limited, going):
        factories.campaign_with_job(4, of=factories.credential(vendor), status="DISPATCHED")
    factories.campaign_with_job(9, of=paused.credentials.get(), status="RENDERED")
    factories.campaign_with_job(5, of=factories.credential(going, paused=True), status="DISPATCHED")
    Vendor.objects.filter(pk=paused.pk).update(paused=True)
    RateLimit.objects.create(vendor=limited, units=0, seconds=60)
    found = read()

    def of(slug: str) -> tuple[Any, ...]:
        waiting = (value(found, "messages_waiting", vendor=slug, state=state) for state in ("queued", "stopped"))
        return (*waiting, value(found, "jobs_held", vendor=slug))

    assert {slug: of(slug) for slug in ("paused", "limited", "going")} == {
        "paused": (0, 4, 1),
        "limited": (0, 4, 1),
        "going": (4, 5, 1),
    }


def test_calls_to_webhooks_are_told_by_whether_they_were_tried() -> None:
    sponsor = factories.sponsor()
    hook = Webhook.objects.create(sponsor=sponsor, url="https://example.com/hook")
    Webhook.objects.create(sponsor=sponsor, url="https://example.com/off", enabled=False)
    for tries in (0, 2, 3):
        WebhookCall.objects.create(
            webhook=hook, session=session(sponsor), event=uuid4(), tries=tries, next_at=timezone.now()
        )
    found = read()
    assert value(found, "webhook_calls", state="pending") == 1
    assert value(found, "webhook_calls", state="retrying") == 2
    assert value(found, "webhooks", state="on") == value(found, "webhooks", state="off") == 1


def test_more_vendors_jobs_and_sponsors_make_no_more_series_than_there_is_room_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(metrics, "LABELLED", 3)
    monkeypatch.setattr(metrics, "PAIRS", 2)

    def fill(vendors: int, jobs: int) -> tuple[Series, int]:
        for _ in range(vendors):
            vendor = factories.vendor(limits=[(5, 60)], casters=["small-only"])
            minute(vendor, accepted=1)
            login = factories.credential(vendor)
            for _ in range(jobs):
                for _ in range(2):
                    factories.campaign_with_job(1, of=login, by=factories.sponsor(), status="DISPATCHED")
        with CaptureQueriesContext(connection) as statements:
            return read(), len(statements)

    few, asked_before = fill(4, 1)
    many, asked = fill(20, 3)
    assert few.keys() == many.keys() and asked == asked_before
    of_others = {name for name, labels in many if ("vendor", metrics.OTHERS) in labels}
    assert {"mailhub_streams", "mailhub_outcomes_total", "mailhub_messages_waiting"} <= of_others
    assert value(many, "outcomes_total", vendor=metrics.OTHERS, outcome="accepted") == 21
    assert value(many, "messages_waiting", vendor=metrics.OTHERS, state="queued") == 2 + 20 * 3 * 2


def accepted(server: Server) -> float | None:
    return value(scraped(server), "outcomes_total", vendor="post", outcome="accepted")


@pytest.mark.slow("processes")
def test_every_process_gives_the_same_numbers_and_only_who_has_the_token_gets_them() -> None:
    vendor = factories.vendor("post")
    minute(vendor, accepted=41)
    with serving(METRICS_TOKEN=TOKEN) as one, serving(workers=2, METRICS_TOKEN=TOKEN) as other:
        for server in (one, *[other] * 6):  # whose processes take turns
            assert accepted(server) == 41
        Minute.objects.update(accepted=42)
        for server in (one, other):
            wait_until(lambda server=server: accepted(server) == 42, "the new number")
        assert get(one, "/metrics").status == 401
        assert get(one, "/metrics", Authorization="Bearer guessed").status == 401
        assert get(one, "/metrics", Authorization=TOKEN).status == 401


@pytest.mark.slow("processes")
def test_without_a_token_there_are_no_metrics() -> None:
    with serving() as server:
        assert get(server, "/metrics", Authorization="Bearer ").status == 404


@pytest.mark.slow("processes")
def test_what_is_away_is_told_and_the_rest_is_there() -> None:
    factories.vendor("post")
    redis = PrivateRedis()
    try:
        with serving(METRICS_TOKEN=TOKEN, REDIS_URL=redis.url) as server:
            assert value(scraped(server), "up", part="redis") == 1
            redis.kill()
            found = wait_until(lambda: lost(server), "Redis is away")
            assert value(found, "up", part="database") == 1 and value(found, "streams", vendor="post") == 0
            assert value(found, "calls_in_flight", vendor="post") is None
    finally:
        redis.end()


@pytest.mark.slow("processes")
def test_a_database_that_is_away_leaves_what_redis_tells(tmp_path: Path) -> None:
    factories.vendor("post")
    database = DatabaseSocket(tmp_path)
    try:
        with serving(METRICS_TOKEN=TOKEN, DATABASE_URL=database.url) as server:
            assert value(scraped(server), "streams", vendor="post") == 0
            database.gone()
            found = wait_until(lambda: without_rows(server), "the database is away")
            assert value(found, "up", part="redis") == 1 and value(found, "queue_workers", queue="hub") is not None
    finally:
        database.close()


def without_rows(server: Server) -> Series | None:
    found = scraped(server)
    return found if value(found, "up", part="database") == 0 else None


def lost(server: Server) -> Series | None:
    found = scraped(server)
    return found if value(found, "up", part="redis") == 0 else None


def test_a_beat_and_an_audit_that_never_ran_are_told_as_such_so_that_their_rules_can_ring() -> None:
    PeriodicTask.objects.update(last_run_at=None)
    Audited.objects.all().delete()
    found = read()
    assert value(found, "beat_sent_timestamp_seconds") == value(found, "audit_timestamp_seconds") == 0
    now = timezone.now()
    PeriodicTask.objects.create(name="a", task="a", interval=IntervalSchedule.objects.create(every=1), last_run_at=now)
    audit.run_and_keep()
    found = read()
    assert (value(found, "beat_sent_timestamp_seconds") or 0) >= now.timestamp() - 1
    assert (value(found, "audit_timestamp_seconds") or 0) >= now.timestamp() - 1


def test_a_job_that_is_not_taken_is_late_after_five_seconds_and_a_fresh_one_is_not() -> None:
    vendor = factories.vendor("post", casters=["small-only", "small-only"])
    login = factories.credential(vendor)
    fresh = timezone.now() + timedelta(hours=1)  # not even a slow machine needs an hour and five seconds
    job = factories.campaign_with_job(
        1, of=login, status="ENQUEUED", mailcaster=vendor.mailcasters.first(), status_at=fresh
    )
    assert (value(read(), "jobs_waiting", vendor="post"), value(read(), "jobs_late", vendor="post")) == (1, 0)
    Job.objects.filter(pk=job.pk).update(status_at=timezone.now() - timedelta(seconds=30))
    found = read()
    assert value(found, "jobs_late", vendor="post") == 1
    assert 30 <= (value(found, "jobs_waiting_oldest_seconds", vendor="post") or 0) < 300
