"""The front as it runs in life, for tests of what only many at once can show: granian's processes on a unix socket."""

import http.client
import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.programs import Program, running
from tests.waiting import DEADLINE, wait_until


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=DEADLINE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(self._path)


class Server:
    def __init__(self, path: str, program: Program) -> None:
        self.path, self.program = path, program

    def connection(self) -> http.client.HTTPConnection:
        return _Unix(self.path)

    def ask(
        self, method: str, path: str, token: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers, JSON. A connection that the server closed before it had read all is tried again."""
        for _ in range(3):
            try:
                return self._ask(method, path, token, body, **headers)
            except (BrokenPipeError, ConnectionResetError):
                continue
        return self._ask(method, path, token, body, **headers)

    def _ask(
        self, method: str, path: str, token: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        connection = self.connection()
        try:
            sent_headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
            connection.request(method, path, None if body is None else json.dumps(body), sent_headers)
            response = connection.getresponse()
            return response.status, dict(response.headers), json.loads(response.read())
        finally:
            connection.close()

    def send(self, token: str, body: Any, key: str) -> tuple[int, dict[str, str], Any]:
        return self.ask("POST", "/api/v1/messages", token, body, **{"Idempotency-Key": key})


@contextmanager
def serving(workers: int = 1, threads: int = 4, **variables: str) -> Iterator[Server]:
    """variables: of its environment."""
    with tempfile.TemporaryDirectory(prefix="mailhub-front-") as folder:
        path = str(Path(folder) / "front.sock")
        options = ["--interface", "rsgi", "--http", "1", "--no-ws", "--uds", path, "--workers", str(workers)]
        variables = {"WEB_THREADS": str(threads), **variables}
        with running("-m", "granian", *options, "mailhub.rsgi:api", **variables) as program:
            server = Server(path, program)
            wait_until(lambda: _answers(server), "the front answers", 4 * DEADLINE)
            yield server


def _answers(server: Server) -> bool:
    assert server.program.process.poll() is None, server.program.log.read_text()
    try:
        return server.ask("GET", "/api/v1/services", "")[0] == 401  # without a key, and without work
    except (OSError, http.client.HTTPException):
        return False
