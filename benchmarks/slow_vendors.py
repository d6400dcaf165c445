"""Slow vendors must delay nobody else: fifty vendors, most of them slow, late, down or paused, with long lists.

`python -m benchmarks.slow_vendors [minutes] [slow ones]`. `up` runs the shipped Procfile. Twenty vendors (or the given
number) allow one call a second, ten answer after ten seconds, five are down, five are paused; each has a list of
20,000.

Meanwhile single letters go to idle vendors, most over the API, some by command. They are timed from the 202, or from
the time in the campaign's row, to the arrival at the vendor. Now and then four fast vendors get their lists together,
in turns beside the others and with those paused; their joint rate counts. The letters go on in both turns, because the
command for one starts a Python, which takes a second of processor time. Only those beside the slow vendors are timed.

Every few seconds it records the streams (jobs being sent), and each sending process's connections to PostgreSQL and
memory (proportional set size).
"""

import contextlib
import itertools
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import sink
from benchmarks.as_run import Lists
from benchmarks.installation import Installation, end_at_sigterm, wall_to_monotonic
from benchmarks.letters import ApiClient
from benchmarks.processes_seen import connections, proportional_mb
from benchmarks.results import keep
from benchmarks.stage import console, numbers, show, stage
from tests.waiting import wait_until

LATE, DOWN, PAUSED, FAST, IDLE = 10, 5, 5, 4, 6  # vendors of each kind
LONG, SHORT = 20_000, 20_000  # recipients of a slow vendor's list, and of a fast one's
ANSWERS_AFTER = 10.0  # seconds
EVERY = (1.0, 3.0)  # seconds between two letters
BY_COMMAND = 10  # one letter in this many goes by command
ALONE = 45.0  # seconds for letters alone, before the fast vendors get their lists
LOOK = 5.0  # seconds between two looks at the processes
BURST = 60.0  # seconds for the fast vendors' lists; later messages count as delayed
PATIENCE = 300.0  # seconds until they must have arrived
WITH, WITHOUT = "beside slow vendors", "alone"


def slugs(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in range(count)]


class Vendors:
    """The fifty vendors, added and paused by command; each but the fast and idle ones has its list under way."""

    def __init__(self, where: sink.Sink, slow: int, closed: int) -> None:
        self.fast, self.idle = slugs("fast", FAST), slugs("idle", IDLE)
        self.slow, self.late, self.down = slugs("slow", slow), slugs("late", LATE), slugs("down", DOWN)
        self.paused = slugs("paused", PAUSED)
        for slug in [*self.fast, *self.idle, *self.paused]:
            self._add(slug, where.url(slug))
        for slug in self.slow:
            self._add(slug, where.url(slug), limit="1/1")
        for slug in self.late:
            self._add(slug, where.url(slug, ANSWERS_AFTER), timeout=3 * ANSWERS_AFTER)
        for slug in self.down:
            self._add(slug, f"http://127.0.0.1:{closed}/{slug}")
        self.pause(self.paused)

    def _add(self, slug: str, url: str, limit: str = "", **settings: object) -> None:
        values = [f"{name}={value}" for name, value in {"url": url, **settings}.items()]
        order = ["vendor", "add", slug, "--adapter", "http", "--dispatch-at", far_from_now(), "--set", *values]
        command(*order, *(["--limit", limit] if limit else []))
        command("entitlement", "add", "Velma", slug, "--new-sponsor")

    def pause(self, which: list[str]) -> None:
        for slug in which:
            command("vendor", "pause", slug)

    def resume(self, which: list[str]) -> None:
        for slug in which:
            command("vendor", "resume", slug)

    @property
    def in_the_way(self) -> list[str]:
        return [*self.slow, *self.late, *self.down]


def far_from_now() -> str:
    """Return a time of day for the nightly dispatch at which no measurement runs."""
    return (datetime.now(UTC) + timedelta(hours=12)).strftime("%H:%M")


def command(*arguments: str) -> None:
    """Run a command in this process, to save a second of Python's start each time."""
    from django.core.management import call_command

    with open("/dev/null", "w") as nowhere:
        call_command(*arguments, stdout=nowhere)


@dataclass(frozen=True, slots=True)
class Look:
    """The most connections and the most memory (MB) of any sending process."""

    streams: int
    connections: int
    memory: float


class Looks:
    """Repeated looks at the sending worker."""

    def __init__(self, at: Installation) -> None:
        self._at = at
        self.taken: list[Look] = []

    def take(self) -> None:
        from campaigns.models import Job

        streams = Job.objects.filter(status="SENDING").count()
        processes = self._at.senders()
        database = str(self._at.home.socket_dir() / ".s.PGSQL.5432")
        self.taken.append(Look(streams, max(connections(processes, database)), max(proportional_mb(processes))))

    def again(self, over: threading.Event) -> None:
        while not over.wait(LOOK):
            self.take()

    def tell(self) -> None:
        first, most = self.taken[0], max(self.taken, key=lambda look: look.streams)
        connected = float(max(look.connections for look in self.taken))
        memory = {"no stream yet": [first.memory], f"{most.streams} streams": [most.memory]}
        memory["the most"] = [max(look.memory for look in self.taken)]
        keep("Beside slow vendors: connections to PostgreSQL", "connections", {"of one sender process": [connected]})
        keep("Beside slow vendors: memory of a sender process", "MB", memory)
        console.print(f"connections to PostgreSQL of one process, at most: {connected:.0f}")
        console.print(f"memory of a process, MB: { {name: round(value) for name, [value] in memory.items()} }")


@dataclass(slots=True)
class Letters:
    """Single letters for idle vendors. accepted: times (monotonic) of those sent while `counts` is set."""

    at: Installation
    lists: Lists
    vendors: list[str]
    counts: threading.Event = field(default_factory=threading.Event)
    accepted: dict[str, float] = field(default_factory=dict)

    def send_all(self, over: threading.Event) -> None:
        client, turns = ApiClient(self.at), itertools.cycle(self.vendors)
        for number in itertools.count():
            if over.wait(random.uniform(*EVERY)):
                break
            recipient, slug, counts = f"single{number}@example.org", next(turns), self.counts.is_set()
            send = self._by_command if number % BY_COMMAND == 0 else client.send
            accepted = send(slug, recipient)
            if counts:
                self.accepted[recipient] = accepted

    def _by_command(self, slug: str, recipient: str) -> float:
        from campaigns.models import Job

        stored = self.at.asked(*self.lists.order(slug, self.lists.to(recipient)))
        job = Job.objects.get(pk=stored["job"])
        assert job.dispatched_at
        return job.dispatched_at.timestamp() + wall_to_monotonic()

    def tell(self, where: sink.Sink) -> None:
        arrived = dict(itertools.chain.from_iterable(where.each(slug) for slug in self.vendors))
        waits = [arrived.get(one, time.monotonic()) - accepted for one, accepted in self.accepted.items()]
        missing = [one for one in self.accepted if one not in arrived]
        places = statistics.quantiles(waits, n=100, method="inclusive")
        within = {"half within": [places[49]], "99 % within": [places[98]], "longest": [max(waits)]}
        keep("Beside slow vendors: a single letter to an idle one", "s", within)
        text = ", ".join(f"{name} {value:.2f} s" for name, [value] in within.items())
        console.print(f"{len(waits)} single letters to idle vendors: {text}; not called yet: {len(missing)}")


@contextlib.contextmanager
def meanwhile(*programs: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run each program in a thread until the block ends; then raise any error of theirs."""
    from django.db import connections as databases

    over = threading.Event()

    def run(program: Callable[[threading.Event], None]) -> None:
        try:
            program(over)
        finally:
            databases.close_all()

    with ThreadPoolExecutor(len(programs)) as threads:
        futures = [threads.submit(run, program) for program in programs]
        try:
            yield
        finally:
            over.set()
        for future in futures:
            future.result()


def burst(lists: Lists, vendors: Vendors, where: sink.Sink) -> float:
    """Return the joint rate of the fast vendors, in messages a second, after dispatching their lists together."""
    for slug in vendors.fast:
        where.forget(slug)
        command(*lists.order(slug, lists.of(SHORT), "nightly"))
    began, wanted = time.monotonic(), SHORT * len(vendors.fast)
    for slug in vendors.fast:
        command("dispatch_jobs", "--vendor", slug)
    while (came := sum(map(where.count, vendors.fast))) < wanted and time.monotonic() < began + BURST:
        time.sleep(0.1)
    if came < wanted:
        return came / BURST
    return wanted / (max(where.facts(slug, SHORT)["last"] for slug in vendors.fast) - began)


def settled(vendors: Vendors, where: sink.Sink) -> None:
    """Wait until nothing is sent: late messages of the burst have arrived, and paused vendors have let go."""
    from campaigns.models import Job

    wanted = SHORT * len(vendors.fast)
    wait_until(lambda: sum(map(where.count, vendors.fast)) == wanted, "the fast lists arrive", PATIENCE, 0.1)
    busy = Job.objects.filter(status="SENDING")
    wait_until(lambda: not busy.exists(), "nothing is being sent", PATIENCE, 0.1)


def measure(minutes: float, vendors: Vendors, lists: Lists, where: sink.Sink, letters: Letters) -> None:
    rates: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        letters.counts.set()
        time.sleep(ALONE)
        rates[WITH].append(burst(lists, vendors, where))
        letters.counts.clear()
        vendors.pause(vendors.in_the_way)
        settled(vendors, where)
        rates[WITHOUT].append(burst(lists, vendors, where))
        settled(vendors, where)
        vendors.resume(vendors.in_the_way)
    show("Fast vendors together", rates, WITHOUT)


def main() -> None:
    minutes, slow = numbers(15, 20)
    end_at_sigterm()
    with stage(), sink.running() as where, tempfile.TemporaryDirectory() as folder, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # reserved, and nobody listens there
        at, lists = Installation(), Lists(Path(folder))
        with at.up():
            looks = Looks(at)
            looks.take()
            vendors = Vendors(where, slow, closed.getsockname()[1])
            for slug in [*vendors.in_the_way, *vendors.paused]:
                command(*lists.order(slug, lists.of(LONG)))
            letters = Letters(at, lists, vendors.idle)
            with meanwhile(letters.send_all, looks.again):
                measure(minutes, vendors, lists, where, letters)
            letters.tell(where)
            looks.tell()


if __name__ == "__main__":
    main()
