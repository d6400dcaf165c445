"""How many arrivals the fullest window of a given length holds: the vendor's view of promise P4 (rate)."""

from collections.abc import Sequence


class WorstWindow:
    """The fullest half-open window [a, a + seconds) over arrival times that only ever grow.

    It goes on where it stopped: asking again after k more arrivals costs O(k), so that a vendor that is asked
    while it works does not fall behind in stamping.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError("a window is longer than 0 seconds")
        self.seconds = seconds
        self.count = 0
        self._left = 0
        self._seen = 0

    def update(self, times: Sequence[float]) -> int:
        """Count what was added to `times` (seconds, ascending) since the last call; the highest so far."""
        left, worst = self._left, self.count
        for right in range(self._seen, len(times)):
            while times[right] - times[left] >= self.seconds:
                left += 1
            worst = max(worst, right - left + 1)
        self._left, self._seen, self.count = left, len(times), worst
        return worst


def worst_window(times: Sequence[float], seconds: float) -> int:
    """The most arrivals in any half-open window of this many seconds; `times` in seconds, ascending."""
    return WorstWindow(seconds).update(times)
