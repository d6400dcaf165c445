"""Vendors of moods for tests, on free ports: they answer well, answer 500, hang, or cut connections."""

import json
import math
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOODS = ("500", "cut", "hang")


@dataclass
class BookedCall:
    """A call in the vendor's book: from its request until its answer. peer: the port of its caller."""

    reference: str
    mood: str
    peer: int
    began: float
    ended: float = math.inf


class MoodyVendor(ThreadingHTTPServer):
    """`mood`: good, 500, late (500 after `late` seconds), hang, cut, or 429. `book`: all calls."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.mood, self.late = "good", 0.5
        self.book: list[BookedCall] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/letters"

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Return references as they came, with the mood of each."""
        return [(one.reference, one.mood) for one in self.book]

    def of_mood(self, *moods: str) -> list[str]:
        """Return the references that came in these moods."""
        return [reference for reference, mood in self.calls if mood in moods]

    def handle_error(self, *_: Any) -> None:
        """A sender that gave up is no news."""


class _Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MoodyVendor

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        mood = self.server.mood
        call = BookedCall(letter["reference"], mood, self.client_address[1], time.monotonic())
        self.server.book.append(call)
        try:
            self._answer(letter, mood)
        finally:
            call.ended = time.monotonic()

    def _answer(self, letter: dict[str, Any], mood: str) -> None:
        if mood == "hang":
            self.server.over.wait()
        if mood == "late":
            self.server.over.wait(self.server.late)
        if mood in ("hang", "cut"):
            self.close_connection = True
            return
        status = {"good": 201, "500": 500, "late": 500, "429": 429}[mood]
        content = json.dumps({"id": letter["reference"]} if status == 201 else {"code": mood}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "3600")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Write no lines about each call."""


@contextmanager
def moody_vendor() -> Iterator[MoodyVendor]:
    """A vendor for as long as the block lasts."""
    vendor = MoodyVendor()
    thread = threading.Thread(target=vendor.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield vendor
    finally:
        vendor.over.set()
        vendor.shutdown()
        thread.join()
        vendor.server_close()


class MoodyRelay(socketserver.ThreadingTCPServer):
    """A mail relay. `mood`: good; cut or hang: at the end of each mail. `calls`: as of MoodyVendor."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mood = "good"
        self.calls: list[tuple[str, str]] = []
        self.over = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """A sender that gave up is no news."""


class _Session(socketserver.StreamRequestHandler):
    server: MoodyRelay

    def handle(self) -> None:
        self._say("220 relay.example")
        recipient = ""
        while line := self.rfile.readline().decode().strip():
            verb = line[:4].upper()
            if verb == "RCPT":
                recipient = line
            if verb == "DATA":
                self._say("354 go on")
                if not self._take(recipient):
                    return
            else:
                self._say("221 bye" if verb == "QUIT" else "250 relay.example" if verb == "EHLO" else "250 2.0.0 Ok")

    def _take(self, recipient: str) -> bool:
        """Read a mail and answer by mood. Returns False if the connection ends."""
        while self.rfile.readline() not in (b".\r\n", b""):
            pass
        mood = self.server.mood
        self.server.calls.append((recipient, mood))
        if mood == "hang":
            self.server.over.wait()
        if mood != "good":
            return False
        self._say(f"250 2.0.0 Ok: queued as {len(self.server.calls)}")
        return True

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def moody_relay() -> Iterator[MoodyRelay]:
    """A relay for as long as the block lasts."""
    relay = MoodyRelay()
    thread = threading.Thread(target=relay.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.over.set()
        relay.shutdown()
        thread.join()
        relay.server_close()
