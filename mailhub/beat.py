"""Beat's scheduler: django-celery-beat's, but without trust in times ahead of its clock.

Celery starts a task when its interval has passed since `last_run_at`, and keeps the next starts in a heap. After a
clock was set back, both lie in the future, so nothing would start for the whole time by which the clock was ahead.
"""

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from mailhub import stored_moments
from mailhub.patient_scheduler import PatientScheduler
from vendors import alarms, liveness

log = logging.getLogger(__name__)

SLACK = timedelta(seconds=5)  # allowed difference of two beats on two machines


class ClockedScheduler(PatientScheduler):
    """Corrects `last_run_at` and its heap if they lie in the future, at the start and at each tick."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._offset = _clock_offset()
        try:
            if not kwargs.get("lazy"):  # lazy: created only for its name
                stored_moments.correct_moments(at_once=True)
        except (DatabaseError, InterfaceError) as why:  # each tick still checks beat's own entries
            alarms.MOMENTS_NOT_LOOKED_AT.log(log, why)
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Start the due tasks. Returns the seconds until the next tick."""
        offset = _clock_offset()
        put_back, self._offset = self._offset - offset, offset
        if put_back > SLACK.total_seconds() or self._has_entry_ahead():
            self._read_anew(put_back)
        seconds: float = super().tick(*args, **kwargs)
        liveness.show_life("beat", settings.MAILHUB_HOME)
        return seconds

    def _has_entry_ahead(self) -> bool:
        latest = datetime.now(UTC) + SLACK
        return any(entry.model.last_run_at > latest for entry in (self._schedule or {}).values())

    def _read_anew(self, put_back: float) -> None:
        """Correct the rows by this machine's clock and read them again. On an error the next tick retries."""
        now = datetime.now(UTC)
        try:
            self.sync()
            corrected = self.Model.objects.filter(last_run_at__gt=now + SLACK).update(last_run_at=now)
            # Beat takes this one for a task that never ran.
            corrected += self.Model.objects.filter(date_changed__gt=now + SLACK).update(date_changed=now)
        except (DatabaseError, InterfaceError) as why:
            alarms.MOMENTS_NOT_LOOKED_AT.log(log, why)
            return
        alarms.BEAT_CLOCK_BACK.log(log, put_back, corrected)
        # Without its notes from the wrong clock it reads its rows and builds its heap as at its start.
        self._initial_read, self._heap, self._last_timestamp = True, None, None


def _clock_offset() -> float:
    """Return the wall clock minus the monotonic one, in seconds; setting the clock back lowers it."""
    return time.time() - time.monotonic()
