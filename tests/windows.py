"""How full the fullest window was: the judge of every test of the throttle."""

from collections.abc import Iterable


def worst_window(times: Iterable[float], length: float) -> int:
    """The most `times` in any half-open window of `length`, both in one unit."""
    ordered = sorted(times)
    worst = first = 0
    for last, time in enumerate(ordered):
        while time - ordered[first] >= length:
            first += 1
        worst = max(worst, last - first + 1)
    return worst
