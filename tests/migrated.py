"""The processes of a test run migrate one database; the others are copies of it.

Migrating takes a process more than five seconds of a processor, a copy less than one.
"""

import fcntl
import os
import signal
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from django.db import connection

from tests import forked

TEMPLATE = "migrated"
MAKING_SECONDS = 1800.0  # until there must be a database; the time of the first test, which needs it, stands still


class Migrated:
    """Whether the test database is made by migrations or as a copy; whoever makes the first one lets others wait."""

    def __init__(self) -> None:
        self._left, _ = signal.setitimer(signal.ITIMER_REAL, MAKING_SECONDS)  # pytest-timeout's
        home = os.environ.get("MAILHUB_HOME", "")
        # Alone there is nobody to copy for; on a server of somebody else's a copy would stay behind.
        self._lock: IO[str] | None = None
        if forked.NUMBER not in os.environ or not home or home not in unquote(os.environ["DATABASE_URL"]):
            return
        self._made = Path(home, TEMPLATE)
        self._lock = Path(home, f"{TEMPLATE}.lock").open("w")  # noqa: SIM115 (held until the database is there)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._made.exists():
            connection.settings_dict["TEST"]["TEMPLATE"] = TEMPLATE
            self._release()

    def ready(self) -> None:
        """The test database is there: others may have copies of it."""
        if self._lock is not None:
            self._give_copies()
        signal.setitimer(signal.ITIMER_REAL, self._left)

    def _give_copies(self) -> None:
        from campaigns.engine.failover import guard  # when Django knows its models

        source = connection.settings_dict["NAME"]
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM campaigns_store")  # it names the database: a copy's own migrate enters that
        connection.close()
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'CREATE DATABASE {TEMPLATE} TEMPLATE "{source}"')
        guard.finish_migration()
        self._made.touch()
        self._release()

    def _release(self) -> None:
        assert self._lock
        self._lock.close()
        self._lock = None
