"""A program that hands in single letters over the API of an installation, and tells when each was accepted."""

import http.client
import json
import time
from typing import Any

from benchmarks.installation import Installation

LETTER = {"subject": "Hello", "body": "Dear {{ name }}"}
PATIENCE = 60  # seconds for an answer


class ApiClient:
    """One kept connection, with a key of its own."""

    def __init__(self, at: Installation, sponsor: str = "Velma") -> None:
        order = ["apikey", "create", "--sponsor", sponsor, "--new-sponsor", "--per-minute", "0"]
        self._token: str = at.asked(*order)["key"]
        self._line = http.client.HTTPConnection("127.0.0.1", at.api, timeout=PATIENCE)

    def send(self, vendor: str, recipient: str) -> float:
        """When the 202 for this one letter was read, by the monotonic clock. Raises SystemExit at another answer."""
        letter: dict[str, Any] = {"vendor": vendor, **LETTER}
        letter["recipients"] = [{"to": recipient, "fields": {"name": "Ann"}}]
        headers = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": recipient}
        self._line.request(
            "POST", "/api/v1/messages", json.dumps(letter), headers | {"Content-Type": "application/json"}
        )
        answer = self._line.getresponse()
        said = answer.read()
        if answer.status != 202:
            raise SystemExit(f"the API answered {answer.status}: {said.decode()}")
        return time.monotonic()

    def close(self) -> None:
        self._line.close()
