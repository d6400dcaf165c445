"""Flower for a test: a real one on the test's broker and a socket of its own; what it shows is asked over HTTP."""

import http.client
import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.waiting import DEADLINE
from tests.workers import Process, celery

LOGIN = "ann:secret"


@contextmanager
def flower(home: Path, login: str = LOGIN, **variables: str) -> Iterator[Process]:
    """home: where its socket and its history are."""
    args = ["flower", "--conf=mailhub/flowerconfig.py", f"--unix_socket={home}/socket"]
    with celery(*args, MAILHUB_HOME=str(home), FLOWER_BASIC_AUTH=login, **variables) as process:
        yield process


def ask(home: Path, path: str, login: str = LOGIN) -> tuple[int, Any]:
    """(0, None) as long as it does not answer."""
    connection = http.client.HTTPConnection("localhost", timeout=DEADLINE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(DEADLINE)
    try:
        connection.sock.connect(f"{home}/socket")
        connection.request("GET", path, headers={"Authorization": "Basic " + b64encode(login.encode()).decode()})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if answer.status == 200 and path.startswith("/api") else body
    except OSError:
        return 0, None
    finally:
        connection.close()


def listens(home: Path) -> list[str]:
    """The workers of which it has heard by itself; what others did before it listened it does not know."""
    status, alive = ask(home, "/api/workers?status=1")
    return [name for name, lives in alive.items() if lives] if status == 200 else []


def running_jobs(home: Path) -> dict[str, str]:
    """The arguments of each `send_job` that its API and its page of tasks call started, and the worker that runs it."""
    wanted = {"state": "STARTED", "taskname": "campaigns.tasks.send_job"}
    status, tasks = ask(home, "/api/tasks?" + urlencode(wanted))
    by_api = {task["args"]: task["worker"] for task in tasks.values()} if status == 200 else {}
    first = {"draw": 1, "start": 0, "length": 1000, "order[0][column]": 0, "columns[0][data]": "name"}
    status, page = ask(home, "/tasks/datatable?" + urlencode({**first, "search[value]": "state:STARTED"}))
    rows = json.loads(page)["data"] if status == 200 else []
    by_page = {row["args"]: row["worker"] for row in rows if row["name"] == wanted["taskname"]}
    return by_api if by_api == by_page else {}
