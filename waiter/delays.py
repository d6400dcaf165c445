"""On RabbitMQ, has the broker instead of a worker keep messages due later.

A worker gets only as many messages of a quorum queue as its processes can run, so a few delayed ones would block the
queue. kombu's delay exchanges keep them instead: 28 queues, one for each bit of the seconds. Celery would choose these
exchanges before the waiter sees the message, so `taken_back` restores the options, and `delayed` applies them when the
message is published. A delay is cut to whole seconds; the worker waits for the rest.
"""

import re
import time
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from celery import Celery
from celery.utils.quorum_queues import detect_quorum_queues
from kombu import Exchange, Queue
from kombu.transport.native_delayed_delivery import (
    MAX_LEVEL,
    MAX_NUMBER_OF_BITS_TO_USE,
    bind_queue_to_native_delayed_delivery_exchange,
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

ENTRANCE = level_name(MAX_LEVEL)
BITS = re.compile(rf"^(?:[01]\.){{{MAX_NUMBER_OF_BITS_TO_USE},}}")  # of the seconds; more than these from 8.5 years on
AGAIN = 60  # seconds; RabbitMQ may have been restarted without its queues


def taken_back(app: Celery, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message's options from before Celery sent it to the delay exchanges."""
    plain = dict(options)
    if getattr(plain.get("exchange"), "name", None) == ENTRANCE:
        del plain["exchange"]
        plain["queue"] = _queue_of(app, BITS.sub("", plain.pop("routing_key")))
    return plain


def _queue_of(app: Celery, routing_key: str) -> str:
    """Return the name of the queue that this routing key leads to; usually the key itself."""
    queues = app.amqp.queues
    names = (name for name, queue in queues.items() if queue.routing_key == routing_key)
    return routing_key if routing_key in queues else next(names, routing_key)


def delayed(
    app: Celery, producer: Any, options: dict[str, Any], queue: str, due: datetime, at: datetime
) -> dict[str, Any]:
    """Return the options with which RabbitMQ delays the message, if Celery would do so; else unchanged.

    Raises kombu.exceptions.OperationalError.
    """
    seconds = int((due - at).total_seconds())
    if seconds < 1 or not detect_quorum_queues(app, producer.connection.transport.driver_type)[0]:
        return options
    target: Queue = app.amqp.queues[queue]
    if target.exchange.type == "direct":  # the delay exchanges cannot lead there
        return options
    _lead_to(app, target.name, int(time.monotonic() // AGAIN))
    routing_key = calculate_routing_key(seconds, target.routing_key)
    return {**options, "exchange": Exchange(ENTRANCE, type="topic"), "routing_key": routing_key, "queue": None}


@lru_cache(maxsize=1000)
def _lead_to(app: Celery, queue: str, period: int) -> None:
    """Declare the queue and its bindings, without which a delayed message would be lost silently; once a period."""
    target: Queue = app.amqp.queues[queue]
    with app.connection_for_write() as connection, connection.channel() as channel:
        connection.ensure_connection(max_retries=3)
        declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")
        target.bind(channel).declare()
        bind_queue_to_native_delayed_delivery_exchange(connection, target)
