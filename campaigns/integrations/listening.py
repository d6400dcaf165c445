"""A local receiver of events, to try a webhook with: it checks each signature and prints what came."""

import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from vendors.adapters.reports import NotTheVendor, verify_signature

MOST_BYTES = 1_000_000  # of a body
SECONDS = 10  # for a sender to say something


def listen_for_events(port: int, secrets: Sequence[str], tell: Callable[[str], None]) -> HTTPServer:
    """Return a server on 127.0.0.1 that tells a line about each event. Port 0: any free one.

    secrets: those that may have signed; none: signatures are not checked.
    """

    class EventReceiver(BaseHTTPRequestHandler):
        timeout = SECONDS

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(min(size, MOST_BYTES))
            status, line = _judge_post({name.lower(): value for name, value in self.headers.items()}, body, secrets)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            tell(line)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: the line of the event is enough."""

    return HTTPServer(("127.0.0.1", port), EventReceiver)


def take_posts(server: HTTPServer, most: int) -> None:
    """Take this many posts; 0: until Ctrl-C."""
    with server:
        taken = 0
        while not most or taken < most:
            server.handle_request()
            taken += 1


def _judge_post(headers: dict[str, str], body: bytes, secrets: Sequence[str]) -> tuple[int, str]:
    """Return the status of the answer, and the line about the event."""
    try:
        event = json.loads(body)
        about = f"{event['type']} {headers.get('webhook-id', '')} {json.dumps(event['data'])}"
    except (ValueError, KeyError, TypeError):
        return 400, "a body that is no event"
    if not secrets:
        return 204, f"{about} (signature not checked)"
    try:
        verify_signature(secrets, headers, body)
    except NotTheVendor as why:
        return 401, f"{about} ({why})"
    return 204, f"{about} (signature right)"
