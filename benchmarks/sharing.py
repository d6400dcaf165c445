"""Two sponsors at one vendor: how long the second waits behind the first one's long list.

`python -m benchmarks.sharing [messages of A] [messages of B] [calls a second] [seconds until B comes]`, for example
`sharing 6000 200 60 6`. The parts that carry mail run as shipped, with a new vendor's own mailcasters and two sending
processes; the receiver is benchmarks/sink.py. First B's list goes alone. Then A's list goes, and B's the given seconds
after A's first mail. Prints B's first and last mail, from the moment at which B's job was dispatched, B's time against
its time alone, both shares in each window while both send, and how much of the vendor's limit was used until the end.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import sink
from benchmarks.as_run import Lists, write_list
from benchmarks.installation import Installation, end_at_sigterm, wall_to_monotonic
from benchmarks.results import keep
from benchmarks.slow_vendors import far_from_now
from benchmarks.stage import console, numbers, stage
from tests.waiting import wait_until

VENDOR, FIRST, SECOND = "shared", "Anton", "Velma"
LOOK = 0.1  # seconds between two looks at the receiver
LONGEST = 3600.0  # seconds that the lists may take
WINDOW = 5.0  # seconds


class Shared:
    """The vendor, its two sponsors, and the calls that have arrived."""

    def __init__(self, at: Installation, where: sink.Sink, folder: Path, rate: int) -> None:
        self._at, self._where, self._folder, self._lists = at, where, folder, Lists(folder)
        order = ["vendor", "add", VENDOR, "--adapter", "http", "--dispatch-at", far_from_now()]
        at.manage(*order, "--set", f"url={where.url(VENDOR)}", "--limit", f"{rate}/1")
        for sponsor in (FIRST, SECOND):
            at.manage("entitlement", "add", sponsor, VENDOR, "--new-sponsor")

    def hand_in(self, sponsor: str, name: str, messages: int) -> float:
        """Store a list to be sent now; return when its job was dispatched (monotonic)."""
        from campaigns.models import Job

        write_list(file := self._folder / f"{name}.csv", [f"{name}{number}@example.org" for number in range(messages)])
        order = self._lists.order(VENDOR, file)
        order[order.index("--sponsor") + 1] = sponsor
        job = Job.objects.get(pk=self._at.asked(*order)["job"])
        return (job.dispatched_at or job.created_at).timestamp() + wall_to_monotonic()

    def times_of(self, name: str) -> list[float]:
        return [at for recipient, at in self._where.each(VENDOR) if recipient.startswith(name)]

    def wait_for(self, name: str, messages: int) -> list[float]:
        """Return the times of these calls once all have arrived, each recipient once."""
        wait_until(lambda: len(self.times_of(name)) >= messages, f"all of {name} arrives", LONGEST, LOOK)
        times = self.times_of(name)
        assert len(times) == messages, f"{len(times)} calls for {messages} messages"
        return times


def within(times: Sequence[float], first: float, last: float) -> int:
    return sum(first <= at < last for at in times)


def main() -> None:
    of_first, of_second, rate, later = numbers(6_000, 200, 60, 6)
    end_at_sigterm()
    with stage(), sink.running() as where, tempfile.TemporaryDirectory() as folder:
        at = Installation()
        with at.workers(senders=2):
            shared = Shared(at, where, Path(folder), rate)
            shared.hand_in(SECOND, "warm", 1)
            shared.wait_for("warm", 1)
            began = shared.hand_in(SECOND, "alone", of_second)
            alone = shared.wait_for("alone", of_second)[-1] - began
            shared.hand_in(FIRST, "first", of_first)
            wait_until(lambda: shared.times_of("first"), "the first list begins", LONGEST, LOOK)
            time.sleep(later)
            began = shared.hand_in(SECOND, "second", of_second)
            second, first = shared.wait_for("second", of_second), shared.wait_for("first", of_first)
    from_first = within(first, second[0], second[-1])
    reach = (within(first, began, first[-1]) + within(second, began, first[-1])) / (first[-1] - began) / rate
    found = {"first mail": [second[0] - began], "last mail": [second[-1] - began], "alone": [alone]}
    title = f"Sharing, {rate}/s: B's {of_second:,} beside A's {of_first:,}"
    keep(title, "s", found)
    console.print(title)
    console.print("  ".join(f"{name} {value:.1f} s" for name, [value] in found.items()))
    console.print(f"B takes {(second[-1] - began) / alone:.1f} times as long as alone")
    console.print(f"while B sends, A : B = {from_first} : {of_second}; the limit is used to {reach:.2f}")
    start = second[0]
    while start + WINDOW <= second[-1]:
        of_both = [within(times, start, start + WINDOW) for times in (first, second)]
        console.print(f"  {start - began:5.1f} s: A {of_both[0]}, B {of_both[1]}")
        start += WINDOW


if __name__ == "__main__":
    main()
