"""Waiting times at the web server and the API while some clients are slow, greedy or costly on purpose.

`python -m benchmarks.doors [rounds]`. Both servers run as the Procfile starts them. In each round a person asks for the
log-in page, and another sponsor's program for the vendors, five hundred times each: first alone, then beside the load
of each row.
"""

import contextlib
import json
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.results import keep
from benchmarks.stage import console, numbers, stage
from tests.front.doors import Doors, ask, connect, doors, get, head

ROUNDS, FIRST, TIMES, SLOW = 3, 50, 500, 250
LOOPS = "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}x"
COSTLY, RECIPIENTS = 8, 70
Row = Callable[[], contextlib.AbstractContextManager[Any]]


def times(questions: dict[str, Callable[[], int]], number: int) -> dict[str, list[float]]:
    """Return milliseconds of each answer, for this number of each question."""
    took: dict[str, list[float]] = {name: [] for name in questions}
    for _ in range(number):
        for name, question in questions.items():
            began = time.perf_counter()
            status = question()
            took[name].append(1000 * (time.perf_counter() - began))
            assert status == 200, status
    return took


@contextlib.contextmanager
def held(port_requests: list[tuple[int, bytes]], number: int = SLOW) -> Iterator[None]:
    """Keep `number` connections open for each request, silent after it."""
    with contextlib.ExitStack() as lines:
        for port, request in port_requests:
            for _ in range(number):
                lines.enter_context(connect(port)).sendall(request)
        yield


@contextlib.contextmanager
def asked_again_and_again(port: int, request: bytes, clients: int) -> Iterator[None]:
    over = threading.Event()

    def go() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                ask(port, request)

    threads = [threading.Thread(target=go) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def rows(running: Doors, token: str, vendor: str, costly: int = COSTLY) -> dict[str, Row]:
    headers = {"Authorization": f"Bearer {token}", "Content_Type": "application/json", "Connection": "close"}
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"l": [0] * 300}} for number in range(RECIPIENTS)]
    body = json.dumps({"vendor": vendor, "subject": "s", "body": LOOPS, "recipients": recipients}).encode()
    _, page = get(running.web, "/admin/login/")
    csrf = re.search(rb"csrftoken=(\w+)", page)[1].decode()  # type: ignore[index]
    form = {"Cookie": f"csrftoken={csrf}", "Content_Type": "application/x-www-form-urlencoded", "Connection": "close"}
    guess = f"username=nobody&password=wrong&csrfmiddlewaretoken={csrf}".encode()
    log_in = head("POST", "/admin/login/", Content_Length=100_000, **form) + b"c"
    send = head("POST", "/api/v1/messages", Content_Length=60_000, **headers) + b"{"
    dear = head("POST", "/api/v1/messages?dry_run=true", Content_Length=len(body), **headers) + body
    guessing = head("POST", "/admin/login/", Content_Length=len(guess), **form) + guess
    css, schema = head("GET", "/static/admin/css/base.css"), head("GET", "/api/v1/openapi.json")
    both = running.web, running.api
    return {
        "nothing else": contextlib.nullcontext,
        f"{2 * SLOW} bodies that do not come": lambda: held([(both[0], log_in), (both[1], send)]),
        f"{2 * SLOW} heads that do not come": lambda: held([(port, b"GET / HTTP/1.1\r\nHost:") for port in both]),
        "80 that do not read": lambda: held([(both[0], 20 * css), (both[1], 20 * schema)], 40),
        f"{costly} x {RECIPIENTS} costly letters": lambda: asked_again_and_again(both[1], dear, costly),
        "8 that guess passwords": lambda: asked_again_and_again(both[0], guessing, 8),
    }


def main() -> None:
    (rounds,) = numbers(ROUNDS)
    with stage():
        from campaigns.doors.front import keys
        from tests import factories

        vendor = factories.vendor(settings={"url": "http://127.0.0.1:9/letters"}, casters=())
        factories.credential(vendor, "default")
        _, one = keys.create_key(factories.sponsor(), "live", ["send", "read"], requests_per_minute=0)
        _, other = keys.create_key(factories.sponsor(), "live", ["send", "read"], requests_per_minute=0)
        with doors(BODY_SECONDS="600") as running:
            questions = {
                "log-in page": lambda: get(running.web, "/admin/login/")[0],
                "GET /services": lambda: get(running.api, "/api/v1/services", Authorization=f"Bearer {other}")[0],
            }
            times(questions, FIRST)
            took: dict[str, dict[str, list[float]]] = {}
            for _ in range(rounds):
                for row, begin in rows(running, one, vendor.slug).items():
                    with begin():
                        times(questions, FIRST)  # until the load has started
                        for name, waits in times(questions, TIMES).items():
                            took.setdefault(name, {}).setdefault(row, []).extend(waits)
        for name, by_row in took.items():
            halves = {row: [statistics.median(waits)] for row, waits in by_row.items()}
            most = {row: [statistics.quantiles(waits, n=100)[98]] for row, waits in by_row.items()}
            keep(f"{name}: half within, while there are", "ms", halves)
            keep(f"{name}: 99 % within, while there are", "ms", most)
            for row in by_row:
                console.print(f"{name}, {row}: half within {halves[row][0]:.1f} ms, 99 % within {most[row][0]:.1f} ms")


if __name__ == "__main__":
    main()
