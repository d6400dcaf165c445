"""Durability is demanded, not assumed: sessions set what they need, whatever server, database and role say."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.db import connection

from campaigns.engine.connections import open_connection
from campaigns.engine.threads import DatabaseThreads
from campaigns.lists.intake.shared_connections import ConnectionPool

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
SHOW = "SHOW synchronous_commit"


def by_django() -> str:
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(SHOW)
        return str(cursor.fetchone()[0])


def by_a_sender() -> str:
    async def ask() -> str:
        one = await open_connection()
        try:
            row = await (await one.execute(SHOW)).fetchone()
        finally:
            await one.close()
        assert row is not None
        return str(row[0])

    return asyncio.run(ask())


def by_a_request() -> str:
    pool = ConnectionPool()
    try:
        with pool.lend_one() as one:
            return str(one.execute(SHOW).fetchone()[0])
    finally:
        pool.close()


def by_a_senders_thread() -> str:
    with closing(DatabaseThreads()) as threads:
        return threads.run_function(by_django)


SESSIONS = [by_django, by_a_sender, by_a_request, by_a_senders_thread]


def by_nobody_of_ours() -> str:
    options = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "prepare_threshold"):
        options.pop(ours, None)
    with psycopg.connect(**options) as one:
        row = one.execute(SHOW).fetchone()
    assert row is not None
    return str(row[0])


@pytest.fixture
def tell() -> Iterator[Any]:
    """Sets synchronous_commit for the test's database, or for its role there. The test's server itself has it off."""
    of_database = f'ALTER DATABASE "{connection.settings_dict["NAME"]}"'
    of_role = f'ALTER ROLE CURRENT_USER IN DATABASE "{connection.settings_dict["NAME"]}"'
    places = {"database": of_database, "role": of_role}

    def change(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    try:
        yield lambda place, value: change(f"{places[place]} SET synchronous_commit = {value}")
    finally:
        for place in places.values():
            change(f"{place} RESET synchronous_commit")
        connection.close()


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("place", ["server", "database", "role"])
def test_a_session_of_ours_commits_to_the_disk_where_the_others_do_not(place: str, session: Any, tell: Any) -> None:
    if place != "server":
        tell(place, "off")
    assert by_nobody_of_ours() == "off"
    assert session() == "on"


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(
    ("there", "ours"), [("local", "on"), ("remote_write", "remote_write"), ("remote_apply", "remote_apply")]
)
def test_a_session_waits_for_a_standby_as_the_operator_wants_it_and_never_less(
    there: str, ours: str, session: Any, tell: Any
) -> None:
    tell("role", there)
    assert by_nobody_of_ours() == there
    assert session() == ours
