"""A store that answers "not now": API and pages answer 503 with Retry-After, and serve as soon as it is back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client

from campaigns.models import Message
from tests.factories import unique
from tests.faults.test_28_database import administrator
from tests.front.program import Program, api_vendor, forget, fresh, letter, problem
from tests.ports import free_port
from tests.private_redis import PrivateRedis

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("servers"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


@contextmanager
def read_only() -> Iterator[None]:
    """For sessions that begin in the block, which would stay so: a standby, or a server that is kept from writing."""
    with administrator() as tell:
        tell("ALTER DATABASE {} SET default_transaction_read_only = on")
        connection.close()
        forget()
        try:
            yield
        finally:
            tell("ALTER DATABASE {} RESET default_transaction_read_only")


def test_a_request_that_a_read_only_postgresql_refuses_is_503_and_taken_once_it_may_be_written() -> None:
    program, vendor, key = Program(), api_vendor(), unique("key")
    with read_only():
        answer = program.send(letter(vendor), key)
        problem(answer, "storage-unavailable", 503)
        assert int(answer.headers["Retry-After"]) > 0
    assert not Message.objects.exists()
    assert program.send(letter(vendor), key).status_code == 202, "no session is kept that cannot write"


def test_a_page_that_a_read_only_postgresql_refuses_is_503_and_served_once_it_may_be_written() -> None:
    get_user_model().objects.create_user("ann", password="secret")
    client = Client(raise_request_exception=False)
    login = {"username": "ann", "password": "secret"}
    with read_only():
        answer = client.post("/login/", login)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "This page could not be made" in answer.content.decode()
    assert client.post("/login/", login).status_code == 302


def test_what_is_no_outage_stays_500(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_session RENAME TO elsewhere")
    try:
        get_user_model().objects.create_user("ann", password="secret")
        client = Client(raise_request_exception=False)
        answer = client.post("/login/", {"username": "ann", "password": "secret"})
        assert answer.status_code == 500 and "Retry-After" not in answer.headers
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO django_session")


def test_a_request_that_redis_refuses_is_503_and_taken_once_it_takes_commands(settings: Any) -> None:
    redis = PrivateRedis()
    settings.REDIS_URL = redis.url
    try:
        program, vendor = Program(), api_vendor()
        with redis.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
            answer = program.send(letter(vendor))
            problem(answer, "storage-unavailable", 503)
            assert int(answer.headers["Retry-After"]) > 0
            client.execute_command("REPLICAOF", "NO", "ONE")
        assert program.send(letter(vendor)).status_code == 202
    finally:
        redis.end()
