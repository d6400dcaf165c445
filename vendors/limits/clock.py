"""Our clock, which the throttle holds against Redis's."""

import time
from collections.abc import Callable

NOISE = 0.01  # seconds: two clocks cannot be read at quite the same moment


def _ticks() -> float:
    """Seconds of a clock that nobody can set; where the system has it, one that goes on during sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Unix time as it was when the process started, carried on by a clock that nobody can set.

    Redis and workers often share one machine. If its wall clock is set, Redis's steps with it and ours does not:
    the throttle sees it, instead of freeing places early.
    """

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = _ticks) -> None:
        self._wall, self._ticks = wall, ticks
        self._offset = wall() - ticks()
        self._step, self._since = 0.0, ticks()

    def __call__(self) -> float:
        return self._offset + self._ticks()

    def settle(self, patience: float) -> None:
        """Follow a wall clock that was set, `patience` s later: when every place from before has expired."""
        now, step = self._ticks(), self._wall() - self()
        if abs(step - self._step) > NOISE:
            self._step, self._since = step, now
        elif abs(step) > NOISE and now - self._since > patience:
            self._offset, self._step = self._offset + step, 0.0


process_clock = SteadyClock()
