"""How often a key may ask: so many requests in any minute, counted in Redis over all processes."""

import time
from functools import cache

from django.conf import settings
from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from mailhub.front.problems import Problem, unavailable
from vendors import stores


@cache
def _limiter(url: str, patience: float) -> SlidingWindowCounterRateLimiter:
    pool = stores.redis(url, patience).connection_pool
    return SlidingWindowCounterRateLimiter(RedisStorage(url, pool, key_prefix="mailhub:keys", wrap_exceptions=True))


def check(key_id: int, per_minute: int) -> None:
    """Counts one request. Raises Problem when it is one too many, or when it cannot be counted."""
    if not per_minute:
        return
    limit, limiter = RateLimitItemPerMinute(per_minute), _limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        if limiter.hit(limit, str(key_id)):
            return
        window = limiter.get_window_stats(limit, str(key_id))
    except StorageError as error:
        raise unavailable("The requests of this key cannot be counted") from error
    wait = max(1, round(window.reset_time - time.time()))
    headers = {
        "RateLimit-Policy": f'"key";q={per_minute};w=60',
        "RateLimit": f'"key";r={window.remaining};t={wait}',
    }
    detail = f"This key may ask {per_minute:,} times a minute."
    raise Problem("rate-limited", detail, retry_after=wait, headers=headers)
