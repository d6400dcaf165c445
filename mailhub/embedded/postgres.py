"""The private PostgreSQL: one cluster, one role and one database, all called mailhub."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

from psycopg import pq
from psycopg.conninfo import make_conninfo

from mailhub.embedded.binaries import postgres_programs
from mailhub.embedded.data_dir import EmbeddedError, Home
from mailhub.embedded.process import demoted_prefix

SETTINGS = {
    "listen_addresses": "",  # no TCP port; access to the 0700 folder of the socket is the authentication
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
}
ANSWER_SECONDS = 10
UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Postgres:
    """The PostgreSQL of a home."""

    name = "postgres"
    title = "PostgreSQL"
    variable = "DATABASE_URL"
    fast_stop = signal.SIGINT
    way_out = ""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.data = home.path / "postgres"

    def url(self) -> str:
        return f"postgres://mailhub@/mailhub?host={quote(str(self.home.socket_dir()), safe='')}"

    def answers(self) -> bool:
        """Return True if it accepts connections, even if all are in use; False while it recovers."""
        where = make_conninfo(
            host=str(self.home.socket_dir()), user="mailhub", dbname="mailhub", connect_timeout=ANSWER_SECONDS
        )
        return pq.PGconn.ping(where.encode()) == pq.Ping.OK

    def socket(self) -> Path:
        return self.home.socket_dir() / ".s.PGSQL.5432"

    def prepare(self, durable: bool) -> None:
        """Create the cluster if there is none; remove files that a crash left."""
        if not self.data.exists():
            self._create_cluster([] if durable else ["--no-sync"])
        # The daemon's lock is free, so none of our processes runs; the id in these files may be another's by now.
        lock = self.home.socket_dir() / ".s.PGSQL.5432.lock"
        for stale in (self.data / "postmaster.pid", lock, self.socket()):
            stale.unlink(missing_ok=True)

    def command(self, durable: bool) -> list[str]:
        """Return the server's command line. durable=False, for tests: a power cut may lose everything."""
        settings = SETTINGS | ({} if durable else UNSAFE_BUT_FAST)
        server = self._find_programs() / "postgres"
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        place = ["-D", str(self.data), "-k", str(self.home.socket_dir())]
        return [*demoted_prefix(self.home.path, server), str(server), *place, *options]

    def _find_programs(self) -> Path:
        made_by = self.data / "PG_VERSION"
        return postgres_programs(int(made_by.read_text()) if made_by.exists() else None)

    def _create_cluster(self, options: list[str]) -> None:
        """Create the cluster under another name and rename it, so it is never incomplete."""
        draft = self.data.with_name("postgres.new")
        shutil.rmtree(draft, ignore_errors=True)
        programs = self._find_programs()
        prefix = demoted_prefix(self.home.path, programs / "initdb")
        initdb = [*prefix, str(programs / "initdb"), "-D", str(draft), "--username=mailhub", "--auth=trust"]
        self._run_program([*initdb, "--encoding=UTF8", "--locale=C", *options])
        # one statement in single-user mode, which needs no server to start, watch and stop
        self._run_program(
            [*prefix, str(programs / "postgres"), "--single", "-D", str(draft), "postgres"],
            "CREATE DATABASE mailhub\n",
        )
        draft.rename(self.data)

    def _run_program(self, command: list[str], statements: str = "") -> None:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        done = subprocess.run(
            command,
            input=statements,
            env=environment,
            cwd=self.home.path,
            capture_output=True,
            text=True,
            umask=0o077,
        )
        if done.returncode or "ERROR" in done.stderr:
            raise EmbeddedError(f"PostgreSQL could not make its data folder: {done.stderr.strip() or done.stdout}")
