"""The processes of the demo: sandbox vendors and `manage.py up`. They share one log and end with the demo."""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from mailhub.celery import app as celery_app
from sandbox.demo.home import only_end
from sandbox.vendor import books
from sandbox.vendor.server import hold_port

START_SECONDS = 240.0
STOP_SECONDS = 45.0  # `up` gives its processes 30
CALL_SECONDS = 30.0
SENDERS = 2  # processes
WORKERS = {"hub", *(f"vendors{number}" for number in range(1, SENDERS + 1))}
PR_SET_PDEATHSIG = 1
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Broken(Exception):
    """A process of the demo has ended or does not answer; one sentence."""


@dataclass(frozen=True, slots=True)
class DemoLimits:
    """The rate limit agreed with a vendor: `units` calls in any `seconds`."""

    units: int
    seconds: float

    @property
    def typed(self) -> str:
        return f"{self.units}/{self.seconds:g}"


class SandboxVendor:
    """A sandbox vendor in its own process, with its own clock and books. It ends with the demo.

    Above `limit` it answers 429.
    """

    def __init__(self, slug: str, limit: DemoLimits, home: Path, log: Path, *options: str) -> None:
        self.slug, self.limit = slug, limit
        self._books, self._urls = home / f"{slug}.books.jsonl", home / f"{slug}.url"
        for old in (self._books, self._urls):
            old.unlink(missing_ok=True)
        files = [f"--books={self._books}", f"--url-file={self._urls}"]
        self.process = _start(
            ["-m", "sandbox.vendor", "--until-stdin-closes", *files, f"--throttle={limit.typed}", *options], log
        )

    def open(self) -> None:
        """Wait until it answers. Raises Broken."""
        end = time.monotonic() + START_SECONDS
        while not self._urls.exists():
            self.check()
            if time.monotonic() > end:
                raise Broken(f"The sandbox vendor {self.slug} does not answer.")
            time.sleep(0.02)
        self.url, control = self._urls.read_text().split()
        self._control = http.client.HTTPConnection(urlsplit(control).netloc, timeout=CALL_SECONDS)

    def ledger(self) -> dict[str, Any]:
        """Return the running vendor's account of its calls, with its fullest window. Raises Broken."""
        return self._ask("GET", f"/ledger?window={self.limit.seconds:g}")

    def change(self, **settings: Any) -> None:
        """Change its behaviour from now on. Raises Broken."""
        self._ask("POST", "/settings", json.dumps(settings))

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        try:
            self._control.request(method, path, body)
            found: dict[str, Any] = json.loads(self._control.getresponse().read())
        except (OSError, http.client.HTTPException) as error:
            raise Broken(f"The sandbox vendor {self.slug} does not answer: {error}") from error
        if "error" in found:
            raise Broken(f"The sandbox vendor {self.slug} says: {found['error']}")
        return found

    def books(self) -> books.Books:
        return books.read(self._books)

    def check(self) -> None:
        if self.process.poll() is not None:
            raise Broken(f"The sandbox vendor {self.slug} ended with {self.process.returncode}.")


class Hub:
    """`manage.py up`: web, API, beat, workers and Flower, on free ports."""

    def __init__(self, log: Path, password: str) -> None:
        self._held = [_port(8000), _port(8001), _port(5555)]
        self.web, self.api, self.flower = (f"http://127.0.0.1:{one.getsockname()[1]}/" for one in self._held)
        self._password = password
        web, api, flower = (str(one.getsockname()[1]) for one in self._held)
        more = {"HOST": "127.0.0.1", "PORT": web, "API_PORT": api, "FLOWER_PORT": flower}
        more |= {"FLOWER_BASIC_AUTH": f"demo:{password}", "VENDOR_PROCESSES": str(SENDERS), "HUB_PROCESSES": "2"}
        self.process = _start(["-m", "mailhub", "up"], log, **more)

    def answering(self) -> set[str]:
        """Return which of web and Flower answer. Raises Broken if `up` has ended."""
        self.check()
        login = b64encode(f"demo:{self._password}".encode()).decode()
        asked = {
            "web": _ok(self.web + "admin/login/"),
            "Flower": _ok(self.flower, Authorization=f"Basic {login}"),
        }
        return {name for name, answers in asked.items() if answers}

    def check(self) -> None:
        if self.process.poll() is not None:
            raise Broken(f"manage.py up ended with {self.process.returncode}.")


class Processes:
    """A context manager that ends every process it started, and their children."""

    def __init__(self, home: Path) -> None:
        self.home, self.log = home, home / "demo.log"
        self.vendors: dict[str, SandboxVendor] = {}
        self.hub: Hub | None = None

    def __enter__(self) -> "Processes":
        self.log.write_text("")
        return self

    def note(self, text: str) -> None:
        """Append to the common log."""
        with self.log.open("a") as log:
            log.write(text)

    def start_vendor(self, slug: str, limit: DemoLimits, *options: str) -> None:
        with _undisturbed():
            self.vendors[slug] = SandboxVendor(slug, limit, self.home, self.log, *options)

    def start_hub(self, password: str) -> Hub:
        with _undisturbed():
            self.hub = Hub(self.log, password)
        return self.hub

    def open_vendors(self) -> None:
        """Wait until all answer. Raises Broken."""
        for vendor in self.vendors.values():
            vendor.open()

    def wait_for_tables(self) -> None:
        """Wait until `up` has migrated the database and printed its URL. Raises Broken.

        After the last migration Django still adds content types. If one were added here in between, `up` would fail.
        """
        while not (self.hub and self.hub.web in self.log.read_text()):
            self.check()
            time.sleep(0.02)

    def wait_for_hub(self, tell: Callable[[str], None]) -> None:
        """Wait until web, Flower and all workers answer, and report each one. Raises Broken."""
        began, missing = time.monotonic(), {"web", "Flower", *WORKERS}
        while missing:
            self.check()
            found = missing & {*(self.hub.answering() if self.hub else ()), *_workers()}
            missing -= found
            seconds = time.monotonic() - began
            if found:
                tell(f"{', '.join(sorted(found))}: at work ({seconds:.0f} s)")
            if missing and seconds > START_SECONDS:
                raise Broken(f"After {seconds:.0f} seconds there is no answer of {', '.join(sorted(missing))}.")
            time.sleep(0.1)

    def check(self) -> None:
        """Raise Broken if one of them is gone."""
        for each in (*self.vendors.values(), self.hub):
            if each:
                each.check()

    def __exit__(self, *_: object) -> None:
        only_end()
        with ExitStack() as stack:  # the last one first, so that calls in flight still reach their vendor
            for each in (*self.vendors.values(), self.hub):
                if each:
                    stack.callback(_end, each.process)


def _start(program: list[str], log: Path, **more: str) -> "subprocess.Popen[bytes]":
    """Start a process in its own session, so that Ctrl-C reaches only the demo, which ends the others in order."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *program],
            cwd=settings.BASE_DIR,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | more,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=partial(_end_with, os.getpid()),
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Block signals until the new process is registered; so a signal ends it with the others.

    Besides, Python only prints an exception of a handler during a fork, and the demo would continue.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """Have the kernel send SIGTERM at the demo's death, even by SIGKILL. Linux only."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin:
        process.stdin.close()


def _workers() -> set[str]:
    """Return the workers that answer a ping, without their machine."""
    answers = celery_app.control.ping(timeout=1.0, limit=len(WORKERS) + 1) or []
    return {name.partition("@")[0] for answer in answers for name in answer}


def _port(wanted: int) -> socket.socket:
    """Return a bound socket that does not listen. It reserves the port, but our server can still use it."""
    try:
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", wanted))  # without REUSEADDR, so a port in use raises
        return hold_port("127.0.0.1", wanted)
    except OSError:
        return hold_port("127.0.0.1", 0)


def _ok(url: str, **headers: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=CALL_SECONDS)
    try:
        connection.request("GET", parts.path, headers=headers)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
