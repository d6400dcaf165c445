"""Python programs as processes of their own, without most of the processor time that their imports take.

`start` asks a process that has imported the packages that all of them need, and nothing that reads settings, for a fork
of itself. The fork has its own arguments, environment and files, and runs the program as `python -m program`, `python
file` or `python -c text` does. What only a new interpreter can show (its options, its path, how it starts) is for
subprocess.

Celery's programs and Django's commands read the settings first, half a second long. From the second time on that one has
the same environment as one before it, it is a fork of such a fork, in which Django is set up.
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

import django
from django.conf import settings
from django.db import connections

PROJECT = Path(__file__).parents[1]
# Packages, and parts of them that are imported late; none reads settings, connects or starts a thread when imported.
MODULES = (
    *("celery.bin.celery", "celery.apps.worker", "celery.app.control", "celery.worker.consumer", "tomllib"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "celery.concurrency.solo", "celery.backends.redis"),
    *("celery.contrib.django.task", "celery.fixups.django", "kombu.transport.redis", "multiprocessing.sharedctypes"),
    *("django.core.management", "django.db.backends.postgresql.base", "django.contrib.postgres.fields"),
    *("django.contrib.staticfiles.apps", "django.contrib.admin.apps", "django.contrib.admin.views.main"),
    *("cryptography.fernet", "cryptography.hazmat.primitives.ciphers.aead", "email_validator", "pydantic.networks"),
    *("cryptography.hazmat.primitives.serialization", "pydantic.dataclasses", "standardwebhooks", "limits"),
    *("babel.dates", "babel.numbers", "cron_descriptor", "phonenumbers", "jinja2.sandbox", "httptools", "orjson"),
    *("uvloop", "sandbox.vendor.process"),
)
GREETING = b"ready\n"
WITH_DJANGO = "with-django"
OF_A_TEST = "PYTEST_CURRENT_TEST"  # the one variable that no program reads


class Process:
    """What a test needs of subprocess.Popen."""

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
        process = Process(_server(arguments, env), request, [reads, out, errors])
    finally:
        os.close(reads)
    if pipe:
        process.stdin = open(writes, "wb", buffering=0)  # noqa: SIM115
    return process


def run(arguments: list[str], *, env: dict[str, str], timeout: float) -> "subprocess.CompletedProcess[str]":
    """As subprocess.run of Python with what it writes as text."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = start(arguments, env=env, stdout=out, stderr=errors)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


class Server:
    """A process that is forked; it ends with the one that made it. env: Django is set up in it, with these variables."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mailhub-forks-")
        self.address = str(Path(self._folder.name, "socket"))
        self.owner = os.getpid()
        arguments = ["-m", "tests.forks", self.address]
        reads, writes = os.pipe()
        with open(reads, "rb") as said, open(writes, "wb") as says:
            self._process: subprocess.Popen[bytes] | Process
            if env is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-u", *arguments],
                    cwd=PROJECT,
                    stdin=subprocess.PIPE,
                    stdout=says,
                    start_new_session=True,
                )
            else:
                self._process = start([*arguments, WITH_DJANGO], env=env, stdout=says, stderr=sys.__stderr__, pipe=True)
            says.close()
            assert said.readline() == GREETING
        atexit.register(self.end)

    def end(self) -> None:
        if os.getpid() != self.owner:
            return  # a forked child
        self._process.kill()
        self._process.wait()
        assert self._process.stdin
        self._process.stdin.close()
        self._folder.cleanup()


_servers: dict[tuple[int, str], Server] = {}
_seen: set[str] = set()
_starting = threading.RLock()  # one server starts another


def _server(arguments: list[str], env: dict[str, str]) -> Server:
    """Which one is forked for this program."""
    text = ""
    if arguments[0] == "manage.py" or arguments[:2] == ["-m", "celery"]:
        variables = {name: value for name, value in env.items() if name != OF_A_TEST}
        text = json.dumps(variables, sort_keys=True)
    with _starting:
        if text not in _seen:
            _seen.add(text)
            text = ""
        if text:
            _made("", None)  # of which it is a fork
        return _made(text, variables if text else None)


def _made(text: str, env: dict[str, str] | None) -> Server:
    key = os.getpid(), text
    if key not in _servers:
        _servers[key] = Server(env)
    return _servers[key]


def serve(address: str, with_django: bool) -> dict[str, Any]:
    """Answers with the id of a fork, and with its status when it has ended. Returns in each fork: its request."""
    before = dict(os.environ)
    _prepare(with_django)
    more = {name: value for name, value in os.environ.items() if before.get(name) != value}
    gc.collect()
    gc.freeze()
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
            os._exit(0)  # whoever made this process has ended
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
                request["env"] = more | request["env"]
                _settle(request, files)
                return request
            for file in files:
                os.close(file)
            lines[child] = line
            _say(line, child)


def _prepare(with_django: bool) -> None:
    for name in MODULES:
        importlib.import_module(name)
    if with_django:
        importlib.import_module("mailhub.celery")
        django.setup()
        assert "campaigns.tasks" not in sys.modules, "it has a flag in memory that forks would share"
        assert not any(connection.connection for connection in connections.all(initialized_only=True))
    assert settings.configured == with_django and threading.active_count() == 1


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
    """What a new process has: no file of the one that it was forked from, its own surroundings, no signal handled."""
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
    _become(serve(sys.argv[1], WITH_DJANGO in sys.argv)["arguments"])
