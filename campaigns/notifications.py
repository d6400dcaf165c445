"""Notifications: Celery messages that say "look again". They may be lost, doubled or late: the rows decide.

They name their tasks (campaigns/tasks.py) as texts, so that commands, pages and the API notify without loading what
only workers need. If the broker is away that is no error: the sweep, or beat, notifies again.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from textwrap import shorten
from typing import Any

from celery import current_app
from kombu.exceptions import OperationalError

from vendors.models import Vendor

log = logging.getLogger(__name__)
MOST_SHOWN = 200  # characters of a task's arguments in its headers, which RabbitMQ bounds
WEBHOOKS = "webhooks"  # a queue of its own, so that dead receivers do not delay mail


def notify_vendors(vendor_ids: Iterable[int], **options: Any) -> None:
    """Wakes the mailcasters of these vendors."""
    for vendor in Vendor.objects.filter(pk__in=set(vendor_ids)):
        notify_queue(vendor.pk, vendor.queue, **options)


def notify_queue(vendor_id: int, queue: str, **options: Any) -> None:
    """The same for one vendor, without reading its row."""
    _notify("cast", vendor_id, text=queue, queue=queue, **options)


def dispatch_later(job_id: int, at: datetime) -> None:
    """Notifies of a READY job at that time; the waiter keeps what is far off (document 004)."""
    _notify("dispatch_one", job_id, text=f"job_id={job_id}", eta=at)


def notify_session(session_id: str, **options: Any) -> None:
    """Notifies that the result of a session can be written (document 002)."""
    _notify("consume_session", session_id, text=f"session_id={session_id}", **options)


def notify_webhooks(eta: datetime | None = None) -> None:
    """Notifies that webhook calls are due."""
    when: dict[str, Any] = {"eta": eta} if eta else {"expires": 60}
    _notify("deliver_webhooks", text=WEBHOOKS, queue=WEBHOOKS, **when)


def reconcile_soon() -> None:
    """Starts settle_doubts now; beat does so from time to time anyway."""
    try:
        _send("settle_doubts")
    except OperationalError as error:
        log.warning("the broker cannot be reached, beat will ask about doubts: %s", error)


def shown(text: str) -> dict[str, Any]:
    """The text that Flower shows instead of bare ids."""
    return {"argsrepr": f"({shorten(text, MOST_SHOWN)})"}


def _notify(task: str, *args: Any, text: str, **options: Any) -> None:
    try:
        _send(task, *args, **shown(text), **options)
    except OperationalError as error:
        log.warning("%s (%s): the broker cannot be reached, the sweep will notify again: %s", task, text, error)


def _send(task: str, *args: Any, **options: Any) -> None:
    current_app.send_task(f"campaigns.tasks.{task}", args, ignore_result=True, **options)
