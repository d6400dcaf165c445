"""What must hold before anything starts."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.contrib import admin
from django.core.checks import run_checks
from django.db import connection
from django.test import override_settings

from campaigns.models import Job
from mailhub import checks, environment
from mailhub.embedded.binaries import redis_program
from tests import pooler, workers
from tests.factories import unique
from tests.waiting import DEADLINE, exit_of, wait_until
from tests.workers import celery


def found(**changed: Any) -> set[str | None]:
    with override_settings(**changed):
        return {message.id for message in run_checks(tags=["waiter", "celery", "python"])}


def test_the_settings_of_the_project_pass() -> None:
    assert not found()


def test_djangos_checks_find_nothing_in_our_tables_pages_and_admin() -> None:
    import_module(settings.ROOT_URLCONF)  # which finds the admin's pages
    assert admin.site.is_registered(Job)
    assert run_checks() == []


@pytest.mark.parametrize(
    ("changed", "id"),
    [
        ({"CELERY_TASK_SERIALIZER": "pickle"}, "mailhub.E004"),
        ({"CELERY_ACCEPT_CONTENT": ["json", "pickle"]}, "mailhub.E004"),
    ],
)
def test_a_format_that_could_run_code_is_an_error(changed: dict[str, Any], id: str) -> None:
    assert found(**changed) == {id}


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@contextmanager
def forgetful_redis() -> Iterator[str]:
    """The address of a Redis of its own, because other tests share theirs."""
    with tempfile.TemporaryDirectory(prefix="mailhub-") as folder:
        path = Path(folder, "sock")
        options = ["--port", "0", "--save", "", "--unixsocket", str(path), "--maxmemory-policy", "allkeys-lru"]
        server = subprocess.Popen([redis_program()[0], *options], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(unix_socket_path=str(path)) as client:
                wait_until(lambda: answers(client) or server.poll() is not None, "Redis answers or has ended")
            yield f"redis+socket://{path}"
        finally:
            server.kill()
            server.wait()


@pytest.mark.slow("servers")
def test_a_redis_that_drops_keys_when_it_is_short_of_memory_is_an_error_where_servers_are_asked() -> None:
    assert not checks.redis_keeps_all()

    with forgetful_redis() as url, override_settings(BROKER_URL=url):
        assert {message.id for message in checks.redis_keeps_all()} == {"mailhub.E006"}
        assert not run_checks(), "ordinary commands ask no server"


def test_a_redis_that_is_away_is_a_warning(tmp_path: Path) -> None:
    nowhere = f"redis+socket://{tmp_path}/{unique('none')}"

    with override_settings(BROKER_URL=nowhere):
        assert {message.id for message in checks.redis_keeps_all()} == {"mailhub.W001"}


@contextmanager
def through(url: str) -> Iterator[None]:
    """This process's new sessions go that way."""
    params = connection.settings_dict
    before = dict(params)
    params.update(environment.database_settings("ANOTHER_URL", url))
    try:
        yield
    finally:
        params.update(before)


@pytest.mark.django_db
def test_a_session_of_its_own_is_kept() -> None:
    assert not checks.sessions_are_kept()


@pooler.needed
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("mode", "ids"), [("session", []), ("transaction", ["mailhub.E007"]), ("statement", ["mailhub.E007"])]
)
@pytest.mark.slow("programs")
def test_a_pooler_is_an_error_unless_it_keeps_sessions(mode: str, ids: list[str]) -> None:
    with pooler.pooler(mode) as url, through(url):
        assert [message.id for message in checks.sessions_are_kept()] == ids


@pytest.mark.django_db
def test_a_database_that_is_away_is_a_warning_as_senders_wait_for_it(tmp_path: Path) -> None:
    with through(f"postgres://nobody@/nothing?host={tmp_path}"):
        assert [message.id for message in checks.sessions_are_kept()] == ["mailhub.W002"]


@pooler.needed
@pytest.mark.timeout(600)
@pytest.mark.django_db
@pytest.mark.parametrize("role", ["worker", "beat", "web"])
@pytest.mark.slow("programs")
def test_nobody_starts_behind_a_pooler_that_keeps_no_sessions(role: str) -> None:
    with pooler.pooler("transaction") as url:
        if role == "web":
            ended = subprocess.run(
                [sys.executable, "-c", "import mailhub.wsgi"],
                env=workers.environment(DATABASE_URL=url),
                cwd=workers.PROJECT,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            code, log = ended.returncode, ended.stderr
        else:
            arguments = {"worker": ["-P", "solo", "-Q", unique("queue")], "beat": ["--pidfile="]}[role]
            with celery(role, *arguments, DATABASE_URL=url) as process:
                code, log = exit_of(process.process), process.log()
    assert code != 0
    assert "mailhub does not start: PostgreSQL is reached through a pooler that does not keep sessions" in log


@pytest.mark.timeout(600)
@pytest.mark.django_db
@pytest.mark.parametrize("role", ["worker", "beat"])
@pytest.mark.slow("processes")
def test_neither_a_worker_nor_beat_starts_where_something_is_wrong(role: str) -> None:
    arguments = {"worker": ["-P", "solo", "-Q", unique("queue")], "beat": ["--pidfile="]}[role]

    with celery(role, *arguments, WAITER_SWEEP_MINUTES="15") as process:
        assert exit_of(process.process) != 0
        assert "WAITER_SWEEP (0:15:00) is not shorter than WAITER_HORIZON" in process.log()
