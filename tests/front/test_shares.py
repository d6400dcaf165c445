"""A sponsor's share of the front: whatever one sends, another one's requests are answered, cheap and dear (B2).

What is dear is held up by a lock in the database, so that a verdict never depends on how fast a machine is.
"""

import asyncio
import contextlib
import io
import json
import socket

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory

from campaigns.models import Message, Session
from mailhub.shares import DEAR_MOST, Sessions, TooManyWait, Turns
from tests import factories
from tests.front import server
from tests.front.program import Program, api_vendor, fresh, letter
from tests.programs import DEADLINE, wait_until

__all__ = ["fresh"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
THREADS = 4
LOOPS = "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}x"


@pytest.fixture(scope="module")
def front(django_db_setup):
    with server.serving(workers=1, threads=THREADS) as running:
        yield running


@contextlib.contextmanager
def held(table):
    """Nobody reads the table."""
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


def waiting_for_it():
    """Of how many requests the work waits for the table: as many as have a thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return cursor.fetchone()[0]


class Asked:
    """A request on its way, which is answered some time."""

    def __init__(self, front, token, body, key=None):
        path = "/api/v1/messages" + ("" if key else "?dry_run=true")
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        head += f"Idempotency-Key: {key}\r\n" if key else ""
        head += f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(front.path)
        self._connection.sendall(head.encode() + text)

    def is_answered(self):
        self._connection.settimeout(0.001)
        with contextlib.suppress(TimeoutError):
            return bool(self._connection.recv(1, socket.MSG_PEEK))
        return False

    def status(self):
        self._connection.settimeout(2 * DEADLINE)
        whole = b""
        while part := self._connection.recv(65_536):
            whole += part
        self._connection.close()
        return int(whole.split(b" ", 2)[1])


def known(front, program):
    """The front has seen its key."""
    assert front.ask("GET", "/api/v1/services", program.token)[0] == 200
    return program


def with_file(vendor):
    """A letter that names a file which nobody has uploaded: it is refused when that can be looked up."""
    return letter(vendor, attachments=[{"name": "a.pdf", "file": f"file_{'0' * 64}"}])


def heavy(vendor, **more):
    return letter(vendor, body=LOOPS, recipients=[{"to": "p@sandbox.example", "fields": {"l": [0] * 200}}], **more)


def test_forty_dry_runs_of_one_sponsor_hold_up_nobody_else(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    other = known(front, Program(alpha.sponsor, requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        asked = [Asked(front, one.token, with_file(vendor)) for one in (alpha, other) for _ in range(20)]
        wait_until(waiting_for_it, "one of them has begun")
        for _ in range(10):
            assert front.ask("GET", "/api/v1/services", beta.token)[0] == 200
            assert waiting_for_it() == 1, "one of Alpha's is in progress, by whichever key"
        assert front.ask("POST", "/api/v1/messages?dry_run=true", beta.token, heavy(vendor))[0] == 200
        assert front.send(beta.token, letter(vendor), "hers")[0] == 202
        assert not any(one.is_answered() for one in asked)
    assert {one.status() for one in asked} == {422}


def test_a_letter_that_turns_out_dear_waits_with_its_sponsors_dear_ones_and_is_stored_once(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        first = Asked(front, alpha.token, with_file(vendor))
        wait_until(waiting_for_it, "it has begun")
        second = Asked(front, alpha.token, heavy(vendor), key="heavy")
        assert front.send(alpha.token, letter(vendor), "light")[0] == 202, "a cheap one of Alpha's goes on"
        assert front.send(beta.token, heavy(vendor), "hers")[0] == 202
        assert not first.is_answered() and not second.is_answered()
        assert not Session.objects.filter(idempotency_key="heavy").exists()
    assert (first.status(), second.status()) == (422, 202)
    assert Session.objects.filter(idempotency_key="heavy").count() == 1 and Message.objects.count() == 3


def test_one_sponsors_letters_never_have_all_threads(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        asked = [Asked(front, alpha.token, with_file(vendor), key=f"k{number}") for number in range(20)]
        wait_until(lambda: waiting_for_it() == THREADS - 1, "Alpha has its share")
        for _ in range(5):
            assert front.ask("GET", "/api/v1/services", beta.token)[0] == 200
            assert waiting_for_it() == THREADS - 1
    assert {one.status() for one in asked} == {422}


def test_who_sends_too_many_dear_ones_is_told_to_wait(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        asked = [Asked(front, alpha.token, with_file(vendor)) for _ in range(DEAR_MOST + 1)]
        wait_until(waiting_for_it, "one of them has begun")
        asked += [Asked(front, alpha.token, with_file(vendor)) for _ in range(5)]
        wait_until(lambda: sum(one.is_answered() for one in asked) == 5, "those beyond are refused")
        assert front.ask("POST", "/api/v1/messages?dry_run=true", beta.token, letter(vendor))[0] == 200
    codes = [one.status() for one in asked]
    assert (codes.count(503), codes.count(422)) == (5, DEAR_MOST + 1)


def test_turns_go_round_among_those_who_wait():
    async def run():
        turns, order = Turns(1, 1, 10, "too many"), []

        async def ask(who):
            async with turns.turn(who):
                order.append(who)
                await asyncio.sleep(0)

        await asyncio.gather(*(ask(who) for who in "aaaaabbc"))
        return order

    assert "".join(asyncio.run(run())) == "aabcabaa"


def test_a_client_that_goes_away_leaves_its_place_and_a_line_has_an_end():
    async def run():
        turns = Turns(1, 1, 2, "too many")
        first = asyncio.Event()

        async def ask(who, until=None):
            async with turns.turn(who):
                if until:
                    await until.wait()
                return who

        holding = asyncio.create_task(ask("a", first))
        await asyncio.sleep(0)
        gone, stays = asyncio.create_task(ask("a")), asyncio.create_task(ask("a"))
        await asyncio.sleep(0)
        with pytest.raises(TooManyWait):
            await ask("a")
        gone.cancel()
        await asyncio.sleep(0)
        first.set()
        return await asyncio.gather(holding, stays, ask("b"))

    assert asyncio.run(run()) == ["a", "a", "b"]


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, GeneratorExit, ValueError])
def test_whatever_a_request_ends_with_its_turn_is_given_back(settings, monkeypatch, raised):
    from mailhub import rsgi

    settings.WEB_THREADS = 1
    monkeypatch.setattr(rsgi.templates, "breathe", rsgi.templates.breathe)
    monkeypatch.setattr(rsgi.sys, "setswitchinterval", lambda _: None)

    class Protocol:
        status = None

        def response_bytes(self, status, headers, body):
            self.status = status

    def django(environ, begin):
        if environ["PATH_INFO"] == "/ends":
            raise raised
        begin("204 none", [])
        return HttpResponse()

    async def run():
        listener = rsgi.Listener(django, lambda path: True, "", None)
        listener.__rsgi_init__(asyncio.get_running_loop())
        for path, status in (("/ends", 500), ("/ends", 500), ("/goes-on", 204)):
            environ, protocol = {**RequestFactory().get(path).environ, "wsgi.input": io.BytesIO()}, Protocol()
            async with asyncio.timeout(DEADLINE):
                assert await listener._in_turn(environ, protocol, "a", "")
            assert protocol.status == status

    asyncio.run(run())


def test_a_page_says_whose_a_session_is():
    ann, root = User.objects.create_user("ann"), User.objects.create_superuser("root")
    sponsor = factories.sponsor()
    sponsor.users.add(ann)
    sessions = Sessions()
    sessions.remember("k1", ann)
    sessions.remember("k2", root)
    assert (sessions.find("k1"), sessions.find("k2")) == (sponsor.pk, f"user {root.pk}")
    assert sessions.find("k3") == "stranger"
