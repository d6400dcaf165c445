"""The demo's own home: a folder below the installation's, with fresh servers, and nothing left running at the end.

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
PREDECESSOR_SECONDS = 180.0  # workers and servers have time to end in order
LOOK_SECONDS = 0.1
LOCK, ENDING = "demo.lock", "ending"
INTERRUPTED, TERMINATED = 130, 143


@contextmanager
def own() -> Iterator[None]:
    """MAILHUB_HOME becomes the demo's home, empty; its servers are stopped at the end, whatever ended it.

    One that still ends in this home is waited for; raises EmbeddedError, with one sentence, if one runs in it. SIGTERM
    and SIGHUP end it like Ctrl-C.
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
    with _only_one(home.path / LOCK):
        try:
            _wait_for_leftovers(home.path / "up.lock")
            embedded.reset(home)
            yield
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        finally:
            only_end()
            embedded.stop(home)


def only_end() -> None:
    """From here on only the clean-up: a second Ctrl-C would leave things running, and the next demo waits for it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError), (embedded.Home().path / LOCK).open("r+") as place:  # not emptied: somebody may be reading
        place.write(f"{os.getpid()} {ENDING}\n")


def _end(*_: object) -> None:
    sys.exit(TERMINATED)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Raises EmbeddedError if another one runs, or does not end."""
    with path.open("a+") as place:
        for waited in _until_locked(place):
            holder, _, state = _said(place).partition(" ")
            if state != ENDING:
                raise embedded.EmbeddedError(f"The demo runs already: process {holder or 'unknown'}")
            if not waited:
                _tell(f"An earlier demo is still ending: waiting for process {holder}")
            elif waited > PREDECESSOR_SECONDS:
                raise embedded.EmbeddedError(f"An earlier demo does not end: process {holder}")
        place.truncate(0)
        place.write(f"{os.getpid()}\n")
        place.flush()
        yield


def _wait_for_leftovers(path: Path) -> None:
    """A demo that was killed leaves processes that end by themselves, but not at once."""
    with path.open("a") as place:
        for waited in _until_locked(place):
            if not waited:
                _tell("What an earlier demo started is still ending: waiting for it")
            elif waited > PREDECESSOR_SECONDS:
                raise embedded.EmbeddedError(f"Processes of an earlier demo do not end; they hold {path}")


def _until_locked(place: IO[str]) -> Iterator[float]:
    """Ends with the file locked; until then, every tenth of a second, for how long it was waited; first 0."""
    began = now = time.monotonic()
    while not _locked(place):
        yield now - began
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()


def _said(place: IO[str]) -> str:
    place.seek(0)
    return place.read().strip()


def _tell(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()


def _locked(place: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
