"""/livez, /readyz and /metrics, answered in the event loop of each process of `web` and `api`, before Django.

Probes come by address and without TLS, so neither ALLOWED_HOSTS nor a redirect to HTTPS may stop them. They are
answered even while all request threads are busy. Blocking calls run in separate threads, one at a time for each
question, and the answer serves all who ask soon after.
"""

import asyncio
import hmac
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs

from django.conf import settings
from prometheus_client import CONTENT_TYPE_LATEST

from mailhub.diagnosis import registry
from mailhub.monitoring import metrics, probes

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")
FRESH = 1.0  # seconds for which an answer is reused
SELDOM = 60.0  # seconds, for facts that change only with the servers' settings
PATIENCE = 3.0  # seconds for each part of /readyz; longer than the part's own client waits
ABANDONED = 60.0  # seconds
SCRAPE_PATIENCE, SCRAPE_FRESH = 8.0, 2.0  # seconds; Prometheus waits for ten
JSON, TEXT = "application/json", "text/plain; charset=utf-8"


class MonitorAnswer(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes


class BoundedQuestion(Generic[AnswerT]):
    """A question that may block; its answer is reused for `fresh` seconds.

    After ABANDONED seconds without an answer it is asked again: its server may have vanished, and its address belong to
    another one.
    """

    def __init__(self, ask: Callable[[], AnswerT], patience: float, fresh: float = FRESH) -> None:
        self._ask, self._patience, self._fresh = ask, patience, fresh
        self._answer: asyncio.Future[AnswerT | None] | None = None
        self._again_at = 0.0

    async def answer(self) -> AnswerT | None:
        """Return the answer, or None if it takes longer than `patience` seconds or the question raises."""
        now = time.monotonic()
        if self._answer is None or now > self._again_at:
            self._answer, self._again_at = asyncio.get_running_loop().create_future(), now + ABANDONED
            threading.Thread(target=self._run_question, args=(self._answer,), name="monitoring", daemon=True).start()
        asked = self._answer
        await asyncio.wait([asked], timeout=self._patience)
        return asked.result() if asked.done() else None

    def _run_question(self, answer: "asyncio.Future[AnswerT | None]") -> None:
        found = None
        try:
            found = self._ask()
        except Exception as why:  # a server's client may raise anything
            log.info("monitoring: %s: %s", type(why).__name__, why)
        with suppress(RuntimeError):  # the loop has ended
            answer.get_loop().call_soon_threadsafe(self._set_answer, answer, found)

    def _set_answer(self, answer: "asyncio.Future[AnswerT | None]", found: AnswerT | None) -> None:
        answer.set_result(found)
        if answer is self._answer:
            self._again_at = time.monotonic() + self._fresh


_scrape = BoundedQuestion(metrics.metrics_text, SCRAPE_PATIENCE, SCRAPE_FRESH)
_parts = {parts: BoundedQuestion(check, PATIENCE) for parts, check in probes.CHECKS.items()}
_prices = BoundedQuestion(registry.list_troubles, PATIENCE, SELDOM)
_silent = BoundedQuestion(probes.list_silent, PATIENCE)


async def _answer_livez(query: str, headers: Any) -> MonitorAnswer:
    """Answer that the event loop runs. It checks nothing else, because a restart would not bring back a lost server."""
    return MonitorAnswer(HTTPStatus.OK, TEXT, b"ok\n")


async def _answer_readyz(query: str, headers: Any) -> MonitorAnswer:
    """Answer with each part and its fault. Parts named by ?exclude= are shown but do not count; nor does `told`."""
    left_out = {part for value in parse_qs(query).get("exclude", []) for part in value.split(",")}
    if unknown := left_out.difference(probes.PARTS):
        there = ", ".join(probes.PARTS)
        return _json_answer(
            HTTPStatus.BAD_REQUEST, {"detail": f"no such part: {', '.join(sorted(unknown))} (there are {there})"}
        )
    # ?exclude=beat asks if requests are accepted; held calls wait for a person, who needs the pages
    if "beat" in left_out:
        left_out.add("calls")
    prices, silent, answers = await asyncio.gather(
        _prices.answer(), _silent.answer(), asyncio.gather(*(question.answer() for question in _parts.values()))
    )
    faults = {
        part: f"no answer within {PATIENCE:g} s, or a refusal" if found is None else found[part]
        for parts, found in zip(_parts, answers, strict=True)
        for part in parts
    }
    ready = not any(fault for part, fault in faults.items() if part not in left_out)
    shown = {part: fault or "ok" for part, fault in faults.items()}
    facts: dict[str, Any] = {"ready": ready, "parts": shown}
    if sentences := [*(silent or ()), *(prices or ())]:
        facts["told"] = sentences
    return _json_answer(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, facts)


def _json_answer(status: HTTPStatus, facts: dict[str, Any]) -> MonitorAnswer:
    return MonitorAnswer(status, JSON, json.dumps(facts, indent=1).encode() + b"\n")


async def _answer_metrics(query: str, headers: Any) -> MonitorAnswer:
    """Answer with the metrics, for holders of METRICS_TOKEN: they reveal the vendors and the amount of mail."""
    if not settings.METRICS_TOKEN:
        return MonitorAnswer(HTTPStatus.NOT_FOUND, TEXT, b"Set METRICS_TOKEN to have metrics.\n")
    given = (headers.get("authorization") or "").encode()
    if not hmac.compare_digest(given, f"Bearer {settings.METRICS_TOKEN}".encode()):
        return MonitorAnswer(HTTPStatus.UNAUTHORIZED, TEXT, b"Authorization: Bearer METRICS_TOKEN\n")
    text = await _scrape.answer()
    if text is None:
        return MonitorAnswer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"Nothing was read in time.\n")
    return MonitorAnswer(HTTPStatus.OK, CONTENT_TYPE_LATEST, text)


ANSWERS: dict[str, Callable[[str, Any], Awaitable[MonitorAnswer]]] = {
    "/livez": _answer_livez,
    "/readyz": _answer_readyz,
    "/metrics": _answer_metrics,
}


async def answer_monitor(scope: Any, protocol: Any) -> None:
    """Answer a request for one of the paths of ANSWERS. scope and protocol: RSGI's."""
    headers = [("cache-control", "no-store")]
    if scope.method in ("GET", "HEAD"):
        status, kind, body = await ANSWERS[scope.path](scope.query_string, scope.headers)
    else:
        status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET\n"
        headers.append(("allow", "GET, HEAD"))
    protocol.response_bytes(status.value, [("content-type", kind), *headers], body)
