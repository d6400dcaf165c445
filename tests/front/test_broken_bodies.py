"""A request is taken as its client meant it, or refused: bodies that break off, heads with two meanings, methods."""

import json
import socket
from collections.abc import Iterator

import pytest

from campaigns.models import Draft, Message, Session
from tests.front.doors import Doors, connect, doors, read
from tests.front.program import PROBLEM, Program, api_vendor, fresh, letter
from tests.front.test_large_bodies import Owner

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
MESSAGES, SERVICES = "/api/v1/messages", "/api/v1/services"
CHUNKED, JSON = "Transfer-Encoding: chunked", "Content-Type: application/json"
LINE = b"ann%06d@example.org,Ann\n"


@pytest.fixture(scope="module")
def both(django_db_setup: None) -> Iterator[Doors]:
    with doors() as running:
        yield running


def request(method: str, path: str, *headers: str, host: str = "Host: localhost") -> bytes:
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", *filter(None, [host]), "Connection: close", *headers, "", ""]
    ).encode()


def chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


def answered(port: int, whole: bytes, *, leaves: bool = False) -> tuple[int, bytes]:
    """Status and whole answer. leaves: the client ends its side after this, as one that breaks off does."""
    with connect(port) as line:
        line.sendall(whole)
        if leaves:
            line.shutdown(socket.SHUT_WR)
        return read(line)


class Sender(Program):
    """A program with a letter in hand."""

    def __init__(self) -> None:
        super().__init__()
        self.body = json.dumps(letter(api_vendor())).encode()
        self.auth = f"Authorization: Bearer {self.token}"

    def head(self, *headers: str, key: str = "one", **more: str) -> bytes:
        return request("POST", MESSAGES, self.auth, JSON, f"Idempotency-Key: {key}", *headers, **more)


def is_refused(answer: tuple[int, bytes], status: int, text: bytes) -> bool:
    head, _, body = answer[1].partition(b"\r\n\r\n")
    assert answer[0] == status and PROBLEM.encode() in head and text in body, answer
    return not Session.objects.exists() and not Message.objects.exists()


@pytest.mark.parametrize(
    "end", [b"", b"ff\r\nabc", b"zz\r\nabc\r\n0\r\n\r\n", b"-5\r\nabc\r\n", b"0\r\nX-Sum: abc\r\n\r\n"]
)
def test_a_letter_whose_chunks_have_no_whole_end_is_not_sent(both: Doors, fresh: None, end: bytes) -> None:
    program = Sender()
    broken = program.head(CHUNKED) + chunks(program.body, end=end)
    assert is_refused(answered(both.api, broken, leaves=not end.endswith(b"\r\n\r\n")), 400, b"broke off")
    assert answered(both.api, program.head(CHUNKED) + chunks(program.body[:30], program.body[30:]))[0] == 202


def test_a_letter_shorter_than_its_length_is_not_sent(both: Doors, fresh: None) -> None:
    program = Sender()
    for length in (len(program.body) + 1, 300_000):
        broken = program.head(f"Content-Length: {length}") + program.body
        assert is_refused(answered(both.api, broken, leaves=True), 400, b"broke off")


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_list_that_breaks_off_is_no_short_list(both: Doors, fresh: None, framing: str) -> None:
    """It would be a good list of fewer recipients, and nobody would know of the rest."""
    owner = Owner()
    cookies = "; ".join(f"{name}={one.value}" for name, one in owner.client.cookies.items() if one.value)
    token, draft = owner.client.cookies["csrftoken"].value, Draft.objects.get(pk=owner.draft.pk)
    seen = f"/drafts/{draft.pk}/list/"
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="csrfmiddlewaretoken"\r\n\r\n{token}\r\n'
        f'--b\r\nContent-Disposition: form-data; name="seen"\r\n\r\n{draft.seen}\r\n'
        '--b\r\nContent-Disposition: form-data; name="list"; filename="may.csv"\r\nContent-Type: text/csv\r\n\r\n'
    )
    form = parts.encode() + b"email,first_name\n" + b"".join(LINE % number for number in range(10_000))
    whole = form + b"\r\n--b--\r\n"
    headers = [f"Cookie: {cookies}", "Content-Type: multipart/form-data; boundary=b"]
    if framing == "length":
        head, sent = request("POST", seen, *headers, f"Content-Length: {len(whole)}"), (form[:200_000], whole)
    else:
        head = request("POST", seen, *headers, CHUNKED)
        sent = (chunks(form[:200_000], end=b""), chunks(whole))
    assert answered(both.web, head + sent[0], leaves=True)[0] == 400
    draft.refresh_from_db()
    assert (draft.list_name, draft.busy) == ("", "")
    assert answered(both.web, head + sent[1])[0] == 302
    draft.refresh_from_db()
    assert draft.list_name == "may.csv"


@pytest.mark.parametrize("lines", [(CHUNKED, "Content-Length: 10"), ("Content-Length: 10", CHUNKED)])
def test_of_a_length_and_chunks_the_chunks_count_with_their_limit(
    both: Doors, fresh: None, lines: tuple[str, str]
) -> None:
    program = Sender()
    large = program.head(*lines) + chunks(*[b" " * 1_000_000] * 6, end=b"")
    assert is_refused(answered(both.api, large), 413, b"At most")
    assert answered(both.api, program.head(*lines) + chunks(program.body))[0] == 202


@pytest.mark.parametrize("lines", [("Transfer-Encoding: gzip, chunked",), (CHUNKED, CHUNKED)])
def test_a_body_in_a_coding_that_is_not_read_is_refused(both: Doors, fresh: None, lines: tuple[str, ...]) -> None:
    program = Sender()
    assert is_refused(answered(both.api, program.head(*lines) + chunks(program.body)), 415, b"chunked")


@pytest.mark.parametrize(
    "twice",
    ["Idempotency-Key: one", "Idempotency-Key: two", "Content-Type: text/plain", "Authorization: Bearer x", "Host: b"],
)
def test_a_header_with_one_value_that_comes_twice_is_refused(both: Doors, fresh: None, twice: str) -> None:
    """Joined, `one, one` was a key of its own: the same request again was sent again."""
    program = Sender()
    length = f"Content-Length: {len(program.body)}"
    name = twice.partition(":")[0].lower().encode()
    assert is_refused(answered(both.api, program.head(length, twice) + program.body), 400, name)
    assert answered(both.api, program.head(length) + program.body)[0] == 202


def test_bodies_come_as_clients_send_them(both: Doors, fresh: None) -> None:
    """By leave, in chunks of one byte, with extensions; and a GET may have one, which nobody reads."""
    program = Sender()
    length = f"Content-Length: {len(program.body)}"
    for key, framing in (("by length", length), ("by chunks", CHUNKED)):
        with connect(both.api) as line:
            line.sendall(program.head(framing, "Expect: 100-continue", key=key))
            assert line.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            line.sendall(program.body if framing == length else chunks(program.body))
            assert read(line)[0] == 202
    single = chunks(*(bytes([one]) for one in program.body))
    assert answered(both.api, program.head(CHUNKED, key="bytes") + single)[0] == 202
    extended = b"%x;name=value\r\n%s\r\n0\r\n\r\n" % (len(program.body), program.body)
    assert answered(both.api, program.head(CHUNKED, key="extended") + extended)[0] == 202
    assert Session.objects.count() == 4
    asked = request("GET", SERVICES, program.auth, length) + program.body
    assert answered(both.api, asked)[0] == 200


def test_leave_to_send_a_body_is_given_to_none_that_is_too_large(both: Doors, fresh: None) -> None:
    program = Sender()
    answer = answered(both.api, program.head("Content-Length: 900000000", "Expect: 100-continue"))
    assert is_refused(answer, 413, b"At most") and b"100 Continue" not in answer[1]


def test_without_a_length_there_is_no_body(both: Doors, fresh: None) -> None:
    program = Sender()
    for lines in ((), ("Content-Length: 0",)):
        assert is_refused(answered(both.api, program.head(*lines)), 400, b"not JSON")


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("OPTIONS", MESSAGES, 405, b"POST"), ("PUT", MESSAGES, 405, b"POST"), ("HEAD", MESSAGES, 405, b"POST"),
        ("TRACE", SERVICES, 405, b"GET, HEAD"), ("HEAD", SERVICES, 200, b""), ("OPTIONS", "/livez", 405, b"GET, HEAD"),
        ("POST", "/readyz", 405, b"GET, HEAD"), ("HEAD", "/livez", 200, b""),
    ],
)  # fmt: skip
def test_each_method_is_answered_with_those_that_are_allowed(
    both: Doors, fresh: None, method: str, path: str, status: int, allowed: bytes
) -> None:
    found, answer = answered(both.api, request(method, path, Sender().auth))
    head, _, body = answer.lower().partition(b"\r\n\r\n")
    assert found == status and (b"allow: " + allowed.lower() in head) == bool(allowed)
    assert body == b"" or method != "HEAD"


def test_a_request_of_today_names_its_host(both: Doors, fresh: None) -> None:
    program = Sender()
    assert is_refused(answered(both.api, request("GET", SERVICES, program.auth, host="")), 400, b"Host")
    old = f"GET {SERVICES} HTTP/1.0\r\n{program.auth}\r\n\r\n".encode()
    assert answered(both.api, old)[0] == 200


def test_a_preference_is_found_among_several_and_said_as_it_was_kept(both: Doors, fresh: None) -> None:
    program = Sender()
    sent = answered(both.api, program.head(f"Content-Length: {len(program.body)}") + program.body)[1]
    session = json.loads(sent.partition(b"\r\n\r\n")[2])["id"]
    for lines in (("Prefer: respond-async", "Prefer: WAIT=1"), ('Prefer: return=minimal, wait="1"',)):
        status, answer = answered(both.api, request("GET", f"/api/v1/sessions/{session}", program.auth, *lines))
        assert status == 200 and b"preference-applied: wait=1\r\n" in answer.lower()
