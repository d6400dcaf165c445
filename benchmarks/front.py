"""Single letters a second that the HTTP front accepts, and the time of one call with a thousand.

`python -m benchmarks.front [seconds] [rounds]`. Yardsticks in the same run: a view that only checks the key, on the
same server with two workers, and the bare COPY of the same thousand rows. The view checks the key as all endpoints do.
Requests with letters also count against the key in the statement that stores them, which is part of the measurement.

gunicorn, which is widely used, comes first (if installed: requirements-bench.in), then granian, which the Procfile
runs. The client writes its requests by hand over kept connections, so as to use little of the machine. The rows are
measured in turns.
"""

import contextlib
import importlib.util
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import keep
from benchmarks.stage import console, show, stage

SECONDS, ROUNDS = 5.0, 5
CONNECTIONS, WORKERS, THREADS = 64, 2, 32
LETTER = {"subject": "Hello", "body": "Dear {{ name }}", "recipients": [{"to": "ann@sandbox.example"}]}
MANY = 1000


def servers() -> dict[str, list[str]]:
    """Return the command of each server by name, with a placeholder for its socket's path."""
    found = {}
    if importlib.util.find_spec("gunicorn"):
        kept = ["--worker-class", "gthread", "--keep-alive", "60", "--workers", str(WORKERS), "--threads", str(THREADS)]
        found["gunicorn"] = ["gunicorn", "--bind", "unix:{}", *kept, "mailhub.wsgi:application"]
    else:
        console.print("no rows of gunicorn: it is not installed (requirements-bench.in)")
    options = ["--interface", "rsgi", "--http", "1", "--no-ws", "--workers", str(WORKERS)]
    found["granian"] = ["granian", "--uds", "{}", *options, "mailhub.rsgi:api"]
    return found


@contextlib.contextmanager
def serving(template: list[str]) -> Iterator[str]:
    """Run the server. Yields the path of its socket."""
    from tests import programs

    with tempfile.TemporaryDirectory(prefix="mailhub-front-") as folder:
        path = str(Path(folder) / "front.sock")
        argv = [word.format(path) for word in template]
        variables = {"DJANGO_SETTINGS_MODULE": "benchmarks.front_settings", "WEB_THREADS": str(THREADS)}
        with programs.running("-m", *argv, **variables):
            programs.wait_until(
                lambda: ask(path, b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"), "up"
            )
            yield path


def connect(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    return made


def ask(path: str, request: bytes) -> bytes:
    try:
        with connect(path) as line:
            return call(line, request)
    except OSError:
        return b""


def call(line: socket.socket, request: bytes) -> bytes:
    """Return the head of the answer, after reading its body to the end."""
    line.sendall(request)
    got = line.recv(65536)
    while b"\r\n\r\n" not in got:
        got += line.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += line.recv(65536)
    return head


def post(path: str, token: str, key: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def rate(path: str, target: str, token: str, vendor: str, seconds: float) -> tuple[float, list[float]]:
    """Return answers a second over all connections, and the time of each in seconds."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        mine = []
        with connect(path) as line:
            for turn in range(10**9):
                letter = {"vendor": vendor, **LETTER}
                letter["recipients"] = [{"to": f"p{number}-{turn}@sandbox.example", "fields": {"name": "Ann"}}]
                request = post(target, token, f"{end}-{number}-{turn}", json.dumps(letter).encode())
                began = time.perf_counter()
                if began > end:
                    break
                head = call(line, request)
                mine.append(time.perf_counter() - began)
                if b" 202 " not in head.split(b"\r\n")[0]:
                    raise SystemExit(head.decode())
        waits.extend(mine)

    began = time.perf_counter()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(waits) / (time.perf_counter() - began), waits


def thousand(path: str, token: str, vendor: str, key: str) -> float:
    """Return seconds to take a thousand recipients in one call."""
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"name": f"Ann {number}"}} for number in range(MANY)]
    request = post(
        "/api/v1/messages", token, key, json.dumps({"vendor": vendor, **LETTER, "recipients": recipients}).encode()
    )
    with connect(path) as line:
        began = time.perf_counter()
        head = call(line, request)
        took = time.perf_counter() - began
    if b" 202 " not in head.split(b"\r\n")[0]:
        raise SystemExit(head.decode())
    return took


def bare_copy() -> float:
    """Return seconds for COPY of the same rows with nothing else, committed."""
    from django.db import connection, transaction

    from campaigns.lists.intake import allocate_ids
    from tests import factories

    campaign, first = factories.campaign(1, messages=False), allocate_ids(MANY)
    lines = "".join(
        f'{first + number}\t{campaign.pk}\tp{number}@sandbox.example\t{{"name": "Ann {number}"}}\n'
        for number in range(MANY)
    )
    began = time.perf_counter()
    into = "COPY campaigns_message (id, campaign_id, recipient, params) FROM STDIN"
    with transaction.atomic(), connection.cursor() as cursor, cursor.copy(into) as copy:
        copy.write(lines)
    return time.perf_counter() - began


def letters(name: str, path: str, token: str, vendor: str, seconds: float, rounds: int) -> None:
    """Measure one letter a request, in turns with the yardstick."""
    targets = {"a view that does nothing": "/api/yardstick/nothing", "POST /messages, one letter": "/api/v1/messages"}
    rates: dict[str, list[float]] = {row: [] for row in targets}
    waits: dict[str, list[float]] = {row: [] for row in targets}
    for turn in range(rounds + 1):
        for row, target in targets.items():
            measured, took = rate(path, target, token, vendor, seconds if turn else 1.0)
            if turn:  # the first is a warm-up
                rates[row].append(measured)
                waits[row] += took
    show(f"The HTTP front, two workers of {name}", rates, "a view that does nothing", "requests/s")
    for row, took in waits.items():
        places = statistics.quantiles(took, n=100)
        console.print(f"{row}: half within {1000 * places[49]:.1f} ms, 99 % within {1000 * places[98]:.1f} ms")
        within = {"half within": [1000 * places[49]], "99 % within": [1000 * places[98]]}
        keep(f"Time of {row}, {name}", "ms", within)


def thousands(path: str, token: str, vendor: str, rounds: int) -> None:
    """Measure a thousand letters a request, in turns with COPY."""
    copies, calls = [], []
    for turn in range(rounds):
        copies.append(bare_copy())
        calls.append(thousand(path, token, vendor, f"thousand {turn}"))
    copy, one = statistics.median(copies), statistics.median(calls)
    rows = {"one call": [MANY / took for took in calls], "bare COPY": [MANY / took for took in copies]}
    keep("A thousand recipients in one call", "recipients/s", rows)
    console.print(
        f"\n1,000 recipients in one call: {1000 * one:.1f} ms; bare COPY {1000 * copy:.1f} ms; {one / copy:.1f} x"
    )
    console.print(f"load of the machine now: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with stage():
        from campaigns.doors.front import keys
        from tests import factories

        vendor = factories.vendor(settings={"url": "http://127.0.0.1:9/letters"}, casters=())
        factories.credential(vendor, "default")
        _, token = keys.create_key(factories.sponsor(), "live", ["send"], requests_per_minute=10**9)
        for name, command in servers().items():
            with serving(command) as path:
                letters(name, path, token, vendor.slug, seconds, rounds)
                if name == "granian":
                    thousands(path, token, vendor.slug, 4 * rounds)


if __name__ == "__main__":
    main()
