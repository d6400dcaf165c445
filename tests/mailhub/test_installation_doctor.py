"""`doctor --installation`: servers, machines and processes that are not as they should be, each with its way out."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client, override_settings
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from mailhub import checks, installation
from mailhub.diagnosis import machine_health, registry
from mailhub.diagnosis.verdicts import VerdictLevel
from mailhub.embedded.binaries import redis_program
from mailhub.management import probe_checks
from tests import factories as make
from tests import workers
from tests.connected import connected_to
from tests.factories import unique
from tests.plugin import folders
from tests.postgres_pair import Pair, Server
from tests.private_redis import PrivateRedis
from tests.waiting import DEADLINE, exit_of, wait_until

pytestmark = [
    pytest.mark.slow("servers"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("no_workers"),
]
PATIENT = ("--seconds", str(DEADLINE))


def doctor(*options: str) -> tuple[dict[str, dict[str, Any]], int]:
    """What it says about each name, and its exit code; where it says several things about one, the worst."""
    out, code = io.StringIO(), 0
    try:
        call_command("doctor", "--installation", "--json", *(options or PATIENT), stdout=out)
    except CommandError as error:
        code = error.returncode
    found: dict[str, dict[str, Any]] = {}
    for one in map(json.loads, out.getvalue().splitlines()):
        if one["about"] not in found or found[one["about"]]["level"] == "ok":
            found[one["about"]] = one
    return found, code


@contextmanager
def postgres(prefix: tuple[str, ...] = (), **settings: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=folders()[0]) as folder:
        server = Server(Path(folder, "a"), **settings)
        try:
            server.create()
            with connected_to(server.url):
                yield server
        finally:
            server.kill()


@contextmanager
def redis_of_its_own(*before: str, **more: str) -> Iterator[PrivateRedis]:
    redis = PrivateRedis(**more)
    try:
        with override_settings(REDIS_URL=redis.url):
            yield redis
    finally:
        redis.end()


def test_an_installation_without_processes_has_warnings_and_no_error_and_strict_counts_them() -> None:
    found, code = doctor()
    assert code == 0, [one for one in found.values() if one["level"] == "error"]
    names = {check.name for check in probe_checks.CHECKS}
    silent = {"storing", "clocks", "fonts"}  # they speak of faults only
    assert names - set(found) <= silent | {"durability"}
    assert found["fsync"]["level"] == "warning" and found["fsync"]["remedy"] == "Set fsync = on"
    assert found["queues"]["seen"] == "no worker runs" and found["migrations"]["level"] == "ok"
    assert {one["status"] for one in found.values()} == {"ok", "told"}
    assert doctor("--strict", *PATIENT)[1] == 1


def test_people_read_a_line_a_check_with_the_way_out() -> None:
    out = io.StringIO()
    call_command("doctor", "--installation", *PATIENT, stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "installation:" and lines[1].startswith("database       ok        PostgreSQL ")
    assert any(
        line.startswith("queues         warning   no worker runs. Start the Procfile's workers") for line in lines
    )


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_time_that_is_none_is_a_usage_error(seconds: str) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "doctor", "--installation", f"--seconds={seconds}"],
        cwd=workers.PROJECT, env=workers.environment(), capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"argument --seconds: {seconds!r} is no number of seconds between 0 and 3600\n")


def test_settings_of_postgresql_that_harm_it_are_named_with_their_remedy(settings: Any) -> None:
    settings.STORES_MAY_LOSE = False
    wrong = {"fsync": "off", "autovacuum": "off", "default_transaction_isolation": "serializable"}
    with postgres(**wrong, synchronous_commit="off", max_connections="15"):
        found, code = doctor()
        assert {one.id for one in checks.check_database() if one.is_serious()} == {"mailhub.E009", "mailhub.E010"}
    assert code == 1
    assert found["fsync"]["level"] == found["vacuum"]["level"] == found["isolation"]["level"] == "error"
    assert found["vacuum"]["sentence"] == "autovacuum is off: tables grow without end. Set autovacuum = on"
    assert found["isolation"]["sentence"].startswith("PostgreSQL's default isolation is serializable. Set default_")
    assert found["commits"]["seen"] == "synchronous_commit is on in each session", "sessions set it themselves"
    assert found["connections"]["level"] == "warning" and "PostgreSQL allows 12" in found["connections"]["seen"]
    assert found["migrations"]["level"] == "error" and found["migrations"]["remedy"] == "Say manage.py migrate"


def test_a_standby_that_is_behind_and_one_that_commits_wait_for_in_vain() -> None:
    pair = Pair()
    try:
        with connected_to(pair.primary.url):
            assert doctor()[0]["standbys"]["seen"] == "standbys that follow: 1"
            pair.delay_replay()
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE delayed ()")  # its commit waits, and all behind it
                cursor.execute(
                    "SELECT pg_logical_emit_message(false, 'a', repeat('a', 2000000)) FROM generate_series(1, 80)"
                )
            wait_until(pair.has_received_all, "the standby has stored it")
            connection.close()
            found, _ = doctor()
            assert found["standbys"]["level"] == "warning" and "MB and" in found["standbys"]["seen"]
            pair.primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'another'")
            pair.primary.ask("SELECT pg_reload_conf()")
            wait_until(lambda: pair.primary.ask("SHOW synchronous_standby_names") == [("another",)], "it waits for one")
            found, code = doctor()
            assert code == 1 and found["commits"]["seen"].startswith("commits wait for a standby (another), and none")
        with connected_to(pair.standby.url):
            found, code = doctor()
            assert code == 1 and found["database"]["seen"] == "this PostgreSQL is a standby, and takes no writes"
    finally:
        pair.end()


def test_a_table_full_of_dead_rows_and_a_sequence_near_its_end() -> None:
    with postgres(autovacuum="off") as server, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE campaigns_store (id integer GENERATED ALWAYS AS IDENTITY, tables text)")
        cursor.execute("INSERT INTO campaigns_store (tables) SELECT '' FROM generate_series(1, 150000)")
        cursor.execute("DELETE FROM campaigns_store WHERE id > 10")
        cursor.execute("SELECT setval('campaigns_store_id_seq', 2000000000)")
        connection.close()
        dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'campaigns_store'"
        with connection.cursor() as again:

            def counted() -> bool:
                again.execute("SELECT pg_stat_clear_snapshot()")
                again.execute(dead)
                return again.fetchone()[0] > 140_000

            wait_until(counted, "PostgreSQL has counted the dead rows")
        verdicts = [str(one) for check in registry.CHECKS if check.name in ("vacuum", "ids") for one in check.look()]
        assert server.process.poll() is None
    assert any(one.startswith("campaigns_store has 149") and "dead rows beside 10" in one for one in verdicts)
    assert any(one.startswith("campaigns_store_id_seq has used 93% of its ids") for one in verdicts)


def test_a_redis_that_drops_keys_or_follows_another_or_is_full() -> None:
    with redis_of_its_own() as first, redis_of_its_own(**{"maxmemory-policy": "allkeys-lru"}) as redis:
        with override_settings(BROKER_URL=f"redis+socket://{redis.folder}/redis.sock"):
            found, code = doctor()
            assert code == 1 and "its maxmemory-policy is allkeys-lru" in found["redis-policy"]["seen"]
            assert found["redis-policy"]["remedy"] == "Set maxmemory-policy noeviction in its configuration"
        with redis.client() as client:
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 200_000)
            for number in range(100):
                client.set(f"filling:{number}", "a" * 10_000)
            found, code = doctor()
            assert code == 1 and "keys that Redis has dropped for want of memory" in found["redis-memory"]["seen"]
        assert first.client().ping()


def test_a_redis_that_is_a_replica_is_an_error() -> None:
    with redis_of_its_own() as redis, redis.client() as client:
        client.config_set("replica-read-only", "no")
        client.replicaof("127.0.0.1", "1")
        found, code = doctor()
        client.replicaof("NO", "ONE")
    assert code == 1 and found["replicas"]["seen"] == "this Redis is a replica, and takes no writes"


needs_faketime = pytest.mark.skipif(not Path("/usr/bin/faketime").exists(), reason="needs Debian's faketime")


@needs_faketime
@pytest.mark.parametrize(("offset", "level"), [("+90s", "error"), ("-90s", "error"), ("+1.2s", "warning")])
def test_a_redis_whose_clock_is_off(offset: str, level: str, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    command = ["faketime", "-f", offset, redis_program()[0], "--port", "0", "--unixsocket", str(socket), "--save", ""]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(socket.exists, "Redis listens")
        with override_settings(REDIS_URL=f"unix://{socket}"):
            found, _ = doctor()
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        exit_of(server)
    direction = "ahead of" if offset.startswith("+") else "behind"
    assert found["redis-clock"]["level"] == level
    assert f"s {direction} this machine's" in found["redis-clock"]["seen"] and "NTP" in found["redis-clock"]["remedy"]


def test_a_postgresql_whose_clock_is_off() -> None:
    """As its sessions see it: a function of this name comes before PostgreSQL's own."""
    with postgres(), connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
                       "$$ SELECT pg_catalog.clock_timestamp() + interval '3 minutes' $$")  # fmt: skip
        cursor.execute("ALTER ROLE mailhub SET search_path = public, pg_catalog")
        connection.close()
        found, code = doctor()
    assert code == 1 and found["postgres-clock"]["level"] == "error"
    assert found["postgres-clock"]["seen"].startswith("the clock of PostgreSQL is 180")


def test_servers_that_hang_are_asked_once_and_the_rest_is_examined() -> None:
    with redis_of_its_own() as redis:
        redis._process.send_signal(signal.SIGSTOP)
        try:
            found, code = doctor("--seconds", "1")
        finally:
            redis._process.send_signal(signal.SIGCONT)
    assert code == 1 and found["redis"]["level"] == "error"
    assert found["redis-memory"]["seen"] == "not asked, as Redis is away"
    assert found["database"]["level"] == "ok"


def test_a_postgresql_that_hangs_says_so_in_bounded_time() -> None:
    with postgres() as server:
        connection.close()
        pids = [server.process.pid, *server.children()]
        for pid in pids:
            with suppress(ProcessLookupError):  # autovacuum's workers come and go
                os.kill(pid, signal.SIGSTOP)
        try:
            found, code = doctor("--seconds", "1")
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    assert code == 1 and found["database"]["seen"] == "no answer within 1 s"
    assert found["vacuum"]["seen"] == "not asked, as PostgreSQL is away" and found["redis"]["level"] == "ok"


def test_a_server_that_is_away_is_named(tmp_path: Path) -> None:
    with override_settings(REDIS_URL=f"unix://{tmp_path}/none"):
        found, code = doctor()
    assert code == 1 and found["redis"]["seen"].startswith("Redis does not answer, or refuses: ")


def test_a_queue_that_nobody_reads_while_other_workers_run() -> None:
    vendor = make.vendor()
    queue = unique("hub")
    with redis_of_its_own() as redis, override_settings(BROKER_URL=redis.url.replace("unix://", "redis+socket://")):
        address = {"REDIS_URL": redis.url, "BROKER_URL": f"redis+socket://{redis.folder}/redis.sock"}
        with workers.worker("hub", queue, **address) as worker:
            worker.until(lambda: "no worker runs" not in doctor()[0]["queues"]["seen"], "the worker is registered")
            found, code = doctor()
    assert code == 1 and found["queues"]["level"] == "error"
    assert found["queues"]["seen"] == f"no worker reads the queues webhooks, vendor.{vendor.slug}"


def test_a_beat_that_has_fallen_silent_is_an_error_and_one_that_never_ran_a_warning() -> None:
    assert doctor()[0]["beat"]["level"] == "warning"
    installation.sync_beat()
    PeriodicTask.objects.update(last_run_at=timezone.now() - timedelta(hours=1))
    found, code = doctor()
    assert code == 1 and found["beat"]["sentence"].startswith("beat has sent nothing for 36")


def test_a_process_of_an_older_version_is_told_by_its_sessions() -> None:
    assert doctor()[0]["processes"]["level"] == "ok"
    params = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(ours, None)
    import psycopg

    with psycopg.connect(**{**params, "application_name": "mailhub 0.2.0"}):
        found, _ = doctor()
    assert found["processes"]["sentence"].startswith("sessions of another version, mailhub 0.2.0: 1. Restart those")


def test_keys_that_others_may_read(tmp_path: Path) -> None:
    key = tmp_path / "secret_key"
    key.write_text("k" * 50)
    for mode, level in ((0o644, "error"), (0o600, "ok")):
        key.chmod(mode)
        with override_settings(MAILHUB_HOME=tmp_path, SECRET_KEY="k" * 50):
            [*_, last] = machine_health.look_at_keys()
        assert last.level == level
    with override_settings(MAILHUB_HOME=tmp_path, SECRET_KEY="short"):
        [last] = machine_health.look_at_keys()
    assert str(last) == "SECRET_KEY is shorter than 50 characters. Rotate the keys: docs/how-to/rotate-keys.md"


def test_a_limit_of_files_that_is_too_low_is_told_to_the_process_that_has_it() -> None:
    code = "\n".join([
        "import django, resource",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (900, 900))",
        "django.setup()",
        "from mailhub.diagnosis import machine_health",
        "print(*machine_health.look_at_descriptors())",
    ])  # fmt: skip
    env = workers.environment() | {"DJANGO_SETTINGS_MODULE": "mailhub.settings"}
    ended = subprocess.run([sys.executable, "-c", code], env=env, cwd=workers.PROJECT, capture_output=True, text=True)
    assert ended.stdout.startswith("a process may open only 900 files. Raise the hard limit"), ended.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] != 900


def test_a_disk_is_judged_by_its_free_space() -> None:
    full, large = machine_health.judge_space("/a", 50 * 2**20, 2**40), machine_health.judge_space("/a", 2**29, 2**40)
    assert full.level is VerdictLevel.ERROR and large.level is VerdictLevel.WARNING
    assert machine_health.judge_space("/a", 2**31, 2**40).level is VerdictLevel.OK
    assert machine_health.judge_space("/a", 2**28, 2**32).level is VerdictLevel.OK, (
        "a small disk, with a sixteenth free"
    )


def test_debug_and_missing_https_are_told() -> None:
    levels = [one.level for one in machine_health.look_at_https()]
    assert VerdictLevel.ERROR not in levels and VerdictLevel.WARNING in levels
    with override_settings(DEBUG=True):
        assert "DEBUG=1 shows settings" in str(next(iter(machine_health.look_at_https())))


def test_the_page_and_readyz_have_what_the_cheap_checks_find(admin_client: Client) -> None:
    with redis_of_its_own() as redis, redis.client() as client:
        client.replicaof("127.0.0.1", "1")
        client.config_set("replica-read-only", "no")
        page = admin_client.get("/admin/operations/audit/").content.decode()
        sentences = registry.list_troubles()
        with pytest.raises(CommandError, match="the installation loses mail or refuses it"):
            call_command("status", check=True, stdout=(checked := io.StringIO()))
        call_command("status", stdout=(shown := io.StringIO()))
        client.replicaof("NO", "ONE")
    assert "this Redis is a replica, and takes no writes" in page
    assert sentences[0].startswith("this Redis is a replica"), "the worst comes first"
    assert any(one.startswith("fsync is off") for one in sentences)
    for text in (checked.getvalue(), shown.getvalue()):
        assert "this Redis is a replica, and takes no writes" in " ".join(text.split())
        assert "fsync is off" not in text, "a warning alone"
