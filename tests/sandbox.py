"""A sandbox vendor for a test: a real process on a free port, with its books in a folder of its own."""

import http.client
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sandbox.vendor import books
from sandbox.vendor.server import hold_port
from tests import forks
from tests.waiting import DEADLINE, exit_of, wait_until


class Sandbox:
    """`url` is what a vendor's settings need. It stays the same over `kill` and `start`, and so do the books."""

    def __init__(self, home: Path, options: dict[str, Any]) -> None:
        self.books_path = home / "books.jsonl"
        self._url_file = home / "url"
        self._log = home / "log"
        self._options = [_option(name, value) for name, value in options.items()]
        self._held = hold_port("127.0.0.1", 0)  # nobody else may have it between `kill` and `start`

    def start(self) -> None:
        self._url_file.unlink(missing_ok=True)
        port = self._held.getsockname()[1]
        files = [f"--books={self.books_path}", f"--url-file={self._url_file}", f"--port={port}"]
        with self._log.open("ab") as log:
            arguments = ["-m", "sandbox.vendor", "--until-stdin-closes", *files, *self._options]
            self.process = forks.start(arguments, env=dict(os.environ), stdout=log, pipe=True)
        self.url, self.control_url = self._wait_for_urls()

    def _wait_for_urls(self) -> list[str]:
        wait_until(self._started, "the sandbox vendor says its addresses", every=0.01, log=self._log.read_text)
        return self._url_file.read_text().split()

    def _started(self) -> bool:
        assert self.process.poll() is None, f"The sandbox vendor did not start: {self._log.read_text()}"
        return self._url_file.exists()

    @staticmethod
    def _ask(url: str, method: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE)
        try:
            connection.request(method, path, body=None if content is None else json.dumps(content))
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def settings(self, **values: Any) -> dict[str, Any]:
        """Change how it behaves, from the next call on; answers all settings."""
        return self._ask(self.control_url, "POST", "/settings", values)

    def ledger(self, *windows: float) -> dict[str, Any]:
        """What the running vendor says itself."""
        query = "&".join(f"window={seconds}" for seconds in windows)
        return self._ask(self.control_url, "GET", f"/ledger?{query}")

    def entries(self, after: int = 0) -> dict[str, Any]:
        return self._ask(self.control_url, "GET", f"/ledger/entries?after={after}")

    def books(self) -> books.Books:
        """What stands in its file; needs no running vendor."""
        return books.read(self.books_path)

    def kill(self) -> None:
        """As a power cut ends it. `start` brings it back at the same port."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As an administrator ends it; answers the exit status."""
        return self._end(signal.SIGTERM)

    def end(self) -> None:
        if self.process.returncode is None:
            self.kill()
        self._held.close()

    def _end(self, number: int) -> int:
        self.process.send_signal(number)
        status = exit_of(self.process)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return status


def _option(name: str, value: Any) -> str:
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{dashed}" if value else f"--no-{dashed}"
    return f"--{dashed}={value}"


@contextmanager
def running(**options: Any) -> Iterator[Sandbox]:
    """A sandbox vendor with these settings (sandbox/vendor/settings.py) for as long as the block lasts."""
    home = Path(tempfile.mkdtemp(prefix="sandbox-"))
    vendor = Sandbox(home, options)
    try:
        vendor.start()
        yield vendor
    finally:
        vendor.end()
        shutil.rmtree(home)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A vendor that deduplicates nothing and misbehaves only as told."""
    with running() as vendor:
        yield vendor


class Caller:
    """One keep-alive connection to the vendor."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any]:
        try:
            self.connection.request(method, path, body, headers)
            self.response = self.connection.getresponse()
            content = self.response.read()
        except OSError:
            self.connection.close()  # the next call makes a new one
            raise
        is_json = self.response.headers["Content-Type"] == "application/json"
        return self.response.status, json.loads(content) if is_json else content

    def send(self, reference: str, recipient: str = "ann@example.org", key: str | None = None) -> tuple[int, Any]:
        headers = {"Idempotency-Key": reference if key is None else key, "Authorization": "Bearer one"}
        return self.ask("POST", "/v1/letters", letter(reference, recipient), **headers)

    def look_up(self, reference: str) -> tuple[int, Any]:
        return self.ask("GET", f"/v1/letters/{reference}")


def letter(reference: str, recipient: str = "ann@example.org") -> str:
    return json.dumps({"reference": reference, "recipient": recipient, "subject": "Hi", "body": "...", "params": {}})


@pytest.fixture
def caller(sandbox: Sandbox) -> Iterator[Caller]:
    caller = Caller(sandbox.url)
    yield caller
    caller.connection.close()
