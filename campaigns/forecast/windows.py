"""When a queue will be empty, from the limits alone."""

from collections.abc import Iterable, Sequence

from vendors.limits.values import Limit


def forecast(
    waiting: int, limits: Iterable[Limit], in_window: Sequence[float], now: float, latency: float = 0.0
) -> float | None:
    """Seconds from `now` until the last of `waiting` units is called and over; None while a limit is 0 (paused).

    `in_window`: unix seconds at which the vendor's latest calls were over or will be at the latest, as
    Throttle.places tells. `latency`: seconds a call takes; a place comes round once in window + latency.
    1,000 jobs at 5 per 60 s end after 11,940 s (document 000). Exact for one limit; with several never too
    late, and too early by less than all windows and latencies together. Enough senders are assumed.
    """
    if waiting <= 0:
        return 0.0
    limits = tuple(limits)
    if any(limit.units == 0 for limit in limits):
        return None
    starts = (_start(waiting, limit, in_window, now, latency) for limit in limits)
    return max(starts, default=0.0) + latency


def _start(nth: int, limit: Limit, in_window: Sequence[float], now: float, latency: float) -> float:
    """Seconds until the nth call from now may start: the places come free in turn, again and again."""
    rounds, place = divmod(nth - 1, limit.units)
    taken = sorted(min(over, now + latency) + limit.seconds - now for over in in_window)
    taken = [seconds for seconds in taken if seconds > 0][-limit.units :]
    free = limit.units - len(taken)
    first = 0.0 if place < free else taken[place - free]
    return first + rounds * (limit.seconds + latency)
