"""Which worker reads which queue; a new vendor's queue is read without a restart.

A worker has a role by the queue that it is started with: -Q hub reads the default queue (sweeps, nights, finishing),
-Q vendors reads the queues of all vendors. The latter takes on the queues that there are at its start, those that it is
told of when a vendor is saved, and, because such a word may be lost, looks for more every QUEUE_LOOK_SECONDS. At each
look it says which queues it reads, so that every page can tell when nobody reads a vendor's.
"""

import logging
from contextlib import suppress
from typing import Any

from celery import bootsteps
from celery.worker.control import control_command
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import OperationalError

from vendors import redis_clients
from vendors.models import Vendor

VENDORS = "vendors"  # a role, not a queue that anything is sent to
WORD = 3  # looks for which a worker's word that it reads a queue is good

logger = logging.getLogger(__name__)


def announce() -> None:
    """Tell all workers to look for queues of new vendors now; if the broker is away they find them by themselves."""
    from mailhub.celery import app

    try:
        app.control.broadcast("adopt_queues")
    except OperationalError as why:
        logger.warning("Workers could not be told of new queues and will find them later: %s", why)


@control_command()
def adopt_queues(state: Any, **_: Any) -> dict[str, Any]:
    """Remote control: look for queues of new vendors now."""
    state.consumer.call_soon(adopt, state.consumer)
    return {"ok": "looking"}


class Adoption(bootsteps.StartStopStep):
    """Looks for queues of new vendors at the start and every QUEUE_LOOK_SECONDS, in the worker's own loop."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        consumer.call_soon(adopt, consumer)  # once it listens: RabbitMQ would deliver to a consumer without hands
        self._timer = consumer.timer.call_repeatedly(settings.QUEUE_LOOK_SECONDS, adopt, (consumer,))

    def stop(self, consumer: Any) -> None:
        if self._timer:
            self._timer.cancel()
        with suppress(redis_clients.WorkerRegistryUnreachable):  # its word runs out by itself
            redis_clients.unregister_worker(settings.REDIS_URL, consumer.hostname)


def adopt(consumer: Any) -> None:
    """Start to read every vendor's queue that this worker does not read yet, if that is its role."""
    reads = consumer.app.amqp.queues.consume_from
    if VENDORS in reads:
        for name in _vendors_queues():
            if name not in reads:
                queue = consumer.app.amqp.queues[name]  # of the kind that publishers declare
                consumer.add_task_queue(queue.name)
    _tell(consumer)


def _tell(consumer: Any) -> None:
    reads = frozenset(consumer.app.amqp.queues.consume_from) - {VENDORS}
    me = redis_clients.Worker(consumer.hostname, reads, consumer.controller.concurrency or 1)
    try:
        redis_clients.register_worker(settings.REDIS_URL, me, WORD * settings.QUEUE_LOOK_SECONDS)
    except redis_clients.WorkerRegistryUnreachable as why:
        logger.debug("Redis is not told which queues are read: %s", why)


def _vendors_queues() -> list[str]:
    """None while the database is away: the next look will find them."""
    try:
        return [vendor.queue for vendor in Vendor.objects.only("slug")]
    except (DatabaseError, InterfaceError) as why:
        logger.warning("Cannot look for queues of new vendors: %s", why)
        return []
    finally:
        connection.close()  # a pool process that is forked later must not inherit it
