"""A PostgreSQL and a Redis of the chaos run's own, which can be lost at any moment and come back."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from mailhub import embedded
from mailhub.embedded.daemon import Daemon

NAMES = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "RESULT_BACKEND")


class Servers:
    """Started with their addresses in the environment, before Django is set up."""

    def __init__(self) -> None:
        self._home = embedded.Home(tempfile.mkdtemp(prefix="mailhub-chaos-"))
        os.environ["MAILHUB_HOME"] = str(self._home.path)
        self._ensure()

    def _ensure(self) -> None:
        for name in NAMES:
            os.environ.pop(name, None)  # what the environment names is not started
        os.environ.update(embedded.ensure(self._home))

    def restart_postgres(self) -> None:
        """It ends without a last word to anybody and recovers from its log."""
        Daemon("postgres", self._home.path).stop(signal.SIGQUIT)
        self._ensure()

    def restart_redis_empty(self) -> None:
        """All bells, results and windows are gone."""
        Daemon("redis", self._home.path).stop(signal.SIGKILL)
        shutil.rmtree(Path(self._home.path, "redis"))
        self._ensure()

    def end(self) -> None:
        embedded.reset(self._home)
        shutil.rmtree(self._home.path, ignore_errors=True)
