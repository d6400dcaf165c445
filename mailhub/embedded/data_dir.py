"""The home: the folder with data, logs, locks and sockets of an installation's own servers."""

import fcntl
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mailhub import environment


class EmbeddedError(Exception):
    """A server cannot be found, started or stopped. The message is one sentence that says what to do."""


# A socket's path may have 103 bytes (macOS) or 107 (Linux); PostgreSQL adds "/.s.PGSQL.5432" to its folder.
LONGEST_FOLDER = 85
# Commas separate hosts in libpq, and libraries differ in how they read blanks and percent signs.
PLAIN = re.compile(r"[A-Za-z0-9._/-]+")


def open_private(path: str, flags: int) -> int:
    """Open a file so that only its owner may read it."""
    return os.open(path, flags, 0o600)


def _close_file(path: str) -> None:
    """Close a file to everybody but its owner. By descriptor, as a link in its place would lead to another file."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.fchmod(file, stat.S_IMODE(found.st_mode) & 0o700)
    finally:
        os.close(file)


class Home:
    """The home of one installation. Several processes may use it; lock() makes them take turns."""

    def __init__(self, path: Path | str | None = None) -> None:
        """`path`: the folder; None: the installation's, by MAILHUB_HOME."""
        self.path = Path(path or environment.home_folder("MAILHUB_HOME")).resolve()

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the home's lock: only one process at a time may start, stop or reset its servers."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._close_to_others()
            handle = open(self.path / "lock", "a", opener=open_private)  # noqa: SIM115 (closed below)
        except PermissionError:
            raise EmbeddedError(f"{self.path} belongs to another user: set MAILHUB_HOME to a folder of yours") from None
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _close_to_others(self) -> None:
        """Close an existing home, or one from an older version, to others, with the files in it."""
        owner = self.path.stat()
        if owner.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            return  # opening its lock reports it
        if owner.st_mode & stat.S_ISVTX:
            return  # a folder for all, like /tmp
        if owner.st_mode & 0o077:
            self.path.chmod(0o700)
        for one in os.scandir(self.path):
            if one.is_file(follow_symlinks=False) and one.stat(follow_symlinks=False).st_mode & 0o077:
                with suppress(OSError):  # gone, or somebody else's
                    _close_file(one.path)

    def private_folder(self, name: str) -> Path:
        """Return a private folder in the home that belongs to the home's owner; created if missing."""
        return self._make_private(self.path / name)

    def socket_dir(self) -> Path:
        """Return the sockets' folder: in the home, or in a shorter path if the home's is too long or not plain."""
        inside = self.path / "run"
        return inside if self._fits_socket_path(inside) else self._recorded_folder() or self._short_folder()

    def make_sockets(self) -> Path:
        """Return sockets(), created if missing. Raises EmbeddedError if the folder belongs to another user."""
        folder = self._make_private(self.socket_dir())
        if folder.parent != self.path:
            # recorded, because XDG_RUNTIME_DIR or TMPDIR may differ in the next process
            (self.path / "sockets").write_text(str(folder))
        return folder

    def _make_private(self, folder: Path) -> Path:
        owner = self.path.stat()
        try:
            folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(folder, owner.st_uid, owner.st_gid)
        except FileExistsError:
            pass
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner.st_uid or found.st_mode & 0o077:
            raise EmbeddedError(f"{folder} is not a private folder of the owner of {self.path}: remove it")
        return folder

    def _fits_socket_path(self, folder: Path) -> bool:
        return len(os.fsencode(folder)) <= LONGEST_FOLDER and PLAIN.fullmatch(str(folder)) is not None

    def _short_folder(self) -> Path:
        name = self._short_name()
        for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
            if base and os.access(base, os.W_OK | os.X_OK) and self._fits_socket_path(Path(base, name)):
                return Path(base, name)
        return Path("/tmp", name)  # noqa: S108 (private, its owner is checked, and named after this home)

    def _short_name(self) -> str:
        return "mailhub-" + hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]

    def _recorded_folder(self) -> Path | None:
        """Return the recorded folder. A moved or copied home ignores the record, which belongs to another home."""
        try:
            folder = Path((self.path / "sockets").read_text())
        except FileNotFoundError:
            return None
        return folder if folder.name == self._short_name() else None
