"""The demo's own home: a folder below the installation's, with fresh servers, and nothing left running at the end.

manage.py enters it before Django reads its settings. Servers that the environment names are not used.
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
# Shorter than the defaults, so that the demo takes a minute; long enough that a slow machine loses no lease.
FASTER = {"SWEEP_SECONDS": "1", "QUEUE_LOOK_SECONDS": "2", "LEASE_SECONDS": "60"}
PREDECESSOR_SECONDS = 180.0  # the longest wait for an earlier demo's workers and servers to end
LOOK_SECONDS = 0.1
AGAIN_SECONDS = 0.01
LOCK, ENDING = "demo.lock", "ending"
INTERRUPTED, TERMINATED = 130, 143
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def own() -> Iterator[None]:
    """Set MAILHUB_HOME to the demo's home, emptied. At the end stop its servers, however it ends.

    Waits for an earlier demo that is still ending in this home. Raises EmbeddedError with one sentence if another one
    runs there. SIGTERM and SIGHUP end the demo like Ctrl-C.
    """
    _heed_signals()
    for name in NOT_OURS:
        os.environ.pop(name, None)
    os.environ.update(FASTER)
    home = embedded.Home(embedded.Home().path / "demo")
    os.environ["MAILHUB_HOME"] = str(home.path)
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_one(home.path / LOCK):
        try:
            _wait_for_leftovers(home.path / "up.lock")
            _tell("Starting a PostgreSQL and a Redis of the demo's own")
            embedded.reset_servers(home)
            yield
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        finally:
            only_end()
            embedded.stop_servers(home)


def only_end() -> None:
    """Ignore further signals, as a second Ctrl-C would leave processes running. The next demo waits for this one."""
    for number in (*ENDS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    with (
        suppress(OSError),
        (embedded.Home().path / LOCK).open("r+") as file,
    ):  # not truncated: the next demo may be reading it
        file.write(f"{os.getpid()} {ENDING}\n")


def _heed_signals() -> None:
    for number in ENDS:  # even if inherited as ignored
        signal.signal(number, _end)
    sys.unraisablehook = _end_again


def _end(number: int, _: object = None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(TERMINATED)


def _end_again(dropped: "sys.UnraisableHookArgs") -> None:
    """Resend a signal whose exception Python has dropped; print all other dropped exceptions as usual.

    Finalizers, callbacks of weak references and handlers at a fork cannot raise, so the demo would ignore a Ctrl-C
    there. Nothing can be raised here either, so the signal comes a moment later.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(dropped)
        return
    number = signal.SIGINT if issubclass(dropped.exc_type, KeyboardInterrupt) else signal.SIGTERM
    signal.signal(signal.SIGALRM, lambda *_: _end(number))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Raise EmbeddedError if another demo runs, or does not end within PREDECESSOR_SECONDS."""
    with path.open("a+") as file:
        for waited in _until_locked(file):
            holder, _, state = _said(file).partition(" ")
            if state != ENDING:
                raise embedded.EmbeddedError(f"The demo runs already: process {holder or 'unknown'}")
            if not waited:
                _tell(f"An earlier demo is still ending: waiting for process {holder}")
            elif waited > PREDECESSOR_SECONDS:
                raise embedded.EmbeddedError(f"An earlier demo does not end: process {holder}")
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _wait_for_leftovers(path: Path) -> None:
    """Wait for processes that a killed demo has left behind; they end, but not immediately."""
    with path.open("a") as file:
        for waited in _until_locked(file):
            if not waited:
                _tell("What an earlier demo started is still ending: waiting for it")
            elif waited > PREDECESSOR_SECONDS:
                raise embedded.EmbeddedError(f"Processes of an earlier demo do not end; they hold {path}")


def _until_locked(file: IO[str]) -> Iterator[float]:
    """Yield the seconds waited so far every tenth of a second, first 0, until the file is locked."""
    began = now = time.monotonic()
    while not _locked(file):
        yield now - began
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()


def _said(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip()


def _tell(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()


def _locked(file: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
