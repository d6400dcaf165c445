"""The queue as the front sees it: is it there, and one bell for many requests.

A request is taken only if the queue answers (document 002). The bell itself is rung by a thread of its own, at most so
many times a second for each vendor; a bell that is lost is rung by the sweep.
"""

import os
import threading
from functools import cache
from typing import Any

from django.conf import settings
from kombu import Connection
from kombu.exceptions import OperationalError

from campaigns.tasks import notify_queue
from mailhub.environment import celery_url, is_rabbitmq
from mailhub.front.problems import unavailable

PAUSE = 0.1  # seconds between two rounds


_REDIS = ("socket_timeout", "socket_connect_timeout")
_RABBITMQ = ("read_timeout", "write_timeout")


@cache
def _broker(url: str, patience: float, process: int, thread: int) -> Any:
    """Of one thread: RabbitMQ's connections are not for several."""
    times = dict.fromkeys(_RABBITMQ if is_rabbitmq(url) else _REDIS, patience)
    return Connection(url, connect_timeout=patience, transport_options={**times, "max_retries": 1})


def check() -> None:
    """Raises Problem when the queue does not answer. The Redis that has just told the vendor's health is there."""
    if celery_url(settings.REDIS_URL) == settings.BROKER_URL:
        return
    broker = _broker(settings.BROKER_URL, settings.STORE_PATIENCE, os.getpid(), threading.get_ident())
    try:
        if is_rabbitmq(settings.BROKER_URL):
            broker.ensure_connection(max_retries=1, timeout=settings.STORE_PATIENCE)
            broker.channel().close()  # it answers this, so it is there
        else:
            broker.default_channel.client.ping()
    except (*broker.recoverable_connection_errors, OperationalError) as error:
        broker.release()
        raise unavailable("The queue cannot be reached") from error


class Notifier:
    def __init__(self) -> None:
        self._wanted: dict[int, str] = {}
        self._come = threading.Event()
        self._lock = threading.Lock()
        self._ringer = 0  # the process whose thread it is: a fork has none

    def ring(self, vendor_id: int, slug: str) -> None:
        """Soon, once for all who ask meanwhile."""
        with self._lock:
            self._wanted[vendor_id] = slug
        if self._ringer != os.getpid():
            self._start()
        self._come.set()

    def _start(self) -> None:
        with self._lock:
            if self._ringer != os.getpid():
                self._ringer = os.getpid()
                threading.Thread(target=self._work, name="bells", daemon=True).start()

    def _work(self) -> None:
        rest = threading.Event()
        while True:
            self._come.wait()
            self._come.clear()
            with self._lock:
                wanted, self._wanted = self._wanted, {}
            for vendor_id, slug in wanted.items():
                notify_queue(vendor_id, f"vendor.{slug}")
            rest.wait(PAUSE)


notifier = Notifier()
