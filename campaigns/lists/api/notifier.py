"""The API's use of the broker: checked before a request is accepted, notified by one thread for many requests.

A request is accepted only if the broker answers (document 002). A separate thread notifies the vendor's queue at most
once per PAUSE. If a notification is lost, the sweep starts the work.
"""

import os
import threading
from functools import cache
from typing import Any

from django.conf import settings
from kombu.exceptions import OperationalError

from campaigns.doors.front.problems import unavailable
from campaigns.engine.dispatch.dispatcher import notify_queue
from mailhub.broker import connect_to
from mailhub.environment import is_rabbitmq
from vendors.redis_addresses import celery_url

PAUSE = 0.1  # seconds between two rounds of notifications


_REDIS = ("socket_timeout", "socket_connect_timeout")
_RABBITMQ = ("read_timeout", "write_timeout")


@cache
def _broker(url: str, patience: float, process: int, thread: int) -> Any:
    """Return a connection for each thread; RabbitMQ's cannot be shared."""
    times = dict.fromkeys(_RABBITMQ if is_rabbitmq(url) else _REDIS, patience)
    return connect_to(url, patience, **times, max_retries=1)


def check() -> None:
    """Raise Problem if the broker does not answer. Skipped if it is the Redis that just returned the health."""
    if celery_url(settings.REDIS_URL) == celery_url(settings.BROKER_URL):
        return
    broker = _broker(settings.BROKER_URL, settings.STORE_PATIENCE, os.getpid(), threading.get_ident())
    try:
        if is_rabbitmq(settings.BROKER_URL):
            broker.ensure_connection(max_retries=1, timeout=settings.STORE_PATIENCE)
            broker.channel().close()  # it answers this, so it is available
        else:
            broker.default_channel.client.ping()
    except (*broker.recoverable_connection_errors, OperationalError) as error:
        broker.release()
        raise unavailable("The queue cannot be reached") from error


class Notifier:
    """Notifies the queues of vendors that have new work, from a thread of this process."""

    def __init__(self) -> None:
        self._wanted: dict[int, str] = {}
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._process = 0  # the thread's process: a fork has no thread

    def notify(self, vendor_id: int, slug: str) -> None:
        """Notify the vendor's queue soon, once for all requests until then."""
        with self._lock:
            self._wanted[vendor_id] = slug
        if self._process != os.getpid():
            self._start()
        self._requested.set()

    def _start(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._run, name="notifier", daemon=True).start()

    def _run(self) -> None:
        rest = threading.Event()
        while True:
            self._requested.wait()
            self._requested.clear()
            with self._lock:
                wanted, self._wanted = self._wanted, {}
            for vendor_id, slug in wanted.items():
                notify_queue(vendor_id, f"vendor.{slug}")
            rest.wait(PAUSE)


notifier = Notifier()
