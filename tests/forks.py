"""Python programs as separate processes, without most of the processor time of their imports.

`start` asks a server process to fork. The server has imported the packages that all programs need, and nothing that
reads settings. The fork has its own arguments, environment and files, and runs the program as `python -m program`,
`python file` or `python -c text` does. Use subprocess for tests of a new interpreter itself (its options, its path, its
start).
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from tests.waiting import exit_of

PROJECT = Path(__file__).parents[1]
# Packages, and their late imports; none reads settings, connects or starts a thread on import.
MODULES = (
    *("celery.bin.celery", "celery.apps.worker", "celery.app.control", "celery.worker.consumer", "tomllib"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "celery.concurrency.solo", "celery.backends.redis"),
    *("celery.contrib.django.task", "celery.fixups.django", "kombu.transport.redis", "multiprocessing.sharedctypes"),
    *("django.core.management", "django.db.backends.postgresql.base", "django.contrib.postgres.fields"),
    *("django.contrib.staticfiles.apps", "django.contrib.admin.apps", "django.contrib.admin.views.main"),
    *("cryptography.fernet", "cryptography.hazmat.primitives.ciphers.aead", "email_validator", "pydantic.networks"),
    *("cryptography.hazmat.primitives.serialization", "pydantic.dataclasses", "standardwebhooks", "limits"),
    *("babel.dates", "babel.numbers", "cron_descriptor", "phonenumbers", "jinja2.sandbox", "httptools", "orjson"),
    *("uvloop", "sandbox.vendor.process", "prometheus_client.core", "dns.resolver", "dns.asyncquery", "jinja2.meta"),
    *("django.test", "django.views.debug", "django.views.defaults", "django.conf.urls.i18n"),
    *("django.contrib.auth.password_validation", "django.contrib.postgres.apps", "django.contrib.sessions.backends.db"),
    *("django_celery_beat.tzcrontab", "django.db.migrations.writer", "whitenoise.middleware", "whitenoise.storage"),
)
GREETING = b"ready\n"


class Process:
    """The part of subprocess.Popen that tests need."""

    returncode: int | None = None

    def __init__(self, server: "Server", request: dict[str, Any], files: list[int]) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(server.address)
        text = json.dumps(request).encode()
        socket.send_fds(self._line, [len(text).to_bytes(8, "big")], files)
        self._line.sendall(text)
        self._answers = self._line.makefile("rb")
        self.pid = int(self._answers.readline())
        self.stdin: IO[bytes] | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            said = self._answers.readline()
            self.returncode = int(said) if said else -signal.SIGKILL
            self._answers.close()
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: list[str],
    *,
    env: dict[str, str],
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
    pipe: bool = False,
    start_new_session: bool = False,
) -> Process:
    """As subprocess.Popen([sys.executable, *arguments]); stdout: also of its errors unless they go to stderr.

    pipe: to its stdin, which is empty otherwise.
    """
    out = 1 if stdout is None else stdout.fileno()
    errors = stderr.fileno() if stderr else 2 if stdout is None else out
    request = {"arguments": arguments, "env": env, "session": start_new_session}
    reads, writes = os.pipe() if pipe else (os.open(os.devnull, os.O_RDONLY), -1)
    try:
        process = Process(_server(), request, [reads, out, errors])
    finally:
        os.close(reads)
    if pipe:
        process.stdin = open(writes, "wb", buffering=0)  # noqa: SIM115
    return process


def run(arguments: list[str], *, env: dict[str, str], timeout: float) -> "subprocess.CompletedProcess[str]":
    """Run Python like subprocess.run, with its output as text."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = start(arguments, env=env, stdout=out, stderr=errors)
        try:
            code = exit_of(process, timeout)
        finally:
            process.kill()
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


class Server:
    """The process to fork; it ends with its maker."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mailhub-forks-")
        self.address = str(Path(self._folder.name, "socket"))
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.forks", self.address],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == GREETING
        atexit.register(self.end)

    def end(self) -> None:
        if os.getpid() != self.owner:
            return  # a forked child
        with self._process:  # closes its pipes
            self._process.kill()
        self._folder.cleanup()


_servers: dict[int, Server] = {}
_starting = threading.Lock()


def _server() -> Server:
    with _starting:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = Server()
        return _servers[os.getpid()]


def serve(address: str) -> dict[str, Any]:
    """Answer with a fork's id, and with its status at its end. Returns, in each fork only, the fork's request."""
    for name in MODULES:
        importlib.import_module(name)
    assert not settings.configured and threading.active_count() == 1
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # of the forks, which import as much again: as in tests/plugin.py
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    print(GREETING.decode(), end="", flush=True)
    lines: dict[int, socket.socket] = {}
    while True:
        ready = select.select([0, ended, listener], [], [])[0]
        if 0 in ready:
            os._exit(0)  # the maker of this process has ended
        if ended in ready:
            os.read(ended, 4096)
            _tell(lines)
        if listener in ready:
            line, _ = listener.accept()
            length, files, _, _ = socket.recv_fds(line, 8, 3)
            request = json.loads(line.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
            child = os.fork()
            if not child:
                for one in (listener, line, *lines.values()):
                    one.detach()  # closed below, before its number is another file's
                _settle(request, files)
                return request
            for file in files:
                os.close(file)
            lines[child] = line
            _say(line, child)


def _tell(lines: dict[int, socket.socket]) -> None:
    while lines:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with lines.pop(child) as line:
            _say(line, os.waitstatus_to_exitcode(status))


def _say(line: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        line.sendall(f"{number}\n".encode())


def _settle(request: dict[str, Any], files: list[int]) -> None:
    """Set up the fork like a new process: no inherited files, its own environment, no signal handlers."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1024)
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    random.seed()


def _become(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _become(serve(sys.argv[1])["arguments"])
