"""Misbehaviours of an HTTP vendor, with the required outcome of each call (faults 34 to 40)."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from vendors.outcomes import Accepted, InDoubt, NotSent, Refused
from vendors.testing.cases import Trial
from vendors.testing.http_server import Behaviour, answer, endless, hang, huge, raw, reset_at_once

DOUBT = (InDoubt,)


class VendorAnswer(NamedTuple):
    """An answer of the vendor. `content`: bytes, text, or an object sent as JSON. `lines`: more headers, `A: b`."""

    status: int
    content: Any = b""
    lines: tuple[str, ...] = ()

    @property
    def body(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        return (self.content if isinstance(self.content, str) else json.dumps(self.content)).encode()

    def behaviour(self, *, close: bool = False) -> Behaviour:
        return answer(self.status, self.body, *self.lines, close=close)


def paused(reason: str) -> NotSent:
    return NotSent(reason, scope="credential", pause=True)


def http_cases(
    accepted: Callable[[Any], VendorAnswer], refused: VendorAnswer | None, impatient: Mapping[str, str]
) -> Iterator[Trial]:
    """Yield the cases, from an acceptance with an id, a refusal of a recipient, and settings with short deadlines."""
    yield from _acceptances(accepted)
    yield from _odd_ids(accepted)
    yield from _garbage(accepted("v").status)
    yield from _broken(accepted("v"), impatient)
    if refused:
        yield Trial("its refusal of a recipient", refused.behaviour(), (Refused,))
        yield Trial("its refusal, of 50 MB", huge(refused.status, refused.body), (Refused, NotSent, InDoubt))
    for case in _statuses():
        yield Trial(case.name, case.behaviour, case.expected, answered=True)
    yield from _waits()


def _acceptances(accepted: Callable[[Any], VendorAnswer]) -> Iterator[Trial]:
    good = accepted("v")
    more = "".join(f"{line}\r\n" for line in good.lines).encode()
    head = f"HTTP/1.1 {good.status} OK\r\n".encode() + more
    whole = head + b"Content-Length: %d\r\n\r\n" % len(good.body) + good.body
    first, rest = good.body[:3], good.body[3:]
    chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(first), first, len(rest), rest)
    yield Trial("an acceptance", accepted("v-1").behaviour(), Accepted("v-1"))
    split = raw(head + b"Transfer-Encoding: chunked\r\n\r\n", chunks[:8], chunks[8:])
    yield Trial("an acceptance in chunks", split, Accepted("v"))
    old = head.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + good.body
    yield Trial("an acceptance whose end is the end of the connection", raw(old, close=True), Accepted("v"))
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 3\r\n\r\n"
    before = raw(b"HTTP/1.1 100 Continue\r\n\r\n", hints, whole)
    yield Trial("a 100 and a 103 before the acceptance", before, Accepted("v"))
    other = accepted("w")
    second = head + b"Content-Length: %d\r\n\r\n" % len(other.body) + other.body
    yield Trial("two answers to one request", raw(whole + second), Accepted("v"))


def _odd_ids(accepted: Callable[[Any], VendorAnswer]) -> Iterator[Trial]:
    odd = {"a list": ["v"], "true": True, "null": None, "an empty text": "  ", "a long text": "v" * 256}
    odd |= {"NaN": float("nan"), "a text with NUL": "a\0b"}
    for name, vendor_id in odd.items():
        try:
            behaviour = accepted(vendor_id).behaviour()
        except TypeError:  # this vendor's answers cannot carry such an id
            continue
        yield Trial(f"an acceptance with {name} as id", behaviour, DOUBT)


def _garbage(status: int) -> Iterator[Trial]:
    yield Trial("an acceptance without a body", answer(status), DOUBT)
    yield Trial("a 204", raw(b"HTTP/1.1 204 No Content\r\n\r\n"), DOUBT)
    yield Trial("an acceptance with HTML", answer(status, "<html>Welcome</html>", "Content-Type: text/html"), DOUBT)
    yield Trial("an acceptance with garbage", answer(status, bytes(range(256))), DOUBT)
    yield Trial("an acceptance with a list", answer(status, '["v"]'), DOUBT)
    yield Trial("an acceptance with a number", answer(status, "17"), DOUBT)
    yield Trial("an acceptance that is nested 100,000 deep", answer(status, "[" * 100_000 + "]" * 100_000), DOUBT)


@functools.cache  # each test of an adapter asks for the cases anew
def _bomb(body: bytes) -> bytes:
    """Return the body, gzipped with 10 MB of blanks in it."""
    return gzip.compress(body[:-1] + b" " * 10_000_000 + body[-1:])


def _broken(good: VendorAnswer, impatient: Mapping[str, str]) -> Iterator[Trial]:
    """Yield broken answers, to which no contract can give another meaning."""
    cut = b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (good.status, len(good.body) + 70) + good.body
    chunk = b"HTTP/1.1 %d OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (good.status, len(good.body)) + good.body
    bomb = _bomb(good.body)
    lengths = b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\nContent-Length: 3\r\n\r\n" % (good.status, len(good.body))
    body = good.body.replace(b"v", "ü".encode("latin-1"))
    yield Trial("an acceptance in a wrong charset", answer(good.status, body), DOUBT)
    yield Trial("an acceptance with a packed bomb", answer(good.status, bomb, "Content-Encoding: gzip"), DOUBT)
    yield Trial("an acceptance of 50 MB", huge(good.status, good.body), DOUBT)
    yield Trial("endless headers", endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n" * 500), DOUBT)
    yield Trial("one endless header", endless(b"HTTP/1.1 200 OK\r\nX-More: ", b"and more" * 2000), DOUBT)
    yield Trial("endless 100s", endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500), DOUBT)
    yield Trial("an acceptance that is cut", raw(cut, close=True), DOUBT)
    yield Trial("an acceptance in chunks that is cut", raw(chunk + b"\r\n", close=True), DOUBT)
    yield Trial("a head that is cut", raw(b"HTTP/1.1 200 OK\r\nContent-Le", close=True), DOUBT)
    yield Trial("an end without an answer", raw(close=True), DOUBT)
    yield Trial("a reset after the request", reset_at_once, DOUBT)
    yield Trial("no answer at all", hang, DOUBT, impatient)
    drip = endless(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b" ", 0.02)
    yield Trial("an answer byte by byte", drip, DOUBT, impatient)
    yield Trial("a head byte by byte", endless(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a", 0.02), DOUBT, impatient)
    yield Trial("not HTTP", raw(b"220 relay.example ESMTP\r\n"), DOUBT)
    yield Trial("two different lengths", raw(lengths + good.body), DOUBT)
    yield Trial("another protocol", raw(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), DOUBT)


def _statuses() -> Iterator[Trial]:
    yield Trial("an unknown status", answer(799, '{"id": "v"}'), DOUBT)
    yield Trial("a 400 that is cut", _cut(400), Refused("http_400"))
    yield Trial("a 413 with HTML", answer(413, "<html>", close=True), Refused("http_413"))
    strange = '{"code": {"a": 1}, "sub_type": "' + "x" * 300 + '"}'
    yield Trial("a 422 with strange reasons", answer(422, strange), Refused("http_422"))
    yield Trial("a 422 of 50 MB", huge(422, b'{"code": "v"}'), Refused("http_422"))
    yield Trial("a 408", answer(408), DOUBT)
    yield Trial("a 409 with an id from a vendor that promises no dedupe", answer(409, '{"id": "whose"}'), DOUBT)
    yield Trial("a 409 that is cut", _cut(409), DOUBT)
    yield Trial("a 425", answer(425), NotSent("http 425", retry_after=30.0))
    for status in (401, 402, 403, 407):
        yield Trial(f"a {status}", answer(status), paused(f"http {status}: login or account refused"))
    for status in (404, 405, 406, 410, 415, 421, 426):
        said = answer(status, '{"code": "not_found"}')
        yield Trial(f"a {status}", said, paused(f"http {status}: the address takes no messages"))
    yield Trial("a 404 that is cut", _cut(404), paused("http 404: the address takes no messages"))
    not_followed = "redirects are not followed"
    elsewhere = "Location: http://127.0.0.1:9/"
    for status in (307, 308):
        pause = paused(f"http {status}: not processed; {not_followed}")
        yield Trial(f"a {status} to elsewhere", answer(status, b"", elsewhere), pause)
    yield Trial("a 308 that is cut", _cut(308), paused(f"http 308: not processed; {not_followed}"))
    for status in (300, 301, 302, 303, 304, 305, 306):
        name = f"a {status} to elsewhere, which may follow a message that was taken"
        doubt = InDoubt(f"http {status}: {not_followed}", pause=True)
        yield Trial(name, answer(status, '{"id": "v"}', elsewhere), doubt)
    yield Trial("a 303 that is cut", _cut(303), InDoubt(f"http 303: {not_followed}", pause=True))
    for status in (500, 502, 503, 504):
        yield Trial(f"a {status}", answer(status), DOUBT)
    yield Trial("a 500 with an id", answer(500, '{"id": "v"}'), DOUBT)


def _waits() -> Iterator[Trial]:
    known = {"7": 7.0, "0": 0.0, "-5": 30.0, "abc": 30.0, "": 30.0, "999999999": 86_400.0}
    known |= {"86400": 86_400.0, "120, 120": 120.0, "60, 120": 120.0}
    known |= {"Fri, 31 Dec 2999 23:59:59 GMT": 86_400.0, "Wed, 21 Oct 2015 07:28:00 GMT": 30.0}
    for value, seconds in known.items():
        lines = [f"Retry-After: {value}"] if value else []
        wait = NotSent("http 429: too fast for the vendor", retry_after=seconds, scope="credential")
        yield Trial(f"a 429 with Retry-After {value}", answer(429, b"", *lines), wait, answered=True)


def _cut(status: int) -> Behaviour:
    return raw(b'HTTP/1.1 %d Word\r\nContent-Length: 99\r\n\r\n{"id": "v"}' % status, close=True)
