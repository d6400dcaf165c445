"""The sandbox vendor reports what became of what it accepted: in batches, signed, until it is heard."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from standardwebhooks import Webhook as Signer

from tests.programs import wait_until
from tests.sandbox import Caller, Sandbox

pytestmark = pytest.mark.slow("processes")

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


class Receiver:
    """Where reports go. statuses: its answers, the last one for ever."""

    def __init__(self) -> None:
        self.statuses = [202]
        self.reports: list[list[dict[str, Any]]] = []

    def take(self, headers: Any, body: bytes) -> int:
        reported = Signer(SECRET).verify(body, dict(headers))
        self.reports.append(reported["receipts"])
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    @property
    def reported(self) -> dict[str, str]:
        return {one["reference"]: one["status"] for report in self.reports for one in report}


@pytest.fixture
def receiver(sandbox: Sandbox) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(receiver.take(self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        sandbox.settings(receipts_to=f"http://127.0.0.1:{server.server_port}/here", receipts_secret=SECRET)
        yield receiver
        sandbox.settings(receipts_to="")
        server.shutdown()
        thread.join()


def test_what_was_accepted_is_reported_and_nothing_else(receiver: Receiver, caller: Caller) -> None:
    for reference, recipient in (("r1", "ann"), ("r2", "returned"), ("r3", "reject"), ("r4", "errorafter")):
        caller.send(reference, f"{recipient}@sandbox.example")
    wait_until(lambda: len(receiver.reported) == 3, "three are reported")
    assert receiver.reported == {"r1": "delivered", "r2": "bounced", "r4": "delivered"}


def test_a_report_that_is_not_heard_is_repeated(receiver: Receiver, caller: Caller) -> None:
    receiver.statuses = [503, 401, 202]
    caller.send("r1")
    wait_until(lambda: len(receiver.reports) == 3, "three tries")
    assert json.dumps(receiver.reports[0]) == json.dumps(receiver.reports[2])


def test_receipts_come_together_after_their_time(receiver: Receiver, sandbox: Sandbox, caller: Caller) -> None:
    sandbox.settings(receipts_after=0.5, bounce_rate=1.0)
    for number in range(20):
        caller.send(f"r{number}")
    wait_until(lambda: len(receiver.reported) == 20, "all are reported")
    assert set(receiver.reported.values()) == {"bounced"}


def test_reports_are_signed_and_go_somewhere(sandbox: Sandbox) -> None:
    for wrong in ({"receipts_to": "http://127.0.0.1:9/"}, {"receipts_to": "nowhere", "receipts_secret": SECRET}):
        with pytest.raises(ValueError, match="receipts_"):
            sandbox.settings(**wrong)
