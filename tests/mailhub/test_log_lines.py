"""LOG_FORMAT=json: each line of each process is an object with ids, and no address appears in any of them."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from mailhub.log_lines import HIDDEN, LogLines, hide_personal
from tests import workers
from tests.celery_tasks import fail_with
from tests.factories import unique
from tests.front.server import serving
from tests.mailhub.test_probes import get
from tests.programs import running
from tests.waiting import wait_until
from vendors import log_ids

SECRETS = ("ann@example.com", "+49 170 1234567", "bob%40example.org", "token-of-ann")
JSON = {"LOG_FORMAT": "json"}


def facts_of(text: str) -> list[dict[str, Any]]:
    """Each line as an object; fails at a line that is none, or that lacks a field."""
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert {"time", "level", "logger", "process", "message"} <= one.keys(), one
    assert not [secret for secret in SECRETS if secret in text]
    return found


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Formats a message of a logger as JSON, and returns its object."""
    monkeypatch.setenv("LOG_FORMAT", "json")

    def _line(message: str, *args: Any, name: str = "campaigns", error: Any = None) -> dict[str, Any]:
        record = logging.LogRecord(name, logging.WARNING, "", 1, message, args, error)
        [found] = facts_of(LogLines().format(record))
        return found

    return _line


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("to ann@example.com: no", f"to {HIDDEN}: no"),
        ("<ann.lee+x@mail.example.com>, bob@b.example", f"<{HIDDEN}>, {HIDDEN}"),
        ("ann%40example.com is unknown", f"{HIDDEN} is unknown"),
        ("jürgen@bücher.example", HIDDEN),
        ('"ann lee"@example.com and "a"@b.example', f"{HIDDEN} and {HIDDEN}"),
        ("redis://user:secret@host:6379/0", f"redis://user:{HIDDEN}:6379/0"),
        ("to +491701234567 and +1 (650) 253-0000", f"to {HIDDEN} and {HIDDEN}"),
        ("GET /unsubscribe/token-of-ann?x=1", f"GET /unsubscribe/{HIDDEN}?x=1"),
        ("no\nDETAIL:  Failing row contains (1, ann, {}).\nHINT: x", f"no\nDETAIL:  {HIDDEN}\nHINT: x"),
        ("job 1234567890123 at 2026-11-30T03:00:00+00:00: 12+34 = 46", None),
        ("worker vendors takes its jobs", None),
    ],
)
def test_addresses_numbers_rows_and_tokens_are_hidden_and_nothing_else(text: str, hidden: str | None) -> None:
    assert hide_personal(text) == (text if hidden is None else hidden)


def test_a_line_has_the_ids_that_its_text_names_and_those_of_what_is_done(line: Any) -> None:
    with log_ids.noted_ids(request="r-1", task="t-2"):
        found = line("vendor %s: job %s: %s", "post", 12, "ann@example.com is away")
    assert (found["vendor"], found["job"], found["request"], found["task"]) == ("post", "12", "r-1", "t-2")
    assert found["message"] == f"vendor post: job 12: {HIDDEN} is away" and found["level"] == "warning"
    assert "request" not in line("nothing")


def test_an_exception_of_several_lines_is_one_line_without_addresses(line: Any) -> None:
    try:
        raise ValueError("ann@example.com\nand another line")
    except ValueError:
        found = line("it fails", error=sys.exc_info())
    assert "ValueError" in found["exception"] and "another line" in found["exception"]


def test_an_access_line_has_neither_the_clients_address_nor_the_query(line: Any) -> None:
    args = {"addr": "192.0.2.7", "path": "/unsubscribe/token-of-ann", "method": "GET", "status": 200, "dt_ms": 1.23456}
    found = line("%(method)s", args | {"query_string": "mail=ann@example.com"}, name="granian.access")
    assert found["path"] == f"/unsubscribe/{HIDDEN}" and found["status"] == 200 and found["milliseconds"] == 1.235
    assert "192.0.2.7" not in json.dumps(found)


def test_without_the_setting_lines_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOG_FORMAT", raising=False)
    record = logging.LogRecord("campaigns", logging.INFO, "", 1, "job %s ends", (3,), None)
    assert LogLines().format(record).endswith(" INFO    campaigns: job 3 ends")


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
class TestProcesses:
    def test_a_worker_logs_objects_with_the_task_and_no_address(self) -> None:
        queue = unique("queue")
        arguments = ["-P", "solo", "-I", "tests.celery_tasks", "-Q", queue, "-n", f"{queue}@test"]
        command = ["-m", "celery", "-q", "-A", "mailhub", "worker", *arguments]
        with running(*command, **workers.NO_WATCHDOG, **JSON) as worker:
            sent = fail_with.apply_async(["ann@example.com, +49 170 1234567 and bob%40example.org"], queue=queue)
            wait_until(lambda: worker.said("raised unexpected"), "the task has failed")
            found = facts_of(worker.log.read_text())
        [warning] = [one for one in found if one["logger"] == "tests"]
        assert (warning["vendor"], warning["job"], warning["task"]) == ("post", "12", sent.id)
        [failure] = [one for one in found if one["logger"] == "celery.app.trace"]
        assert "Traceback" in failure["exception"] and failure["task_name"] == "tests.celery_tasks.fail_with"

    def test_beat_logs_objects(self) -> None:
        with running(
            "-m", "celery", "-q", "-A", "mailhub", "beat", "--pidfile=", CELERY_LOG_LEVEL="INFO", **JSON
        ) as beat:
            wait_until(lambda: beat.said("beat: Starting"), "beat says that it starts")
            assert facts_of(beat.log.read_text())

    def test_the_web_servers_own_lines_and_its_access_lines_are_objects(self) -> None:
        config = str(Path(workers.PROJECT, "mailhub", "granian_log.json"))
        settings = {"GRANIAN_LOG_CONFIG": config, "GRANIAN_LOG_ACCESS_ENABLED": "true"}
        with serving(**settings, **JSON) as server:
            path = "/api/v1/nothing/bob%40example.org?mail=ann@example.com"
            assert get(server, path, **{"X-Request-ID": "proxy-7"}).status in (401, 404)
            assert get(server, "/livez", **{"X-Request-ID": "ann@example.com"}).status == 200
            said = server.program.said  # the server writes them in no certain order
            wait_until(lambda: said("proxy-7") and said("/livez 200"), "both are in the log")
            found = facts_of(server.program.log.read_text())
        requests = [one for one in found if one["logger"] == "granian.access"]
        [known] = [one for one in requests if one.get("request") == "proxy-7"]
        assert known["path"].startswith("/api/v1/nothing/") and known["method"] == "GET"
        assert all(len(one["request"]) in (7, 16) for one in requests), "an id that is none is replaced"
        assert any(one["logger"] == "_granian" for one in found)
