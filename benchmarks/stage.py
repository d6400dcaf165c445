"""The stage of the measurements: its own durable PostgreSQL and Redis, removed at the end."""

import contextlib
import gc
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import django
from rich.console import Console
from rich.table import Table

from benchmarks.results import keep
from mailhub import embedded

console = Console()


@contextlib.contextmanager
def stage() -> Iterator[None]:
    """Set up Django over its own services; worker processes inherit the addresses."""
    with tempfile.TemporaryDirectory(prefix="mailhub-bench-") as folder:
        try:
            _set_up(Path(folder))
            yield
        finally:
            embedded.reset_servers(embedded.Home(Path(folder)))


@contextlib.contextmanager
def kept_stage(folder: Path) -> Iterator[None]:
    """Set up the stage in a folder that is kept, so that rows which take minutes are made once."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _set_up(folder)
        yield
    finally:
        embedded.stop_servers(embedded.Home(folder))


def _set_up(folder: Path) -> None:
    os.environ["MAILHUB_HOME"] = str(folder)
    for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL"):
        os.environ.pop(name, None)
    os.environ.update(embedded.ensure_servers())
    os.environ["DJANGO_SETTINGS_MODULE"] = "mailhub.settings"
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def numbers(*defaults: int) -> list[int]:
    """Return the command's arguments as whole numbers, with defaults for missing ones."""
    given = [int(word) for word in sys.argv[1:]]
    return [*given, *defaults[len(given) :]]


def in_turns(rows: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure each row once a round, because the machine's speed drifts.

    Freezes the objects loaded so far, so that garbage collection does not slow the rows of this process.
    """
    gc.collect()
    gc.freeze()
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, row in rows.items():
            rates[name].append(row())
    return rates


def ratio(measured: list[float], yardstick: list[float]) -> float:
    """Return the median of the ratios within a round."""
    return statistics.median(a / b for a, b in zip(measured, yardstick, strict=True))


def show(title: str, rates: dict[str, list[float]], yardstick: str, unit: str = "messages/s") -> None:
    """Store and print medians, spread, and each row's ratio to the yardstick's in the same round."""
    keep(title, unit, rates)
    table = Table("what", unit, "lowest", "highest", f"x {yardstick}", title=title)
    for name, measured in rates.items():
        middle, times = statistics.median(measured), ratio(measured, rates[yardstick])
        table.add_row(name, f"{middle:,.0f}", f"{min(measured):,.0f}", f"{max(measured):,.0f}", f"{times:.2f}")
    console.print(table)
    console.print(f"load of the machine now: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
