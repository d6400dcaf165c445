"""Sponsors at one vendor: how long a short list waits beside a long one, and what share each sponsor gets.

`python -m benchmarks.sharing [CASE ...]`, all without names. The parts that carry mail run as shipped, with a new
vendor's own mailcasters and two sending processes; the receiver is benchmarks/sink.py.

- `60`, `20`, `print`, `none`: limits of 60 and 20 a second, 5 in 60 s, and none. B's list goes alone. Then A's long
  list goes, and B's again some seconds after A's first mail. Prints B's first and last mail, from the moment at which
  B's job was dispatched, B's time against its time alone, both shares meanwhile, and how much of the limit was used.
  Beside it stands what equal shares of whole windows give at best, and if the first window has just been used up.
- `60-many`, `60-million`: the same beside a list of 100,000 or a million. A is stopped once B has ended.
- `60-one`, `20-one`, `print-one`, `none-one`: B has one letter.
- `trickle`: a sponsor hands in a letter every second beside A's list.
- `urgent`, `20-urgent`: the same over the API, so the letters are urgent, beside bulk mail. `up` runs the whole
  Procfile. Prints the time from each 202 to the vendor.
- `edited`: A and B have endless lists, B's weight goes from 1 to 3 meanwhile. Prints the shares of each 30 s.
- `weights`: ten sponsors with weights 1 to 10, and mailcasters for all of them. Prints how far the shares of each 30 s
  are from the weights.
- `turns`, `20-turns`: the same with the mailcasters of a new vendor, where they take turns.
"""

import io
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import sink
from benchmarks.as_run import Lists, write_list
from benchmarks.installation import Installation, end_at_sigterm, wall_to_monotonic
from benchmarks.letters import ApiClient
from benchmarks.results import keep
from benchmarks.slow_vendors import far_from_now
from benchmarks.stage import console, stage
from tests.waiting import wait_until

LOOK = 0.1  # seconds between two looks at the receiver
LONGEST = 3600.0  # seconds that the lists may take
WINDOW = 30.0  # seconds
SETTLED = 6.0  # seconds after all lists were handed in, or a weight was edited, before shares are counted
ENDLESS = 20_000
LETTERS = 30  # of the sponsor that trickles
URGENT_LETTERS = 100


class Shared:
    """A vendor of a case, its sponsors, and the calls that have arrived. limit: units and seconds, or none."""

    def __init__(
        self, at: Installation, where: sink.Sink, folder: Path, case: str, limit: tuple[int, int] | None
    ) -> None:
        self._at, self._where, self._folder, self._lists = at, where, folder, Lists(folder)
        self._slug, self.limit = f"v{case}", limit
        self.jobs = list[int]()
        order = ["vendor", "add", self._slug, "--adapter", "http", "--dispatch-at", far_from_now()]
        at.manage(
            *order, "--set", f"url={where.url(self._slug)}", *(["--limit", "{}/{}".format(*limit)] if limit else [])
        )

    def add_sponsor(self, name: str, weight: int = 1) -> None:
        self._at.manage("entitlement", "add", self._full(name), self._slug, "--new-sponsor")
        if weight != 1:
            self.weigh(name, weight)

    def add_casters(self, number: int) -> None:
        for caster in range(number):
            sizes = ["--kind", "large-priority", "--min", "500", "--max", "2000", "--percentage", "3"]
            self._at.manage("mailcaster", "add", self._slug, f"More{caster}", *sizes)

    def weigh(self, name: str, weight: int) -> None:
        self._at.manage("weight", "set", self._full(name), self._slug, str(weight))

    def api_client(self, sponsor: str) -> Callable[[str], float]:
        """Return a function that sends one letter over the API and returns the time of its acceptance (monotonic)."""
        client = ApiClient(self._at, self._full(sponsor))
        return lambda recipient: client.send(self._slug, recipient)

    def _full(self, name: str) -> str:
        return f"{name} at {self._slug}"

    def hand_in(self, sponsor: str, name: str, messages: int) -> float:
        """Store a list to be sent now; return when its job was dispatched (monotonic)."""
        from django.core.management import call_command

        from campaigns.models import Job

        write_list(file := self._folder / f"{name}.csv", [f"{name}{number}@example.org" for number in range(messages)])
        order = self._lists.order(self._slug, file)
        order[order.index("--sponsor") + 1] = self._full(sponsor)
        call_command(*order, "--json", stdout=(output := io.StringIO()))
        job = Job.objects.get(pk=json.loads(output.getvalue())["job"])
        self.jobs.append(job.pk)
        return (job.dispatched_at or job.created_at).timestamp() + wall_to_monotonic()

    def arrivals(self) -> dict[str, float]:
        return dict(self._where.each(self._slug))

    def times_of(self, name: str) -> list[float]:
        return [at for recipient, at in self._where.each(self._slug) if recipient.startswith(name)]

    def wait_for(self, name: str, messages: int) -> list[float]:
        """Return the times of these calls once all have arrived, each recipient once."""
        wait_until(lambda: len(self.times_of(name)) >= messages, f"all of {name} arrives", LONGEST, LOOK)
        times = self.times_of(name)
        assert len(times) == messages, f"{len(times)} calls for {messages} messages"
        return times

    def wait_for_first(self, name: str) -> None:
        wait_until(lambda: self.times_of(name), f"{name} begins", LONGEST, LOOK)

    def used(self, first: float, last: float) -> float | None:
        """Return how much of the limit was used, or None without a limit."""
        if self.limit is None:
            return None
        units, seconds = self.limit
        return within([at for _, at in self._where.each(self._slug)], first, last) / (last - first) / units * seconds

    def stop_all(self) -> None:
        from campaigns.operations import actions

        actions.stop_jobs(self.jobs)


def within(times: Sequence[float], first: float, last: float) -> int:
    return sum(first <= at < last for at in times)


def tell(title: str, figures: Mapping[str, float | None], unit: str = "s") -> None:
    known = {name: [value] for name, value in figures.items() if value is not None}
    keep(title, unit, known)
    console.print(title)
    console.print("  " + "  ".join(f"{name} {value:.2f} {unit}" for name, [value] in known.items()))


def measure_pair(shared: Shared, of_first: int, of_second: int, later: float) -> None:
    """B's list beside A's, and alone before. later: seconds after A's first mail."""
    shared.add_sponsor("Anton")
    shared.add_sponsor("Velma")
    shared.hand_in("Velma", "warm", 1)
    warm = shared.wait_for("warm", 1)[-1]
    units, seconds = shared.limit or (0, 0)
    time.sleep(max(0.0, warm + seconds + 2 - time.monotonic()))  # until its place is free
    began = shared.hand_in("Velma", "alone", of_second)
    alone = shared.wait_for("alone", of_second)[-1] - began
    shared.hand_in("Anton", "first", of_first)
    shared.wait_for_first("first")
    time.sleep(later)
    began = shared.hand_in("Velma", "second", of_second)
    second = shared.wait_for("second", of_second)
    first = shared.times_of("first")
    shared.stop_all()
    limit = f"{units} in {seconds} s" if shared.limit else "no limit"
    title = f"Sharing, {limit}: B's {of_second:,} beside A's {of_first:,}"
    tell(title, {"first mail": second[0] - began, "last mail": second[-1] - began, "alone": alone})
    tell(f"{title}, times alone", {"measured": (second[-1] - began) / alone, **find_bounds(units, of_second)}, "x")
    of_both = within(first, second[0], second[-1]), of_second
    if of_second > 1:
        used = shared.used(began, second[-1])
        console.print(f"  while B sends, A : B = {of_both[0]} : {of_both[1]}" + (f"; used {used:.2f}" if used else ""))


def find_bounds(units: int, messages: int) -> dict[str, float]:
    """Return the factors by which half of a limit of `units` takes longer, by whole windows."""
    alone, shared = (math.ceil(messages * each / max(1, units)) - 1 for each in (1, 2))
    if not units or alone <= 0:
        return {}
    return {"equal shares at best": shared / alone, "if a window has just been used": (shared + 1) / alone}


def measure_trickle(shared: Shared) -> None:
    shared.add_sponsor("Anton")
    shared.add_sponsor("Velma")
    shared.hand_in("Anton", "first", ENDLESS)
    shared.wait_for_first("first")
    took = list[float]()
    for number in range(LETTERS):
        next_at = time.monotonic() + 1
        began = shared.hand_in("Velma", f"letter{number}x", 1)
        took.append(shared.wait_for(f"letter{number}x", 1)[0] - began)
        time.sleep(max(0.0, next_at - time.monotonic()))
    shared.stop_all()
    took.sort()
    tell("Sharing, 60 in 1 s: a letter every second", {"in the middle": statistics.median(took), "the worst": took[-1]})


def measure_urgent(shared: Shared) -> None:
    """A letter over the API every second, beside a list."""
    shared.add_sponsor("Anton")
    shared.add_sponsor("Velma")
    send = shared.api_client("Velma")
    shared.hand_in("Anton", "first", ENDLESS)
    shared.wait_for_first("first")
    time.sleep(SETTLED)
    accepted, began = dict[str, float](), time.monotonic()
    for number in range(URGENT_LETTERS):
        time.sleep(max(0.0, began + number - time.monotonic()))
        accepted[recipient] = send(recipient := f"urgent{number}x@example.org")
    shared.wait_for("urgent", URGENT_LETTERS)
    used = shared.used(began, began + URGENT_LETTERS)
    arrived = shared.arrivals()
    shared.stop_all()
    took = sorted(arrived[one] - moment for one, moment in accepted.items())
    most = statistics.quantiles(took, n=100, method="inclusive")[98]
    units, seconds = shared.limit or (0, 0)
    figures = {"in the middle": statistics.median(took), "99 % within": most, "the worst": took[-1]}
    tell(f"Sharing, {units} in {seconds} s: an urgent letter every second", figures)
    console.print(f"  used {used:.2f}")


def count_shares(shared: Shared, names: Sequence[str], first: float) -> list[int]:
    """Wait for WINDOW seconds from then; return the mails of each within."""
    time.sleep(max(0.0, first + WINDOW - time.monotonic()))
    return [within(shared.times_of(name), first, first + WINDOW) for name in names]


def measure_edit(shared: Shared) -> None:
    names = ["first", "second"]
    for sponsor, name in zip(("Anton", "Velma"), names, strict=True):
        shared.add_sponsor(sponsor)
        shared.hand_in(sponsor, name, ENDLESS)
    for weight in (1, 3):
        shared.weigh("Velma", weight)
        time.sleep(SETTLED)
        found = count_shares(shared, names, began := time.monotonic())
        used = shared.used(began, began + WINDOW)
        console.print(f"Sharing, 60 in 1 s: weights 1 : {weight} give {found[0]} : {found[1]}, used {used:.2f}")
        keep(f"Sharing, 60 in 1 s: weights 1 and {weight}", "%", {"B's share": [100 * found[1] / sum(found)]})
    shared.stop_all()


def tell_off(title: str, found: Sequence[int]) -> float:
    """Return how far the farthest of these counts is from its weight, for weights 1, 2, and so on."""
    fair = [sum(found) * weight / sum(range(1, len(found) + 1)) for weight in range(1, len(found) + 1)]
    off = max(abs(mails - share) / share for mails, share in zip(found, fair, strict=True))
    console.print(f"{title}: {found}, at most {100 * off:.0f} % off")
    return off


def measure_weights(shared: Shared, more_casters: int) -> None:
    """more_casters: beside a new vendor's own. A sponsor without a mailcaster gets no part of the limit."""
    weights, (units, seconds) = range(1, 11), shared.limit or (0, 0)
    title = f"Sharing, {units} in {seconds} s: weights 1 to 10, {more_casters} more mailcasters"
    shared.add_casters(more_casters)
    for weight in weights:
        shared.add_sponsor(f"S{weight}", weight)
    for weight in weights:
        shared.hand_in(f"S{weight}", f"w{weight}x", ENDLESS)
    time.sleep(SETTLED)
    began = time.monotonic()
    for window in range(4):
        found = count_shares(shared, [f"w{weight}x" for weight in weights], began + window * WINDOW)
        tell_off(f"{title}, {WINDOW:.0f} s", found)
    whole = [within(shared.times_of(f"w{weight}x"), began, began + 4 * WINDOW) for weight in weights]
    used = shared.used(began, began + 4 * WINDOW)
    off = tell_off("  together", whole)
    console.print(f"  used {used:.2f}")
    keep(title, "%", {"farthest from its share": [100 * off]})
    shared.stop_all()


def pair(of_first: int, of_second: int, later: float) -> Callable[[Shared], None]:
    return lambda shared: measure_pair(shared, of_first, of_second, later)


CASES: dict[str, tuple[tuple[int, int] | None, Callable[[Shared], None]]] = {
    "60": ((60, 1), pair(6_000, 200, 6)),
    "60-one": ((60, 1), pair(6_000, 1, 6)),
    "60-many": ((60, 1), pair(100_000, 200, 6)),
    "60-million": ((60, 1), pair(1_000_000, 200, 6)),
    "20": ((20, 1), pair(6_000, 200, 6)),
    "20-one": ((20, 1), pair(6_000, 1, 6)),
    "print": ((5, 60), pair(1_000, 10, 6)),
    "print-one": ((5, 60), pair(1_000, 1, 6)),
    "none": (None, pair(100_000, 200, 1)),
    "none-one": (None, pair(100_000, 1, 1)),
    "trickle": ((60, 1), measure_trickle),
    "urgent": ((60, 1), measure_urgent),
    "20-urgent": ((20, 1), measure_urgent),
    "edited": ((60, 1), measure_edit),
    "weights": ((60, 1), lambda shared: measure_weights(shared, 9)),
    "turns": ((60, 1), lambda shared: measure_weights(shared, 0)),
    "20-turns": ((20, 1), lambda shared: measure_weights(shared, 0)),
}


def main() -> None:
    chosen = sys.argv[1:] or list(CASES)
    if unknown := {*chosen} - {*CASES}:
        raise SystemExit(f"no case {', '.join(sorted(unknown))}. There are {', '.join(CASES)}.")
    end_at_sigterm()
    with stage(), sink.running() as where, tempfile.TemporaryDirectory() as folder:
        at = Installation()
        for with_api, running in ((False, lambda: at.workers(senders=2)), (True, lambda: at.up(VENDOR_PROCESSES="2"))):
            if cases := [case for case in chosen if (CASES[case][1] is measure_urgent) == with_api]:
                with running():
                    for case in cases:
                        limit, measure = CASES[case]
                        measure(Shared(at, where, Path(folder), case, limit))


if __name__ == "__main__":
    main()
