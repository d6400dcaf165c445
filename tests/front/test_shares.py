"""A sponsor's share of the front: whatever one sends, another one's requests are answered, cheap and dear (B2).

What is dear is held up by a lock in the database, so that a verdict never depends on how fast a machine is.
"""

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory

from campaigns.doors import shares
from campaigns.doors.shares import DEAR_MOST, Sessions, TooManyWait, Turns
from campaigns.models import Message, Session
from tests import factories
from tests.campaigns.elsewhere import rendering_elsewhere
from tests.front import server
from tests.front.program import Program, api_vendor, fresh, letter, problem
from tests.lock_waits import count_lock_waits
from tests.waiting import DEADLINE, in_time, wait_until

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


class Asked:
    """A request on its way, which is answered some time."""

    def __init__(self, front, token, body=None, key=None, path=None):
        """path: of a GET."""
        method, text = ("POST", json.dumps(body).encode()) if path is None else ("GET", b"")
        path = path or "/api/v1/messages" + ("" if key else "?dry_run=true")
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
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


@pytest.mark.slow("processes")
def test_forty_dry_runs_of_one_sponsor_hold_up_nobody_else(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    other = known(front, Program(alpha.sponsor, requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        asked = [Asked(front, one.token, with_file(vendor)) for one in (alpha, other) for _ in range(20)]
        wait_until(count_lock_waits, "one of them has begun")
        for _ in range(10):
            assert front.ask("GET", "/api/v1/services", beta.token)[0] == 200
            assert count_lock_waits() == 1, "one of Alpha's is in progress, by whichever key"
        assert front.ask("POST", "/api/v1/messages?dry_run=true", beta.token, heavy(vendor))[0] == 200
        assert front.send(beta.token, letter(vendor), "hers")[0] == 202
        assert not any(one.is_answered() for one in asked)
    assert {one.status() for one in asked} == {422}


@pytest.mark.slow("processes")
def test_exports_of_one_sponsor_hold_up_no_export_of_another():
    """However long his take: one is made at a time, and his others hold no thread."""
    vendor = api_vendor()
    with server.serving(workers=1, threads=8) as front:
        alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
        paths = {}
        for one in (alpha, beta):
            status, _, sent = front.send(one.token, letter(vendor), "to be exported")
            assert status == 202
            paths[one] = f"/api/v1/sessions/{sent['id']}/report"
        with held("campaigns_message"):
            asked = [Asked(front, alpha.token, path=paths[alpha]) for _ in range(5)]
            wait_until(count_lock_waits, "one of them has begun")
            assert front.ask("GET", "/api/v1/services", beta.token)[0] == 200
            assert count_lock_waits() == 1, "one of Alpha's is made"
            asked.append(Asked(front, beta.token, path=paths[beta]))
            wait_until(lambda: count_lock_waits() == 2, "hers is being made beside it")
            assert not any(one.is_answered() for one in asked)
        assert {one.status() for one in asked} == {200}


@pytest.mark.slow("processes")
def test_a_letter_that_turns_out_dear_waits_with_its_sponsors_dear_ones_and_is_stored_once(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        first = Asked(front, alpha.token, with_file(vendor))
        wait_until(count_lock_waits, "it has begun")
        second = Asked(front, alpha.token, heavy(vendor), key="heavy")
        assert front.send(alpha.token, letter(vendor), "light")[0] == 202, "a cheap one of Alpha's goes on"
        assert front.send(beta.token, heavy(vendor), "hers")[0] == 202
        assert not first.is_answered() and not second.is_answered()
        assert not Session.objects.filter(idempotency_key="heavy").exists()
    assert (first.status(), second.status()) == (422, 202)
    assert Session.objects.filter(idempotency_key="heavy").count() == 1 and Message.objects.count() == 3


@pytest.mark.slow("processes")
def test_one_sponsors_letters_never_have_all_threads(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        asked = [Asked(front, alpha.token, with_file(vendor), key=f"k{number}") for number in range(20)]
        wait_until(lambda: count_lock_waits() == THREADS - 1, "Alpha has its share")
        for _ in range(5):
            assert front.ask("GET", "/api/v1/services", beta.token)[0] == 200
            assert count_lock_waits() == THREADS - 1
    assert {one.status() for one in asked} == {422}


@pytest.mark.slow("processes")
def test_who_sends_too_many_dear_ones_is_told_to_wait(front):
    vendor = api_vendor()
    alpha, beta = known(front, Program(requests_per_minute=0)), known(front, Program(requests_per_minute=0))
    with held("campaigns_uploadedfile"):
        asked = [Asked(front, alpha.token, with_file(vendor)) for _ in range(DEAR_MOST + 1)]
        wait_until(count_lock_waits, "one of them has begun")
        asked += [Asked(front, alpha.token, with_file(vendor)) for _ in range(5)]
        wait_until(lambda: sum(one.is_answered() for one in asked) == 5, "those beyond are refused")
        assert front.ask("POST", "/api/v1/messages?dry_run=true", beta.token, letter(vendor))[0] == 200
    codes = [one.status() for one in asked]
    assert (codes.count(503), codes.count(422)) == (5, DEAR_MOST + 1)


def test_turns_go_round_among_those_who_wait():
    async def run():
        turns, order = Turns(1, 1, 10, "too many"), []

        async def ask(who):
            async with turns.take_turn(who):
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
            async with turns.take_turn(who):
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
    for name in ("breathe", "renderer"):
        monkeypatch.setattr(rsgi.templates, name, getattr(rsgi.templates, name))
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
            async with in_time("its turn comes"):
                assert await listener._answer_in_turn(environ, protocol, "a", "")
            assert protocol.status == status

    asyncio.run(run())


def test_a_page_says_whose_a_session_is():
    ann, root = User.objects.create_user("ann"), User.objects.create_superuser("root")
    sponsor = factories.sponsor()
    sponsor.users.add(ann)
    sessions = Sessions()
    sessions.remember_user("k1", ann)
    sessions.remember_user("k2", root)
    assert (sessions.find_user("k1"), sessions.find_user("k2")) == (sponsor.pk, f"user {root.pk}")
    assert sessions.find_user("k3") == "stranger"


def session_of(running):
    """The processes of a front, by their parents: granian's, and those that make letters."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
            if int(rest[3]) == running.program.process.pid and rest[0] != "Z":
                found[pid] = int(rest[1])
    return found


def makers_of(running):
    """Those that make letters, by their parents: the front's workers."""
    found = {}
    for pid, parent in session_of(running).items():
        with contextlib.suppress(OSError):
            if b"render_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = parent
    return found


DRY = "/api/v1/messages?dry_run=true"


def heavies(vendor):
    """Letters that take too long to make, so that each is refused when it has been made so far."""
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"l": [0] * 300}} for number in range(3)]
    return letter(vendor, body=LOOPS, recipients=recipients)


@pytest.fixture
def own_front():
    with server.serving(workers=1, threads=THREADS) as running:
        yield running


@pytest.mark.slow("processes")
def test_dear_letters_are_made_by_another_process_which_is_replaced_when_it_has_died(own_front):
    vendor, program = api_vendor(), Program(requests_per_minute=0)
    one = letter(vendor, body="Hello {{ a }}", recipients=[{"to": "p@sandbox.example", "fields": {"a": "b"}}])
    assert own_front.ask("POST", DRY, program.token, one)[0] == 200
    assert not makers_of(own_front), "a letter that takes no time needs no other process"
    status, _, first = own_front.ask("POST", DRY, program.token, heavies(vendor))
    (pid,) = makers_of(own_front)
    assert status == 422 and len(first["errors"]) == 3
    os.kill(pid, signal.SIGKILL)
    status, _, again = own_front.ask("POST", DRY, program.token, heavies(vendor))
    assert (status, again) == (422, first)
    assert list(makers_of(own_front)) != [pid]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow("processes")
def test_however_a_front_ends_no_process_that_makes_letters_is_left(number, own_front):
    own_front.ask("POST", DRY, Program(requests_per_minute=0).token, heavies(api_vendor()))
    ((pid, parent),) = makers_of(own_front).items()
    os.kill(parent if number == signal.SIGKILL else own_front.program.process.pid, number)
    wait_until(lambda: pid not in session_of(own_front), "it has ended by itself")


@pytest.mark.parametrize("path", [DRY, "/api/v1/messages"])
def test_a_process_that_dies_amid_a_letter_is_a_problem_that_says_try_again(path, monkeypatch):
    """Nothing of the request is stored."""
    vendor, program = api_vendor(), Program(requests_per_minute=0)
    with rendering_elsewhere(monkeypatch) as by:
        program.send(heavies(vendor), path=DRY)
        os.kill(by._process.pid, signal.SIGKILL)
        wait_until(lambda: not by._process.is_alive, "it is dead")
        answer = program.send(heavies(vendor), path=path)
    found = problem(answer, "busy", 503)
    assert "try again" in found["detail"] and int(answer.headers["Retry-After"]) > 0
    assert not Session.objects.exists()


def test_a_page_says_so_too(monkeypatch, client):
    sponsor = factories.sponsor()
    client.force_login(User.objects.create_superuser("root"))
    client.raise_request_exception = False
    form = {"sponsor": sponsor.pk, "name": "t", "channel": "email", "subject": "s", "body": LOOPS, "based_on": 0}
    form["preview"] = "1"
    with rendering_elsewhere(monkeypatch) as by:
        assert client.post("/templates/new/", form).status_code == 200
        os.kill(by._process.pid, signal.SIGKILL)
        wait_until(lambda: not by._process.is_alive, "it is dead")
        answer = client.post("/templates/new/", form)
    assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0


class Way(threading.Event):
    """Notes for how long it is waited, and lets nobody wait."""

    def __init__(self):
        super().__init__()
        self.waited = []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        return False


def test_what_is_dear_never_gives_way_for_longer_than_it_has_computed(monkeypatch):
    """However many cheap requests come, one after the other without an end."""
    way, began = Way(), time.thread_time()
    monkeypatch.setattr(shares, "_clear", way)
    with shares.mark_answering(shares.DEAR):
        while len(way.waited) < 50:
            shares.give_way()
    assert 0 < sum(way.waited) <= time.thread_time() - began
    assert max(way.waited) <= shares.PATIENCE
    with shares.mark_answering(shares.CHEAP):
        for _ in range(1_000):
            shares.give_way()
    assert len(way.waited) == 50, "a cheap one gives way to nobody"


def test_a_cheap_request_that_waits_for_a_thread_holds_nobody_up(settings, monkeypatch):
    from mailhub import rsgi

    settings.WEB_THREADS = 2
    for name in ("breathe", "renderer"):
        monkeypatch.setattr(rsgi.templates, name, getattr(rsgi.templates, name))
    monkeypatch.setattr(rsgi.sys, "setswitchinterval", lambda _: None)
    goes_on, counted = threading.Semaphore(0), []

    class Protocol:
        def response_bytes(self, status, headers, body):
            pass

    def django(environ, begin):
        counted.append(shares._cheap)
        assert goes_on.acquire(timeout=DEADLINE)
        begin("204 none", [])
        return HttpResponse()

    async def run():
        listener = rsgi.Listener(django, lambda path: True, "", None)
        listener.__rsgi_init__(asyncio.get_running_loop())

        def asked(who):
            environ = {**RequestFactory().get("/").environ, "wsgi.input": io.BytesIO()}
            return asyncio.ensure_future(listener._answer_in_turn(environ, Protocol(), who, shares.CHEAP))

        many = [asked(f"sponsor {number}") for number in range(20)]
        await asyncio.sleep(0)
        for _ in many:
            goes_on.release()
            await asyncio.sleep(0)
        async with in_time("all of them have had their turn"):
            await asyncio.gather(*many)

    asyncio.run(run())
    assert len(counted) == 20 and min(counted) >= 1 and max(counted) <= 2
    assert shares._clear.is_set() and not shares._cheap
