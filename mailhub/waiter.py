"""The waiter (document 004): what is due later than the broker can hold waits in the database, and no caller knows.

It sits where Celery hands a finished message to the broker, so it sees every way of calling a task: apply_async, delay,
send_task by name, signatures, members of groups and chains, headers and bodies of chords, and retries. A message due
in more than settings.WAITER_HORIZON is stored word for word (its headers, body, routing) in ParkedTask; a sweep
publishes it when it is due within the horizon. A queue named in settings.WAITER_EXCLUDED_QUEUES has "no table" and is
left to the broker.

Parking is part of the caller's transaction: rolled back, the call was never made. Only a retry is stored outside it,
because a task that retries ends by an exception, and a call out of a running event loop, which can have no transaction.
Celery's signals before_task_publish and after_task_publish are sent at the release, for a batch of messages each, just
before it goes to the broker. Revoking a parked task cancels it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

import django.db
from celery.app.amqp import AMQP, task_message
from celery.app.control import Control
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Reject
from django.conf import settings
from django.db import connection
from django.utils import timezone
from kombu.exceptions import BatchPublishError, EncodeError, OperationalError  # type: ignore[attr-defined]
from kombu.utils.json import dumps, loads

from mailhub import delays, parking
from mailhub.models import ParkedTask

MARK = "mailhub_parked"  # header of a released message: its row and which publication of the row it is
FURTHEST = timedelta(days=3650)  # a task that is due later is a mistake
BATCH = 500  # messages that are claimed, published and forgotten together
COMMANDS = 100 * BATCH  # of the broker, more than a batch can need: it goes in one piece
UNREACHABLE = (django.db.OperationalError, django.db.InterfaceError, OperationalError)

logger = logging.getLogger(__name__)


def now() -> datetime:
    return timezone.now()


class BadTime(ValueError):
    """A countdown or eta that no task can have; raised at the call, nothing is stored or sent."""


class WaiterTask(DjangoTask):
    """Runs a released message once, however many publications of it there are."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """A subclass that overrides this calls super(), or its doubles run."""
        mark = self.request.get(MARK)
        if mark and not self._first(*mark):
            logger.warning("%s[%s] was published twice; this is the double, dropped", self.name, task_id)
            raise Ignore

    def _first(self, row: int, publication: str) -> bool:
        try:
            return parking.receive(row, UUID(publication), now())
        except UNREACHABLE as why:
            time.sleep(1)  # the message comes straight back
            raise Reject(why, requeue=True) from why

    def retry(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's, but a retry that can be stored nowhere goes back to the queue instead of being lost.

        Raises: celery.exceptions.Retry; Reject, requeued; BadTime and the other errors of a wrong call.
        """
        try:
            return super().retry(*args, **kwargs)
        except Reject as lost:
            why = lost.args[0]
            if isinstance(why, UNREACHABLE):
                raise Reject(why, requeue=True) from why
            raise why from None


class WaiterAMQP(AMQP):
    """Celery's publisher, with the waiter in front of it."""

    def as_task_v2(
        self,
        task_id: str,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: float | None = None,
        eta: Any = None,
        *rest: Any,
        **options: Any,
    ) -> task_message:
        """Build a task's message. Raises BadTime."""
        _check(countdown, eta)
        return super().as_task_v2(task_id, name, args, kwargs, countdown, eta, *rest, **options)

    def publish(self, producer: Any, name: str, message: task_message, **options: Any) -> None:
        """To the broker, at once, whether it is due now or within the horizon."""
        options = delays.delayed(self.app, options, self._queue(options), _due(message), now())
        self._send(producer, name, message, **options)

    @cached_property
    def _send(self) -> Callable[..., None]:
        """What send_task_message is without the waiter."""
        return self._create_task_sender()  # type: ignore[attr-defined]

    def send_task_message(self, producer: Any, name: str, message: task_message, **options: Any) -> None:
        """Park the message or publish it. Raises kombu's EncodeError, BadTime for a chord, OperationalError."""
        options = delays.taken_back(options)
        options["headers"] = _unmarked(options.get("headers"))
        queue, due = self._queue(options), _due(message)
        if not due or due - now() <= settings.WAITER_HORIZON or queue in settings.WAITER_EXCLUDED_QUEUES:
            self.publish(producer, name, message, **options)
        else:
            self._park(name, due, queue, message, options)

    def _park(self, name: str, due: datetime, queue: str, message: task_message, options: dict[str, Any]) -> None:
        self._check_chord(message, due)
        running = self.app.current_worker_task
        retries = running is not None and running.request.id == message.headers["id"]
        outside = _in_an_event_loop() or (retries and connection.in_atomic_block)
        store = parking.park_outside_transaction if outside else parking.park
        store(
            task=name,
            task_id=message.headers["id"],
            queue=queue,
            due_at=due,
            parked_at=now(),
            message=_encode(name, message, {**options, "queue": options.get("queue") and queue}),
        )

    def _queue(self, options: Mapping[str, Any]) -> str:
        queue = options.get("queue") or options.get("routing_key") or self.default_queue
        return str(getattr(queue, "name", queue))

    def _check_chord(self, message: task_message, due: datetime) -> None:
        """The result backend forgets a chord after a time, and its body would never run, with no word about it."""
        kept = getattr(self.app.backend, "chord_expires", None)
        if message.body[2]["chord"] and kept and due - now() >= timedelta(seconds=kept):
            raise BadTime(
                f"a task of a chord cannot be due in more than {timedelta(seconds=kept)}: "
                "the chord is forgotten by then; set CELERY_RESULT_CHORD_EXPIRES higher"
            )


class WaiterControl(Control):
    """Celery's remote control, which knows of parked tasks."""

    def revoke(self, task_id: Any, *args: Any, **options: Any) -> Any:
        """Of what is parked no worker has heard: it is cancelled here. Raises django.db's errors."""
        ids = [task_id] if isinstance(task_id, str) else list(task_id)
        parking.cancel(parking.named(ids), now())
        return super().revoke(task_id, *args, **options)


def release(at: datetime | None = None, ids: Collection[int] | None = None) -> int:
    """Publish what is due within the horizon, oldest first, over one connection; how many messages went.

    Two at once share the work. What was late goes without an eta. A message that cannot be published is logged and
    tried again by the next sweep. Raises kombu.exceptions.OperationalError when the broker cannot be reached;
    everything is kept then.
    """
    from mailhub.celery import app

    released = 0
    with app.producer_or_acquire() as producer:
        last = None
        while rows := parking.claim((at or now()) + settings.WAITER_HORIZON, at or now(), BATCH, ids, last):
            released += _publish_all(app.amqp, producer, rows, at or now())
            last = rows[-1]
    return released


def _publish_all(amqp: Any, producer: Any, rows: Sequence[ParkedTask], at: datetime) -> int:
    """In one round trip where the broker can do that; then all of them went, none, or nobody knows which."""
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


def _due(message: task_message) -> datetime | None:
    eta = message.headers["eta"]
    return datetime.fromisoformat(eta) if eta else None


def _in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _check(countdown: float | None, eta: datetime | str | None) -> None:
    if countdown is not None and not 0 <= countdown <= FURTHEST.total_seconds():
        raise BadTime(f"countdown must be from 0 to {FURTHEST.total_seconds():.0f} seconds, not {countdown}")
    if not eta:
        return
    due = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    if due.utcoffset() is None:
        raise BadTime(f"eta {due.isoformat()} has no time zone; use django.utils.timezone.now() + timedelta(...)")
    if due - now() > FURTHEST:
        raise BadTime(f"eta {due.isoformat()} is more than {FURTHEST.days} days ahead")


def _unmarked(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """A retry takes over the headers of its task; with the mark it would pass for the double of itself."""
    return {name: value for name, value in (headers or {}).items() if name != MARK}


def _encode(name: str, message: task_message, options: Mapping[str, Any]) -> str:
    if options.get("serializer") not in (None, "json"):
        raise EncodeError(f"{name} cannot be parked: its serializer is {options['serializer']}, not json")
    try:
        return dumps({**message._asdict(), "options": options})
    except (TypeError, ValueError, RecursionError) as why:
        raise EncodeError(f"{name} cannot be parked: {why}") from why


def _decode(row: ParkedTask, at: datetime) -> tuple[task_message, dict[str, Any]]:
    """The message as it was, with its own time to wait; the broker would have counted the time to live as well."""
    stored = loads(row.message)
    options = stored.pop("options")
    message = task_message(**stored)
    message.headers["eta"] = row.due_at.isoformat() if row.due_at > at else None
    message.headers[MARK] = [row.pk, str(row.claim)]
    options["retry"] = True  # so that every loss of the broker is an OperationalError
    if message.headers["expires"]:
        expires = datetime.fromisoformat(message.headers["expires"])
        options["expiration"] = max(0.0, (expires - at).total_seconds())
    return message, options
