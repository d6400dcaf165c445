"""Signs of life of processes that listen at no port, as files in the home; `alive` reads them, for probes.

A file holds the machine's monotonic clock, so setting the clock does not matter. A sign says that the process runs and
its threads get their turn, nothing about servers: no restart would bring those back.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

EVERY = 5.0  # seconds between two signs
DEAD = 60.0  # seconds without a sign
FOLDER = "alive"


def _tell_nobody(name: str) -> None:
    """Stand in for what also tells other machines (mailhub/running_versions.py)."""


announce: Callable[[str], None] = _tell_nobody


def show_life(name: str, home: Path) -> None:
    """Write a sign of life. A home without space raises nothing here; `alive` then finds an old sign."""
    with suppress(OSError):
        path = home / FOLDER / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{name}.{os.getpid()}")
        draft.write_text(f"{time.monotonic()}\n")
        draft.replace(path)


def find_age(name: str, home: Path) -> float | None:
    """Return the seconds since the last sign; None without one, or if it is from before the machine's start."""
    with suppress(OSError, ValueError):
        age = time.monotonic() - float((home / FOLDER / name).read_text())
        return age if age >= 0 else None
    return None


def keep_showing(name: str, home: Path, full_name: str = "") -> threading.Thread:
    """Start a thread that shows life until the process ends, also while it finishes its last calls.

    full_name: with its host, as other machines know it.
    """
    announce(full_name or name)

    def show_on() -> None:
        while True:
            show_life(name, home)
            time.sleep(EVERY)

    thread = threading.Thread(target=show_on, name="sign-of-life", daemon=True)
    thread.start()
    return thread


async def show_in_loop(name: str, home: Path) -> None:
    """Show life while the event loop runs; for a task cancelled at the end."""
    announce(name)
    while True:
        show_life(name, home)
        await asyncio.sleep(EVERY)
