"""The one way to a Redis that is asked while somebody waits: short timeouts, and no retry that nobody sees.

Which workers read which queues, and how many jobs each can send at once: they say so themselves, in Redis.

A worker repeats it before its word runs out, so one that was killed is forgotten soon.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

SECONDS = 5.0


def connect(url: str, seconds: float = SECONDS) -> Redis:
    """A client that gives up after so many seconds. Close it."""
    return Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0))


def connect_async(url: str, seconds: float = SECONDS) -> AsyncRedis:
    """The same for an event loop."""
    retry = AsyncRetry(NoBackoff(), 0)
    return AsyncRedis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=retry)


KEY = "mailhub:readers"
PATIENCE = 1.0  # seconds; neither a worker nor a page waits longer for Redis


class WorkerRegistryUnreachable(Exception):
    """Nobody knows who reads the queues."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker: the queues that it reads, and slots: how many of their tasks run at once."""

    name: str
    queues: frozenset[str]
    slots: int


def register_worker(url: str, reader: Worker, seconds: float) -> None:
    """This worker reads these queues, for so many seconds if it does not say so again. Raises Unreachable."""
    words = {"queues": sorted(reader.queues), "slots": reader.slots, "until": time.time() + seconds}
    _ask(_client(url).hset, KEY, reader.name, json.dumps(words))


def unregister_worker(url: str, name: str) -> None:
    """This worker reads no more. Raises Unreachable."""
    _ask(_client(url).hdel, KEY, name)


def registered_workers(url: str) -> list[Worker]:
    """Those whose word has not run out; others are forgotten for good. Raises Unreachable."""
    found: dict[bytes, bytes] = _ask(_client(url).hgetall, KEY)
    told = {name.decode(): json.loads(words) for name, words in found.items()}
    if old := [name for name, words in told.items() if words["until"] < time.time()]:
        _ask(_client(url).hdel, KEY, *old)
    fresh = {name: words for name, words in told.items() if name not in old}
    return [Worker(name, frozenset(words["queues"]), words["slots"]) for name, words in fresh.items()]


def workers_reading(queue: str, readers: Iterable[Worker]) -> list[Worker]:
    return [one for one in readers if queue in one.queues]


def _ask(verb: Callable[..., Any], *words: Any) -> Any:
    try:
        return verb(*words)
    except RedisError as error:
        raise WorkerRegistryUnreachable(str(error)) from error


@cache
def _client(url: str) -> Redis:
    return connect(url, PATIENCE)
