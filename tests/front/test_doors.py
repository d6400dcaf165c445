"""Slow, silent and greedy clients at both doors, over real sockets: they hold up nobody but themselves."""

import contextlib
import json
import re
import socket
import time

import psycopg
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.db import connection

from campaigns.models import Message
from mailhub import devices
from tests.front.doors import ask, connect, doors, get, head, read, unanswered
from tests.front.program import Program, api_vendor, fresh, letter
from tests.lock_waits import count_lock_waits
from tests.waiting import DEADLINE, wait_until

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
MANY = 250  # at each door; a door has eight threads
PATIENCE, HEADS = 12, 10  # seconds that a body has, and a head (Procfile)
QUICK = "tests.front.quick_passwords"  # there are still more of them than are looked at in a second


@pytest.fixture(scope="module")
def both(django_db_setup):
    with doors(BODY_SECONDS=str(PATIENCE), DJANGO_SETTINGS_MODULE=QUICK) as running:
        yield running


@pytest.fixture
def connections():
    """Connections to be closed at the end."""
    with contextlib.ExitStack() as kept:
        yield kept


def begin(connections, port, request, number=MANY):
    opened = []
    for _ in range(number):
        connection = connections.enter_context(connect(port))
        connection.sendall(request)
        opened.append(connection)
    return opened


def others_are_served(both, program):
    assert get(both.web, "/admin/login/")[0] == 200
    assert get(both.api, "/api/v1/services", Authorization=f"Bearer {program.token}")[0] == 200


def log_in(both):
    """The beginning of a stranger's log-in: a body of which one byte has come."""
    _, page = get(both.web, "/admin/login/")
    cookie = re.search(rb"csrftoken=(\w+)", page)[1].decode()
    kind = "application/x-www-form-urlencoded"
    request = head("POST", "/admin/login/", Cookie=f"csrftoken={cookie}", Content_Type=kind, Content_Length=100_000)
    return request + b"c"


def messages(program, length, **more):
    headers = {"Authorization": f"Bearer {program.token}", "Content_Type": "application/json", **more}
    return head("POST", "/api/v1/messages", Content_Length=length, **headers)


def test_what_the_event_loop_answers_itself_has_the_headers_of_a_site_behind_tls(connections):
    program = Program()
    with doors(BODY_SECONDS="1", HTTPS="1", ALLOWED_HOSTS="localhost") as there:
        for proto, expected in (("https", True), ("http", False)):
            large = messages(program, 10**9, X_Forwarded_Proto=proto)
            (slow,) = begin(connections, there.api, messages(program, 60_000, X_Forwarded_Proto=proto) + b"{", 1)
            elsewhere = head("GET", "/admin/", X_Forwarded_Proto=proto, Connection="close")
            answers = [ask(there.api, large), read(slow), ask(there.api, elsewhere)]
            assert [status for status, _ in answers] == [413, 408, 404]
            said = [b"strict-transport-security: max-age=31536000" in whole.lower() for _, whole in answers]
            assert said == [expected] * 3


def test_500_bodies_500_heads_and_500_requests_that_do_not_come_hold_up_nobody_and_are_ended(both, connections):
    program = Program()
    began = time.monotonic()
    bodies = begin(connections, both.web, log_in(both)) + begin(connections, both.api, messages(program, 60_000) + b"{")
    heads = [*begin(connections, both.web, b"GET / HTTP/1.1\r\nHost: l"), *begin(connections, both.web, b"")]
    heads += [*begin(connections, both.api, b"GET /api/ HTTP/1.1\r\n"), *begin(connections, both.api, b"")]
    (drips,) = begin(connections, both.api, messages(program, 5_000_000) + b"{", 1)
    slow = [*bodies, *heads, drips]
    others_are_served(both, program)
    answered_early = len(slow) - unanswered(slow)
    # Where it took longer than their patience to begin them all and to serve the others, some may have been ended.
    assert not answered_early or time.monotonic() - began > min(PATIENCE, HEADS), "all of them were open all the while"

    def answered():
        with contextlib.suppress(OSError):
            drips.send(b" ")
        return not unanswered([drips])

    wait_until(answered, "a body that drips is ended as one that does not come")
    assert read(drips)[0] in (408, 0)  # 0: it was reset over the bytes that came after
    assert {read(connection)[0] for connection in bodies} == {408}
    assert {read(connection)[0] for connection in heads} <= {408, 0}
    others_are_served(both, program)


def test_who_does_not_read_the_answers_holds_up_nobody(both, connections):
    program = Program()
    question = head("GET", "/static/admin/css/base.css")
    greedy = begin(connections, both.web, 500 * question, 40)
    greedy += begin(connections, both.api, 500 * head("GET", "/api/v1/openapi.json"), 40)
    wait_until(lambda: not unanswered(greedy), "all have got an answer")
    others_are_served(both, program)


def test_a_large_body_comes_whole_however_it_is_cut(both):
    program, vendor = Program(), api_vendor()
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"text": "x" * 1000}} for number in range(500)]
    body = json.dumps(letter(vendor, recipients=recipients)).encode()
    whole = messages(program, len(body), Idempotency_Key="whole", Connection="close") + body
    assert ask(both.api, whole)[0] == 202
    headers = {"Authorization": f"Bearer {program.token}", "Content_Type": "application/json", "Connection": "close"}
    request = head("POST", "/api/v1/messages", Idempotency_Key="cut", Transfer_Encoding="chunked", **headers)
    cuts = [body[place : place + 30_000] for place in range(0, len(body), 30_000)] + [b""]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(cut), cut) for cut in cuts)
    status, answer = ask(both.api, request + chunks)
    assert status == 202, answer
    assert Message.objects.count() == 1000


def test_a_body_that_is_too_large_is_refused_before_it_is_read(both, connections):
    (connection,) = begin(connections, both.api, messages(Program(), 6_000_000), 1)
    status, answer = read(connection)
    assert status == 413 and b"urn:mailhub:problem:payload-too-large" in answer
    (connection,) = begin(connections, both.web, head("POST", "/admin/login/", Content_Length=6_000_000), 1)
    assert read(connection)[0] == 413


def test_each_door_has_its_own_pages_only(both):
    assert get(both.web, "/api/v1/openapi.json")[0] == 404
    assert get(both.api, "/admin/login/")[0] == 404
    assert get(both.api, "/api/v1/docs")[0] == 200
    assert get(both.web, "/")[0] == 302


def test_more_log_ins_than_can_be_looked_at_are_put_off_and_pages_are_served(both, connections):
    program = Program()
    _, page = get(both.web, "/admin/login/")
    token = re.search(rb"csrftoken=(\w+)", page)[1].decode()
    body = f"username=nobody&password=wrong&csrfmiddlewaretoken={token}".encode()
    kind = "application/x-www-form-urlencoded"
    headers = {"Cookie": f"csrftoken={token}", "Content_Type": kind, "Connection": "close"}
    guesses = begin(
        connections, both.web, head("POST", "/admin/login/", Content_Length=len(body), **headers) + body, 60
    )
    others_are_served(both, program)
    assert unanswered(guesses), "served while passwords were looked at"
    codes = [read(connection)[0] for connection in guesses]
    assert set(codes) == {200, 503} and codes.count(503) >= 60 - 34 - 8, codes


def person(name):
    password = PBKDF2PasswordHasher().encode("secret", "salt", iterations=1)
    return User.objects.create(username=name, is_staff=True, password=password)


def credentials(both, name, **cookies):
    """A request that logs in."""
    _, page = get(both.web, "/admin/login/")
    token = re.search(rb"csrftoken=(\w+)", page)[1].decode()
    body = f"username={name}&password=secret&csrfmiddlewaretoken={token}".encode()
    shown = "; ".join(f"{key}={value}" for key, value in {"csrftoken": token, **cookies}.items())
    headers = {"Cookie": shown, "Content_Type": "application/x-www-form-urlencoded", "Connection": "close"}
    return head("POST", "/admin/login/", Content_Length=len(body), **headers) + body


@contextlib.contextmanager
def held(user):
    """Nobody can write that the user has logged in."""
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other:
        other.execute("SELECT FROM auth_user WHERE id = %s FOR UPDATE", [user.pk])
        yield


def test_log_ins_that_hang_at_one_address_stop_nobody_at_another_one_or_on_a_known_device(both, connections):
    eve, _ = person("eve"), person("ann")
    with held(eve):
        stuck = begin(connections, both.web, credentials(both, "eve"), 6)
        wait_until(count_lock_waits, "one of them hangs")
        elsewhere = connections.enter_context(
            socket.create_connection(("127.0.0.1", both.web), DEADLINE, source_address=("127.0.0.2", 0))
        )
        elsewhere.sendall(credentials(both, "ann"))
        status, answer = read(elsewhere)
        assert status == 302, "somebody at another address"
        device = re.search(rb"mailhub_device=([\w.-]+); expires=[^;]+; HttpOnly", answer)[1].decode()
        assert ask(both.web, credentials(both, "ann", mailhub_device=device))[0] == 302, "the same one, on that device"
        forged = begin(connections, both.web, credentials(both, "ann", mailhub_device=device[:-1] + "_"), 1)
        others_are_served(both, Program())
        assert unanswered(stuck + forged) == 7 and count_lock_waits() == 1
    assert {read(one)[0] for one in stuck + forged} == {302}


@pytest.mark.parametrize(
    ("address", "forwarded", "trusted", "found"),
    [
        ("192.0.2.7", "198.51.100.1", False, "192.0.2.7"),
        ("127.0.0.1", "203.0.113.5, 198.51.100.1", True, "198.51.100.1"),
        ("127.0.0.1", "", True, "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "", False, "2001:db8:1:2::/64"),
        ("127.0.0.1", "no address", True, "no address"),
        ("::ffff:192.0.2.7", "", False, "192.0.2.7"),
        ("127.0.0.1", "198.51.100.1:50123", True, "198.51.100.1"),
        ("127.0.0.1", "[2001:db8:1:2::6]:50123", True, "2001:db8:1:2::/64"),
    ],
)
def test_an_address_is_that_of_the_network_as_the_proxy_in_front_says(settings, address, forwarded, trusted, found):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if trusted else None
    assert devices.find_address({"REMOTE_ADDR": address, "HTTP_X_FORWARDED_FOR": forwarded}) == found


def test_a_name_with_an_underscore_does_not_pass_for_the_one_with_a_hyphen(both):
    program = Program()
    request = b"GET /api/v1/services HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: 1\r\n"
    assert ask(both.api, request + f"Authorization: Bearer {program.token}\r\n\r\n".encode())[0] == 200
    odd = f"Authorization: Bearer nobody\r\nAuthorization_: Bearer {program.token}\r\n\r\n"
    assert ask(both.api, request + odd.encode())[0] == 401


def test_costly_letters_are_refused_and_others_are_served_meanwhile(both, connections):
    greedy, program, vendor = Program(requests_per_minute=0), Program(), api_vendor()
    loops = "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}x"
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"l": [0] * 300}} for number in range(70)]
    body = json.dumps(letter(vendor, body=loops, recipients=recipients)).encode()
    headers = [{"Idempotency_Key": f"costly {number}", "Connection": "close"} for number in range(8)]
    asked = [begin(connections, both.api, messages(greedy, len(body), **more) + body, 1)[0] for more in headers]
    others_are_served(both, program)
    assert {read(connection)[0] for connection in asked} <= {422, 429}
    assert not Message.objects.exists()
