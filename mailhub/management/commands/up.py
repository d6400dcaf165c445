"""`manage.py up`: everything that mailhub needs, in one terminal."""

import fcntl
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from honcho.environ import parse_procfile

from mailhub import embedded, environment, presence
from mailhub.supervisor import Supervisor
from vendors import outages

SENDERS = "worker-vendors"
BOUNCES = "bounces"


class Command(BaseCommand):
    help = (
        "Bring the database up to date and run the Procfile: web, API, beat, workers, Flower. A process that ends is "
        "started again, after 1 s, then 2, 4 and up to 30. Ctrl-C ends it all. "
        "PORT, API_PORT, FLOWER_PORT and FLOWER_BASIC_AUTH (user:password) may be set."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        home = embedded.Home()
        with _allow_only_one(home):
            try:
                code = self._run_processes()
            finally:
                embedded.stop_servers(home)
        sys.exit(code)

    def _run_processes(self) -> int:
        web, api, flower = _free_port("PORT", 8000), _free_port("API_PORT", 8001), _free_port("FLOWER_PORT", 5555)
        password = flower_password(embedded.Home().path)
        os.environ["PYTHONUNBUFFERED"] = "1"
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        began = time.monotonic()
        self.stdout.write("Bringing the database up to date")
        self.stdout.flush()
        call_command("migrate", verbosity=0, interactive=False, wait=True)
        self.stdout.write(f"The database is up to date ({time.monotonic() - began:.0f} s)")
        if why := presence.look_for_mark():
            self.stdout.write(f"Nothing is called: {why}")
        self.stdout.write(f"mailhub  http://127.0.0.1:{web}/")
        self.stdout.write(f"API      http://127.0.0.1:{api}/api/v1/docs")
        self.stdout.write(f"Flower   http://127.0.0.1:{flower}/  user and password: {password}")
        self.stdout.write("Ctrl-C ends them and all workers.")
        self.stdout.flush()
        os.chdir(settings.BASE_DIR)
        return Supervisor(sys.stdout, _note_for_status).run_until_signal(process_formation())


def _note_for_status(process: str, sentence: str) -> None:
    """Note it for `status`, which runs in another process."""
    outages.note_outage(f"{outages.PROCESS}{process}", sentence)


def read_procfile() -> dict[str, str]:
    """Return the commands of the Procfile by the names of their processes."""
    places = (settings.BASE_DIR / "Procfile", settings.BASE_DIR / "mailhub" / "Procfile")  # the second in a wheel
    processes: dict[str, str] = parse_procfile(next(path for path in places if path.exists()).read_text()).processes
    return processes


def process_formation() -> dict[str, str]:
    """Return the Procfile's processes. The senders' process runs VENDOR_PROCESSES times, numbered after a dot.

    The process for bounces runs only if BOUNCE_RECEIVER says where it listens.
    """
    many = int(environment.number_setting("VENDOR_PROCESSES", 2))
    numbered = {SENDERS: [f"{SENDERS}.{number}" for number in range(1, many + 1)]}
    if not settings.BOUNCE_RECEIVER:
        numbered[BOUNCES] = []
    return {name: command for line, command in read_procfile().items() for name in numbered.get(line, [line])}


def flower_password(home: Path) -> str:
    """Return where Flower's user and password are found; create them if none are given.

    They are not printed, because terminal output is often kept.
    """
    if "FLOWER_BASIC_AUTH" in os.environ:
        return "as FLOWER_BASIC_AUTH says"
    made = os.environ["FLOWER_BASIC_AUTH"] = f"mailhub:{secrets.token_urlsafe(24)}"
    path = home / "flower_password"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(made + "\n")
    return f"in {path}"


@contextmanager
def _allow_only_one(home: embedded.Home) -> Iterator[None]:
    """Allow one `up` in a home. The lock ends with the process, however that ends."""
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home.path / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise CommandError(f"mailhub is up already: process {lock.read().strip()}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _free_port(variable: str, default: int) -> int:
    """Return the port that the variable names. Raises CommandError if something else listens there."""
    port = int(os.environ.setdefault(variable, str(default)))
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            raise CommandError(f"Port {port} is in use: set {variable} to another one") from None
    return port
