"""Servers with which a crash loses commits: refused at the start, told by /readyz, doctor and audit."""

import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine.failover import durability
from mailhub import checks
from mailhub.diagnosis import registry
from mailhub.models import MomentFound
from mailhub.monitoring import probes
from tests import forks
from tests.connected import connected_to
from tests.factories import unique
from tests.mailhub.test_checks import forgetful_redis
from tests.plugin import folders
from tests.postgres_pair import Pair, Server
from tests.private_redis import PrivateRedis
from tests.waiting import DEADLINE, exit_of, wait_until
from tests.workers import celery
from tests.workers import environment as environment_of

pytestmark = [
    pytest.mark.slow("servers"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("no_workers"),
]
SAFE = {"fsync": "on", "full_page_writes": "on"}
QUESTION = "no setting of PostgreSQL lets a crash take back what was committed (else: doctor)"


@contextmanager
def postgres(**settings: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=folders()[0]) as folder:
        server = Server(Path(folder, "a"), **settings)
        try:
            server.create()
            with connected_to(server.url):
                yield server
        finally:
            server.kill()


def errors() -> dict[str | None, str]:
    """What nobody starts with, and what is told, by its id."""
    return {one.id: f"{one.msg}. {one.hint}" for one in checks.commits_are_kept()}


@pytest.fixture
def strict(settings: Any) -> None:
    """As in life: the tests' own servers would lose everything in a power cut."""
    settings.STORES_MAY_LOSE = False


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    ("setting", "value"), [("fsync", "off"), ("full_page_writes", "off"), ("zero_damaged_pages", "on")]
)
def test_nothing_starts_with_a_postgresql_whose_crash_loses_commits(setting: str, value: str) -> None:
    with postgres(**{**SAFE, setting: value}):
        sentence = errors()["mailhub.E009"]
    other = {"on": "off", "off": "on"}[value]
    assert sentence.startswith(f"{setting} is {value}: ") and sentence.endswith(f". Set {setting} = {other}.")


@pytest.mark.usefixtures("strict")
def test_a_postgresql_as_it_is_shipped_is_safe() -> None:
    with postgres(**SAFE):
        assert durability.postgres_weaknesses() == []


@pytest.mark.usefixtures("strict")
def test_a_table_that_a_crash_would_empty_is_refused() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE campaigns_claim SET UNLOGGED")
        try:
            found = [one for one in durability.postgres_weaknesses() if one.about == "tables"]
        finally:
            cursor.execute("ALTER TABLE campaigns_claim SET LOGGED")
    assert [(one.refused, one.remedy) for one in found] == [(True, "Say ALTER TABLE campaigns_claim SET LOGGED")]
    assert "campaigns_claim is unlogged" in found[0].sentence


@pytest.mark.usefixtures("strict")
def test_an_asynchronous_standby_is_told_and_a_synchronous_one_is_not() -> None:
    pair = Pair()
    try:
        with connected_to(pair.primary.url):
            [one] = [one for one in durability.postgres_weaknesses() if one.about == "standby"]
            assert not one.refused and one.sentence.startswith("a standby follows, but commits do not wait for it")
            pair.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
            pair.primary.ask("SELECT pg_reload_conf()")

            def synchronous() -> bool:
                return pair.primary.ask("SHOW synchronous_standby_names") == [("*",)]

            wait_until(synchronous, "it waits for the standby")
            connection.close()
            assert not any(one.about == "standby" for one in durability.postgres_weaknesses())
    finally:
        pair.end()


@pytest.mark.usefixtures("strict")
def test_an_address_of_several_servers_expects_a_failover() -> None:
    with postgres(**SAFE) as server:
        both = server.url.replace("?host=", "?host=%2Fnowhere,")
        with connected_to(both):
            [one] = durability.postgres_weaknesses()
    assert one.about == "standby" and one.sentence.startswith("DATABASE_URL names several servers, but commits")


@pytest.mark.parametrize("role", ["worker", "beat", "web"])
def test_neither_web_nor_worker_nor_beat_starts_with_it(role: str) -> None:
    if role == "web":
        ended = forks.run(["-c", "import mailhub.wsgi"], env=environment_of(STORES_MAY_LOSE=""), timeout=DEADLINE)
        code, log = ended.returncode, ended.stderr
    else:
        arguments = {"worker": ["-P", "solo", "-Q", unique("queue")], "beat": ["--pidfile="]}[role]
        with celery(role, *arguments, STORES_MAY_LOSE="") as process:
            code, log = exit_of(process.process), process.log()
    assert code != 0 and "mailhub does not start: fsync is off: " in log


def test_a_redis_that_keeps_nothing_is_told(settings: Any) -> None:
    with forgetful_redis() as url:
        settings.REDIS_URL = url.replace("redis+socket://", "unix://")
        [one] = durability.redis_weaknesses()
    assert not one.refused and "Set appendonly yes" in str(one)


@pytest.mark.usefixtures("strict")
def test_readyz_and_the_audit_say_what_is_wrong_with_the_tests_own_server() -> None:
    assert "fsync is off: " in probes.probe_commits()["durability"]
    [check] = [check for check in audit.ask_all_questions() if check.question == QUESTION]
    assert check.promise == "P2" and check.breaches == 2 and check.examples[0].startswith("fsync is off: ")


def test_an_installation_that_may_lose_its_data_starts_and_is_told_of_it() -> None:
    assert probes.probe_commits()["durability"] == "" and any(
        one.startswith("fsync is off") for one in registry.list_troubles()
    )
    assert {one.question for one in audit.ask_all_questions() if not one.is_kept} == set()
    assert set(errors()) == {"mailhub.W004"}


def doctor(*options: str) -> tuple[list[dict[str, Any]], int]:
    out, code = io.StringIO(), 0
    try:
        call_command("doctor", "--json", *options, stdout=out)
    except CommandError as error:
        code = error.returncode
    return [json.loads(line) for line in out.getvalue().splitlines()], code


@pytest.mark.parametrize("options", [(), ("--installation",)])
def test_doctor_says_what_is_wrong_with_the_installation(options: tuple[str, ...], settings: Any) -> None:
    found, code = doctor(*options)
    assert code == 0 and {one["identity"] for one in found} == {None}
    of_postgres = {one["about"]: one["status"] for one in found}
    assert of_postgres["fsync"] == of_postgres["full_page_writes"] == "told"
    settings.STORES_MAY_LOSE = False
    found, code = doctor(*options)
    assert code == 1
    wrong = {one["about"] for one in found if one["status"] == "wrong"}
    assert wrong == {"fsync", "full_page_writes"}


def test_doctor_of_a_safe_installation_says_so() -> None:
    kept = PrivateRedis()
    try:
        with postgres(**SAFE), override_settings(STORES_MAY_LOSE=False, REDIS_URL=kept.url):
            found, code = doctor("--installation")
    finally:
        kept.end()
    [safe] = [one for one in found if one["about"] == "durability"]
    assert safe["status"] == "ok" and safe["sentence"] == "a crash loses nothing" and safe["enter"] is None
    assert code == 1 and {one["about"] for one in found if one["status"] == "wrong"} >= {"migrations"}, "no tables yet"


def test_doctor_tells_that_a_clock_was_wrong_within_the_hour() -> None:
    MomentFound.objects.create(moment="campaigns.Job.heartbeat_at", number=2, ahead=timedelta(hours=2))
    found, code = doctor("--installation")
    [clock] = [one for one in found if one["about"] == "clocks"]
    assert clock["status"] == "told" and code == 0
    assert clock["sentence"].startswith("A clock was wrong: 2 × campaigns.Job.heartbeat_at lay up to 2:00:00 ahead of")
    MomentFound.objects.update(at=timezone.now() - timedelta(hours=2))
    assert "clocks" not in {one["about"] for one in doctor("--installation")[0]}
