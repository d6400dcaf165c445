"""Decides about each call: an entry in the books, and an answer."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from sandbox.vendor.books import BookEntry, BookVerdict
from sandbox.vendor.ledger import Ledger
from sandbox.vendor.plans import PLAIN, TEMPFAIL, Plan, Planner
from sandbox.vendor.reporter import Reporter
from sandbox.vendor.settings import Settings, SimulatedLimit
from sandbox.vendor.wires import wire
from sandbox.vendor.wires.base import AnswerContent, Asked, Call, Wrong

HTML = b"<!doctype html><title>Welcome</title><h1>It works</h1>"
REASONS = {
    200: "OK", 201: "Created", 303: "See Other", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed", 409: "Conflict", 422: "Unprocessable Content", 429: "Too Many Requests",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


@dataclass(slots=True)
class Reply:
    """An answer: bytes, or a reset (None). Sent after `delay` seconds or, if `held`, when it is released."""

    data: bytes | None
    delay: float = 0.0
    held: bool = False
    released: bool = False


def respond(status: int, content: AnswerContent | bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Build an answer. `content`: an object for JSON, a text, or HTML as bytes."""
    if isinstance(content, dict):
        kind, body = "application/json", orjson.dumps(content)
    else:
        kind, body = ("text/html", content) if isinstance(content, bytes) else ("text/plain", content.encode())
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items()) if headers else ""
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class CallWindow:
    """The throttle at the vendor's clock: 429 once `limit` were served in the last `seconds`."""

    def __init__(self, throttle: SimulatedLimit) -> None:
        self._throttle = throttle
        self._served: deque[float] = deque()

    def wait(self, now: float, letters: int) -> float:
        """Return 0 and count the letters of a call, or return the seconds until another try."""
        limit, seconds = self._throttle.limit, self._throttle.seconds
        while self._served and now - self._served[0] >= seconds:
            self._served.popleft()
        if len(self._served) + letters <= limit:
            self._served.extend([now] * letters)
            return 0.0
        return seconds - (now - self._served[0]) if self._served else seconds


class Responder:
    """The vendor's behaviour, without its connections. Each letter of a call is an entry in the books."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._ledger = ledger
        # The books' clock never goes back, even if the machine was rebooted between two entries.
        self._ahead = max(0.0, ledger.times[-1] - time.monotonic()) if ledger.calls else 0.0
        self._follow(settings)
        self._window = _window(settings)
        self._reporter = Reporter(lambda: self.settings, lambda: self._wire)

    def _follow(self, settings: Settings) -> None:
        """Apply the settings. Raises ValueError with a sentence."""
        self._wire = wire(settings.looks_like, settings.login)
        self._wire.check(settings.receipts_to, settings.receipts_secret)
        self._planner = Planner(settings)
        self.settings = settings

    def change(self, values: Any) -> None:
        """Change settings. A new throttle begins with an empty window. Raises ValueError with a sentence."""
        changed, before = self.settings.change(values), self.settings.throttle
        self._follow(changed)
        if changed.throttle != before:
            self._window = _window(changed)

    def reported(self) -> dict[str, int]:
        """Return letters by kind of acknowledged report, since the start."""
        return dict(self._reporter.heard)

    def clock(self) -> float:
        return time.monotonic() + self._ahead

    def send(self, call: Call) -> Reply:
        """Answer a call to send, stamped now and entered in the books."""
        read = self._wire.read(call)
        letters = [Asked("", "")] if isinstance(read, Wrong) else read
        key = call.header(b"idempotency-key")
        entries = [self._entry(call, one.reference, place, key, one.recipient) for place, one in enumerate(letters)]
        answer = self._closed(entries, call) or self._throttled(entries)
        if answer is None and isinstance(read, Wrong):
            content = self._wire.problem(read.status, read.code, read.sub_type)
            answer = self._answer(entries, "refused", read.status, content)
        answer = answer or self._known(entries, letters) or self._fulfil(entries, letters)
        for entry in entries:
            self._ledger.book(entry)
        answer.delay += self._planner.latency()
        return answer

    def look_up(self, call: Call) -> Reply:
        """Answer a look-up with the letter's id, or as not found, also while it is stale. Booked like any call."""
        entry = self._entry(call, self._wire.looked_up(call), look_up=True)
        answer = self._closed([entry], call) or self._throttled([entry]) or self._find(entry)
        self._ledger.book(entry)
        answer.delay += self._planner.latency()
        return answer

    def _find(self, entry: BookEntry) -> Reply:
        seq = self._ledger.find(entry.reference)
        fresh = seq is not None and entry.t - self._ledger.times[seq - 1] < self.settings.lookup_delay
        entry.id = self._wire.id(seq) if seq is not None and not fresh else ""
        status, content = self._wire.found(entry.id, entry.reference)
        return self._answer([entry], "found" if entry.id else "absent", status, content)

    def _entry(
        self, call: Call, reference: str, place: int = 0, key: str = "", recipient: str = "", *, look_up: bool = False
    ) -> BookEntry:
        seq, now, wall = self._ledger.calls + 1 + place, self.clock(), time.time()
        who = self._wire.credential(call)
        return BookEntry(seq, now, wall, reference, key, recipient, "accepted", self._wire.submitted, who, "", look_up)

    def _closed(self, entries: Sequence[BookEntry], call: Call) -> Reply | None:
        if self.settings.down:
            return self._answer(entries, "down", 503, self._wire.problem(503, "unavailable"))
        if self.settings.unauthorized or not self._wire.knows(call):
            return self._answer(entries, "unauthorized", 401, self._wire.problem(401, "unauthorized"))
        return None

    def _throttled(self, entries: Sequence[BookEntry]) -> Reply | None:
        wait = self._window.wait(entries[0].t, len(entries)) if self._window else 0.0
        return self._too_soon(entries, "throttled", "too_many_requests", wait) if wait else None

    def _too_soon(self, entries: Sequence[BookEntry], verdict: BookVerdict, code: str, seconds: float) -> Reply:
        content = self._wire.problem(429, code)
        return self._answer(entries, verdict, 429, content, self._wire.waits(seconds))

    def _known(self, entries: Sequence[BookEntry], letters: Sequence[Asked]) -> Reply | None:
        [entry, *others] = entries
        dedupes = (self.settings.dedupe or self._wire.dedupes) and not others
        earlier = self._ledger.accepted_as(entry.key) if dedupes else None
        if earlier is None:
            return None
        entry.id = self._wire.id(earlier)
        return self._answer(entries, "repeat", *self._wire.repeated(entry.id, letters[0]))

    def _fulfil(self, entries: Sequence[BookEntry], letters: Sequence[Asked]) -> Reply:
        plan = self._planner.plan([one.word or one.recipient for one in letters])
        if plan is TEMPFAIL:
            if not all(self._ledger.was_deferred(entry.reference) for entry in entries):
                return self._too_soon(entries, "deferred", plan.code, self.settings.retry_after_s)
            plan = PLAIN
        if not plan.accepts and plan.status >= 500:
            return self._answer(entries, "failed", plan.status, self._wire.problem(plan.status, plan.code))
        if not plan.accepts and self._wire.looks:
            said = self._wire.refused(plan.status, plan.code, plan.sub_type, letters[0])
            return self._answer(entries, "refused", *said)
        return self._accept(entries, letters, plan if plan.accepts else PLAIN)

    def _accept(self, entries: Sequence[BookEntry], letters: Sequence[Asked], plan: Plan) -> Reply:
        good = plan.status == PLAIN.status
        status = self._wire.submitted if good else plan.status
        for entry, asked in zip(entries, letters, strict=True):
            entry.id = self._wire.id(entries[0].seq)
            entry.verdict = "accepted" if self._ledger.find(entry.reference) is None else "duplicate"
            entry.status = status if plan.answer in ("json", "html") else None
            self._reporter.accepted(entry, asked)
        if plan.answer in ("reset", "silence"):
            return Reply(None, plan.delay, held=plan.answer == "silence")
        content = self._wire.accepted(entries[0].id, letters[0]) if good else self._wire.problem(status, plan.code)
        return Reply(respond(status, HTML if plan.answer == "html" else content), plan.delay)

    @staticmethod
    def _answer(
        entries: Sequence[BookEntry],
        verdict: BookVerdict,
        status: int,
        content: AnswerContent,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        for entry in entries:
            entry.verdict, entry.status = verdict, status
        return Reply(respond(status, content, headers))


def _window(settings: Settings) -> CallWindow | None:
    return CallWindow(SimulatedLimit.parse(settings.throttle)) if settings.throttle else None
