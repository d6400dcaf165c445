"""What the run came to, by the vendors' books."""

from collections import Counter
from collections.abc import Iterator

from sandbox.vendor.books import Books
from tests.chaos.crew import PROCESSES
from tests.chaos.mail import CONCURRENCY, LATENCY_MS, Line, doubted
from tests.chaos.operators import Operators
from tests.faults.checker import judge, sums

SHOWN = 20
SENDERS = 2 * PROCESSES
CRASHES = 2  # of PostgreSQL: each sender loses the calls that it has open
MAKE_DOUBT = (  # each of them for one sender
    "processes killed",
    "processes frozen",
    "replies of PostgreSQL lost",
    "connections cut by PostgreSQL",
)
TITLES = {
    "P1": "duplicates",
    "P2": "lost, or without an end",
    "P3": "falsely sent or failed",
    "P4": "windows over the limit",
    "P5": "calls after a stop",
    "P7": "rows of others touched",
    "stuck": "stuck",
}


def of_storm(lines: list[Line], done: Counter[str], operators: Operators) -> int:
    """Prints it; 0 if every figure is as it must be."""
    books = Books([entry for line in lines for entry in line.sandbox.books().entries])
    found = [
        *judge(books, all_checks=True),
        *(fault for line in lines for fault in _windows(line)),
        *operators.called_while_stopped(lines),
        *_counted(books, done),
    ]
    for line in lines:
        print(f"worst window {line.sandbox.books().worst_window(line.seconds)} of {line.units} in {line.seconds:g} s")
    counts = Counter(fault.partition(":")[0] for fault in found)
    for promise, title in TITLES.items():
        print(f"{title} {counts.pop(promise, 0)}")
    print(*found[:SHOWN], sep="\n")
    return 1 if found else 0


def _counted(books: Books, done: Counter[str]) -> Iterator[str]:
    """The figures that are printed are what they must be."""
    told = sums()
    print(f"accepted {told['accepted']} of {told.total()} recipients, refused {told['refused']}")
    if told["accepted"] != told.total():
        yield f"P2: not everybody has it: {dict(told)}"
    resets = sum(1 for entry in books.acceptances if entry.status is None)
    most = resets + CONCURRENCY * sum(done[name] for name in MAKE_DOUBT) + CONCURRENCY * SENDERS * CRASHES
    print(
        f"in doubt on the way {doubted()}, at most {most}: {resets} answers were lost, and {CONCURRENCY} calls a sender"
    )
    if doubted() > most:
        yield f"P3: {doubted()} came into doubt, at most {most} calls can have been open"


def _windows(line: Line) -> list[str]:
    worst = line.sandbox.books().worst_window(line.seconds)
    return [f"P4: {worst} calls in a window, not {line.units}"] if worst > line.units else []


def of_calm(lines: list[Line]) -> int:
    """The rate between the ends of the first and the last window's worth of calls. 0 if no promise was broken."""
    for line in lines:
        times = line.sandbox.books().arrivals()
        rate = (len(times) - line.units) / (times[-1] - times[line.units - 1])
        ideal = line.units / (line.seconds + LATENCY_MS / 1000)
        print(f"{rate:6.1f}/s, {rate / ideal:.1%} of the strict ideal {ideal:.1f}/s at {line.units}/{line.seconds:g} s")
    books = Books([entry for line in lines for entry in line.sandbox.books().entries])
    found = [*judge(books), *(fault for line in lines for fault in _windows(line))]
    print(*found[:SHOWN], sep="\n")
    return 1 if found else 0
