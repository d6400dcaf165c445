"""Processes tell their version; `status` and `doctor` name those that are older than the tables or this command."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from campaigns.engine.failover import guard
from campaigns.models import Store
from mailhub import running_versions
from mailhub.command import program_version
from mailhub.operations import findings
from mailhub.running_versions import ProgramVersion
from tests.ports import free_port
from tests.programs import running, worker
from tests.waiting import wait_until
from vendors import redis_clients

pytestmark = pytest.mark.django_db(transaction=True)
HOST = socket.gethostname()
BEFORE = "campaigns.0001_before mailhub.0001 vendors.0001 waiter.0001"


@pytest.fixture(autouse=True)
def nobody_else() -> Iterator[None]:
    """No process that another test started is known, and none is afterwards."""
    forget()
    yield
    forget()


def forget() -> None:
    with redis_clients.make_client(settings.REDIS_URL) as client:
        client.delete(redis_clients.PROCESSES)


def runs(name: str, tables: str = "", number: str = "", seconds: int = 600) -> None:
    """A process has announced itself."""
    program = ProgramVersion(number or program_version(), tables or guard.newest_migrations())
    redis_clients.announce_process(settings.REDIS_URL, f"{name} 1", program._asdict(), seconds)


def status(**options: bool) -> str:
    out = StringIO()
    call_command("status", stdout=out, **options)
    return out.getvalue()


def checked() -> str:
    """What `status --check` writes before it fails because of versions."""
    out = StringIO()
    with pytest.raises(CommandError, match="processes of another version need a restart"):
        call_command("status", check=True, stdout=out)
    return out.getvalue()


def test_status_names_all_processes_by_their_version() -> None:
    for name in ("web@one", "web@two", "beat@one", "hub@one"):
        runs(name)
    assert f"version {program_version()}: beat, hub, 2 web" in status() and findings.version_findings() == []


def test_a_process_whose_tables_are_gone_calls_nobody_and_check_fails() -> None:
    runs("vendors@one", tables=BEFORE, number="0.2.9")
    assert "vendors@one runs 0.2.9, and these are not its tables: it calls nobody. Restart it" in checked()
    assert "version 0.2.9 (other tables): vendors" in status()


def test_the_version_before_additive_migrations_may_go_on_and_is_to_be_restarted() -> None:
    here = Store.objects.values_list("tables", flat=True).get()
    Store.objects.update(tables=BEFORE)
    try:
        assert guard.halt_reason() is None
        runs("web@one", tables=BEFORE, number="0.2.9")
        assert "web@one runs 0.2.9 of other tables than this command: the older one may go on until" in checked()
    finally:
        Store.objects.update(tables=here)


def test_another_build_of_the_same_tables_is_named_too() -> None:
    runs("api@one", number="99.1")
    assert f"api@one runs 99.1, and this command is {program_version()}" in checked()


def test_what_has_not_announced_itself_lately_runs_no_more() -> None:
    runs("web@one", number="0.2.9", seconds=-1)
    assert running_versions.read_processes() == []
    with redis_clients.make_client(settings.REDIS_URL) as client:
        assert client.hlen(redis_clients.PROCESSES) == 0


@pytest.mark.slow("processes")
@pytest.mark.timeout(300)
def test_web_api_beat_workers_and_the_receiver_of_bounces_announce_themselves(tmp_path: Path) -> None:
    ports = {"PORT": str(free_port()), "API_PORT": str(free_port())}
    with ExitStack() as stack:
        for role in ("web", "api", "beat", "bounces"):
            home = tmp_path / role
            home.mkdir()
            stack.enter_context(running("manage.py", "run", role, MAILHUB_HOME=str(home), **ports))
        stack.enter_context(worker(queues="hub"))
        roles = {"web", "api", "beat", "bounces"}

        def announced() -> set[str]:
            return {one.name for one in running_versions.read_processes()}

        wait_until(lambda: {f"{role}@{HOST}" for role in roles} < announced(), "all have announced themselves")
        (named,) = announced() - {f"{role}@{HOST}" for role in roles}
        assert re.fullmatch(r"test-\d+-\d+@localhost", named), "the worker, by its whole name"
        assert {one.program for one in running_versions.read_processes()} == {
            running_versions.version_of_this_process()
        }
        said = status()
        assert "api, beat, bounces, test-" in said and "unknown" not in said and findings.version_findings() == []
