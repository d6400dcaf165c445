"""A store that answers "not now": Redis with each word that means so, PostgreSQL with each kind of its codes.

No process ends, no call is made without a permit and a row, all goes on by itself, and `status` says why meanwhile.
"""

import contextlib
import io
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.core.management import call_command
from redis import RedisError

from campaigns.models import Job
from mailhub import installation
from tests import factories, forks
from tests.faults.checker import judge, sums
from tests.faults.sending import calls, login
from tests.flower import LOGIN
from tests.ports import free_port
from tests.postgres_pair import Server
from tests.private_redis import PrivateRedis
from tests.programs import Program, environment, running, wait_until, worker
from tests.sandbox import Sandbox
from vendors.redis_addresses import celery_url

pytestmark = [pytest.mark.slow("servers"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
LASTS = 3.0  # seconds of each refusal: longer than what clients try again
LIMIT = (10, 1.0)
EACH = 40  # mails for each refusal

Refusal = Callable[[PrivateRedis], AbstractContextManager[None]]


def _set(client: Any, **values: str) -> None:
    for name, value in values.items():
        client.config_set(name.replace("_", "-"), value)


@contextmanager
def read_only(redis: PrivateRedis) -> Iterator[None]:
    """As a primary that has become a replica."""
    with redis.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def without_its_primary(redis: PrivateRedis) -> Iterator[None]:
    with redis.client() as client:
        _set(client, replica_serve_stale_data="no")
        with read_only(redis):
            yield
        _set(client, replica_serve_stale_data="yes")


@contextmanager
def after_a_failed_save(redis: PrivateRedis) -> Iterator[None]:
    with redis.client() as client:
        _set(client, save="3600 100000")
        (redis.folder / "dump").mkdir()  # no file can take its place
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the save has failed")
        yield
        _set(client, save="")


@contextmanager
def without_replicas(redis: PrivateRedis) -> Iterator[None]:
    with redis.client() as client:
        _set(client, min_replicas_to_write="1")
        yield
        _set(client, min_replicas_to_write="0")


@contextmanager
def out_of_memory(redis: PrivateRedis) -> Iterator[None]:
    with redis.client() as client:
        _set(client, maxmemory="1")
        yield
        _set(client, maxmemory="0")


@contextmanager
def busy(redis: PrivateRedis) -> Iterator[None]:
    """With a script that does not end."""
    with redis.client() as client, redis.client() as other:
        _set(client, busy_reply_threshold="1")

        def run() -> None:
            with contextlib.suppress(RedisError):  # it is killed
                other.eval("while true do end", 0)

        thread = threading.Thread(target=run)
        thread.start()
        yield
        client.script_kill()
        thread.join()


@contextmanager
def loading(redis: PrivateRedis) -> Iterator[None]:
    """Started again, with as much to load as takes it longer."""
    with redis.client() as client:
        client.execute_command("BGREWRITEAOF")
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the file is short")
        keys = client.dbsize()
    redis.kill()
    redis.more |= {
        "key-load-delay": str(round(4 * LASTS * 1e6 / keys)),
        "loading-process-events-interval-bytes": "1024",
    }
    redis.start(wait=False)
    yield
    del redis.more["key-load-delay"]


REFUSALS: dict[str, Refusal] = {
    "READONLY": read_only,
    "MASTERDOWN": without_its_primary,
    "MISCONF": after_a_failed_save,
    "NOREPLICAS": without_replicas,
    "OOM": out_of_memory,
    "BUSY": busy,
    "LOADING": loading,
}


@contextmanager
def processes_of(**settings: str) -> Iterator[dict[str, Program]]:
    """The processes of an installation, with pools as the Procfile has them."""
    with contextlib.ExitStack() as stack:
        yield {
            "senders": stack.enter_context(worker(queues="vendors", **settings)),
            "hub": stack.enter_context(worker(processes=2, queues="hub", **settings)),
            "webhooks": stack.enter_context(worker(processes=1, queues="webhooks", **settings)),
            "beat": stack.enter_context(running("-m", "celery", "-A", "mailhub", "beat", "--pidfile=", **settings)),
        }


def all_live(processes: dict[str, Program]) -> None:
    for name, one in processes.items():
        assert one.process.poll() is None, f"{name} ended:\n{one.log.read_text()[-3000:]}"


def logs(processes: dict[str, Program]) -> str:
    return "\n".join(f"--- {name}\n{one.log.read_text()[-3000:]}" for name, one in processes.items())


@pytest.fixture
def redis(settings: Any) -> Iterator[PrivateRedis]:
    server = PrivateRedis(dbfilename="dump")
    settings.REDIS_URL = server.url
    settings.BROKER_URL = celery_url(server.url)
    settings.SWEEP_SECONDS = 1
    yield server
    server.end()


def refuses(redis: PrivateRedis) -> bool:
    with redis.client() as client:
        try:
            client.set("asked", 1)
        except RedisError:
            return True
        return False


def status() -> str:
    out = io.StringIO()
    call_command("status", stdout=out)
    return out.getvalue()


def test_each_word_with_which_redis_says_not_now_stops_the_calls_and_ends_no_process(
    sandbox: Sandbox, redis: PrivateRedis, tmp_path: Path, settings: Any
) -> None:
    settings.MAILHUB_HOME = tmp_path
    account = login(sandbox.url, LIMIT)
    factories.caster(account.vendor)
    installation.sync_beat()
    stores = {"RESULT_BACKEND": celery_url(redis.url), "MAILHUB_HOME": str(tmp_path), "SWEEP_SECONDS": "1"}
    stores |= {"BOUNCE_RECEIVER": f"lmtp://127.0.0.1:{free_port()}", "FLOWER_BASIC_AUTH": LOGIN}
    shown = ["-m", "celery", "-A", "mailhub", "flower", "--conf=mailhub/flowerconfig.py"]
    with (
        processes_of(**stores) as processes,
        running(*shown, f"--unix_socket={tmp_path}/socket", **stores) as processes["flower"],
        running("manage.py", "receive_bounces", **stores) as processes["bounces"],
    ):
        for number, (word, refusal) in enumerate(REFUSALS.items()):
            job = factories.campaign_with_job(EACH, of=account, status="DISPATCHED")
            calls(sandbox, number * EACH + 5)
            with refusal(redis):
                time.sleep(LASTS)  # the fault lasts so long
                all_live(processes)
                said, stopped = " ".join(status().split()), calls(sandbox, 1)
                time.sleep(1)
                if refuses(redis):  # to the end: a load ends by itself
                    assert "Redis is away or refuses: " in said and "the broker is away or refuses: " in said
                    assert word in said and "(since " in said
                    assert len(sandbox.books().entries) == stopped < (number + 1) * EACH, "no call without a permit"
            wait_until(
                lambda job=job: Job.objects.get(pk=job.pk).status == "LOGGED",
                f"all goes on after {word}",
                log=lambda: logs(processes),
            )
            all_live(processes)
            assert "refuses" not in status()
    assert judge(sandbox.books(), windows=[(*LIMIT, None)]) == []
    assert sums() == {"accepted": EACH * len(REFUSALS)}


class PrivatePostgres:
    """An installation whose PostgreSQL is its own, so that all of it may refuse."""

    def __init__(self, home: Path) -> None:
        folder = home / "pg"
        folder.mkdir(mode=0o700)
        self.server = Server(folder)
        made = ["--username=mailhub", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync"]
        self.server.run("initdb", "-D", str(self.server.data), *made)
        self.server.start()
        self.server.ask("CREATE DATABASE mailhub")
        self.url = f"postgres://mailhub@/mailhub?host={quote(str(folder), safe='')}"

    def ask(self, statement: str) -> list[Any]:
        """Also while sessions are read-only."""
        with psycopg.connect(self.url, autocommit=True, options="-c default_transaction_read_only=off") as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def others(self) -> list[int]:
        return [pid for (pid,) in self.ask(f"SELECT pid FROM ({SESSIONS}) s")]


SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = 'mailhub' AND pid <> pg_backend_pid()"


@contextmanager
def stopped_and_started(postgres: PrivatePostgres) -> Iterator[None]:
    """57P01 for those who are there, none for the others, 57P03 while it starts."""
    postgres.server.stop()
    yield
    postgres.server.start()


@contextmanager
def crashed(postgres: PrivatePostgres) -> Iterator[None]:
    """57P02: one of its processes is killed, so it ends all others and starts again by itself."""
    os.kill(postgres.others()[0], signal.SIGKILL)
    yield
    wait_until(postgres.server._answers, "it is there again")


@contextmanager
def only_read(postgres: PrivatePostgres) -> Iterator[None]:
    """25006, for the sessions that are there and for those that begin meanwhile and would stay so."""
    postgres.ask("ALTER DATABASE mailhub SET default_transaction_read_only = on")
    postgres.ask(f"SELECT pg_terminate_backend(pid) FROM ({SESSIONS}) s")
    yield
    postgres.ask("ALTER DATABASE mailhub RESET default_transaction_read_only")


@contextmanager
def full_of_sessions(postgres: PrivatePostgres) -> Iterator[None]:
    """53300, once those who are there have been sent away."""
    with contextlib.ExitStack() as stack:
        postgres.ask(f"SELECT pg_terminate_backend(pid) FROM ({SESSIONS}) s")
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(contextlib.closing(psycopg.connect(postgres.url)))
        yield


def raising(code: str) -> Callable[[PrivatePostgres], AbstractContextManager[None]]:
    """Each write of what a sender writes raises this code, as a disk does that is full."""

    @contextmanager
    def raise_it(postgres: PrivatePostgres) -> Iterator[None]:
        tables = "campaigns_claim", "campaigns_job", "campaigns_answerbatch", "django_celery_beat_periodictask"
        postgres.ask(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END $$"
        )
        for table in tables:
            postgres.ask(f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION refuse()")
        yield
        for table in tables:
            postgres.ask(f"DROP TRIGGER refuse ON {table}")

    return raise_it


OUTAGES: dict[str, Callable[[PrivatePostgres], AbstractContextManager[None]]] = {
    "57P01 and 57P03": stopped_and_started,
    "57P02": crashed,
    "25006": only_read,
    "53300": full_of_sessions,
    "53100": raising("53100"),
    "08006": raising("08006"),
}


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PrivatePostgres]:
    folder = Path(tempfile.mkdtemp(prefix="mailhub-pg-"))
    made = PrivatePostgres(folder)
    yield made
    made.server.kill()
    shutil.rmtree(folder, ignore_errors=True)


def test_each_code_with_which_postgresql_says_not_now_stops_the_calls_and_ends_no_process(
    sandbox: Sandbox, redis: PrivateRedis, postgres: PrivatePostgres, tmp_path: Path
) -> None:
    broker = celery_url(redis.url)
    stores = {"DATABASE_URL": postgres.url, "REDIS_URL": redis.url, "BROKER_URL": broker, "RESULT_BACKEND": broker}
    more = {"MAILHUB_HOME": str(tmp_path), "SWEEP_SECONDS": "1", "LEASE_SECONDS": "15", "STORES_MAY_LOSE": "1"}
    mails = EACH * len(OUTAGES)

    def manage(*arguments: str) -> str:
        done = forks.run(["manage.py", *arguments], env=environment(**stores, **more), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    manage("migrate", "--verbosity", "0")
    options = [f"url={sandbox.url}", "concurrency=4", "timeout=5"]
    manage("vendor", "add", "v", "--adapter", "http", "--set", *options, "--limit", "10/1")
    (tmp_path / "body").write_text("Hello")
    (tmp_path / "people.csv").write_text("email\n" + "".join(f"r{n}@x.example\n" for n in range(mails)))
    text = ["--subject", "Hi", "--body", str(tmp_path / "body"), "--at", "now", str(tmp_path / "people.csv")]
    with processes_of(**stores, **more) as processes:
        manage("send_campaign", "--sponsor", "s", "--vendor", "v", *text)
        for number, (code, outage) in enumerate(OUTAGES.items(), 1):
            before = len(sandbox.books().entries)
            calls(sandbox, before + 5)
            with outage(postgres):
                time.sleep(LASTS)
                all_live(processes)
            after = len(sandbox.books().entries)
            assert after < number * EACH, f"calls have stopped with {code}"
            wait_until(
                lambda n=after: len(sandbox.books().entries) > n, f"calls after {code}", log=lambda: logs(processes)
            )
            all_live(processes)
        jobs = "SELECT count(*) FROM campaigns_job WHERE status NOT IN ('LOGGED', 'P_FINISHED')"
        wait_until(lambda: postgres.ask(jobs)[0][0] == 0, "all is sent", 240, log=lambda: logs(processes))
        all_live(processes)
    called = Counter(entry.reference for entry in sandbox.books().entries)
    accepted = postgres.ask("SELECT count(*) FROM campaigns_message WHERE message_id IS NOT NULL")[0][0]
    assert set(called.values()) == {1} and len(called) == accepted == mails
