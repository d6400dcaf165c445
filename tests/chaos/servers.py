"""A PostgreSQL and a Redis of the chaos run's own, which can be lost at any moment and come back."""

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path

from django.db import connection

from mailhub import embedded
from mailhub.embedded.process import Daemon
from vendors import redis_clients

NAMES = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "RESULT_BACKEND")


class Servers:
    """Started with their addresses in the environment, before Django is set up."""

    def __init__(self) -> None:
        self._home = embedded.Home(tempfile.mkdtemp(prefix="mailhub-chaos-"))
        os.environ["MAILHUB_HOME"] = str(self._home.path)
        self._ensure()

    @property
    def database(self) -> str:
        return os.environ["DATABASE_URL"]

    def _ensure(self) -> None:
        for name in NAMES:
            os.environ.pop(name, None)  # what the environment names is not started
        os.environ.update(embedded.ensure_servers(self._home))

    def restart_postgres(self) -> None:
        """Kills PostgreSQL, which recovers from its log."""
        Daemon("postgres", self._home.path).stop_server(signal.SIGQUIT)
        self._ensure()

    def kill_a_backend(self, by: random.Random) -> None:
        """kill -9: PostgreSQL then cuts off all others, and recovers by itself."""
        pids = self._backends()
        if pids:
            os.kill(by.choice(pids), signal.SIGKILL)

    def end_a_backend(self, by: random.Random) -> None:
        """Cuts one connection of the workers."""
        if pids := self._backends():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [by.choice(pids)])

    @staticmethod
    def _backends() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return [pid for (pid,) in cursor.fetchall()]

    def flush_redis(self) -> None:
        """FLUSHALL: all tasks, results and windows are gone, the connections stay."""
        redis = redis_clients.make_client(os.environ["REDIS_URL"])
        redis.flushall()
        redis.close()

    def restart_redis_empty(self) -> None:
        """All notifications, results and windows are gone."""
        Daemon("redis", self._home.path).stop_server(signal.SIGKILL)
        shutil.rmtree(Path(self._home.path, "redis"))
        self._ensure()

    def end(self) -> None:
        embedded.reset_servers(self._home)
        shutil.rmtree(self._home.path, ignore_errors=True)
