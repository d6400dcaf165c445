"""manage.py starts servers for the commands that want them, and only for those."""

import pytest

from manage import needs_services


@pytest.mark.parametrize("line", ["migrate", "demo --fast", "makemigrations --check --dry-run", "check", "shell"])
def test_a_command_that_wants_the_database_gets_servers(line: str) -> None:
    assert needs_services(line.split())


@pytest.mark.parametrize("line", ["", "help", "help migrate", "--version", "migrate --help", "services stop", "-h"])
def test_a_command_that_must_work_without_servers_starts_none(line: str) -> None:
    assert not needs_services(line.split())
