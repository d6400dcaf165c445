"""listmonk, a campaign manager in Go, as a yardstick for mails: its servers, without its pages.

The row appears if LISTMONK in the environment names the folder of its source. Build it there once with `mkdir -p
frontend/dist && go build -o listmonk ./cmd`. It has its own PostgreSQL, set up like mailhub's, and the same number of
connections to the relay as mailhub's vendor with its default mailcasters. Its recipients are stored before. It works
without limit, tracking or retries, and keeps no row about the outcome of a mail.
"""

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.installation import servers_of_its_own
from benchmarks.recipients import BODY, SUBJECT
from benchmarks.smtp_sink import ORIGIN, SmtpSink, answers
from mailhub.embedded.postgres import Postgres
from tests.ports import free_port
from tests.waiting import wait_until

LONGEST = 600.0  # seconds that a campaign may take
USER = "bench"
# Its first list and everybody on it, in the form of its own import.
RECIPIENTS = """
DELETE FROM subscribers;
WITH person AS (
    INSERT INTO subscribers (uuid, email, name, status)
    SELECT gen_random_uuid(), 'person' || n || '@example.org', 'Ann', 'enabled' FROM generate_series(1, %(mails)s) n
    RETURNING id
)
INSERT INTO subscriber_lists (subscriber_id, list_id, status)
SELECT id, (SELECT min(id) FROM lists), 'confirmed' FROM person;
ANALYZE
"""
SETTING = "UPDATE settings SET value = %(value)s::jsonb WHERE key = %(key)s"


class Listmonk:
    """A running listmonk and its results. since_first: mails a second from the first arrival to the last."""

    def __init__(self, port: int, token: str, to: int, relay: SmtpSink) -> None:
        self._port, self._token, self._to, self._relay = port, token, to, relay
        self.since_first: list[float] = []

    def send(self, mails: int) -> float:
        """Return mails a second from the campaign's start to the last arrival. It looks for campaigns every 5
        seconds.
        """
        self._relay.begin()
        made = self._asked("POST", "/api/campaigns", {
            "name": "bench", "subject": SUBJECT, "lists": [self._to], "type": "regular", "messenger": "email",
            "content_type": "plain", "from_email": ORIGIN, "body": BODY.replace("{{ name }}", "{{ .Subscriber.Name }}"),
        })  # fmt: skip
        began = time.monotonic()
        self._asked("PUT", f"/api/campaigns/{made['id']}/status", {"status": "running"})
        wait_until(lambda: self._relay.count >= mails, "its mails arrive", LONGEST)
        wait_until(lambda: self._state(made["id"]) == "finished", "its campaign ends", LONGEST)
        if self._relay.count != mails:
            raise SystemExit(f"listmonk was to send {mails:,} mails, but {self._relay.count:,} arrived")
        self.since_first.append(mails / (self._relay.last() - self._relay.first()))
        return mails / (self._relay.last() - began)

    def _state(self, campaign: int) -> str:
        return str(self._asked("GET", f"/api/campaigns/{campaign}")["status"])

    def _asked(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"token {USER}:{self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["data"]


@contextlib.contextmanager
def running(relay: SmtpSink, mails: int) -> Iterator[Listmonk | None]:
    """Run listmonk with this many recipients on its list. Yields None without listmonk."""
    program = os.environ.get("LISTMONK")
    if not program:
        print("no row of listmonk: LISTMONK names no folder of it")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="mailhub-bench-") as folder, servers_of_its_own() as home:
        port = free_port()
        config = Path(folder, "config.toml")
        config.write_text(
            f'[app]\naddress = "127.0.0.1:{port}"\n[db]\nhost = "{home.socket_dir()}"\nport = 5432\nuser = "mailhub"\n'
            f'password = "-"\ndatabase = "mailhub"\nssl_mode = "disable"\nmax_open = 25\nmax_idle = 25\n'
        )
        command = ["./listmonk", "--config", str(config)]
        login = {"LISTMONK_ADMIN_USER": "admin", "LISTMONK_ADMIN_PASSWORD": "a long password"}
        made = subprocess.run(
            [*command, "--install", "--yes"],
            cwd=program, env=os.environ | login | {"LISTMONK_ADMIN_API_USER": USER}, capture_output=True, text=True,
        )  # fmt: skip
        token = re.search(r'API_TOKEN="(\w+)"', made.stderr)
        if not token:
            raise SystemExit(f"listmonk could not be set up: {made.stdout[-500:]}{made.stderr[-500:]}")
        to = _set_up(Postgres(home).url(), relay.port, mails)
        with (
            Path(folder, "log").open("w") as log,
            subprocess.Popen(command, cwd=program, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
        ):
            try:
                wait_until(lambda: answers(port), "listmonk listens")
                yield Listmonk(port, token[1], to, relay)
            finally:
                process.kill()


def _set_up(url: str, relay: int, mails: int) -> int:
    """Return the list with the recipients."""
    connections = _connections()
    to_relay = {
        "uuid": "5e8d5c1c-6c1f-4f5e-9d5a-0d0f3b5a7a01", "enabled": True, "host": "127.0.0.1", "port": relay,
        "auth_protocol": "none", "username": "", "password": "", "hello_hostname": "", "max_conns": connections,
        "idle_timeout": "15s", "wait_timeout": "5s", "max_msg_retries": 0, "tls_type": "none",
        "tls_skip_verify": False, "email_headers": [], "from_addresses": [],
    }  # fmt: skip
    settings = {
        "smtp": [to_relay], "app.concurrency": connections, "app.message_rate": 1_000_000, "app.batch_size": 5_000,
        "app.check_updates": False, "privacy.disable_tracking": True,
    }  # fmt: skip
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as database:
        for key, value in settings.items():
            database.execute(SETTING, {"key": key, "value": json.dumps(value)})
        database.execute(RECIPIENTS, {"mails": mails})
        row = database.execute("SELECT DISTINCT list_id FROM subscriber_lists").fetchone()
    assert row
    return int(row[0])


def _connections() -> int:
    """Return the number of connections that the streams of a new vendor have in mailhub."""
    from vendors.adapters.smtp import Smtp
    from vendors.configuration import DEFAULT

    return len(DEFAULT) * Smtp({"host": "127.0.0.1"}, {}).concurrency
