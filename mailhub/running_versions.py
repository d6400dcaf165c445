"""Which version each running process is of: processes announce themselves in Redis; `status` and `doctor` read it.

Workers, beat, web, api and the receiver of bounces do so every few seconds, from a thread with a connection of its own.
Redis's clock decides which announcements have expired, so the machines' clocks do not matter.
"""

import os
import socket
import threading
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from campaigns.engine.failover import guard
from mailhub.command import program_version
from vendors import redis_clients

EVERY = 5.0  # seconds between two announcements
EXPIRES = 15  # seconds


class ProgramVersion(NamedTuple):
    """The version of a program, and its newest migrations."""

    version: str
    tables: str


class RunningProcess(NamedTuple):
    """A process, as web@host, or as a worker calls itself."""

    name: str
    program: ProgramVersion


def version_of_this_process() -> ProgramVersion:
    return ProgramVersion(program_version(), guard.newest_migrations())


def keep_announcing(name: str) -> None:
    """Announce this process until it ends, in a thread. name: its role, or a worker's name with its host."""
    if "@" not in name:
        name = f"{name}@{socket.gethostname()}"
    entry = f"{name} {os.getpid()}", version_of_this_process()._asdict()
    threading.Thread(target=_announce_again, args=entry, name="announces-version", daemon=True).start()


def _announce_again(field: str, program: dict[str, str]) -> None:
    over = threading.Event()
    while True:
        redis_clients.announce_process(settings.REDIS_URL, field, program, EXPIRES)
        over.wait(EVERY)


def read_processes() -> list[RunningProcess]:
    """Return the processes that have announced themselves lately. Raises WorkerRegistryUnreachable."""
    found = redis_clients.announced_processes(settings.REDIS_URL)
    return sorted(
        RunningProcess(field.partition(" ")[0], ProgramVersion(entry["version"], entry["tables"]))
        for field, entry in found.items()
    )


def read_callers() -> set[str]:
    """Return the newest migrations of the programs that may call: this one's, and those of the version before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tables, to_jsonb(s) ->> 'applied' FROM campaigns_store s")
        return {tables for row in cursor.fetchall() for tables in row if tables}
