"""Histograms in /metrics: counted where things happen, added up over processes, and read by Prometheus's own parser."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.engine import delivery_reports, sending
from campaigns.engine.lifecycle import move
from campaigns.models import Campaign, Job, Message
from tests import factories, workers
from tests.campaigns.rows import accepted, logged, messages
from tests.mailhub.test_metrics import read, value
from vendors import histograms, redis_clients
from vendors.adapters.reports import Reported
from vendors.models import Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """Tests share Redis, and their vendors may have the ids of others."""
    histograms.counts.take_counts()
    with redis_clients.make_client(settings.REDIS_URL) as client:
        client.delete(histograms.KEY)
        yield
        client.delete(histograms.KEY)


def test_a_job_that_is_sent_is_in_each_histogram_of_senders(sandbox: Any) -> None:
    vendor = factories.vendor("post", settings={"url": sandbox.url})
    campaign = factories.campaign(50, of=factories.credential(vendor))
    Campaign.objects.filter(pk=campaign.pk).update(created_at=timezone.now() - timedelta(minutes=10))
    job = factories.job(campaign, "DISPATCHED")
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    with closing(sending.Sender(many=True)) as sender:
        assert not sender.send_claimed_job(job.pk, 1).left
    found = read()
    for name in ("accept_to_call_seconds", "call_seconds", "call_to_stored_seconds"):
        assert value(found, f"{name}_count", vendor="post") == 50, name
    assert value(found, "accept_to_call_seconds_bucket", vendor="post", le="300") == 0
    assert value(found, "accept_to_call_seconds_bucket", vendor="post", le="900") == 50
    assert value(found, "claim_messages_sum", vendor="post") == 50
    assert (value(found, "claim_messages_count", vendor="post") or 0) >= 1
    for statement in ("claim", "store"):
        assert (value(found, "statement_seconds_count", statement=statement) or 0) >= 1
    assert value(found, "call_seconds_bucket", vendor="post", le="+Inf") == 50
    assert (value(found, "call_seconds_sum", vendor="post") or 0) > 0


def test_the_lag_of_a_first_report_counts_once() -> None:
    job = logged(2, [accepted(), accepted()])
    rows = messages(job)
    Message.objects.update(sent_at=timezone.now() - timedelta(seconds=30))
    Vendor.objects.filter(pk=job.vendor_id).update(slug="post")
    for _ in range(2):
        delivery_reports.store_reports(
            job.vendor_id, [Reported(row.reference, "delivered", timezone.now()) for row in rows]
        )
    delivery_reports.store_reports(job.vendor_id, [Reported(rows[0].reference, "bounced", timezone.now())])
    histograms.store_now(settings.REDIS_URL)
    found = read()
    assert value(found, "report_lag_seconds_count", vendor="post") == 2
    assert value(found, "report_lag_seconds_bucket", vendor="post", le="15") == 0
    assert (value(found, "report_lag_seconds_sum", vendor="post") or 0) >= 60


def test_processes_add_to_the_same_sums() -> None:
    vendor = factories.vendor("post")
    code = (
        "import django; django.setup(); from django.conf import settings; from vendors import histograms\n"
        f"histograms.counts.observe_value(histograms.CALL, {vendor.pk}, 0.3, 4)\n"
        "histograms.store_now(settings.REDIS_URL)"
    )
    env = workers.environment() | {"DJANGO_SETTINGS_MODULE": "mailhub.settings", "REDIS_URL": settings.REDIS_URL}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env=env, cwd=workers.PROJECT, check=True)
    histograms.counts.observe_value(histograms.CALL, vendor.pk, 100.0)
    histograms.store_now(settings.REDIS_URL)
    found = read()
    assert value(found, "call_seconds_count", vendor="post") == 9
    assert value(found, "call_seconds_bucket", vendor="post", le="0.25") == 0
    assert value(found, "call_seconds_bucket", vendor="post", le="0.5") == 8
    assert value(found, "call_seconds_bucket", vendor="post", le="30") == 8
    assert value(found, "call_seconds_sum", vendor="post") == pytest.approx(102.4)


def test_what_is_counted_costs_no_statement_and_a_redis_that_is_away_costs_the_counts_alone(tmp_path: Any) -> None:
    with CaptureQueriesContext(connection) as asked:
        histograms.counts.observe_value(histograms.CALL, 1, 0.1)
        histograms.store_now(f"unix://{tmp_path}/none")
    assert not asked.captured_queries and histograms.counts.take_counts() == {}


def test_vendors_without_a_label_of_their_own_share_one_and_what_another_version_counted_is_left_out() -> None:
    factories.vendor("post")
    histograms.counts.observe_value(histograms.CALL, 1_000_001, 1.0)
    histograms.counts.observe_value(histograms.CALL, 1_000_002, 2.0)
    histograms.store_now(settings.REDIS_URL)
    with redis_clients.make_client(settings.REDIS_URL) as client:
        client.hset(histograms.KEY, "of_later|1|0", "5")
        client.hset(histograms.KEY, "call|1000002|77", "5")
    found = read()
    assert value(found, "call_seconds_count", vendor="(others)") == 2
    assert value(found, "call_seconds_sum", vendor="(others)") == 3
