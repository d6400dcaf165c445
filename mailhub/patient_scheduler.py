"""Beat's scheduler, made to survive an unavailable PostgreSQL, and one that says "not now".

A broker that is away costs a line for each task that is due. Celery writes a stack and a traceback, a hundred lines.
"""

import logging
from typing import Any

from celery.beat import SchedulingError
from django.db import connection
from django_celery_beat.schedulers import DatabaseScheduler
from kombu.exceptions import OperationalError

from vendors import alarms, outages
from vendors.not_now import find_refusal_text

log = logging.getLogger(__name__)

AGAIN = 2.0  # seconds between two tries


class PatientScheduler(DatabaseScheduler):  # type: ignore[misc]  # a package without types
    """Reads its rows again once PostgreSQL answers; until then it starts nothing."""

    _is_set_up = False

    def setup_schedule(self) -> None:
        """Do nothing. The first tick sets up, so an unavailable database does not end beat at its start."""

    def tick(self, *args: Any, **options: Any) -> float:
        """Start the due tasks. Returns the seconds until the next tick."""
        try:
            if not self._is_set_up:
                super().setup_schedule()
                self._is_set_up = True
            seconds: float = super().tick(*args, **options)
            return seconds
        except Exception as error:
            if not (said := find_refusal_text(error)):
                raise
            alarms.BEAT_WAITS.log(log, said)
            outages.note_outage("database", said)
            connection.close()
            self._initial_read, self._heap = True, None
            return AGAIN

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send a task. Returns None if the broker is away. Raises SchedulingError for any other reason."""
        try:
            return super().apply_async(entry, producer, advance, **options)
        except SchedulingError as error:
            why = error.__context__
            if not (isinstance(why, OperationalError | OSError) or find_refusal_text(why)):
                raise
            alarms.BEAT_SENDS_NOTHING.log(log, error)
            return None
