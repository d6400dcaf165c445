"""The two runs: a storm and what it left behind, or a calm day and its rate."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import Error, connection

from tests import sandbox as sandboxes
from tests.chaos import mail, report
from tests.chaos.crew import Crew
from tests.chaos.mail import LATENCY_MS, StormVendor
from tests.chaos.operators import Operators
from tests.chaos.servers import Servers
from tests.postgres_proxy import PostgresProxy

# The last one can neither be called again safely nor asked: what is in doubt there, a person settles.
LIMITS = ((150, 1.0, {"lookup": "strong"}), (120, 1.0, {"dedupe": True}), (60, 1.0, {}))
WEIGHTS = ((1, 2, 3), (1,), (1,))  # of the sponsors at each: three of them share the first
WORKERS = 2
HARM_EVERY = 0.4  # seconds
PATIENCE = 180.0  # seconds without progress after which the recovery has failed


@contextmanager
def vendors(seconds: float, **harm: Any) -> Iterator[list[StormVendor]]:
    """Vendors with mail for so many seconds at the full rate."""
    with ExitStack() as stack:
        made = []
        for (units, window, can), weights in zip(LIMITS, WEIGHTS, strict=True):
            options = {"latency_ms": LATENCY_MS, "latency": "exponential", "dedupe": "dedupe" in can, **harm}
            box = stack.enter_context(sandboxes.running(**options))
            made.append(mail.storm_vendor(box, units, window, int(units / window * seconds), weights, **can))
        yield made


def storm(servers: Servers, seconds: float, seed: int) -> int:
    """0 if every promise was kept."""
    by = random.Random(seed)
    with PostgresProxy(servers.database) as proxy:
        crew, operators = Crew(WORKERS, proxy.url), Operators(by)
        try:
            with vendors(0.6 * seconds, reset_rate=0.02) as made:
                mail.begin()
                _until(lambda: all(one.sandbox.books().entries for one in made), crew)
                harms = Harms(by, crew, servers, proxy, operators)
                harms.rage(seconds)
                if _recover(crew, operators, made):
                    return report.of_storm(made, harms.done(), operators)
                print(f"STUCK: no progress for {PATIENCE:g} s: {mail.state()}\n{crew.last_log()}")
                return 1
        finally:
            crew.end()


def calm(servers: Servers, seconds: float) -> int:
    """Measures the rate while nothing is harmed."""
    crew = Crew(WORKERS, servers.database)
    try:
        with vendors(seconds) as made:
            mail.begin()
            if _until(mail.all_sent, crew):
                return report.of_calm(made)
            print(f"STUCK: no progress for {PATIENCE:g} s: {mail.state()}\n{crew.last_log()}")
            return 1
    finally:
        crew.end()


class Harms:
    """Harms, drawn at random; a few are certain to happen, at a given time."""

    def __init__(
        self, by: random.Random, crew: Crew, servers: Servers, proxy: PostgresProxy, operators: Operators
    ) -> None:
        self._by, self._crew, self._servers, self._proxy, self._operators = by, crew, servers, proxy, operators
        self._counts: Counter[str] = Counter()
        self._lots: list[tuple[int, str, Callable[[], object]]] = [
            (50, "", lambda: crew.kill_a_process(by)),
            (10, "", lambda: crew.freeze_a_process(by)),
            (3, "", lambda: crew.kill_a_worker(by)),
            (2, "", lambda: crew.kill_beat(by)),
            (14, "", operators.stop),
            (12, "", lambda: proxy.lose_next(by.randrange(10))),
            (6, "connections cut by PostgreSQL", lambda: servers.end_a_backend(by)),
            (3, "Redis flushed", servers.flush_redis),
        ]

    def rage(self, seconds: float) -> None:
        began = time.monotonic()
        certain = self._certain(seconds)
        while (now := time.monotonic() - began) < seconds:
            while certain and certain[0][0] <= now:
                _, name, harm = certain.pop(0)
                print(f"{now:5.1f} s  {name}", flush=True)
                self._do(name, harm)
            (lot,) = self._by.choices(self._lots, [weight for weight, *_ in self._lots])
            self._do(lot[1], lot[2])
            self._do("", self._operators.retry)
            self._crew.watch()
            time.sleep(self._by.uniform(0.5, 1.5) * HARM_EVERY)
        self._crew.thaw()
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.done().items()))
        print(f"{time.monotonic() - began:5.1f} s  {counts}; now everything recovers", flush=True)

    def done(self) -> Counter[str]:
        """What took effect, by name."""
        lost = Counter({"replies of PostgreSQL lost": len(self._proxy.lost)})
        return self._counts + self._crew.done + self._operators.done + lost

    def _certain(self, seconds: float) -> list[tuple[float, str, Callable[[], object]]]:
        """The harms that are certain, by seconds from the start."""
        return [
            (0.25 * seconds, "Redis starts again empty", self._servers.restart_redis_empty),
            (0.40 * seconds, "a backend of PostgreSQL is killed", lambda: self._servers.kill_a_backend(self._by)),
            (0.55 * seconds, "PostgreSQL starts again", self._servers.restart_postgres),
            (0.75 * seconds, "Redis starts again empty", self._servers.restart_redis_empty),
        ]

    def _do(self, name: str, harm: Callable[[], object]) -> None:
        """Who meets a store that is away tries again with the next lot."""
        try:
            harm()
        except mail.AWAY as error:
            self._counts["harms that met a store that was away"] += 1
            if isinstance(error, Error):
                connection.close()
        else:
            self._counts.update([name] if name else [])


def _recover(crew: Crew, operators: Operators, made: list[StormVendor]) -> bool:
    """Until all jobs are final and nothing is in doubt any more, after operators have settled what no vendor can."""
    if not _until(lambda: operators.retry(all_of_them=True) and mail.all_sent(), crew):
        return False
    print(f"in doubt: {mail.doubts()}; now the vendors are asked", flush=True)
    if not _until(lambda: mail.asked(made), crew):
        return False
    print(f"in doubt: {operators.settle(made)}; now operators settle what no vendor can tell", flush=True)
    return _until(lambda: mail.all_sent() and _nothing_in_doubt(made, operators), crew)


def _nothing_in_doubt(made: list[StormVendor], operators: Operators) -> bool:
    """Settles again what came into doubt again after it was sent again; True: nothing is left."""
    mail.asked(made)
    return not mail.doubts() or not operators.settle(made)


def _until(condition: Callable[[], bool], crew: Crew) -> bool:
    before, since = None, time.monotonic()
    while time.monotonic() - since < PATIENCE:
        try:
            if condition():
                return True
            if before != (before := mail.state()):
                since = time.monotonic()
        except mail.AWAY as error:  # the connection from before the restart
            if isinstance(error, Error):
                connection.close()
        crew.watch()
        time.sleep(0.2)
    return False
