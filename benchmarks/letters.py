"""A client that submits single letters to an installation's API, and records when each was accepted."""

import contextlib
import http.client
import json
import time
from typing import Any

from benchmarks.installation import Installation

LETTER = {"subject": "Hello", "body": "Dear {{ name }}"}
PATIENCE = 60  # seconds for an answer


class ApiClient:
    """A client with its own key, and a connection for each letter, because the server closes idle ones."""

    def __init__(self, at: Installation, sponsor: str = "Velma") -> None:
        order = ["apikey", "create", "--sponsor", sponsor, "--new-sponsor", "--per-minute", "0"]
        self._token: str = at.asked(*order)["key"]
        self._port = at.api

    def send(self, vendor: str, recipient: str) -> float:
        """Return the time (monotonic) at which the letter's 202 was read. Raises SystemExit on any other answer."""
        letter: dict[str, Any] = {"vendor": vendor, **LETTER}
        letter["recipients"] = [{"to": recipient, "fields": {"name": "Ann"}}]
        headers = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": recipient}
        headers["Content-Type"] = "application/json"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)) as line:
            line.request("POST", "/api/v1/messages", json.dumps(letter), headers)
            answer = line.getresponse()
            said, read_at = answer.read(), time.monotonic()
        if answer.status != 202:
            raise SystemExit(f"the API answered {answer.status}: {said.decode()}")
        return read_at
