"""Where the measurements run: a PostgreSQL that waits for the disk and a Redis of their own, removed at the end."""

import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
from rich.console import Console
from rich.table import Table

from mailhub import embedded

console = Console()


@contextlib.contextmanager
def stage() -> Iterator[None]:
    """Django, set up over services of its own; worker processes inherit the addresses."""
    with tempfile.TemporaryDirectory(prefix="mailhub-bench-") as folder:
        os.environ["MAILHUB_HOME"] = folder
        for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL"):
            os.environ.pop(name, None)
        os.environ.update(embedded.ensure())
        os.environ["DJANGO_SETTINGS_MODULE"] = "mailhub.settings"
        os.environ.setdefault("LOG_LEVEL", "ERROR")
        django.setup()
        from django.core.management import call_command

        try:
            call_command("migrate", verbosity=0)
            yield
        finally:
            embedded.reset(embedded.Home(Path(folder)))


def show(title: str, rates: dict[str, list[float]], yardstick: str, unit: str = "messages/s") -> None:
    """Medians, spread, and each row's ratio to the yardstick's in the same round."""
    table = Table("what", unit, "lowest", "highest", f"x {yardstick}", title=title)
    for name, measured in rates.items():
        ratio = statistics.median(a / b for a, b in zip(measured, rates[yardstick], strict=True))
        middle = statistics.median(measured)
        table.add_row(name, f"{middle:,.0f}", f"{min(measured):,.0f}", f"{max(measured):,.0f}", f"{ratio:.2f}")
    console.print(table)
    console.print(f"load of the machine now: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
