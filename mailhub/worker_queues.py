"""Queues and their workers; a new vendor's queue is read without a restart.

A worker's first queue gives its role. -Q hub reads the default queue (sweeps, nights, finishing); -Q vendors reads the
queues of all vendors. The latter adopts existing queues at its start, and a new queue after each saving of a vendor.
That message may be lost, so it also looks for new queues every QUEUE_LOOK_SECONDS. It then registers its queues, so
that pages can show queues without workers, and its adapters of other packages.
"""

import logging
from contextlib import suppress
from typing import Any

from celery import bootsteps
from celery.worker.control import control_command
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import OperationalError

from campaigns.tasks import WEBHOOKS
from vendors import adapters, alarms, redis_clients
from vendors.models import Vendor

VENDORS = "vendors"  # a role; nothing is sent to a queue of this name
WORD = 3  # missed checks after which a worker's registration expires

logger = logging.getLogger(__name__)


def announce_queues() -> None:
    """Ask all workers to look for queues of new vendors now. Without the broker they find them at their next check."""
    from mailhub.celery import app

    try:
        app.control.broadcast("adopt_queues")
    except OperationalError as why:
        alarms.QUEUES_NOT_ANNOUNCED.log(logger, why)


@control_command()
def adopt_queues(state: Any, **_: Any) -> dict[str, Any]:
    """Look for queues of new vendors now. A remote control command."""
    state.consumer.call_soon(adopt_queues_now, state.consumer)
    return {"ok": "looking"}


class Adoption(bootsteps.StartStopStep):
    """Looks for queues of new vendors at the start and every QUEUE_LOOK_SECONDS, in the worker's own loop."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        consumer.call_soon(adopt_queues_now, consumer)  # once it consumes: RabbitMQ would deliver messages too early
        self._timer = consumer.timer.call_repeatedly(settings.QUEUE_LOOK_SECONDS, adopt_queues_now, (consumer,))

    def stop(self, consumer: Any) -> None:
        if self._timer:
            self._timer.cancel()
        with suppress(redis_clients.WorkerRegistryUnreachable):  # its registration will expire
            redis_clients.unregister_worker(settings.REDIS_URL, consumer.hostname)


def adopt_queues_now(consumer: Any) -> None:
    """Start reading each vendor's queue not yet read here, if that role belongs to this worker."""
    reads = consumer.app.amqp.queues.consume_from
    if VENDORS in reads:
        for name in _vendors_queues():
            if name not in reads:
                queue = consumer.app.amqp.queues[name]  # declared as publishers declare it
                consumer.add_task_queue(queue.name)
    _tell_registry(consumer)


def _tell_registry(consumer: Any) -> None:
    reads = frozenset(consumer.app.amqp.queues.consume_from) - {VENDORS}
    slots = consumer.controller.concurrency or 1
    me = redis_clients.Worker(consumer.hostname, reads, slots, adapters.list_others())
    try:
        redis_clients.register_worker(settings.REDIS_URL, me, WORD * settings.QUEUE_LOOK_SECONDS)
    except redis_clients.WorkerRegistryUnreachable as why:
        logger.debug("Redis is not told which queues are read: %s", why)


def queues_to_read() -> list[str]:
    """Return all queues that need a worker: the hub's, the webhooks', and the vendors'."""
    return [settings.CELERY_TASK_DEFAULT_QUEUE, WEBHOOKS, *(vendor.queue for vendor in Vendor.objects.only("slug"))]


def _vendors_queues() -> list[str]:
    """Return the vendors' queues; [] while the database does not answer, as the next check finds them."""
    try:
        return [vendor.queue for vendor in Vendor.objects.only("slug")]
    except (DatabaseError, InterfaceError) as why:
        alarms.QUEUES_NOT_LOOKED_FOR.log(logger, why)
        return []
    finally:
        connection.close()  # a later fork must not inherit it
