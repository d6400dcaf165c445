"""Decides about each call: an entry in the books, and an answer."""

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import orjson

from sandbox.vendor.books import BookEntry, BookVerdict
from sandbox.vendor.ledger import Ledger
from sandbox.vendor.plans import TEMPFAIL, Plan, Planner
from sandbox.vendor.reporter import Reporter
from sandbox.vendor.settings import Settings, SimulatedLimit

HTML = b"<!doctype html><title>Welcome</title><h1>It works</h1>"
REASONS = {
    200: "OK", 303: "See Other", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    409: "Conflict", 422: "Unprocessable Content", 429: "Too Many Requests", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


@dataclass(slots=True)
class Reply:
    """An answer: bytes, or a reset (None); sent after `delay` seconds, or, if `held`, when it is released."""

    data: bytes | None
    delay: float = 0.0
    held: bool = False
    released: bool = False


def respond(status: int, content: dict[str, Any] | bytes, retry_after: int | None = None) -> bytes:
    kind, body = ("text/html", content) if isinstance(content, bytes) else ("application/json", orjson.dumps(content))
    extra = f"Retry-After: {retry_after}\r\n" if retry_after is not None else ""
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class CallWindow:
    """The throttle at the vendor's own clock: fewer than `limit` served in the `seconds` before, or 429."""

    def __init__(self, throttle: SimulatedLimit) -> None:
        self._throttle = throttle
        self._served: deque[float] = deque()

    def wait(self, now: float) -> float:
        """Returns 0 and counts the call, or the seconds until a call is allowed."""
        limit, seconds = self._throttle.limit, self._throttle.seconds
        while self._served and now - self._served[0] >= seconds:
            self._served.popleft()
        if len(self._served) < limit:
            self._served.append(now)
            return 0.0
        return seconds - (now - self._served[0]) if limit else seconds


class Responder:
    """The vendor's behaviour, without its connections."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._ledger = ledger
        # The books' clock never goes back, not even where the machine was started anew between two entries.
        self._ahead = max(0.0, ledger.times[-1] - time.monotonic()) if ledger.calls else 0.0
        self.settings = settings
        self._planner = Planner(settings)
        self._window = _window(settings)
        self._reporter = Reporter(lambda: self.settings)

    def change(self, values: Any) -> None:
        """Raises ValueError with a sentence. A new throttle begins with an empty window."""
        changed = self.settings.change(values)
        if changed.throttle != self.settings.throttle:
            self._window = _window(changed)
        self.settings = changed
        self._planner = Planner(changed)

    def clock(self) -> float:
        return time.monotonic() + self._ahead

    def send(self, body: bytes, key: str, credential: str) -> Reply:
        """Answer a call to send, stamped now and entered in the books."""
        letter = _letter(body)
        reference, recipient = letter or ("", "")
        entry = self._entry("accepted", reference, key, recipient, credential)
        answer = self._closed(entry) or self._throttled(entry)
        if answer is None and letter is None:
            answer = self._refuse(entry, "refused", 400, {"code": "malformed", "sub_type": "no reference or recipient"})
        answer = answer or self._known(entry) or self._fulfil(entry, self._planner.plan(recipient))
        self._ledger.book(entry)
        answer.delay += self._planner.latency()
        return answer

    def look_up(self, reference: str, credential: str) -> Reply:
        """GET <path>/<reference>: 200 with the id, or 404, also while the look-up is stale. A call like any other."""
        entry = self._entry("found", reference, "", "", credential, look_up=True)
        answer = self._closed(entry) or self._throttled(entry) or self._find(entry)
        self._ledger.book(entry)
        answer.delay += self._planner.latency()
        return answer

    def _find(self, entry: BookEntry) -> Reply:
        seq = self._ledger.find(entry.reference)
        if seq is None or entry.t - self._ledger.times[seq - 1] < self.settings.lookup_delay:
            return self._refuse(entry, "absent", 404, {"code": "not_found"})
        entry.id = _id(seq)
        return Reply(respond(200, {"id": entry.id}))

    def _entry(
        self, verdict: BookVerdict, reference: str, key: str, recipient: str, credential: str, *, look_up: bool = False
    ) -> BookEntry:
        seq, now, wall = self._ledger.calls + 1, self.clock(), time.time()
        return BookEntry(seq, now, wall, reference, key, recipient, verdict, 200, credential, "", look_up)

    def _gate(self) -> tuple[int, str, BookVerdict] | None:
        if self.settings.down:
            return 503, "unavailable", "down"
        if self.settings.unauthorized:
            return 401, "unauthorized", "unauthorized"
        return None

    def _closed(self, entry: BookEntry) -> Reply | None:
        if gate := self._gate():
            status, code, verdict = gate
            return self._refuse(entry, verdict, status, {"code": code})
        return None

    def _throttled(self, entry: BookEntry) -> Reply | None:
        wait = self._window.wait(entry.t) if self._window else 0.0
        if not wait:
            return None
        return self._refuse(entry, "throttled", 429, {"code": "too_many_requests"}, max(1, math.ceil(wait)))

    def _known(self, entry: BookEntry) -> Reply | None:
        earlier = self._ledger.accepted_as(entry.key) if self.settings.dedupe else None
        if earlier is None:
            return None
        entry.id = _id(earlier)
        return self._refuse(entry, "repeat", 409, {"id": entry.id})

    def _fulfil(self, entry: BookEntry, plan: Plan) -> Reply:
        if plan is TEMPFAIL:
            if not self._ledger.was_deferred(entry.reference):
                return self._refuse(entry, "deferred", 429, {"code": plan.code}, math.ceil(self.settings.retry_after_s))
            plan = Plan()
        if not plan.accepts:
            verdict: BookVerdict = "failed" if plan.status >= 500 else "refused"
            return self._refuse(entry, verdict, plan.status, {"code": plan.code, "sub_type": plan.sub_type})
        return self._accept(entry, plan)

    def _accept(self, entry: BookEntry, plan: Plan) -> Reply:
        entry.id = _id(entry.seq)
        entry.verdict = "accepted" if self._ledger.find(entry.reference) is None else "duplicate"
        entry.status = plan.status if plan.answer in ("json", "html") else None
        self._reporter.accepted(entry)
        if plan.answer in ("reset", "silence"):
            return Reply(None, plan.delay, held=plan.answer == "silence")
        content = HTML if plan.answer == "html" else {"id": entry.id} if plan.status == 200 else {"code": plan.code}
        return Reply(respond(plan.status, content), plan.delay)

    @staticmethod
    def _refuse(
        entry: BookEntry, verdict: BookVerdict, status: int, content: dict[str, Any], retry_after: int | None = None
    ) -> Reply:
        entry.verdict, entry.status = verdict, status
        return Reply(respond(status, content, retry_after))


def _window(settings: Settings) -> CallWindow | None:
    return CallWindow(SimulatedLimit.parse(settings.throttle)) if settings.throttle else None


def _id(seq: int) -> str:
    return f"sb-{seq}"


def _letter(body: bytes) -> tuple[str, str] | None:
    """Reference and recipient, if both are there."""
    try:
        content = orjson.loads(body)
        reference, recipient = content["reference"], content["recipient"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if isinstance(reference, str) and isinstance(recipient, str) and reference and recipient:
        return reference, recipient
    return None
