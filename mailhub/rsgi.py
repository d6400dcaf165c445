"""The web server's two applications, `web` for browsers and `api` for clients, each in a process of its own (Procfile).

The event loop reads bodies, under a deadline. Only a request that has arrived whole gets one of the threads in which
Django runs, so a slow or silent client costs a connection and nothing else. RSGI is granian's own interface, in which a
thread can answer directly.
"""

import asyncio
import io
import logging
import re
import resource
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
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
from django.shortcuts import resolve_url

from mailhub.front import receipts
from mailhub.front.problems import API, Problem
from mailhub.monitoring import endpoints as monitoring
from mailhub.owners.wizard import uploads

log = logging.getLogger(__name__)

SMALL = 65_536  # bytes of a body that are kept in memory; more of it goes to a file
RATE = 65_536  # bytes a second at which a larger body must arrive
LARGE = 1_000_000  # bytes of a file that is not read into memory
FILES_MOST = 20  # requests for files that may wait until theirs is made
HASHING = 2  # passwords that are checked at a time; each takes a processor for a third of a second
HASHING_MOST = 32  # log-ins that may wait for a check
FILE = re.compile(r"(/report|\.csv|\.xlsx|\.pdf)$")  # made when it is asked for (front/downloads)
PUBLIC = "/unsubscribe/"  # open to everybody
PUBLIC_BODY = 4_096  # bytes
PUBLIC_MOST = 500  # such requests that may wait for a thread

Environ = dict[str, Any]
# A request that has arrived whole, and the future that its coroutine waits for.
Ready = tuple[Environ, Any, "asyncio.Future[LargeAnswer | None]"]
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
    """Django with the middleware that the API needs. Vendors' reports, many small requests, pass none of it."""

    def load_middleware(self, *args: Any, **kwargs: Any) -> None:
        every, settings.MIDDLEWARE = settings.MIDDLEWARE, settings.API_MIDDLEWARE
        try:
            super().load_middleware(*args, **kwargs)
        finally:
            settings.MIDDLEWARE = every

    def get_response(self, request: HttpRequest) -> Any:
        short = receipts.answer(request)
        return super().get_response(request) if short is None else _guarded(short, request.is_secure())


class FewAtATime:
    """Lets so many requests into threads at a time, and so many wait, so that threads are left for others.

    detail: of the 503 for those beyond.
    """

    def __init__(self, at_once: int, most: int, detail: str) -> None:
        self._gate, self._waiting, self._most, self._detail = asyncio.Semaphore(at_once), 0, most, detail

    async def __aenter__(self) -> None:
        """Raises Problem if too many wait."""
        if self._waiting >= self._most:
            raise Problem("busy", self._detail, retry_after=5)
        self._waiting += 1
        try:
            await self._gate.acquire()
        except BaseException:
            self._waiting -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._waiting -= 1
        self._gate.release()


class Listener:
    """An RSGI application for some of the paths.

    django: answers them; serves: whether a path belongs here; elsewhere: the detail of the 404 for all others.
    """

    def __init__(self, django: WSGIHandler, serves: Callable[[str], bool], elsewhere: str) -> None:
        self._django, self._serves, self._elsewhere = django, serves, elsewhere
        self._ready: SimpleQueue[Ready] = SimpleQueue()

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1,024 are too few for the connections
        self._loop, self._logins = loop, {resolve_url(settings.LOGIN_URL), resolve_url("admin:login")}
        self._hashing = FewAtATime(HASHING, HASHING_MOST, "Too many are logging in; try again in a moment.")
        half = max(1, settings.WEB_THREADS // 2)
        few = max(1, settings.WEB_THREADS // 4)
        self._files = FewAtATime(few, FILES_MOST, "Too many files are being made; try again in a moment.")
        self._public = FewAtATime(half, PUBLIC_MOST, "Too many ask at once; try again in a moment.")
        for number in range(settings.WEB_THREADS):
            threading.Thread(target=self._work, name=f"request-{number}", daemon=True).start()

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        if scope.path in monitoring.ANSWERS:
            await monitoring.answer(scope, protocol)
            return
        try:
            if not self._serves(scope.path):
                raise Problem("not-found", self._elsewhere)
            environ, public = _environ(scope), scope.path.startswith(PUBLIC)
            most = PUBLIC_BODY if public else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
            if uploads.may(scope.path, environ.get("HTTP_COOKIE", "")):
                most = uploads.most_bytes()
            body, environ["CONTENT_LENGTH"] = await _read(scope.headers, protocol, most)
            environ["wsgi.input"] = body
            hashes = scope.method == "POST" and scope.path in self._logins
            file = FILE.search(scope.path) is not None
            gate = self._hashing if hashes else self._public if public else self._files if file else nullcontext()
            async with gate:
                await self._in_a_thread(environ, protocol)
        except Problem as problem:
            _tell(protocol, problem.response(), _environ(scope))

    async def _in_a_thread(self, environ: Environ, protocol: Any) -> None:
        done = self._loop.create_future()
        self._ready.put((environ, protocol, done))
        if (large := await done) is not None:
            await _send(protocol, large)

    def _work(self) -> None:
        while True:
            environ, protocol, done = self._ready.get()
            large = None
            try:
                large = _answer(self._django, environ, protocol)
            except Exception:
                log.exception("%s %s", environ["REQUEST_METHOD"], environ["PATH_INFO"])
                _tell(protocol, Problem("internal", "It is in the log.").response(), environ)
            self._loop.call_soon_threadsafe(done.set_result, large)


def _environ(scope: Any) -> Environ:
    """The WSGI environment. Headers with an underscore are dropped: they could stand in for those with a hyphen."""
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
            key = _key(name)
            environ[key] = f"{environ[key]}{';' if name == 'cookie' else ','} {value}" if key in environ else value
    environ["CONTENT_TYPE"] = environ.get("HTTP_CONTENT_TYPE", "")
    return environ


@lru_cache(maxsize=512)
def _key(name: str) -> str:
    return f"HTTP_{name.upper().replace('-', '_')}"


async def _read(headers: Any, protocol: Any, most: int) -> tuple[BinaryIO, str]:
    """The body and its length. Raises Problem if it is larger than `most` or does not arrive in time."""
    length = headers.get("content-length")
    if length is None and "transfer-encoding" not in headers:
        return io.BytesIO(), ""
    if length is not None and int(length) > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(settings.BODY_SECONDS) as limit:
            if length is not None and int(length) <= SMALL:
                whole = await protocol()
                return io.BytesIO(whole), str(len(whole))
            return await _spooled(protocol, limit, most)
    except TimeoutError:
        raise Problem("request-timeout", f"A body has {settings.BODY_SECONDS:g} seconds to arrive.") from None


async def _spooled(protocol: Any, limit: asyncio.Timeout, most: int) -> tuple[BinaryIO, str]:
    """A large body, or one without a length. Its deadline grows with the bytes that have arrived (RATE)."""
    began, size = limit.when() or 0.0, 0
    spool: Any = SpooledTemporaryFile(max_size=SMALL)  # noqa: SIM115 (Django reads it)
    async for chunk in protocol:
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        spool.write(chunk)
        limit.reschedule(began + size / RATE)
    spool.seek(0)
    return spool, str(size)


def _too_large(most: int) -> Problem:
    return Problem("payload-too-large", f"At most {most:,} bytes are read.")


@dataclass(frozen=True, slots=True)
class LargeAnswer:
    """An answer that lies in a file, like a report of a million rows."""

    status: int
    headers: list[tuple[str, str]]
    response: Any  # Django's; it closes the file


def _answer(django: WSGIHandler, environ: Environ, protocol: Any) -> LargeAnswer | None:
    """Answers, or returns what the event loop sends, so that a slow reader of a large file holds no thread."""
    begun: list[Any] = []

    def begin(status: str, headers: list[tuple[str, str]], _: Any = None, /) -> Any:
        begun.extend((int(status[:3]), headers))

    response = django(environ, begin)
    if getattr(response, "file_to_stream", None) and int(response.headers.get("Content-Length", 0)) > LARGE:
        return LargeAnswer(begun[0], begun[1], response)
    try:
        protocol.response_bytes(*begun, b"".join(response))
    finally:
        response.close()
    return None


async def _send(protocol: Any, large: LargeAnswer) -> None:
    """Piece by piece, each of which has some time to be taken."""
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
def _guards(secure: bool) -> list[tuple[str, str]]:
    """The headers that Django's middleware gives every answer, made by it: of a secure request or another one."""
    answer, request = HttpResponse(), cast(Any, SimpleNamespace(is_secure=lambda: secure))
    del answer.headers["Content-Type"]
    SecurityMiddleware(lambda _: answer).process_response(request, answer)
    XFrameOptionsMiddleware(lambda _: answer).process_response(request, answer)
    return list(answer.items())


def _guarded(response: HttpResponse, secure: bool = False) -> HttpResponse:
    """An answer past the middleware, with these headers."""
    for name, value in _guards(secure):
        response.headers.setdefault(name, value)
    return response


def _tell(protocol: Any, response: HttpResponse, environ: Environ) -> None:
    """Answers without Django. environ: of the request, which says whether it came by TLS, as Django reads it."""
    _guarded(response, WSGIRequest({**environ, "wsgi.input": io.BytesIO()}).is_secure())
    protocol.response_bytes(response.status_code, list(response.items()), response.content)


web = Listener(application, lambda path: not path.startswith(API), "The API has a port of its own: API_PORT.")
api = Listener(
    ApiHandler(),
    lambda path: path.startswith((API, "/static/")),
    "Pages for browsers have a port of their own: PORT.",
)
