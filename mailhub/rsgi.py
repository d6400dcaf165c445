"""The web server's two applications, `web` for browsers and `api` for clients, each in its own process (Procfile).

The event loop reads bodies, under a deadline. Only a complete request gets one of the threads in which Django runs, so
a slow or silent client occupies nothing but a connection. RSGI is granian's own interface; it lets a thread answer
directly.
"""

import asyncio
import io
import logging
import re
import resource
import secrets
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from queue import SimpleQueue
from tempfile import SpooledTemporaryFile
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

from mailhub.wsgi import application  # first: it sets Django up

# isort: split
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware
from granian._granian import RSGIProtocolClosed

from campaigns.doors import shares
from campaigns.doors.front import keys
from campaigns.doors.front.body_gate import LITTLE, BodyGate, Judge, size_problem
from campaigns.doors.front.keys import keyring
from campaigns.doors.front.problems import API, Problem
from campaigns.doors.shares import DEAR_AT_ONCE, DEAR_EACH, DEAR_MOST, WAITING_MOST, TooManyWait, Turns
from campaigns.integrations.api import receipts
from campaigns.lists.pages import uploads
from campaigns.texts import templates
from mailhub import devices, running_versions
from mailhub.monitoring import endpoints as monitoring
from vendors import log_ids

log = logging.getLogger(__name__)

RATE = 65_536  # bytes per second at which a larger body must arrive
LARGE = 1_000_000  # bytes above which a file is not read into memory
FILES_MOST = 20  # one sponsor's requests for files that may wait
DEAR_BODY = 262_144  # a body above this many bytes is expensive to read
SWITCH = 0.0005  # seconds a thread computes before another gets Python's lock
HASHING = 2  # strangers' passwords checked at a time; each takes a processor for a third of a second
HASHING_EACH, HASHING_MOST = 32, 500  # log-ins that may wait for a check, from one address and in total
FILE = re.compile(r"(/report|\.csv|\.xlsx|\.pdf)$")  # built on request (doors/downloads)
LISTS = re.compile(r"/drafts/\d+/list/$|/suppressions?/import/$")  # uploaded lists, read while they are stored
# Pages that render letters, and dry runs of programs.
DEAR_PAGES = re.compile(r"/drafts/|/templates/.|/campaigns/new/|/campaigns/\d+/approval/")
DRY_RUN = re.compile(r"(^|&)dry_run=(true|1)", re.IGNORECASE)
RECEIPTS = f"{API}v1/receipts/"
PUBLIC = "/unsubscribe/"  # open to everybody
PUBLIC_BODY = 4_096  # bytes
NOTHING_HELD: Any = nullcontext()  # for a body kept in memory
IDS = "mailhub.log_ids"  # in the environment of a request
ONCE = frozenset({"authorization", "content-type", "host", "idempotency-key"})  # headers with one value only
REPEATED = "mailhub.repeated"  # in the environment: such a header that came twice
REQUEST_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
PUBLIC_MOST = 500  # such requests that may wait for a thread

Environ = dict[str, Any]
SESSION = re.compile(rf"(?:^|;\s*){re.escape(settings.SESSION_COOKIE_NAME)}=(\w+)")


class Again(Enum):
    """A request that a thread has returned, to be answered in a turn for expensive requests."""

    DEAR = 1


AGAIN = Again.DEAR
# A complete request, its kind, and the future of its coroutine.
Ready = tuple[Environ, Any, str, "asyncio.Future[LargeAnswer | Again | None]"]
ALWAYS: Environ = {
    "SCRIPT_NAME": "",
    "SERVER_SOFTWARE": "granian",
    "wsgi.version": (1, 0),
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}


class ApiHandler(WSGIHandler):
    """Django with the API's middleware. Vendors' reports, many small requests, bypass it."""

    def load_middleware(self, *args: Any, **kwargs: Any) -> None:
        every, settings.MIDDLEWARE = settings.MIDDLEWARE, settings.API_MIDDLEWARE
        try:
            super().load_middleware(*args, **kwargs)
        finally:
            settings.MIDDLEWARE = every

    def get_response(self, request: HttpRequest) -> Any:
        short = receipts.answer_fast(request)
        return super().get_response(request) if short is None else _add_security_headers(short, request.is_secure())


class Listener:
    """An RSGI application for some of the paths.

    `django`: answers them. `serves`: returns True for a path that belongs here. `elsewhere`: the detail of the 404 for
    other paths. `judge`: gives a larger body's limit and owners. `name`: of its process, which announces its version.
    """

    def __init__(
        self, django: WSGIHandler, serves: Callable[[str], bool], elsewhere: str, judge: Judge, name: str = ""
    ) -> None:
        self._name = name
        self._django, self._serves, self._elsewhere, self._judge = django, serves, elsewhere, judge
        self._ready: SimpleQueue[Ready] = SimpleQueue()

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the default of 1,024 is too low for the connections
        self._bodies = BodyGate(self._judge)
        self._loop, self._logins = loop, devices.login_paths()
        self._gates = _make_gates(settings.WEB_THREADS)
        sys.setswitchinterval(SWITCH)
        if self._name:
            running_versions.keep_announcing(self._name)
        templates.breathe, templates.renderer = shares.give_way, shares.request_renderer
        for number in range(settings.WEB_THREADS):
            threading.Thread(target=self._work_in_thread, name=f"request-{number}", daemon=True).start()

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        log_ids.IDS.set({"request": _request_id(scope.headers)})  # of this task: granian's line has it too
        if scope.path in monitoring.ANSWERS:
            await monitoring.answer_monitor(scope, protocol)
            return
        try:
            if not self._serves(scope.path):
                raise Problem("not-found", self._elsewhere)
            environ, public = _wsgi_environ(scope), scope.path.startswith(PUBLIC)
            environ[IDS] = log_ids.find_ids()
            if name := environ.get(REPEATED):  # programs differ in which value they take
                raise Problem("bad-request", f"The header {name} came more than once.")
            if "HTTP_HOST" not in environ and scope.http_version == "1.1":
                raise Problem("bad-request", "The header Host is missing.")
            most, held = PUBLIC_BODY if public else settings.DATA_UPLOAD_MAX_MEMORY_SIZE, NOTHING_HELD
            size = _body_size(scope.headers)
            if not public and (size is None or size > LITTLE):
                most, held = await self._bodies.admit_body(scope.path, environ, size)
            with held:
                await self._read_and_answer(scope, protocol, environ, most)
        except Problem as problem:
            _send_answer(protocol, problem.make_response(), _wsgi_environ(scope))

    async def _read_and_answer(self, scope: Any, protocol: Any, environ: Environ, most: int) -> None:
        """Read the body and have a thread answer in its turn. Raises Problem."""
        body, environ["CONTENT_LENGTH"] = await _read_request_body(scope.headers, protocol, most)
        environ["wsgi.input"] = body
        who, kind = _sponsor_of_request(environ), self._kind_of_request(environ)
        if kind == "hashing":
            who, kind = _who_logs_in(environ)
        try:
            if not await self._answer_in_turn(environ, protocol, who, kind):
                await self._answer_in_turn(environ, protocol, who, shares.DEAR)
        except TooManyWait as busy:
            raise Problem("busy", str(busy), retry_after=5) from busy

    def _kind_of_request(self, environ: Environ) -> str:
        """Return the gate that a request passes before it gets a thread; '': none."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if method == "POST" and path in self._logins:
            return "hashing"
        if path.startswith(PUBLIC):
            return "public"
        if FILE.search(path) or (method == "POST" and LISTS.search(path)):
            return "file"
        return shares.DEAR if _is_dear(path, method, environ) else shares.CHEAP

    async def _answer_in_turn(self, environ: Environ, protocol: Any, who: Hashable, kind: str) -> bool:
        """Answer the request in its turn. Returns False if it proved expensive and must restart. Raises TooManyWait."""
        async with AsyncExitStack() as turns:
            if kind:
                await turns.enter_async_context(self._gates[kind].take_turn(who))
            await turns.enter_async_context(self._gates[""].take_turn(who))
            if kind == shares.CHEAP:  # a request that still waits computes nothing
                turns.enter_context(shares.mark_cheap())
            done = self._loop.create_future()
            self._ready.put((environ, protocol, kind, done))
            large = await done
        if isinstance(large, LargeAnswer):
            await _send_file(protocol, large)
        return large is not AGAIN

    def _work_in_thread(self) -> None:
        while True:
            environ, protocol, kind, done = self._ready.get()
            answer: LargeAnswer | Again | None = None
            log_ids.IDS.set(environ.get(IDS, {}))
            try:
                with shares.mark_answering(kind):
                    answer = _answer_request(self._django, environ, protocol)
            except BaseException:  # on any error the thread continues and returns the turn
                log.exception("%s %s", environ["REQUEST_METHOD"], environ["PATH_INFO"])
                _send_answer(protocol, Problem("internal", "It is in the log.").make_response(), environ)
            finally:
                self._loop.call_soon_threadsafe(done.set_result, answer)


def _request_id(headers: Any) -> str:
    """Return the id that the proxy gave the request (X-Request-ID), or a new one."""
    given = headers.get("x-request-id") or ""
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _make_gates(threads: int) -> dict[str, Turns]:
    """Return the gates by kind. The threads themselves are the last gate; no sponsor gets all of them."""
    few, half = max(1, threads // 4), max(1, threads // 2)
    again = "try again in a moment."
    return {
        shares.CHEAP: Turns(threads, max(1, threads - few), WAITING_MOST, f"Too many of yours wait; {again}"),
        shares.DEAR: Turns(min(DEAR_AT_ONCE, half), DEAR_EACH, DEAR_MOST, f"Too many of yours take long; {again}"),
        "file": Turns(few, 1, FILES_MOST, f"Too many files are being made; {again}"),
        "hashing": Turns(HASHING, 1, HASHING_EACH, f"Too many are logging in; {again}", HASHING_MOST),
        "known": Turns(1, 1, HASHING_EACH, f"Too many are logging in; {again}", HASHING_MOST),
        "public": Turns(half, half, PUBLIC_MOST, f"Too many ask at once; {again}"),
    }


def _sponsor_of_request(environ: Environ) -> Hashable:
    """Return the sponsor of a request, if this process has seen its key or session."""
    path = environ["PATH_INFO"]
    if (vendors := keys.find_reports(path)) is not None:
        return vendors
    if path.startswith(API):
        return keyring.cached_owner(environ.get("HTTP_AUTHORIZATION", "").rpartition(" ")[2]) or shares.STRANGER
    found = SESSION.search(environ.get("HTTP_COOKIE", ""))
    return shares.sessions.find_user(found[1]) if found else shares.STRANGER


def _who_logs_in(environ: Environ) -> tuple[Hashable, str]:
    """Return the owner and gate of a log-in: a device that has logged in before, or a stranger."""
    user = devices.find_user(environ.get("HTTP_COOKIE", ""))
    return (f"device of {user}", "known") if user else (f"address {devices.find_address(environ)}", "hashing")


def _is_dear(path: str, method: str, environ: Environ) -> bool:
    """Return True if the request looks expensive before it is read."""
    if not path.startswith(API):
        return DEAR_PAGES.match(path) is not None
    if method != "POST" or path.startswith(RECEIPTS):
        return False
    return int(environ["CONTENT_LENGTH"] or 0) > DEAR_BODY or DRY_RUN.search(environ["QUERY_STRING"]) is not None


def _wsgi_environ(scope: Any) -> Environ:
    """Return the WSGI environment. Headers with underscores are dropped, as they could pose as those with hyphens."""
    server, _, port = scope.server.rpartition(":")
    environ = {
        **ALWAYS,
        "REQUEST_METHOD": scope.method,
        "PATH_INFO": scope.path.encode().decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "SERVER_NAME": server,
        "SERVER_PORT": port,
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
        "wsgi.url_scheme": scope.scheme,
    }
    for name, value in scope.headers.items():
        if "_" not in name:
            key = _environ_key(name)
            if key in environ:
                environ[key] = f"{environ[key]}{';' if name == 'cookie' else ','} {value}"
                if name in ONCE:
                    environ[REPEATED] = name
            else:
                environ[key] = value
    environ["CONTENT_TYPE"] = environ.get("HTTP_CONTENT_TYPE", "")
    return environ


@lru_cache(maxsize=512)
def _environ_key(name: str) -> str:
    return f"HTTP_{name.upper().replace('-', '_')}"


def _body_size(headers: Any) -> int | None:
    """Return the body's size in bytes as its head says; None if it does not say. Raises Problem."""
    coding = headers.get_all("transfer-encoding")
    if not coding:
        return int(headers.get("content-length") or 0)
    if [one.lower() for one in coding] != ["chunked"]:
        raise Problem("unsupported-coding", "The only Transfer-Encoding that is read is chunked, once.")
    return None


async def _read_request_body(headers: Any, protocol: Any, most: int) -> tuple[BinaryIO, str]:
    """Return the body and its length. Raises Problem if it is larger than `most`, too slow, or broken off."""
    length = headers.get("content-length")
    if length is None and "transfer-encoding" not in headers:
        return io.BytesIO(), ""
    if length is not None and int(length) > most:
        raise size_problem(most)
    try:
        async with asyncio.timeout(settings.BODY_SECONDS) as limit:
            if length is not None and int(length) <= LITTLE:
                whole = await protocol()
                return io.BytesIO(whole), str(len(whole))
            return await _spool_body(protocol, limit, most, length)
    except RSGIProtocolClosed:
        raise _broken_problem() from None
    except TimeoutError:
        raise Problem("request-timeout", f"A body has {settings.BODY_SECONDS:g} seconds to arrive.") from None


async def _spool_body(protocol: Any, limit: asyncio.Timeout, most: int, length: str | None) -> tuple[BinaryIO, str]:
    """Read a large body, or one without a length. Its deadline grows with the bytes received (RATE).

    A list that has lost its end must not pass for a short one. granian ends a stream that broke off as it ends a whole
    one, but for an empty piece before the last, empty one; it gives one for a trailer, too.
    """
    began, size, has_ended = limit.when() or 0.0, 0, False
    spool: Any = SpooledTemporaryFile(max_size=LITTLE)  # noqa: SIM115 (Django reads it)
    try:
        async for chunk in protocol:
            if has_ended:
                raise _broken_problem()
            has_ended = not chunk
            size += len(chunk)
            if size > most:
                raise size_problem(most)
            spool.write(chunk)
            limit.reschedule(began + size / RATE)
        if length is not None and size != int(length):
            raise _broken_problem()
    except BaseException:  # such as a client that goes away
        spool.close()
        raise
    spool.seek(0)
    return spool, str(size)


def _broken_problem() -> Problem:
    return Problem("bad-request", "The body broke off before its end, or has a trailer: send it whole, without one.")


@dataclass(frozen=True, slots=True)
class LargeAnswer:
    """An answer in a file, such as a report of a million rows."""

    status: int
    headers: list[tuple[str, str]]
    response: Any  # Django's; it closes the file


def _answer_request(django: WSGIHandler, environ: Environ, protocol: Any) -> LargeAnswer | Again | None:
    """Answer the request, unless it proves expensive."""
    try:
        return _answer_at_once(django, environ, protocol)
    except shares.TurnsOutDear:
        environ["wsgi.input"].seek(0)
        return AGAIN


def _answer_at_once(django: WSGIHandler, environ: Environ, protocol: Any) -> LargeAnswer | None:
    """Answer, or return the file for the event loop to send, so that a slow client occupies no thread."""
    begun: list[Any] = []

    def begin_response(status: str, headers: list[tuple[str, str]], _: Any = None, /) -> Any:
        begun.extend((int(status[:3]), headers))

    response = django(environ, begin_response)
    if getattr(response, "file_to_stream", None) and int(response.headers.get("Content-Length", 0)) > LARGE:
        return LargeAnswer(begun[0], begun[1], response)
    try:
        protocol.response_bytes(*begun, b"".join(response))
    finally:
        response.close()
    return None


async def _send_file(protocol: Any, large: LargeAnswer) -> None:
    """Send the file in pieces, each with its own deadline."""
    try:
        transport = protocol.response_stream(large.status, large.headers)
        for piece in large.response:
            async with asyncio.timeout(settings.BODY_SECONDS):
                await transport.send_bytes(piece)
    except TimeoutError:
        log.info("a file was not taken within %s seconds a piece", settings.BODY_SECONDS)
    finally:
        large.response.close()


@lru_cache(maxsize=2)
def _security_headers(secure: bool) -> list[tuple[str, str]]:
    """Return the headers that Django's middleware adds to every answer. `secure`: for a request over TLS."""
    answer, request = HttpResponse(), cast(Any, SimpleNamespace(is_secure=lambda: secure))
    del answer.headers["Content-Type"]
    SecurityMiddleware(lambda _: answer).process_response(request, answer)
    XFrameOptionsMiddleware(lambda _: answer).process_response(request, answer)
    return list(answer.items())


def _add_security_headers(response: HttpResponse, secure: bool = False) -> HttpResponse:
    """Add these headers to an answer that bypassed the middleware."""
    for name, value in _security_headers(secure):
        response.headers.setdefault(name, value)
    return response


def _send_answer(protocol: Any, response: HttpResponse, environ: Environ) -> None:
    """Answer without Django's handler. `environ` shows, as Django reads it, if the request came by TLS."""
    _add_security_headers(response, WSGIRequest({**environ, "wsgi.input": io.BytesIO()}).is_secure())
    protocol.response_bytes(response.status_code, list(response.items()), response.content)


web = Listener(
    application,
    lambda path: not path.startswith(API),
    "The API has a port of its own: API_PORT.",
    uploads.judge_draft_body,
    name="web",
)
api = Listener(
    ApiHandler(),
    lambda path: path.startswith((API, "/static/")),
    "Pages for browsers have a port of their own: PORT.",
    keys.judge_large_body,
    name="api",
)
