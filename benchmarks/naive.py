"""The usual way, as a yardstick: one Celery task per message, a commit before the call and one after it.

It is given every advantage: the connections to the database and to the vendor are kept open in each process, tasks are
acknowledged early and fetched in fours, no events are sent, nothing is limited or locked. Celery closes the database's
connection before and after each task unless CELERY_DB_REUSE_MAX says otherwise; `worker` counts those that were opened.
"""

import contextlib
import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from celery import shared_task
from django.utils import timezone

from mailhub.celery import app

app.conf.update(
    CELERY_DB_REUSE_MAX=10**9, worker_send_task_events=False, task_acks_late=False, worker_prefetch_multiplier=4
)
# What the whole worker needs besides one for each of its pool: its start, and the checks of each process.
BESIDES = 10
_open = threading.local()


@shared_task(ignore_result=True)
def deliver(message_id: int, url: str) -> None:
    from campaigns.models import Message

    message = Message.objects.get(pk=message_id)
    Message.objects.filter(pk=message_id).update(call_after=timezone.now())  # a mark that leaves the row without an end
    payload = {"reference": message.reference, "recipient": message.recipient, "subject": "Hello", "body": "Good day"}
    status, answer = _post(url, json.dumps(payload), message.reference)
    assert status == 200, answer
    now = timezone.now()
    Message.objects.filter(pk=message_id).update(
        dequeued_at=now, sent_at=now, delivered_at=now, message_id=json.loads(answer)["id"]
    )


def _post(url: str, body: str, reference: str) -> tuple[int, bytes]:
    if not hasattr(_open, "connection"):
        _open.connection = http.client.HTTPConnection(urlsplit(url).netloc)
    _open.connection.request("POST", urlsplit(url).path, body, {"Idempotency-Key": reference})
    answer = _open.connection.getresponse()
    return answer.status, answer.read()


def publish(ids: range, url: str) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for message_id in ids:
            deliver.apply_async((message_id, url), queue="naive", producer=producer)


@contextlib.contextmanager
def worker(pool: str, size: int) -> Iterator[Callable[[], bool]]:
    """A worker with that pool, which must keep its connections to the database. Ask now and then whether it lives."""
    from tests import programs

    before = sessions()
    options = ["-m", "celery", "-A", "benchmarks.naive", "worker", "-Q", "naive", "--without-mingle"]
    with programs.running(*options, "-P", pool, "-c", str(size)) as program:
        yield lambda: program.said("")
        program.end(signal.SIGTERM)
        opened = sessions() - before
    if opened > size + BESIDES:
        raise SystemExit(f"{opened} connections to the database for {size} at work: they are not kept")


def sessions() -> int:
    """How many connections to this database have ever been made."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
