"""Two PostgreSQL of a test's own: a primary and its standby by streaming replication, whose receiver can be held."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import psycopg

from mailhub.embedded.binaries import postgres_programs
from mailhub.embedded.process import demoted_prefix
from tests.plugin import folders
from tests.ports import free_port
from tests.tiers import demand_slow
from tests.waiting import DEADLINE, exit_of, wait_until

FAST = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "shared_buffers=32MB", "-c", "max_connections=60"]


class Server:
    """One PostgreSQL on a socket in a folder of its own. settings: of its command line, beside FAST."""

    def __init__(self, folder: Path, **settings: str) -> None:
        demand_slow("a PostgreSQL of its own")
        self.folder, self.data, self.settings = folder, folder / "data", settings
        self.programs = postgres_programs()

    def create(self) -> None:
        """Makes the cluster and a database `mailhub`, and starts it."""
        self.folder.mkdir(mode=0o700)
        made = ["--username=mailhub", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync"]
        self.run("initdb", "-D", str(self.data), *made)
        self.start()
        self.ask("CREATE DATABASE mailhub")

    @property
    def url(self) -> str:
        port = f"&port={self.settings['port']}" if "port" in self.settings else ""
        return f"postgres://mailhub@/mailhub?host={quote(str(self.folder), safe='')}{port}"

    def run(self, program: str, *args: str) -> None:
        command = [*demoted_prefix(self.folder, self.programs / program), str(self.programs / program), *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        ours = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        options = ["-D", str(self.data), "-k", str(self.folder), "-c", "listen_addresses=", *FAST, *ours]
        program = self.programs / "postgres"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*demoted_prefix(self.folder, program), str(program), *options], stdout=log, stderr=log, cwd=self.folder
            )
        wait_until(self._answers, f"PostgreSQL answers: {(self.folder / 'log').read_text()[-500:]}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        conninfo = f"host={self.folder} port={self.settings.get('port', '5432')} user=mailhub dbname=postgres"
        with psycopg.connect(conninfo, autocommit=True) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        exit_of(self.process)

    def kill(self) -> None:
        """Kill all of its processes together, as a power cut does."""
        if self.process.poll() is None:
            for pid in [self.process.pid, *self.children()]:
                with_pid(pid, signal.SIGKILL)
            exit_of(self.process)

    def children(self) -> list[int]:
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        return list(map(int, found))

    def receiver(self) -> int:
        """The process that hears from the primary."""
        return self.child(b"walreceiver")

    def child(self, name: bytes) -> int:
        """The process of this name; 0: there is none."""
        for pid in self.children():
            if name in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return 0

    def hold_back_commits(self) -> None:
        """From here on keep asynchronous commits in memory: nobody writes them to a file."""
        self.ask("CHECKPOINT")
        os.kill(self.child(b"walwriter"), signal.SIGSTOP)


def with_pid(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Pair:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pair-", dir=folders()[0]))
        self.primary, self.standby = (
            Server(self.folder / name, port=str(free_port()), listen_addresses="127.0.0.1") for name in "ab"
        )
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _start(self) -> None:
        self.standby.folder.mkdir(mode=0o700)
        self.primary.create()
        self.primary.stop()
        shutil.copytree(self.primary.data, self.standby.data)
        self.standby.data.chmod(0o700)
        (self.standby.data / "standby.signal").touch()
        port = self.primary.settings["port"]
        with (self.standby.data / "postgresql.auto.conf").open("a") as config:
            config.write(f"primary_conninfo = 'host={self.primary.folder} port={port} user=mailhub'\n")
        self.primary.start()
        self.standby.start()
        wait_until(self.standby.receiver, "the standby hears from the primary")

    @property
    def addresses(self) -> str:
        """Return the URL of both servers."""
        hosts = ",".join(f"127.0.0.1:{server.settings['port']}" for server in (self.primary, self.standby))
        return f"postgres://mailhub@{hosts}/mailhub"

    @property
    def url(self) -> str:
        """Return the URL of the server that takes writes."""
        return f"{self.addresses}?target_session_attrs=read-write"

    def together(self) -> bool:
        """The standby has all that the primary wrote by now."""
        at = self.primary.ask("SELECT pg_current_wal_lsn()::text")[0][0]
        return bool(self.standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{at}'::pg_lsn")[0][0])

    def wait_for_standby(self) -> None:
        """From here on the primary confirms no commit before the standby has stored it."""
        self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
        self.primary.ask("SELECT pg_reload_conf()")
        in_force = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
        wait_until(lambda: self.primary.ask(in_force) == [(1,)], "the standby is synchronous")

    def hold(self) -> None:
        """From here on the standby hears nothing."""
        os.kill(self.standby.receiver(), signal.SIGSTOP)

    def fail_over(self) -> None:
        """Lose the primary, and everything that the standby had not read by then."""
        receiver = self.standby.receiver()
        self.primary.kill()
        with_pid(receiver, signal.SIGKILL)
        wait_until(self._promoted, "the standby is promoted")

    def delay_replay(self) -> None:
        """From here on the standby stores all that the primary writes, and applies none of it.

        It is restarted for that: after a reload nobody can tell when the delay begins.
        """
        self._restart_standby(recovery_min_apply_delay="1h")
        wait_until(self.standby.receiver, "the standby hears from the primary again")

    def has_received_all(self) -> bool:
        """Return True if the standby has stored all of the primary's writes so far."""
        at = self.primary.ask("SELECT pg_current_wal_lsn()::text")[0][0]
        received = f"SELECT coalesce(pg_last_wal_receive_lsn() >= '{at}'::pg_lsn, false)"
        return bool(self.standby.ask(received)[0][0])

    def promote_with_all_received(self) -> None:
        """Lose the primary; the standby applies all it has stored, because a promotion ends the delay."""
        self.primary.kill()
        wait_until(self._promoted, "the standby is promoted")

    def promote_as_applied(self) -> None:
        """The primary is lost, and somebody ends the recovery of the standby where it stands.

        So it is done to get back to a moment before a mistake; what was stored and not applied is gone.
        """
        self.primary.kill()
        self._restart_standby(recovery_target="immediate", recovery_target_action="promote")
        wait_until(lambda: not self.standby.ask("SELECT pg_is_in_recovery()")[0][0], "the standby is promoted")

    def _restart_standby(self, **settings: str) -> None:
        self.standby.stop()
        with (self.standby.data / "postgresql.auto.conf").open("a") as config:
            config.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.standby.start()

    def _promoted(self) -> bool:
        try:
            if self.standby.ask("SELECT pg_is_in_recovery()")[0][0]:
                self.standby.ask("SELECT pg_promote()")
                return False
        except psycopg.OperationalError:  # it starts anew after the loss of its receiver
            return False
        return True

    def end(self) -> None:
        for server in (self.primary, self.standby):
            if hasattr(server, "process"):
                server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
