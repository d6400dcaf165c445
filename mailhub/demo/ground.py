"""The demo's own ground: a home below the installation's, with fresh servers, and nothing left running at the end.

Entered by manage.py before Django reads its settings. Whatever servers the environment names are not the demo's.
"""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mailhub import embedded

NOT_OURS = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "RESULT_BACKEND", "HTTPS", "ALLOWED_HOSTS")
# Shorter than in life, so that a minute shows what takes an evening; a slow machine must not lose a lease.
PACE = {"SWEEP_SECONDS": "1", "QUEUE_LOOK_SECONDS": "2", "LEASE_SECONDS": "60"}
PREDECESSOR_SECONDS = 60.0
INTERRUPTED, TERMINATED = 130, 143


@contextmanager
def own() -> Iterator[None]:
    """MAILHUB_HOME becomes the demo's home, empty; its servers are stopped at the end, whatever ended it.

    Raises EmbeddedError, with one sentence, if another demo runs in this home. SIGTERM and SIGHUP end it like Ctrl-C.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even where it was inherited as ignored
    for name in NOT_OURS:
        os.environ.pop(name, None)
    os.environ.update(PACE)
    home = embedded.Home(embedded.Home().path / "demo")
    os.environ["MAILHUB_HOME"] = str(home.path)
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_one(home.path / "demo.lock"):
        try:
            _wait_until_free(home.path / "up.lock")
            embedded.reset(home)
            yield
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        finally:
            hear_nothing()
            embedded.stop(home)


def hear_nothing() -> None:
    """From here on only the clean-up: a second Ctrl-C would leave things running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _end(*_: object) -> None:
    sys.exit(TERMINATED)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open("a+") as place:
        if not _locked(place):
            place.seek(0)
            raise embedded.EmbeddedError(f"The demo runs already: process {place.read().strip() or 'unknown'}")
        place.truncate(0)
        place.write(f"{os.getpid()}\n")
        place.flush()
        yield


def _wait_until_free(path: Path) -> None:
    """A demo that was killed leaves processes that end by themselves, but not at once."""
    end = time.monotonic() + PREDECESSOR_SECONDS
    with path.open("a") as place:
        while not _locked(place):
            if time.monotonic() > end:
                raise embedded.EmbeddedError(f"Processes of an earlier demo do not end; they hold {path}")
            time.sleep(0.1)


def _locked(place: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
