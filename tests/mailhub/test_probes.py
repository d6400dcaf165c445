"""/livez and /readyz at a real process: each part taken away in turn, and hanging; the answer comes all the same."""

import http.client
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from django.db import connection, transaction
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from campaigns.models import Store
from mailhub import installation
from mailhub.monitoring import endpoints, probes
from tests import factories
from tests.front.server import Server, serving
from tests.lock_waits import count_lock_waits
from tests.private_rabbitmq import PROGRAM, PrivateRabbitMQ
from tests.private_redis import PrivateRedis
from tests.programs import environment, running
from tests.waiting import DEADLINE, result_of, wait_until
from tests.workers import celery
from vendors.models import Credential
from vendors.redis_addresses import celery_url

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
OK = dict.fromkeys(probes.PARTS, "ok")


class Reply(NamedTuple):
    status: int
    text: str

    @property
    def parts(self) -> dict[str, str]:
        found = json.loads(self.text)
        assert found["ready"] is (self.status == 200)
        return found["parts"]

    @property
    def faults(self) -> set[str]:
        return {part for part, fault in self.parts.items() if fault != "ok"}


def get(server: Server, path: str, method: str = "GET", **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", timeout=DEADLINE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(DEADLINE)
    try:
        connection.sock.connect(server.path)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read().decode())
    finally:
        connection.close()


class DatabaseSocket:
    """PostgreSQL's socket under a name of our own: there, gone, or one on which nobody answers."""

    def __init__(self, folder: Path) -> None:
        parts = urlsplit(environment()["DATABASE_URL"])
        options = parse_qs(parts.query)
        host, port = options["host"][0], options.get("port", ["5432"])[0]
        self._real, self._name = Path(host, f".s.PGSQL.{port}"), folder / f".s.PGSQL.{port}"
        self._silent = socket.socket(socket.AF_UNIX)
        self._silent.bind(str(folder / "silent"))
        self._silent.listen(100)
        self.url = parts._replace(query=f"host={quote(str(folder), safe='')}&port={port}").geturl()
        self.lead_to(self._real)

    def close(self) -> None:
        self._silent.close()

    def lead_to(self, target: Path | None) -> None:
        self._name.unlink(missing_ok=True)
        if target:
            self._name.symlink_to(target)

    def gone(self) -> None:
        self.lead_to(None)

    def hang(self) -> None:
        self.lead_to(self._name.parent / "silent")

    def back(self) -> None:
        self.lead_to(self._real)


class Installation(NamedTuple):
    server: Server
    database: DatabaseSocket
    redis: PrivateRedis
    broker: PrivateRedis
    home: Path  # of its own: another test that finds a part well would clear its notes

    def until(self, faults: set[str]) -> Reply:
        """Waits until these parts, and no other, have faults: an answer is kept for a second."""

        def found() -> Reply | None:
            reply = get(self.server, "/readyz")
            return reply if reply.faults == faults else None

        return wait_until(found, f"faults of {faults or 'nothing'}", every=0.2)


@pytest.fixture
def beat_has_sent() -> None:
    installation.sync_beat()
    PeriodicTask.objects.update(last_run_at=timezone.now())


@pytest.fixture(scope="module")
def installed(django_db_setup: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    redis, broker = PrivateRedis(), PrivateRedis()
    database = DatabaseSocket(tmp_path_factory.mktemp("database"))
    try:
        addresses = {"DATABASE_URL": database.url, "REDIS_URL": redis.url, "BROKER_URL": celery_url(broker.url)}
        home = tmp_path_factory.mktemp("home")
        with serving(threads=1, SWEEP_SECONDS="100", MAILHUB_HOME=str(home), **addresses) as server:
            yield Installation(server, database, redis, broker, home)
    finally:
        database.close()
        redis.end()
        broker.end()


@pytest.fixture
def parts(installed: Installation, beat_has_sent: None) -> Installation:
    """All of them are there; each test leaves them so."""
    assert installed.until(set()).status == 200
    return installed


def test_each_part_that_is_away_is_named_and_none_beside_it(parts: Installation) -> None:
    parts.redis.kill()
    assert parts.until({"redis"}).status == 503
    parts.redis.start()
    parts.broker.kill()
    assert parts.until({"broker"}).status == 503
    parts.broker.start()
    parts.database.gone()
    assert parts.until({"database", "migrations", "beat", "calls"}).status == 503
    assert get(parts.server, "/livez") == Reply(200, "ok\n")
    parts.database.back()
    assert parts.until(set()).parts == OK


def test_parts_that_hang_are_named_in_bounded_time_and_hold_up_no_probe(parts: Installation) -> None:
    parts.database.hang()
    for one in (parts.redis, parts.broker):
        one._process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert parts.until(set(probes.PARTS)).status == 503
    asked = time.monotonic()
    assert get(parts.server, "/livez").status == 200
    assert get(parts.server, "/readyz").faults == set(probes.PARTS)
    assert time.monotonic() - asked < endpoints.PATIENCE + DEADLINE / 4, f"{asked - began:.0f} s until it was seen"
    for one in (parts.redis, parts.broker):
        one._process.send_signal(signal.SIGCONT)
    parts.database.back()
    parts.until(set())


def test_a_vendor_that_is_silent_is_told_without_its_name_and_is_no_fault(parts: Installation) -> None:
    login = factories.credential(factories.vendor(slug="secretive"))
    Credential.objects.filter(pk=login.pk).update(retry_after_until=timezone.now() + timedelta(hours=1))
    said = wait_until(lambda: find_silence(parts), "it is told", every=0.2)
    assert said.startswith("all vendors: silent until ") and "windows were rebuilt" in said
    assert "secretive" not in get(parts.server, "/readyz").text and parts.until(set()).status == 200


def find_silence(parts: Installation) -> str:
    sentences = json.loads(get(parts.server, "/readyz").text).get("told", [])
    return next((one for one in sentences if "silent" in one), "")


@pytest.mark.parametrize("part", ["redis", "broker"])
def test_a_redis_that_only_reads_is_a_fault_told_in_its_words_with_the_time_since_when(
    part: str, parts: Installation
) -> None:
    with getattr(parts, part).client() as client:
        client.config_set("min-replicas-to-write", 1)  # as a replica after a failover, it refuses to write
        try:
            parts.until({part})
            time.sleep(
                1.1 * endpoints.FRESH
            )  # an answer is kept so long; all processes have read the same note by then
            first = get(parts.server, "/readyz").parts[part]
            assert "answers: NOREPLICAS Not enough good replicas to write. (since 20" in first
            time.sleep(1.1 * endpoints.FRESH)
            assert get(parts.server, "/readyz").parts[part] == first, "the time is that of the beginning"
        finally:
            client.config_set("min-replicas-to-write", 0)
    parts.until(set())
    assert outages_of(parts) == []


def outages_of(parts: Installation) -> list[str]:
    """The notes in the home of its processes."""
    folder = parts.home / "outages"
    return sorted(path.name for path in folder.glob("[a-z]*")) if folder.exists() else []


def test_who_asks_for_a_part_that_is_away_learns_no_address(parts: Installation) -> None:
    parts.redis.kill()
    parts.database.gone()
    said = parts.until({"redis", "database", "migrations", "beat", "calls"}).parts
    assert {said[part].partition(" (since ")[0] for part in ("database", "migrations", "beat", "calls")} == {
        "PostgreSQL cannot be reached"
    }
    assert said["redis"].startswith("Redis cannot be reached (since ")
    parts.redis.start()
    parts.database.back()
    parts.until(set())


def test_tables_of_another_version_and_a_beat_that_is_silent_are_faults(parts: Installation) -> None:
    here = Store.objects.get().tables
    Store.objects.update(tables="")
    assert "being migrated" in parts.until({"migrations"}).parts["migrations"]
    Store.objects.update(tables=here)
    PeriodicTask.objects.update(last_run_at=timezone.now() - timedelta(minutes=10))
    assert "beat has sent nothing for 60" in parts.until({"beat"}).parts["beat"]
    with celery("beat", "--pidfile=", "--max-interval=1") as beat:
        beat.until(lambda: get(parts.server, "/readyz").status == 200)


def test_a_part_that_a_probe_leaves_out_is_shown_and_does_not_count(parts: Installation) -> None:
    parts.broker.kill()
    parts.until({"broker"})
    left_out = get(parts.server, "/readyz?exclude=beat&exclude=broker")
    assert left_out.status == 200 and json.loads(left_out.text)["parts"]["broker"] != "ok"
    assert get(parts.server, "/readyz?exclude=beat,redis").status == 503
    assert get(parts.server, "/readyz?exclude=brokre").status == 400
    parts.broker.start()


@pytest.mark.skipif(PROGRAM is None, reason="no RabbitMQ on this machine")
def test_rabbitmq_that_is_away_or_hangs_is_a_fault(beat_has_sent: None) -> None:
    broker = PrivateRabbitMQ()
    try:
        with serving(threads=1, SWEEP_SECONDS="100", BROKER_URL=broker.url) as server:
            wait_until(lambda: get(server, "/readyz").status == 200, "all is there", every=0.2)
            broker.end()
            wait_until(lambda: get(server, "/readyz").faults == {"broker"}, "it is away", every=0.2)
    finally:
        broker.end()


def test_a_probe_needs_neither_a_name_of_the_host_nor_tls(beat_has_sent: None, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    options = ["--interface", "rsgi", "--http", "1", "--no-ws", "--uds", path, "mailhub.rsgi:web"]
    with running("-m", "granian", *options, HTTPS="1", ALLOWED_HOSTS="mailhub.example.com") as program:
        server = Server(path, program)
        wait_until(lambda: lives(server), "it listens")
        wait_until(lambda: get(server, "/readyz", Host="10.1.2.3").status == 200, "it is ready", every=0.2)
        assert get(server, "/admin/login/", Host="mailhub.example.com").status == 301
        assert get(server, "/livez", "HEAD") == Reply(200, "")
        assert get(server, "/livez", "POST").status == 405


def lives(server: Server) -> bool:
    with suppress(OSError):
        return get(server, "/livez", Host="10.1.2.3:8001").status == 200
    return False


def test_a_probe_is_answered_while_every_thread_waits_for_the_database(beat_has_sent: None) -> None:
    with serving(threads=1, SWEEP_SECONDS="100") as server, ThreadPoolExecutor(1) as other:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE mailhub_apikey IN ACCESS EXCLUSIVE MODE")
            request = other.submit(server.ask, "GET", "/api/v1/services", "mh_live_nobody_knows")
            wait_until(count_lock_waits, "the only thread waits")
            assert get(server, "/livez").status == 200
            assert get(server, "/readyz").parts == OK
            assert not request.done()
        assert result_of(request, "request ends")[0] == 401


def test_beat_writes_down_at_once_that_it_has_sent_a_task(settings: Any) -> None:
    settings.SWEEP_SECONDS = 1.0
    installation.sync_beat()
    assert probes.beat_sent_at() is None
    with celery("beat", "--pidfile=", "--max-interval=1") as beat:
        first = beat.until(probes.beat_sent_at)
        beat.until(lambda: (probes.beat_sent_at() or 0) > first)
