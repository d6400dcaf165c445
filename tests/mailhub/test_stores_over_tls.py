"""Stores that want TLS, a user and a password: mail goes out by real processes, and strangers get no session."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from redis import RedisError

from tests import forks
from tests.faults.checker import judge
from tests.private_redis import PrivateRedis
from tests.private_tls import TlsPostgres, TlsRedis, redis_with_tls
from tests.programs import Program, environment
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors import redis_clients
from vendors.redis_addresses import celery_url

pytestmark = [pytest.mark.slow("servers"), pytest.mark.timeout(600)]
RECIPIENTS, RATE = 60, 40
SHORT = {"LEASE_SECONDS": "30", "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1"}


@pytest.fixture
def postgres() -> Iterator[TlsPostgres]:
    server = TlsPostgres()
    try:
        if not server.has_tls:
            pytest.skip("the PostgreSQL found here was built without TLS, as the bundled one is")
        yield server
    finally:
        server.end()


@pytest.fixture
def redis() -> Iterator[TlsRedis]:
    if not (program := redis_with_tls()):
        pytest.skip("no Redis with TLS is here, and the bundled one has none: name one by REDIS_WITH_TLS")
    server = TlsRedis(program)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def plain_redis() -> Iterator[PrivateRedis]:
    server = PrivateRedis()
    try:
        yield server
    finally:
        server.end()


class Installation:
    """Processes of mailhub with these settings, and the commands of its operator."""

    def __init__(self, home: Path, **stores: str) -> None:
        self.settings = {**stores, "MAILHUB_HOME": str(home), **SHORT}
        self.programs: list[Program] = []

    def manage(self, *args: str) -> str:
        done = forks.run(["manage.py", *args], env=environment(**self.settings), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def send(self, vendor: Sandbox, folder: Path) -> None:
        """Send a campaign from the command to the last acceptance, and ask for the promises."""
        self.manage("migrate", "--verbosity", "0")
        options = [f"url={vendor.url}", "concurrency=4", "timeout=5"]
        self.manage("vendor", "add", "v", "--adapter", "http", "--set", *options, "--limit", f"{RATE}/1")
        (folder / "body").write_text("Hello")
        (folder / "people.csv").write_text("email\n" + "".join(f"r{n}@x.example\n" for n in range(RECIPIENTS)))
        for args in (["worker", "-Q", "vendors,hub", "-c", "3", "--without-mingle"], ["beat", "--pidfile="]):
            self.programs.append(Program(["-m", "celery", "-A", "mailhub", *args], **self.settings))
        args = ["--sponsor", "s", "--vendor", "v", "--subject", "Hi", "--body", str(folder / "body"), "--at", "now"]
        self.manage("send_campaign", *args, str(folder / "people.csv"))
        wait_until(lambda: len(vendor.books().entries) == RECIPIENTS, "all were called", 240)
        wait_until(lambda: "LOGGED" in self.manage("list_jobs"), "all is logged", 120)
        self.manage("audit")
        assert "is away" not in self.manage("status")

    def end(self) -> None:
        for program in self.programs:
            program.end()
            print(program.log.read_text()[-4000:])  # shown where the test fails
            program.log.unlink()


@pytest.mark.django_db(transaction=True)
def test_a_redis_that_wants_tls_and_a_user_serves_limits_broker_and_results(
    redis: TlsRedis, sandbox: Sandbox, tmp_path: Path
) -> None:
    stores = ("REDIS_URL", "BROKER_URL", "RESULT_BACKEND", "RESULT_URLS")
    made = Installation(tmp_path, **dict.fromkeys(stores, redis.url))
    try:
        made.send(sandbox, tmp_path)
    finally:
        made.end()
    assert judge(sandbox.books(), windows=[(RATE, 1.0, None)]) == []
    nobody = redis.url.replace("mailhub:", "stranger:")
    distrustful = redis.url.partition("?")[0]
    for url in (distrustful, nobody, distrustful.replace("rediss://", "redis://")):
        with redis_clients.make_client(url) as client, pytest.raises(RedisError):
            client.ping()


def test_a_postgresql_that_wants_tls_and_a_password_is_used_by_every_process(
    postgres: TlsPostgres, plain_redis: PrivateRedis, sandbox: Sandbox, tmp_path: Path
) -> None:
    broker = celery_url(plain_redis.url)
    stores = {"BROKER_URL": broker, "RESULT_BACKEND": broker}
    stores |= dict.fromkeys(("REDIS_URL", "RESULT_URLS"), plain_redis.url)
    made = Installation(tmp_path, DATABASE_URL=postgres.url, **stores)
    try:
        made.send(sandbox, tmp_path)
        used = (
            "SELECT DISTINCT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE client_addr IS NOT NULL"
        )
        assert postgres.server.ask(used) == [(True,)]
    finally:
        made.end()
    times = [entry.reference for entry in sandbox.books().entries]
    assert len(times) == len(set(times)) == RECIPIENTS
    for url in (postgres.url.partition("&sslrootcert")[0], postgres.url.replace("p%40ss", "guess")):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url).close()
