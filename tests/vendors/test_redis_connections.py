"""Connections to Redis that a sender's loop shares: none is lost by a stall, nor by a Redis that forgets scripts."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.private_redis import PrivateRedis
from vendors import redis_clients
from vendors.health import AsyncHealth, HealthPolicy
from vendors.limits.throttle import AsyncThrottle, Lost, Scope, ThrottleUnreachable

pytestmark = pytest.mark.slow("servers")

HOLD = 60.0


def test_after_a_stall_of_redis_its_connections_are_free_for_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_clients, "ASYNC_MOST", 20)
    monkeypatch.setattr(redis_clients, "KEPT", 2)

    async def stall(redis: Any, other: Any) -> None:
        throttle, health = AsyncThrottle(redis), AsyncHealth(redis)
        scope = Scope(1, 1, 1)
        assert await throttle.acquire(scope, 1, HOLD) == Lost()
        await other.execute_command("CLIENT", "PAUSE", 300)
        ends = await asyncio.gather(*(throttle.done(scope, ["x:1"]) for _ in range(40)), return_exceptions=True)
        assert sum(isinstance(end, ThrottleUnreachable) for end in ends) == 20, "more than it may open"
        for _ in range(2):
            await asyncio.gather(*(health.note(1, HealthPolicy(10, 0.5, 60, 60), 1, 0) for _ in range(4)))
            await asyncio.gather(*(throttle.acquire(scope, 1, HOLD) for _ in range(4)))
            await other.script_flush()

    _with_redis(stall)


def test_a_script_that_redis_has_forgotten_needs_no_second_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_clients, "ASYNC_MOST", 1)

    async def forgets(redis: Any, other: Any) -> None:
        throttle = AsyncThrottle(redis)
        for _ in range(3):
            assert await throttle.acquire(Scope(1, 1, 1), 1, HOLD) == Lost()
            await other.script_flush()

    _with_redis(forgets)


def test_a_redis_that_hangs_is_given_up_by_old_and_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_clients, "SECONDS", 0.3)

    async def hangs(redis: Any, other: Any) -> None:
        throttle, scope = AsyncThrottle(redis), Scope(1, 1, 1)
        assert await throttle.acquire(scope, 1, HOLD) == Lost()
        os.kill((await other.info("server"))["process_id"], signal.SIGSTOP)
        for _ in range(2):  # the second one has to open a connection
            with pytest.raises(ThrottleUnreachable, match=r"no answer within 0\.3 s"):
                await throttle.acquire(scope, 1, HOLD)

    _with_redis(hangs)


def _with_redis(story: Callable[[Any, Any], Awaitable[None]]) -> None:
    """With a client of a sender's loop, and another one of the same Redis, that of this test alone."""
    server = PrivateRedis()

    async def whole() -> None:
        redis, other = redis_clients.connect_async(server.url), redis_clients.connect_async(server.url)
        try:
            await story(redis, other)
        finally:
            await redis.aclose()
            await other.aclose()

    try:
        asyncio.run(whole())
    finally:
        server.end()
