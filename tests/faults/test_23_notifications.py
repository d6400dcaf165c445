"""Faults 22 to 27: Celery's messages come twice, never, or as garbage; their results cannot be stored.

In all of test_01_crash_points.py every notification is dropped (24), and a child of a chord is killed (26).
"""

import base64
import itertools
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.conf import settings
from django.db import connection
from redis import Redis

from campaigns import tasks
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import login, taken
from tests.programs import wait_until, worker
from tests.sandbox import Sandbox
from tests.waiting import exit_of

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]


def test_22_23_a_notification_that_comes_three_times_sends_once(vendor: Sandbox) -> None:
    """Doubled by a broker or delivered again after its visibility timeout: during the first delivery, and later."""
    job, together = taken(30, login(vendor.url)), Barrier(3)

    def answer(_: int) -> None:
        try:
            together.wait()
            tasks.send_job(job.pk, job.fence)
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(answer, range(3)))
    tasks.send_job(job.pk, job.fence)
    job.refresh_from_db()
    assert (job.status, job.fence, job.accepted) == ("LOGGED", 2, 30)
    assert judge(vendor.books()) == []


def test_25_garbage_in_the_queue_is_refused_and_the_mail_behind_it_goes_out(vendor: Sandbox) -> None:
    account = login(vendor.url)
    factories.caster(account.vendor)
    queue = account.vendor.queue
    with worker(queues=queue) as program:
        put(queue, *garbage(queue))
        goes_out(factories.campaign_with_job(5, of=account, status="DISPATCHED"))
        assert program.process.poll() is None
        put(queue, b"no message at all")  # a worker dies of it, whoever watches over it starts the next one
        assert exit_of(program.process) != 0
    with worker(queues=queue):
        goes_out(factories.campaign_with_job(5, of=account, status="DISPATCHED"))
    assert judge(vendor.books()) == [] and sums() == {"accepted": 10}


def goes_out(job: Job) -> None:
    """A notification may be lost with a connection that breaks: it is sent again, as the sweep would."""
    looks = itertools.count()

    def logged() -> bool:
        if next(looks) % 40 == 0:
            notify_vendors([job.vendor_id])
        return Job.objects.get(pk=job.pk).status == "LOGGED"

    wait_until(logged, "the job behind the garbage is logged")


def garbage(queue: str) -> list[bytes]:
    """An unknown task, a pickle, which could run code, a body in another format, and an empty message."""
    return [
        message(queue, "application/json", json.dumps([[], {}, {}]).encode(), task="nobody.knows.it"),
        message(queue, "application/x-python-serialize", pickle.dumps(["run me"]), task="campaigns.tasks.cast"),
        message(queue, "application/json", b"not json", task="campaigns.tasks.cast"),
        b"{}",
    ]


def message(queue: str, kind: str, body: bytes, task: str) -> bytes:
    properties = {
        "delivery_info": {"exchange": "", "routing_key": queue}, "delivery_mode": 2, "priority": 0,
        "delivery_tag": factories.unique("tag"), "body_encoding": "base64", "correlation_id": "x", "reply_to": "",
    }  # fmt: skip
    fields = {"body": base64.b64encode(body).decode(), "content-type": kind, "content-encoding": "utf-8"}
    headers = {"task": task, "id": factories.unique("id"), "lang": "py", "argsrepr": "", "kwargsrepr": ""}
    return json.dumps({**fields, "headers": headers, "properties": properties}).encode()


def put(queue: str, *items: bytes) -> None:
    with Redis.from_url(settings.REDIS_URL) as broker:
        broker.lpush(queue, *items)


def test_27_without_a_result_backend_the_parent_is_finished_all_the_same(vendor: Sandbox) -> None:
    with rounds.driver(RESULT_BACKEND="redis+socket:///nowhere/redis.sock") as driver:
        mail = rounds.mail(vendor.url)
        rounds.finish(mail, driver)
        mail.parent.refresh_from_db()
        assert mail.parent.status == "P_FINISHED" and judge(vendor.books()) == []
