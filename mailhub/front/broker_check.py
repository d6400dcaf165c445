"""Whether the broker answers: asked before the API accepts a request (document 002)."""

import os
import threading
from functools import cache
from typing import Any

from django.conf import settings
from kombu.exceptions import OperationalError

from campaigns.doors.front.problems import unavailable_problem
from mailhub.broker import connect_to
from mailhub.environment import is_rabbitmq
from vendors.redis_addresses import celery_url

_REDIS = ("socket_timeout", "socket_connect_timeout")
_RABBITMQ = ("read_timeout", "write_timeout")


@cache
def _broker_connection(url: str, patience: float, process: int, thread: int) -> Any:
    """Return a connection for each thread; RabbitMQ's cannot be shared."""
    times = dict.fromkeys(_RABBITMQ if is_rabbitmq(url) else _REDIS, patience)
    return connect_to(url, patience, **times, max_retries=1)


def check_broker() -> None:
    """Raise Problem if the broker does not answer. Skipped if it is the Redis that just returned the health."""
    if celery_url(settings.REDIS_URL) == celery_url(settings.BROKER_URL):
        return
    broker = _broker_connection(settings.BROKER_URL, settings.STORE_PATIENCE, os.getpid(), threading.get_ident())
    try:
        if is_rabbitmq(settings.BROKER_URL):
            broker.ensure_connection(max_retries=1, timeout=settings.STORE_PATIENCE)
            broker.channel().close()  # it answers this, so it is available
        else:
            broker.default_channel.client.ping()
    except (*broker.recoverable_connection_errors, OperationalError) as error:
        broker.release()
        raise unavailable_problem("The queue cannot be reached") from error
