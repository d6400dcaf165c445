"""The result of the run, by the vendors' books."""

from collections import Counter
from collections.abc import Iterator

from campaigns.models import Message
from campaigns.models.jobs import read_reference
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
        *(fault for one in vendors for fault in _sponsors(one)),
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


def _sponsors(one: StormVendor) -> Iterator[str]:
    """Checks each sponsor's books at a vendor that several share, and prints their shares while all had mail.

    Each recipient is in the books of his own sponsor once. Shares are no promise in a storm: jobs are stopped in it.
    """
    if len(one.weights) < 2:
        return
    first, times = one.sandbox.books().accepted, dict[int, list[float]]()
    owner = dict[int, tuple[int, str]]()
    for pk, sponsor, to in Message.objects.filter(campaign__credential__vendor=one.vendor).values_list(
        "pk", "campaign__sponsor", "recipient"
    ):
        owner[pk] = sponsor, to
    got = Counter[int]()
    for name, entry in first.items():
        reference = read_reference(name)
        sponsor, to = owner.pop(reference.id, (0, "")) if reference else (0, "")
        if to != entry.recipient:
            yield f"P1: {name} is in the books of {one.vendor.slug} for {entry.recipient}, not for {to or 'nobody'}"
            continue
        got[sponsor] += 1
        times.setdefault(sponsor, []).append(entry.wall)
    for sponsor in one.weights:
        left = sum(of == sponsor for of, _ in owner.values())
        print(f"sponsor {sponsor} at {one.vendor.slug}: {got[sponsor]} accepted, each once; {left} missing")
        if left:
            yield f"P2: {left} recipients of sponsor {sponsor} are in no book of {one.vendor.slug}"
    start, end = max(map(min, times.values())), min(map(max, times.values()))
    within = {sponsor: sum(start <= at <= end for at in times[sponsor]) for sponsor in times}
    total, weights = max(1, sum(within.values())), sum(one.weights.values())
    shares = (f"{within[s] / total:.0%} (weight {w} of {weights})" for s, w in one.weights.items() if s in within)
    print(f"shares within {end - start:.0f} s in which all of them were sent: {', '.join(shares)}")


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
