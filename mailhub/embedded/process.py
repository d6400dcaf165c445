"""Server processes that outlive the process that started them; a lock shows whether they run.

PostgreSQL refuses to run as root, so root starts the servers as the home's owner or another unprivileged user.
"""

import fcntl
import os
import pwd
import signal
import subprocess
import time
from pathlib import Path

from mailhub.embedded.data_dir import EmbeddedError, open_private

# Another user id inside the namespace, while the files stay root's: no user is added, no file changes its owner.
OWN_NAMESPACE = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def demoted_prefix(home: Path, program: Path) -> list[str]:
    """Return the command prefix that runs the program as a user other than root; [] for an ordinary user.

    If user namespaces are forbidden (many containers), the home is given to the user nobody.
    """
    if os.geteuid() != 0:
        return []
    owner = home.stat()
    if owner.st_uid == 0:
        if _does_run(OWN_NAMESPACE, program):
            return OWN_NAMESPACE
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        owner = home.stat()
    for prefix in _prefixes_for_user(owner.st_uid, owner.st_gid):
        if _does_run(prefix, program):
            return prefix
    raise EmbeddedError(
        f"Root cannot run {program} as another user here: run as an ordinary user, or set DATABASE_URL and REDIS_URL"
    )


def _prefixes_for_user(uid: int, gid: int) -> list[list[str]]:
    plain = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    # With this capability the user can reach programs and data in folders closed to it, such as /root.
    return [[*plain, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"], plain]


def _does_run(prefix: list[str], program: Path) -> bool:
    try:
        return subprocess.run([*prefix, program, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


# The shell ends immediately, so the server is detached: no zombie, no terminal, no Ctrl-C.
DETACH = '"$@" & echo $! >"$0"'
FAST_STOP_SECONDS = 30.0
KILL_SECONDS = 30.0


class Daemon:
    """One server of a home.

    The server and its children inherit an open, locked file: while it is locked, one of them runs. A process id alone
    proves nothing after a crash or a reboot.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.lock = home / f"{name}.lock"
        self.log = home / f"{name}.log"

    def is_alive(self) -> bool:
        """Return True if the server, or a child it left behind, is running."""
        try:
            with self.lock.open() as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def process_id(self) -> int | None:
        """Return the server's process id if it is alive."""
        if not self.is_alive():
            return None
        text = self.lock.read_text().strip()
        return int(text) if text.isdigit() else None

    def start_server(self, command: list[str], folder: Path) -> None:
        """Start the command in the folder. The caller holds the home's lock and has checked alive()."""
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH")}
        with open(self.lock, "w", opener=open_private) as held, open(self.log, "ab", opener=open_private) as log:
            fcntl.flock(held, fcntl.LOCK_EX)
            subprocess.run(
                ["/bin/sh", "-c", DETACH, str(self.lock), *command],
                cwd=folder,
                env=keep | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
                pass_fds=[held.fileno()],
                check=True,
            )

    def stop_server(self, fast: signal.Signals) -> bool:
        """Stop the server by the signal, or by SIGKILL if it does not end. Returns False if none was running."""
        if not self.is_alive():
            return False
        for number, seconds in ((fast, FAST_STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            self._send_signal(number)
            if self._ended_within(seconds):
                return True
        raise EmbeddedError(f"{self.name} does not end; its log is {self.log}")

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 2000))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-6:])

    def _send_signal(self, number: signal.Signals) -> None:
        pid = self.process_id()
        try:
            if pid is not None:
                os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has ended; its children, which hold the lock, are ending
        except PermissionError:
            raise EmbeddedError(f"{self.name} (process {pid}) belongs to another user: stop it as that user") from None

    def _ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True
