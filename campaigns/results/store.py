"""The result store of document 002: key/value servers, each with the results of its share of the sessions.

A session's server is a stable hash of its id modulo their number; the number is written to the session, so servers can
be added at the end of settings.RESULT_URLS while there are sessions. Results hold no recipient's address, and expire.
"""

import zlib
from functools import cache
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from redis import Redis, RedisError

from vendors import redis_clients


class ResultStoreUnreachable(Exception):
    """This result server is away. The truth in PostgreSQL remains."""


def shard_of(session: UUID) -> int:
    return zlib.crc32(session.bytes) % len(settings.RESULT_URLS)


def put_result(shard: int, session: UUID, result: dict[str, Any]) -> None:
    """For settings.RESULT_TTL. Raises Unreachable."""
    blob = zlib.compress(orjson.dumps(result), 1)
    try:
        _server(shard).set(_key(session), blob, ex=settings.RESULT_TTL)
    except RedisError as error:
        raise ResultStoreUnreachable(str(error)) from error


def get(shard: int, session: UUID) -> dict[str, Any] | None:
    """None: it has expired, or is lost. Raises Unreachable."""
    if shard >= len(settings.RESULT_URLS):
        return None
    try:
        blob: Any = _server(shard).get(_key(session))
    except RedisError as error:
        raise ResultStoreUnreachable(str(error)) from error
    return orjson.loads(zlib.decompress(blob)) if blob else None


def _server(shard: int) -> Redis:
    return _client(settings.RESULT_URLS[shard], settings.STORE_PATIENCE)


@cache
def _client(url: str, patience: float) -> Redis:
    return redis_clients.redis(url, patience)


def _key(session: UUID) -> str:
    return f"mailhub:result:{session.hex}"
