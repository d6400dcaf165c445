"""Flower: never open, words instead of bare numbers, and a history that outlives it."""

import re
import signal
from pathlib import Path

import pytest

from campaigns.engine.dispatch.dispatcher import notify_vendors
from mailhub import worker_queues
from tests import factories
from tests.celery_tasks import note
from tests.faults.sending import login
from tests.flower import ask, flower, listens, running_jobs
from tests.programs import worker as sender_process
from tests.sandbox import Sandbox
from tests.waiting import exit_of, wait_until
from tests.workers import worker

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True)]
PROMISED = 30.0  # seconds until the Broker page has a vendor that was added (docs/how-to/watch.md)


def seen(home: Path, name: str, state: str = "All") -> set[str]:
    """The arguments, as it shows them, of the tasks of this name that it knows of."""
    status, tasks = ask(home, f"/api/tasks?state={state}")
    return {task["args"] for task in tasks.values() if task["name"] == name} if status == 200 else set()


def test_it_shows_what_a_packet_is_and_still_does_after_a_restart(tmp_path: Path) -> None:
    vendor = factories.vendor(casters=["small-only"])
    job = factories.campaign_with_job(3, of=factories.credential(vendor), status="DISPATCHED")
    with worker(vendor.queue, "hub") as busy, flower(tmp_path) as running:
        running.until(lambda: ask(tmp_path, "/api/workers?refresh=1")[0] == 200)
        assert ask(tmp_path, "/", "ann:wrong")[0] == 401
        for page in ("/metrics", "/healthcheck"):
            assert (ask(tmp_path, page)[0], ask(tmp_path, page, "eve:secret")[0]) == (200, 401), page
        assert ask(tmp_path, "/api/tasks", "eve:secret")[0] == 401
        running.until(
            lambda: notify_vendors([vendor.pk]) or f"({vendor.queue})" in seen(tmp_path, "campaigns.tasks.cast")
        )
        busy.until(lambda: seen(tmp_path, "campaigns.tasks.send_job") == {f"(job={job.pk} n=3)"})
        running.process.send_signal(signal.SIGTERM)
        exit_of(running.process)
    assert all(one.stat().st_mode & 0o077 == 0 for one in tmp_path.glob("flower*")) and [*tmp_path.glob("flower*")]
    with flower(tmp_path) as again:
        again.until(lambda: ask(tmp_path, "/api/tasks")[0] == 200)
        assert seen(tmp_path, "campaigns.tasks.send_job") == {f"(job={job.pk} n=3)"}


def test_it_shows_each_job_that_a_process_sends_among_many_for_as_long_as_it_is_sent(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.settings(latency_ms=2000.0)
    account = login(sandbox.url, concurrency=1)
    with flower(tmp_path) as running, sender_process(threads=30, queues=f"hub,{account.vendor.queue}"):
        [worker_name] = running.until(lambda: listens(tmp_path), "it hears the worker")
        for _ in range(20):  # only now, because a sweep that another test left in the broker would begin them earlier
            factories.caster(account.vendor)
        jobs = [factories.campaign_with_job(100, of=account, status="DISPATCHED") for _ in range(20)]
        expected = {f"(job={job.pk} n=100)" for job in jobs}
        notify_vendors([account.vendor_id])
        all_of_them = dict.fromkeys(expected, worker_name)
        running.until(lambda: running_jobs(tmp_path) == all_of_them, "all of them, while they are sent")
        sandbox.settings(latency_ms=0.0)
        running.until(lambda: seen(tmp_path, "campaigns.tasks.send_job", "SUCCESS") == expected, "what was sent")
        assert running_jobs(tmp_path) == {}


def test_without_a_password_it_does_not_start(tmp_path: Path) -> None:
    with flower(tmp_path, login="") as refused:
        assert exit_of(refused.process) == 1
        assert "does not start open to everybody" in refused.log()


def broker_page(home: Path) -> dict[str, str]:
    """Its rows: queue, and how many messages lie there."""
    status, page = ask(home, "/broker")
    return dict(re.findall(r"<td>([\w.-]+)</td>\s*<td[^>]*>\D*?(\d+)", page.decode())) if status == 200 else {}


def test_a_vendor_that_is_added_while_it_runs_is_on_its_broker_page_with_its_queues_length(tmp_path: Path) -> None:
    before = factories.vendor()
    with worker(worker_queues.VENDORS, "hub") as busy, flower(tmp_path) as running:
        running.until(lambda: before.queue in broker_page(tmp_path), "the page of a vendor that was there")
        read = factories.vendor()
        shown = wait_until(lambda: broker_page(tmp_path).get(read.queue), "a vendor that a worker reads", PROMISED)
        assert shown == "0"
        busy.end()
        unread = factories.vendor()
        for number in range(3):
            note.apply_async([f"page {number}", "unread"], queue=unread.queue)
        wait_until(
            lambda: broker_page(tmp_path).get(unread.queue) == "3", "one that none reads, with its length", PROMISED
        )
        status, found = ask(tmp_path, "/api/queues/length")
        assert status == 200 and {"name": unread.queue, "messages": 3} in found["active_queues"]
