"""Slow and strict receivers: whether mailhub is as fast as they permit, and never faster.

`python -m benchmarks.receivers [seconds] [rounds] [seconds]`; the last argument is for the slow receiver. The
yardsticks follow from the mean latency of the receiver: connections / mean where connections bind, limit x W / (W +
mean) where the limit does (a place in the window is taken until W after its call has ended). Both begin with a burst
(all connections, the whole limit), which is left out. Exits with 1 if a window at the receiver held more than the
limit.
"""

from dataclasses import dataclass

from benchmarks.results import keep
from benchmarks.sending import CONNECTIONS, deliver_all, login
from benchmarks.stage import console, in_turns, numbers, show, stage
from tests import sandbox

LIMIT, WINDOW = 150, 1.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """latency, slow: seconds; share: of slow answers."""

    latency: float
    slow: float
    share: float

    @property
    def mean(self) -> float:
        return self.latency + self.share * self.slow  # the sandbox adds them

    def running(self):  # type: ignore[no-untyped-def]
        return sandbox.running(latency_ms=1000 * self.latency, slow_s=self.slow, slow_rate=self.share)


FAR = Receiver(0.2, 1.8, 0.02)  # 2 % of the answers after 2 s
STRICT = Receiver(0.02, 4.98, 0.01)  # 1 % after 5 s
FAR_IDEAL = CONNECTIONS / FAR.mean
STRICT_IDEAL = LIMIT * WINDOW / (WINDOW + STRICT.mean)


def arrivals(vendor: sandbox.Sandbox, messages: int) -> list[float]:
    books = vendor.books()
    if len(books.accepted) != messages or books.duplicates():
        raise SystemExit(f"{messages} messages, in the books: {vendor.ledger()}")
    return books.arrivals()


def after_burst(times: list[float], burst: int) -> float:
    return (len(times) - burst) / (times[-1] - times[0])


def far(seconds: int) -> float:
    messages = int(FAR_IDEAL * seconds)
    with FAR.running() as vendor:
        deliver_all(login(vendor.url), messages)
        return after_burst(arrivals(vendor, messages), CONNECTIONS)


def strict(seconds: int, worst: list[int]) -> float:
    from vendors.models import RateLimit

    messages = int(STRICT_IDEAL * seconds)
    with STRICT.running() as vendor:
        credential = login(vendor.url)
        RateLimit.objects.filter(vendor=credential.vendor).update(units=LIMIT, seconds=WINDOW)
        deliver_all(credential, messages)
        worst.append(vendor.books().worst_window(WINDOW))
        return after_burst(arrivals(vendor, messages), LIMIT)


def main() -> None:
    seconds, rounds, short = numbers(60, 3, 30)
    worst: list[int] = []
    with stage():
        rates = in_turns({"far": lambda: far(short), "strict": lambda: strict(seconds, worst)}, rounds)
    show(
        f"{CONNECTIONS} connections, answers after 200 ms, 2 % of them after 2 s",
        {"mailhub": rates["far"], "ideal": [FAR_IDEAL] * rounds},
        "ideal",
    )
    show(
        f"{LIMIT} allowed in any {WINDOW:g} s, answers after 20 ms, 1 % of them after 5 s",
        {"mailhub": rates["strict"], "strict ideal": [STRICT_IDEAL] * rounds},
        "strict ideal",
    )
    keep(f"Most calls within {WINDOW:g} s at that receiver", "calls", {"calls": [float(n) for n in worst]})
    console.print(f"most calls within one window of {WINDOW:g} s at the receiver, by its books: {max(worst)}")
    raise SystemExit(max(worst) > LIMIT)


if __name__ == "__main__":
    main()
