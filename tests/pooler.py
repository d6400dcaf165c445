"""A PgBouncer before the test's own database, where one is installed."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection

from mailhub.embedded.process import demoted_prefix
from tests.waiting import exit_of, wait_until

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")

needed = pytest.mark.skipif(PROGRAM is None, reason="no PgBouncer is installed here")


@contextmanager
def pooler(mode: str) -> Iterator[str]:
    """DATABASE_URL through a pooler in this mode: session, transaction or statement."""
    params = connection.settings_dict
    folder = Path(tempfile.mkdtemp(prefix="pooler-"))
    (folder / "users").write_text(f'"{params["USER"]}" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={params['OPTIONS'].get('host') or params['HOST']} port={params['PORT'] or 5432}\n"
        f"[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {folder}\npool_mode = {mode}\nauth_type = trust\n"
        f"auth_file = {folder}/users\nlogfile = {folder}/log\nserver_reset_query = DISCARD ALL\n"
    )
    assert PROGRAM is not None
    process = subprocess.Popen([*demoted_prefix(folder, Path(PROGRAM)), PROGRAM, "-q", str(folder / "ini")])
    try:
        wait_until(lambda: _listens(folder / ".s.PGSQL.6432") or process.poll() is not None, "the pooler listens")
        assert process.poll() is None, (folder / "log").read_text()
        yield f"postgres://{params['USER']}@/{params['NAME']}?host={quote(str(folder), safe='')}&port=6432"
    finally:
        process.kill()
        exit_of(process)
        shutil.rmtree(folder)


def _listens(path: Path) -> bool:
    """Whether somebody accepts there: the file is there before its process listens."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0
