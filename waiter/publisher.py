"""The waiter (document 004): tasks due later than a broker can keep them wait in the database.

It replaces the function that gives a finished message to the broker, so callers change nothing: apply_async, delay,
send_task by name, signatures, members of groups and chains, headers and bodies of chords, and retries all pass here. A
message due in more than settings.WAITER_HORIZON is stored unchanged (headers, body, routing) in ParkedTask; a sweep
publishes it once due within the horizon (waiter/release.py). Messages of the queues in settings.WAITER_EXCLUDED_QUEUES
are never parked. Due times are read as Celery reads them: an eta without a time zone is UTC, and a time in the past
means now.

A message is parked in the caller's transaction: if that rolls back, the call was never made. Two kinds are stored
outside of it: a retry, because a task that retries ends with an exception, and a call from a running event loop, which
runs outside transactions. Celery's signals before_task_publish and after_task_publish are sent at the release, for each
batch, just before it goes to the broker.

Revoking a parked task cancels it. A task with a time of its own is also checked before it runs, because it may have
been revoked while no worker remembered that.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

import django.db
from celery.app.amqp import AMQP, task_message
from celery.app.control import Control
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Reject
from celery.utils.time import maybe_iso8601, maybe_make_aware
from django.conf import settings
from django.db import connection
from kombu.exceptions import EncodeError, OperationalError
from kombu.utils.functional import maybe_list
from kombu.utils.json import dumps, loads

from waiter import delays, parking

MARK = "waiter_parked"  # header of a released message: its row, and the publication's mark
UNREACHABLE = (django.db.OperationalError, django.db.InterfaceError, OperationalError)
# PostgreSQL's codes of errors that pass like a lost connection but are not Django's OperationalError: the database is
# read-only for now, or has ended the session.
NOT_NOW = ("25006", "25P03", "25P04")

logger = logging.getLogger(__name__)


def horizon() -> timedelta:
    """Return the time beyond which tasks are parked; they are released once due within it."""
    value: timedelta = getattr(settings, "WAITER_HORIZON", timedelta(minutes=15))
    return value


class BadTime(ValueError):
    """A time at which a task cannot run. Raised by the call; nothing is stored or sent."""


def is_unreachable(why: BaseException) -> bool:
    """Return True if the database or broker is away or refuses for a while, so that a new attempt makes sense."""
    return isinstance(why, UNREACHABLE) or getattr(why.__cause__, "sqlstate", None) in NOT_NOW


class WaiterTask(DjangoTask[..., Any]):
    """A task that runs once, however many times its released message was published, and never after a revoke."""

    is_revocable = True  # False saves a statement for each message with a time of its own

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Drop duplicates and revoked tasks. A subclass that overrides this must call super()."""
        mark = self.request.get(MARK)
        if not (mark or (self.request.eta and self.is_revocable)):
            return
        try:
            is_first = not mark or parking.receive(mark[0], UUID(mark[1]), parking.now())
            is_revoked = is_first and self.is_revocable and parking.is_revoked(_names_of(task_id, self.request))
        except django.db.Error as why:
            if not is_unreachable(why):
                raise
            time.sleep(1)  # the message is redelivered immediately
            raise Reject(why, requeue=True) from why
        if not is_first:
            logger.warning("%s[%s] was published twice; this is the double, dropped", self.name, task_id)
            raise Ignore
        if is_revoked:
            logger.info("%s[%s] was revoked, dropped", self.name, task_id)
            stores = not self.request.ignore_result
            self.backend.mark_as_revoked(task_id, "revoked", request=self.request, store_result=stores)
            raise Ignore

    def retry(self, *args: Any, **kwargs: Any) -> Any:
        """Retry as Celery does, but return a retry that cannot be stored to the queue instead of losing it.

        Raises: celery.exceptions.Retry; Reject, requeued; the errors of a wrong call.
        """
        try:
            return super().retry(*args, **kwargs)
        except Reject as lost:
            why = lost.args[0]
            if is_unreachable(why):
                raise Reject(why, requeue=True) from why
            raise why from None


class WaiterAMQP(AMQP):
    """Celery's publisher, which also parks messages."""

    def publish(self, producer: Any, name: str, message: task_message, **options: Any) -> None:
        """Publish the message now, with the broker's delay if it is due later."""
        if due := _due(message):
            options = delays.delayed(self.app, producer, options, self._queue(options), due, parking.now())
        self._send(producer, name, message, **options)

    @cached_property
    def _send(self) -> Callable[..., None]:
        """Celery's own send_task_message."""
        send: Callable[..., None] = self._create_task_sender()  # type: ignore[attr-defined]
        return send

    def send_task_message(self, producer: Any, name: str, message: task_message, **options: Any) -> None:
        """Park the message or publish it. Raises kombu's EncodeError, BadTime for a chord, OperationalError."""
        if due := _due(message):
            options = delays.taken_back(self.app, options)
        options["headers"] = _unmarked(options.get("headers"))
        queue = self._queue(options)
        excluded = getattr(settings, "WAITER_EXCLUDED_QUEUES", ())
        if not due or due - parking.now() <= horizon() or queue in excluded:
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
            parked_at=parking.now(),
            message=_encode(name, message, {**options, "queue": options.get("queue") and queue}),
        )

    def _queue(self, options: Mapping[str, Any]) -> str:
        queue = options.get("queue") or options.get("routing_key") or self.default_queue
        return str(getattr(queue, "name", queue))

    def _check_chord(self, message: task_message, due: datetime) -> None:
        """Raise BadTime if the result backend forgets the chord first: its body would never run, without an error."""
        kept = getattr(self.app.backend, "chord_expires", None)
        if message.body[2]["chord"] and kept and due - parking.now() >= timedelta(seconds=kept):
            raise BadTime(
                f"a task of a chord cannot be due in more than {timedelta(seconds=kept)}: "
                "the chord is forgotten by then; set CELERY_RESULT_CHORD_EXPIRES higher"
            )


class WaiterControl(Control):
    """Celery's remote control, which also cancels parked tasks and remembers revokes."""

    def revoke(self, task_id: Any, *args: Any, **options: Any) -> Any:
        """Revoke tasks; parked ones, which no worker knows, are cancelled. Raises django.db's errors."""
        ids = [task_id] if isinstance(task_id, str) else list(task_id)
        parking.revoke([(id, "") for id in ids], parking.now())
        parking.cancel(parking.named(ids), parking.now())
        return super().revoke(task_id, *args, **options)

    def revoke_by_stamped_headers(self, headers: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """Revoke tasks that have one of these stamps; parked ones are cancelled. Raises django.db's errors."""
        stamps = {(name, dumps(value)) for name, values in headers.items() for value in maybe_list(values)}
        parking.revoke(stamps, parking.now())
        hit = [row for row, message in parking.stamped() if stamps & _stamps_of(loads(message)["headers"])]
        parking.cancel(hit, parking.now())
        return super().revoke_by_stamped_headers(headers, *args, **options)


def _names_of(task_id: str, request: Any) -> set[tuple[str, str]]:
    """Return the names under which a task may have been revoked."""
    headers = {"stamped_headers": request.get("stamped_headers"), "stamps": request.get("stamps")}
    return {(task_id, ""), *_stamps_of(headers)}


def _stamps_of(headers: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the stamps in a message's headers, each with its value as JSON."""
    stamps = headers.get("stamps") or {}
    names = headers.get("stamped_headers") or ()
    return {(name, dumps(value)) for name in names for value in maybe_list(stamps.get(name)) or ()}


def _due(message: task_message) -> datetime | None:
    return moment(message.headers["eta"])


def moment(text: str | None) -> datetime | None:
    """Parse a time in a message's headers as a worker does: without a time zone it is UTC. Raises BadTime."""
    try:
        at = maybe_iso8601(text)
    except ValueError as why:
        raise BadTime(f"{text!r} is no time that Celery can read: {why}") from why
    return maybe_make_aware(at) if at else None


def _in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _unmarked(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return headers without the mark: a retry inherits its task's headers and would be dropped as a duplicate."""
    return {name: value for name, value in (headers or {}).items() if name != MARK}


def _encode(name: str, message: task_message, options: Mapping[str, Any]) -> str:
    if options.get("serializer") not in (None, "json"):
        raise EncodeError(f"{name} cannot be parked: its serializer is {options['serializer']}, not json")
    try:
        return dumps({**message._asdict(), "options": options})
    except (TypeError, ValueError, RecursionError) as why:
        raise EncodeError(f"{name} cannot be parked: {why}") from why
