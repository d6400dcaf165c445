"""The clock that the throttle compares with Redis's."""

import time
from collections.abc import Callable


def _ticks() -> float:
    """Seconds of a clock that nobody can set; where the system has it, one that goes on during sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Unix time as it was when the process started, carried on by a clock that nobody can set.

    Redis and workers often share one machine. If its wall clock stepped, both would step together and places
    would expire early; against this clock the step shows as skew.
    """

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = _ticks) -> None:
        self._wall, self._ticks = wall, ticks
        self._offset = wall() - ticks()
        self._doubted: float | None = None

    def __call__(self) -> float:
        return self._offset + self._ticks()

    def agree(self) -> None:
        """Redis's clock was seen to agree."""
        self._doubted = None

    def doubt(self, patience: float) -> None:
        """Redis's clock was seen to differ. After `patience` s of doubt the wall clock of now is taken over.

        `patience` is the time after which every place from before the step has truly expired.
        """
        now = self._ticks()
        if self._doubted is None:
            self._doubted = now
        elif now - self._doubted > patience:
            self._offset, self._doubted = self._wall() - now, None


process_clock = SteadyClock()
