"""Redis clients with short timeouts and without silent retries; and the registry of workers in Redis.

Each worker registers its queues and how many of their tasks it runs at the same time. It renews the entry before it
expires, so a killed worker soon disappears.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry
from redis.sentinel import Sentinel

from vendors.redis_addresses import parse_sentinels

SECONDS = 5.0
ASYNC_MOST = 1000  # connections of an event loop: while Redis stalls, each of its streams may need several
KEPT = 64  # of these, by each script
ASKED = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}  # seconds for a Sentinel; then the next one is asked


class MasterRedis(Redis):
    """A client of the master. Its end closes the connections to the Sentinels, too."""

    def close(self) -> None:
        super().close()
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            sentinel.close()


class AsyncMasterRedis(AsyncRedis):
    """A client of the master for an event loop. Its end closes the connections to the Sentinels, too."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def make_client(url: str, seconds: float = SECONDS) -> Redis:
    """Return a client with this timeout for each command. The caller closes it.

    For Sentinels, connects to the master that they name at that time; leaves a demoted one at its first refusal to
    write.
    """
    patience: Any = {"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": Retry(NoBackoff(), 0)}
    if (of := parse_sentinels(url)) is None:
        return Redis.from_url(url, **patience)
    sentinels: Any = Sentinel  # redis-py gives it no types
    sentinels = sentinels(of.nodes, sentinel_kwargs={**patience, **ASKED, **of.sentinel_login, **of.tls})
    found: Redis = sentinels.master_for(of.master, MasterRedis, db=of.database, **of.login, **of.tls, **patience)
    return found


def connect_async(url: str) -> AsyncRedis:
    """Return a client for an event loop's scripts, which have a timeout of their own that costs no task."""
    patience: Any = {"socket_timeout": None, "socket_connect_timeout": SECONDS, "retry": AsyncRetry(NoBackoff(), 0)}
    if (of := parse_sentinels(url)) is None:
        return AsyncRedis.from_url(url, max_connections=ASYNC_MOST, **patience)
    sentinels: Any = AsyncSentinel
    sentinels = sentinels(of.nodes, sentinel_kwargs={**patience, **ASKED, **of.sentinel_login, **of.tls})
    more: Any = {"max_connections": ASYNC_MOST, **of.login, **of.tls, **patience}
    found: AsyncRedis = sentinels.master_for(of.master, AsyncMasterRedis, db=of.database, **more)
    return found


class AsyncScript:
    """A Lua script for an event loop. It bypasses the client, whose overhead is as large as the script's own cost.

    It keeps connections from the client's pool, but not all those that a stall of Redis made it take, since others need
    the pool too.
    """

    def __init__(self, redis: AsyncRedis, script: str) -> None:
        self._script = redis.register_script(script)
        self._pool: Any = redis.connection_pool  # redis-py gives its methods no types
        self._kept: list[Any] = []

    async def run_script(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run the script. Raises RedisError, also after SECONDS without an answer."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self._run_script(keys, args)
        except TimeoutError as error:
            raise RedisTimeout(f"no answer within {SECONDS:g} s") from error

    async def _run_script(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        connection = self._kept.pop() if self._kept else await self._pool.get_connection()
        try:
            await self._pool.ensure_connection(connection)
            try:
                return await self._eval_script(connection, "EVALSHA", self._script.sha, keys, args)
            except NoScriptError:  # over the same connection: the pool may lack another
                return await self._eval_script(connection, "EVAL", self._script.script, keys, args)
        except BaseException:  # an answer may be on its way
            await connection.disconnect(nowait=True)
            raise
        finally:
            if len(self._kept) < KEPT:
                self._kept.append(connection)
            else:
                await self._pool.release(connection)

    async def _eval_script(
        self, connection: Any, verb: str, script: Any, keys: Sequence[str], args: Sequence[Any]
    ) -> Any:
        await connection.send_command(verb, script, len(keys), *keys, *args, check_health=False)
        return await connection.read_response()


def try_to_write(url: str, seconds: float) -> None:
    """Write a meaningless key. Raises RedisError if Redis does not answer, is read-only or out of memory."""
    with make_client(url, seconds) as client:
        client.set("mailhub:probe", 1, ex=60)


def keeps_data(url: str, seconds: float) -> bool | None:
    """Return whether Redis writes its data to disk; None if it does not answer or hides its settings."""
    with suppress(RedisError), make_client(url, seconds) as client:
        found: Any = client.config_get("appendonly", "save")
        return found["appendonly"] != "no" or bool(found["save"])
    return None


KEY = "mailhub:readers"
PATIENCE = 1.0  # seconds; timeout of the registry, for workers and pages


class WorkerRegistryUnreachable(Exception):
    """Redis does not answer, so it is unknown which workers read the queues."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, its queues, and its slots: how many of their tasks it runs at the same time.

    `adapters`: known ones from other packages, with their versions.
    """

    name: str
    queues: frozenset[str]
    slots: int
    adapters: Mapping[str, str] = field(default_factory=dict, hash=False)


def register_worker(url: str, reader: Worker, seconds: float) -> None:
    """Register the worker for this many seconds. Raises WorkerRegistryUnreachable."""
    entry = {"queues": sorted(reader.queues), "slots": reader.slots, "adapters": dict(reader.adapters)}
    entry["until"] = time.time() + seconds
    _ask_registry(_registry_client(url).hset, KEY, reader.name, json.dumps(entry))


def unregister_worker(url: str, name: str) -> None:
    """Remove the worker. Raises WorkerRegistryUnreachable."""
    _ask_registry(_registry_client(url).hdel, KEY, name)


def registered_workers(url: str) -> list[Worker]:
    """Return workers whose entry has not expired; delete expired ones. Raises WorkerRegistryUnreachable."""
    found: dict[bytes, bytes] = _ask_registry(_registry_client(url).hgetall, KEY)
    entries = {name.decode(): json.loads(entry) for name, entry in found.items()}
    if old := [name for name, entry in entries.items() if entry["until"] < time.time()]:
        _ask_registry(_registry_client(url).hdel, KEY, *old)
    fresh = {name: entry for name, entry in entries.items() if name not in old}
    return [
        Worker(name, frozenset(entry["queues"]), entry["slots"], entry.get("adapters", {}))
        for name, entry in fresh.items()
    ]


def workers_reading(queue: str, readers: Iterable[Worker]) -> list[Worker]:
    return [one for one in readers if queue in one.queues]


PROCESSES = "mailhub:processes"


def announce_process(url: str, name: str, facts: Mapping[str, str], seconds: int) -> None:
    """Tell of a process for this many seconds of Redis's clock, over a connection of its own; nothing if it is away."""
    with suppress(RedisError), make_client(url, PATIENCE) as client:
        now: Any = client.time()
        client.hset(PROCESSES, name, json.dumps({**facts, "until": now[0] + seconds}))


def announced_processes(url: str) -> dict[str, dict[str, Any]]:
    """Return the facts of processes by name; delete expired ones. Raises WorkerRegistryUnreachable."""
    now, found = _ask_registry(_registry_client(url).time)[0], _ask_registry(_registry_client(url).hgetall, PROCESSES)
    entries = {name.decode(): json.loads(entry) for name, entry in found.items()}
    if old := [name for name, entry in entries.items() if entry["until"] < now]:
        _ask_registry(_registry_client(url).hdel, PROCESSES, *old)
    return {name: entry for name, entry in entries.items() if name not in old}


def read_cached(url: str, key: str) -> bytes | None:
    """Return a cached value; None if it has expired or Redis does not answer."""
    with suppress(RedisError):
        return cast("bytes | None", _registry_client(url).get(key))
    return None


def cache_text(url: str, key: str, text: str, seconds: float) -> None:
    """Cache a text for this many seconds, if Redis answers."""
    with suppress(RedisError):
        _registry_client(url).set(key, text, px=max(1, round(1000 * seconds)))


def _ask_registry(verb: Callable[..., Any], *args: Any) -> Any:
    try:
        return verb(*args)
    except RedisError as error:
        raise WorkerRegistryUnreachable(str(error)) from error


@cache
def _registry_client(url: str) -> Redis:
    return make_client(url, PATIENCE)
