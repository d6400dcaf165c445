"""The usual way, as a yardstick: one Celery task per message, with a commit before and after the call.

It gets every advantage: each process keeps its connections to the database and the vendor, tasks are acknowledged early
and fetched in fours, no events are sent, and nothing is limited or locked. Celery closes the database's connection
around each task unless CELERY_DB_REUSE_MAX says otherwise, and mailhub does in a pool of threads; here neither does, as
`worker` proves by counting the connections made.
"""

import contextlib
import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from celery import shared_task, signals
from django.utils import timezone

from mailhub.celery import app

app.conf.update(
    CELERY_DB_REUSE_MAX=10**9, worker_send_task_events=False, task_acks_late=False, worker_prefetch_multiplier=4
)
# Connections of the whole worker beyond one for each member of its pool: at its start, and for each process's checks.
BESIDES = 10
_open = threading.local()


@signals.worker_ready.connect
def _keep_connections(**_: object) -> None:
    from campaigns import tasks

    signals.task_postrun.disconnect(tasks._close_connection)


@shared_task(ignore_result=True)
def deliver(message_id: int, url: str) -> None:
    from campaigns.models import Message

    message = Message.objects.get(pk=message_id)
    Message.objects.filter(pk=message_id).update(call_after=timezone.now())  # a mark that leaves the row open
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
    """Run a worker that must keep its connections to the database. Yields a function that checks whether it lives."""
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
    """Return the number of connections ever made to this database."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
