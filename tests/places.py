"""A vendor with many addresses and accounts in one process: each is a place with books of its own."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

Place = tuple[str, str]  # the first part of the path, and the account of the key
KEYS = ("X-Account", "Authorization", "X-Postmark-Server-Token")


class Places:
    """What was accepted where.

    lost: of so many acceptances one is not answered (0: each is); dedupe: of each place; numbered: each place names its
    letters 1, 2, ...
    """

    def __init__(self, url: str) -> None:
        self.url, self.lost, self.dedupe, self.numbered = url, 0, False, False
        self.accepted: list[tuple[Place, str]] = []
        self.looked_up: list[tuple[Place, str]] = []
        self.hold: Event | None = None  # answers wait for it
        self.arrived = Event()
        self.lock = Lock()

    def at(self, name: str) -> str:
        return f"{self.url}/{name}/letters"

    def of(self, name: str, account: str = "") -> set[str]:
        return {reference for place, reference in self.accepted if place == (name, account)}

    def twice(self) -> list[str]:
        """The letters that were accepted more than once, wherever."""
        return [reference for reference, number in Counter(one for _, one in self.accepted).items() if number > 1]


def _handler(places: Places) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def place(self) -> Place:
            account = next((self.headers[name] for name in KEYS if name in self.headers), "")
            return self.path.split("/")[1], account

        def do_GET(self) -> None:
            found = self.place(), self.path.rsplit("/", 1)[1]
            with places.lock:
                places.looked_up.append(found)
                known = found in places.accepted
            self.say(200, {"id": f"v-{found[1]}"}) if known else self.say(404, {})

        def do_POST(self) -> None:
            letter = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = self.place(), self.headers["Idempotency-Key"]
            with places.lock:
                known = places.dedupe and found in places.accepted
                if not known:
                    places.accepted.append(found)
                number = len(places.of(*found[0]))
                cut = not known and places.lost and len(places.accepted) % places.lost == 0
            places.arrived.set()
            if places.hold is not None:
                places.hold.wait(60)
            if cut:
                self.close_connection = True
                return
            name = str(number) if places.numbered else f"v-{found[1]}"
            answer = {
                "id": name,
                "MessageID": name,
                "ErrorCode": 0,
                "To": letter.get("To"),
                "Message": "OK",
            }
            self.say(409 if known else 200, answer)

        def say(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def serving() -> Iterator[Places]:
    places = Places("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(places))
    server.daemon_threads = True
    places.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield places
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
