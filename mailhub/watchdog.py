"""A fallback for beat: each worker runs late periodic tasks.

Every task that beat starts by an interval records its runs (PeriodicRun). A worker checks every SWEEP_SECONDS, in a
thread of its main process, and runs a task that did not run for 3 × its interval. This works if beat is down, its clock
is wrong, the broker is unavailable, or no worker reads the hub's queue. One statement takes the row, so only one worker
runs the task.
"""

import logging
import threading
import time
from typing import Any

from celery import Celery, bootsteps, signals
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from mailhub import installation, stored_moments
from vendors import alarms, liveness

log = logging.getLogger(__name__)

PATIENCE = 3  # intervals of a task
WARN_AGAIN = 600.0  # seconds
_warned_at: dict[str, float] = {}
SELF = "mailhub.watchdog"  # the workers' sign of life
# A task that never ran counts from the first check, so a new installation is not late.
KNOWN = """
INSERT INTO mailhub_periodicrun (task) SELECT task FROM unnest(%(tasks)s::text[]) AS t(task)
WHERE NOT EXISTS (SELECT FROM mailhub_periodicrun r WHERE r.task = t.task) ON CONFLICT DO NOTHING
"""
# The task that waits longest. Tasks that an operator disabled in beat's table are not run here either.
TAKE = """
WITH late AS (
    SELECT r.task, r.ran_at AS before FROM unnest(%(tasks)s::text[], %(seconds)s::float8[]) AS t(task, seconds)
        JOIN mailhub_periodicrun r USING (task)
    WHERE (r.ran_at < clock_timestamp() - t.seconds * interval '1 second' OR r.ran_at > clock_timestamp() + %(slack)s)
        AND NOT EXISTS (SELECT FROM django_celery_beat_periodictask p WHERE p.task = r.task AND NOT p.enabled)
    ORDER BY r.ran_at LIMIT 1 FOR UPDATE OF r SKIP LOCKED
)
UPDATE mailhub_periodicrun r SET ran_at = clock_timestamp() FROM late WHERE r.task = late.task
RETURNING r.task, extract(epoch FROM clock_timestamp() - late.before)::float8
"""
RAN = """
INSERT INTO mailhub_periodicrun (task) VALUES (%(task)s) ON CONFLICT (task) DO UPDATE SET ran_at = clock_timestamp()
"""
ALIVE = """
INSERT INTO mailhub_periodicrun AS r (task) VALUES (%(task)s)
ON CONFLICT (task) DO UPDATE SET ran_at = clock_timestamp() WHERE r.ran_at < clock_timestamp() - interval '1 second'
"""


def task_intervals() -> dict[str, float]:
    """Return the tasks that beat starts by an interval, and the seconds after which each is late."""
    entries = installation.interval_entries()
    return {entry.task: PATIENCE * entry.every.total_seconds() for entry in entries if entry.every}


class Watchdog(bootsteps.StartStopStep):
    """A thread of each worker's main process, and its sign of life. They need no broker, unlike its consumer."""

    requires = ("celery.worker.components:Pool",)  # after the pool has forked

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._over = threading.Event()

    def start(self, worker: Any) -> None:
        self._over.clear()
        liveness.keep_showing(worker.hostname.partition("@")[0], settings.MAILHUB_HOME, full_name=worker.hostname)
        threading.Thread(target=self._watch_tasks, args=(worker.app,), name="watchdog", daemon=True).start()

    def stop(self, worker: Any) -> None:
        self._over.set()

    def terminate(self, worker: Any) -> None:
        self.stop(worker)

    def _watch_tasks(self, app: Celery) -> None:
        first = True
        while not self._over.is_set():
            try:
                stored_moments.correct_moments(at_once=first)
                first = False
                run_late(app, self._over)
            except Exception as why:  # usually PostgreSQL is unavailable; the next check is soon
                alarms.WATCHDOG_NOT_LOOKED.log(log, why)
            finally:
                connection.close()  # a later fork must not inherit it
            self._over.wait(settings.SWEEP_SECONDS)


def run_late(app: Celery, over: threading.Event) -> list[str]:
    """Run late tasks, one after the other. Returns their names. An error in one does not stop the others."""
    tasks = task_intervals()
    params: dict[str, Any] = {"tasks": list(tasks), "seconds": list(tasks.values()), "slack": stored_moments.SLACK}
    ran: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute(ALIVE, {"task": SELF})
        cursor.execute(KNOWN, params)
    while not over.is_set():
        with connection.cursor() as cursor:
            cursor.execute(TAKE, params)
            found = cursor.fetchone()
        if found is None:
            return ran
        name, seconds = found
        warns = _warned_at.get(name, -WARN_AGAIN) + WARN_AGAIN <= time.monotonic()
        _warned_at[name] = time.monotonic() if warns else _warned_at[name]
        alarms.TASK_LATE.log(log, name, seconds, level=logging.WARNING if warns else logging.DEBUG)  # fmt: skip
        try:
            app.tasks[name]()
        except Exception:
            alarms.WATCHDOG_TASK_FAILED.log(log, name, exc_info=True)
        ran.append(name)
    return ran


@signals.task_prerun.connect
@signals.task_postrun.connect
def _note_run(task: Any = None, state: str | None = None, **_: Any) -> None:
    """Record a run at its begin and, if it succeeded, at its end, so that a long sweep is not started twice."""
    if task.name not in _TASKS or state not in (None, "SUCCESS"):
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(RAN, {"task": task.name})
    except (DatabaseError, InterfaceError) as why:  # then it counts as late and runs again
        log.debug("%s is not noted: %s", task.name, why)


_TASKS = frozenset(task_intervals())
