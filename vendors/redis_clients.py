"""The one way to a Redis that is asked while somebody waits: short timeouts, and no retry that nobody sees."""

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

SECONDS = 5.0


def redis(url: str, seconds: float = SECONDS) -> Redis:
    """A client that gives up after so many seconds. Close it."""
    return Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0))


def async_redis(url: str, seconds: float = SECONDS) -> AsyncRedis:
    """The same for an event loop."""
    retry = AsyncRetry(NoBackoff(), 0)
    return AsyncRedis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=retry)
