"""What the run came to, by the vendors' books."""

from collections import Counter
from collections.abc import Iterator

from sandbox.vendor.books import Books
from tests.chaos.mail import CASTERS, CONCURRENCY, LATENCY_MS, StormVendor, doubted
from tests.chaos.operators import Operators
from tests.faults.checker import judge, sums

SHOWN = 20
CRASHES = 2  # of PostgreSQL: each job loses its open calls
OF_A_PROCESS = ("processes killed", "processes frozen")  # which may send all jobs that are being sent
OF_A_JOB = ("replies of PostgreSQL lost", "connections cut by PostgreSQL")
TITLES = {
    "P1": "duplicates",
    "P2": "lost, or without an end",
    "P3": "falsely sent or failed",
    "P4": "windows over the limit",
    "P5": "calls after a stop",
    "P7": "rows of others touched",
    "stuck": "stuck",
}


def of_storm(vendors: list[StormVendor], done: Counter[str], operators: Operators) -> int:
    """Prints the report; 0 if every figure is as it must be."""
    books = Books([entry for one in vendors for entry in one.sandbox.books().entries])
    found = [
        *judge(books, all_checks=True),
        *(fault for one in vendors for fault in _windows(one)),
        *operators.called_while_stopped(vendors),
        *_counted(books, done, CASTERS * len(vendors)),
    ]
    for one in vendors:
        print(f"worst window {one.sandbox.books().worst_window(one.seconds)} of {one.units} in {one.seconds:g} s")
    counts = Counter(fault.partition(":")[0] for fault in found)
    for promise, title in TITLES.items():
        print(f"{title} {counts.pop(promise, 0)}")
    print(*found[:SHOWN], sep="\n")
    return 1 if found else 0


def _counted(books: Books, done: Counter[str], jobs: int) -> Iterator[str]:
    """Checks the figures that are printed. jobs: so many are sent at the same time."""
    counts = sums()
    print(f"accepted {counts['accepted']} of {counts.total()} recipients, refused {counts['refused']}")
    if counts["accepted"] != counts.total():
        yield f"P2: not everybody has it: {dict(counts)}"
    resets = sum(1 for entry in books.acceptances if entry.status is None)
    cut = jobs * (CRASHES + sum(done[name] for name in OF_A_PROCESS)) + sum(done[name] for name in OF_A_JOB)
    most = resets + CONCURRENCY * cut
    print(f"in doubt on the way {doubted()}, at most {most}: {resets} answers were lost, and {CONCURRENCY} calls a job")
    if doubted() > most:
        yield f"P3: {doubted()} came into doubt, at most {most} calls can have been open"


def _windows(one: StormVendor) -> list[str]:
    worst = one.sandbox.books().worst_window(one.seconds)
    return [f"P4: {worst} calls in a window, not {one.units}"] if worst > one.units else []


def of_calm(vendors: list[StormVendor]) -> int:
    """The rate between the ends of the first and the last window's worth of calls. 0 if no promise was broken."""
    for one in vendors:
        times = one.sandbox.books().arrivals()
        rate = (len(times) - one.units) / (times[-1] - times[one.units - 1])
        ideal = one.units / (one.seconds + LATENCY_MS / 1000)
        print(f"{rate:6.1f}/s, {rate / ideal:.1%} of the strict ideal {ideal:.1f}/s at {one.units}/{one.seconds:g} s")
    books = Books([entry for one in vendors for entry in one.sandbox.books().entries])
    found = [*judge(books), *(fault for one in vendors for fault in _windows(one))]
    print(*found[:SHOWN], sep="\n")
    return 1 if found else 0
