"""How often a key may ask: so many requests in any minute, counted in Redis over all processes.

Requests that are served together are counted together, by one question. A key that has just asked too often is
believed to be so for a moment: it is turned away at the door, before its requests are read. What its templates cost
to render is counted apart, for all keys of a sponsor together.

What the templates of one request may cost to render, all recipients together (campaigns/content/cost.py).
"""

import time
from functools import cache

from django.conf import settings
from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from campaigns.content.cost import Budget, OverBudget
from mailhub.front.problems import Problem, error, invalid, unavailable
from vendors import redis_clients

MOMENT = 0.5  # seconds
THOUSAND = 1_000  # steps are counted by thousands
_full: dict[tuple[int, int], float] = {}  # keys, with their limit, that asked too often, until when it is believed


@cache
def _limiter(url: str, patience: float) -> SlidingWindowCounterRateLimiter:
    pool = redis_clients.connect(url, patience).connection_pool
    return SlidingWindowCounterRateLimiter(RedisStorage(url, pool, key_prefix="mailhub:keys", wrap_exceptions=True))


def check(key_id: int, per_minute: int) -> None:
    """Counts one request. Raises Problem when it is one too many, or when it cannot be counted."""
    if not take(key_id, per_minute, 1):
        raise refusal(key_id, per_minute)


def precheck(key_id: int, per_minute: int) -> None:
    """Counts nothing. Raises Problem if the key asked too often a moment ago."""
    until = _full.get((key_id, per_minute))
    if until and time.monotonic() < until:
        raise refusal(key_id, per_minute)


def take(key_id: int, per_minute: int, requests: int) -> int:
    """Counts so many requests; how many of them may be served. Raises Problem when they cannot be counted."""
    if not per_minute:
        return requests
    limit, limiter = RateLimitItemPerMinute(per_minute), _limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        if limiter.hit(limit, str(key_id), cost=requests):
            return requests
        granted = 0
        while granted < requests - 1 and limiter.hit(limit, str(key_id)):
            granted += 1
    except StorageError as error:
        raise unavailable("The requests of this key cannot be counted") from error
    _full[key_id, per_minute] = time.monotonic() + MOMENT
    return granted


def render(sponsor_id: int, steps: int) -> None:
    """Counts steps of rendering, of all keys of a sponsor, before they are taken. Raises Problem if there are none."""
    limit, name = RateLimitItemPerMinute(max(1, settings.RENDER_STEPS // THOUSAND)), f"render {sponsor_id}"
    limiter = _limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        if limiter.hit(limit, name, cost=min(limit.amount, -(-steps // THOUSAND))):
            return
        wait = limiter.get_window_stats(limit, name).reset_time - time.time()
    except StorageError as error:
        raise unavailable("The rendering of this sponsor cannot be counted") from error
    detail = f"The templates of this sponsor may take {settings.RENDER_STEPS:,} steps of rendering a minute."
    raise Problem("rate-limited", detail, retry_after=wait)


def refusal(key_id: int, per_minute: int) -> Problem:
    """What a request too many is told. Raises Problem when that cannot be found out."""
    limit, limiter = RateLimitItemPerMinute(per_minute), _limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        window = limiter.get_window_stats(limit, str(key_id))
    except StorageError as error:
        raise unavailable("The requests of this key cannot be counted") from error
    wait = max(1, round(window.reset_time - time.time()))
    headers = {
        "RateLimit-Policy": f'"key";q={per_minute};w=60',
        "RateLimit": f'"key";r={window.remaining};t={wait}',
    }
    detail = f"This key may ask {per_minute:,} times a minute."
    return Problem("rate-limited", detail, retry_after=wait, headers=headers)


REQUEST_STEPS = 1_000_000  # a quarter of a second
FREE = 4_000  # a millisecond, which the limit of requests bounds already
LARGEST = 16_000  # steps that are counted at a time: then others have their turn


class RenderBudget(Budget):
    """Steps are counted for the sponsor before they are taken, so what is refused in the middle is counted too."""

    def __init__(self, sponsor_id: int) -> None:
        self._sponsor_id = sponsor_id
        self._portion, self._drawn = FREE, 0

    def draw(self) -> int:
        if self._drawn >= REQUEST_STEPS:
            told = f"up to here the request takes more than {REQUEST_STEPS:,} steps to render: send fewer at a time"
            raise OverBudget(f"{told}, or say it with fewer rounds and smaller fields")
        portion = min(self._portion, REQUEST_STEPS - self._drawn)
        if self._drawn:
            self._count(portion)
        self._drawn += portion
        self._portion = min(2 * portion, LARGEST)
        return portion

    def _count(self, steps: int) -> None:
        try:
            render(self._sponsor_id, steps)
        except Problem as problem:
            raise OverBudget(problem.detail) from problem


def over_budget(over: OverBudget, pointer: str) -> Problem:
    """What the client is told: the request is too dear, or the sponsor has had its share of this minute."""
    if isinstance(over.__cause__, Problem):
        return over.__cause__
    return invalid([error(pointer, "budget", str(over))])
