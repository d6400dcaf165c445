"""Both doors as the Procfile starts them, on ports of their own, and clients that are slow on purpose."""

import re
import select
import shlex
import socket
import string
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from honcho.environ import parse_procfile

from tests.ports import free_port
from tests.programs import running
from tests.waiting import DEADLINE, wait_until

PROCFILE = Path(__file__).parents[2] / "Procfile"


@dataclass(frozen=True, slots=True)
class Doors:
    """Their ports."""

    web: int
    api: int


@contextmanager
def doors(**variables: str) -> Iterator[Doors]:
    """variables: of their environment."""
    found = Doors(free_port(), free_port())
    ports = {"HOST": "127.0.0.1", "PORT": str(found.web), "API_PORT": str(found.api)}
    commands = parse_procfile(PROCFILE.read_text()).processes
    with ExitStack() as started:
        for name in ("web", "api"):
            argv = shlex.split(_filled(commands[name], {**ports, **variables}))
            assert argv[0] == "python"
            started.enter_context(running(*argv[1:], **variables))
        for port, path, status in ((found.web, "/admin/login/", 200), (found.api, "/api/v1/services", 401)):
            answers = partial(_answers, port, path, status)
            wait_until(answers, f"{path} answers", 4 * DEADLINE)
        yield found


def _filled(command: str, values: dict[str, str]) -> str:
    """As the shell would: ${NAME:-default}."""
    plain = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: values.get(found[1], found[2]), command)
    return string.Template(plain).substitute(values)


def _answers(port: int, path: str, status: int) -> bool:
    try:
        return get(port, path, X_Forwarded_Proto="https")[0] == status  # where HTTPS=1, else it is led there
    except OSError:
        return False


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), DEADLINE)


def head(method: str, path: str, **headers: object) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def get(port: int, path: str, **headers: object) -> tuple[int, bytes]:
    return ask(port, head("GET", path, Connection="close", **headers))


def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """Status, and the whole answer."""
    with connect(port) as connection:
        connection.sendall(request)
        return read(connection)


def read(connection: socket.socket) -> tuple[int, bytes]:
    """Status, and all that comes until the server closes. (0, b'') if it closes without a word."""
    whole = b""
    try:
        while part := connection.recv(65536):
            whole += part
    except ConnectionResetError:
        pass  # it closed while there was more of ours on the way
    return (int(whole.split(b" ", 2)[1]), whole) if whole else (0, b"")


def unanswered(lines: list[socket.socket]) -> int:
    """How many of the connections are open, and have been told nothing yet."""
    poll = select.poll()
    for connection in lines:
        poll.register(connection, select.POLLIN)
    return len(lines) - len(poll.poll(0))
