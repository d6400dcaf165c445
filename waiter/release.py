"""The sweep that publishes parked tasks due within the horizon (document 004)."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from celery import current_app, shared_task
from celery.app.amqp import task_message
from kombu.exceptions import BatchPublishError, OperationalError  # type: ignore[attr-defined]
from kombu.utils.json import loads

from waiter import parking
from waiter.models import ParkedTask
from waiter.publisher import MARK, horizon, moment

BATCH = 500  # messages claimed, published and deleted together
COMMANDS = 100 * BATCH  # more of the broker's commands than a batch needs, to send it in one piece

logger = logging.getLogger(__name__)


@shared_task(name="waiter.release")
def release_parked() -> int:
    """Publish due messages and delete old rows; beat runs this every few minutes. Returns the number published."""
    released = release()
    parking.forget(parking.now())
    return released


def release(at: datetime | None = None, ids: Collection[int] | None = None) -> int:
    """Publish messages due within the horizon, oldest first, over one connection; returns their number.

    Concurrent sweeps share the rows. Late messages are published without an eta. A message that cannot be published is
    logged and tried again by the next sweep. Raises kombu.exceptions.OperationalError if the broker does not answer;
    then all rows are kept.
    """
    released = 0
    with current_app.producer_or_acquire() as producer:
        last = None
        while rows := parking.claim((at or parking.now()) + horizon(), at or parking.now(), BATCH, ids, last):
            released += _publish_all(current_app.amqp, producer, rows, at or parking.now())
            last = rows[-1]
    return released


def _publish_all(amqp: Any, producer: Any, rows: Sequence[ParkedTask], at: datetime) -> int:
    """Publish a batch, in one round trip if the broker can; an error then does not tell which messages arrived."""
    gathered = producer.supports_batch_publish
    sent: list[ParkedTask] = []
    untried = rows
    try:
        with producer.batch(COMMANDS):
            for number, row in enumerate(rows, start=1):
                untried = rows if gathered else rows[number:]
                if _publish(amqp, producer, row, at):
                    sent.append(row)
            untried = []
    except BaseException as why:
        sent = [] if gathered else sent
        if isinstance(why, BatchPublishError):
            raise OperationalError("the broker was lost while it took messages") from why
        raise
    finally:
        parking.published(sent, at)
        parking.give_back(untried)
    return len(sent)


def _publish(amqp: Any, producer: Any, row: ParkedTask, at: datetime) -> bool:
    try:
        message, options = _decode(row, at)
        amqp.publish(producer, row.task, message, **options)
    except OperationalError:
        raise
    except Exception:
        logger.exception("Parked task %s, %s, cannot be published", row.pk, row)
        return False
    return True


def _decode(row: ParkedTask, at: datetime) -> tuple[task_message, dict[str, Any]]:
    """Return the stored message. Its expiration is counted from now, as the broker would have counted it."""
    stored = loads(row.message)
    options = stored.pop("options")
    message = task_message(**stored)
    message.headers["eta"] = row.due_at.isoformat() if row.due_at > at else None
    message.headers[MARK] = [row.pk, str(row.claim)]
    options["retry"] = True  # so that every loss of the broker is an OperationalError
    if expires := moment(message.headers["expires"]):
        options["expiration"] = max(0.0, (expires - at).total_seconds())
    return message, options
