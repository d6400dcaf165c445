"""The two runs: a storm and what it left behind, or a calm day and its rate."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import Error, connection

from tests import sandbox as sandboxes
from tests.chaos import mail, report
from tests.chaos.crew import Crew
from tests.chaos.mail import LATENCY_MS, Line
from tests.chaos.servers import Servers
from tests.programs import sweeping

LIMITS = ((150, 1.0, {"lookup": "strong"}), (120, 1.0, {"dedupe": True}))
WORKERS = 2
KILL_EVERY = 0.4  # seconds
WORKER_EVERY = 25  # each so many kills is one of a whole worker
PATIENCE = 180.0  # seconds without progress after which the recovery has failed


@contextmanager
def lines(seconds: float, **harm: Any) -> Iterator[list[Line]]:
    """Mail for so many seconds at the full rate."""
    with ExitStack() as stack:
        made = []
        for units, window, can in LIMITS:
            options = {"latency_ms": LATENCY_MS, "latency": "exponential", "dedupe": "dedupe" in can, **harm}
            box = stack.enter_context(sandboxes.running(**options))
            made.append(mail.line(box, units, window, int(units / window * seconds), **can))
        yield made


def storm(servers: Servers, seconds: float, seed: int) -> int:
    """0 if every promise was kept."""
    by, crew = random.Random(seed), Crew(WORKERS)
    try:
        with lines(0.6 * seconds, reset_rate=0.02) as made, sweeping(1.0):
            mail.begin()
            _until(lambda: all(line.sandbox.books().entries for line in made), crew)
            _rage(crew, by, seconds, _harms(servers, seconds))
            if _recover(crew):
                return report.of_storm(made, crew)
            print(f"no progress for {PATIENCE:g} s: {mail.picture()}\n{crew.words()}")
            return 1
    finally:
        crew.end()


def calm(seconds: float) -> int:
    """Nothing is harmed: how fast does it go?"""
    crew = Crew(WORKERS)
    try:
        with lines(seconds) as made, sweeping(1.0):
            mail.begin()
            if _until(mail.all_sent, crew):
                return report.of_calm(made)
            print(f"no progress for {PATIENCE:g} s: {mail.picture()}\n{crew.words()}")
            return 1
    finally:
        crew.end()


def _harms(servers: Servers, seconds: float) -> list[tuple[float, str, Callable[[], None]]]:
    """When what else happens, in seconds from the start."""
    return [
        (0.25 * seconds, "Redis starts again empty", servers.restart_redis_empty),
        (0.50 * seconds, "PostgreSQL starts again", servers.restart_postgres),
        (0.75 * seconds, "Redis starts again empty", servers.restart_redis_empty),
    ]


def _rage(crew: Crew, by: random.Random, seconds: float, harms: list[tuple[float, str, Callable[[], None]]]) -> None:
    began, kills = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        while harms and harms[0][0] <= now:
            _, words, harm = harms.pop(0)
            print(f"{now:5.1f} s  {words}", flush=True)
            harm()
        kills += 1
        if kills % WORKER_EVERY:
            crew.kill_a_process(by)
        else:
            crew.kill_a_worker(by)
        crew.watch()
        time.sleep(by.uniform(0.5, 1.5) * KILL_EVERY)
    killed = f"{crew.killed_processes} processes and {crew.killed_workers} workers were killed"
    print(f"{time.monotonic() - began:5.1f} s  {killed}; now everything recovers", flush=True)


def _recover(crew: Crew) -> bool:
    """Until all jobs are final and no doubt can be settled any more."""
    if not _until(mail.all_sent, crew):
        return False
    print(f"in doubt: {mail.doubts()}; now the vendors are asked", flush=True)
    return _until(_nothing_in_doubt, crew)


def _nothing_in_doubt() -> bool:
    mail.doubts_fall_due()
    return not mail.doubts()


def _until(condition: Callable[[], bool], crew: Crew) -> bool:
    before, since = None, time.monotonic()
    while time.monotonic() - since < PATIENCE:
        try:
            if condition():
                return True
            if before != (before := mail.picture()):
                since = time.monotonic()
        except Error:  # the connection from before the restart
            connection.close()
        crew.watch()
        time.sleep(0.2)
    return False
