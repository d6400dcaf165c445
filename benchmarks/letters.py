"""A program that hands in single letters over the API of an installation, and tells when each was accepted."""

import contextlib
import http.client
import json
import time
from typing import Any

from benchmarks.installation import Installation

LETTER = {"subject": "Hello", "body": "Dear {{ name }}"}
PATIENCE = 60  # seconds for an answer


class ApiClient:
    """With a key of its own, and a connection for each letter: the server closes those that are idle for long."""

    def __init__(self, at: Installation, sponsor: str = "Velma") -> None:
        order = ["apikey", "create", "--sponsor", sponsor, "--new-sponsor", "--per-minute", "0"]
        self._token: str = at.asked(*order)["key"]
        self._port = at.api

    def send(self, vendor: str, recipient: str) -> float:
        """When the 202 for this one letter was read, by the monotonic clock. Raises SystemExit at another answer."""
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
