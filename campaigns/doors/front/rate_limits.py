"""Rate limits of the API: requests per minute for each key, rendering per minute for each sponsor.

Both are counted in Redis, for all processes. Requests of a batch are counted in one call. A key that has just exceeded
its limit is refused for MOMENT seconds without another count, before its request is read. RenderBudget bounds the cost
of one request's templates, for all recipients together (campaigns/texts/cost.py).
"""

import time
from functools import cache

from django.conf import settings
from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from campaigns.doors.front.problems import Problem, invalid_problem, make_error, unavailable_problem
from campaigns.doors.shares import give_way, turn_dear
from campaigns.texts.templates import Budget, OverBudget, is_intricate
from vendors import redis_clients

MOMENT = 0.5  # seconds
THOUSAND = 1_000  # steps; the counter's unit
_full: dict[tuple[int, int], float] = {}  # (key, its limit) -> time.monotonic until which it is refused


@cache
def _make_limiter(url: str, patience: float) -> SlidingWindowCounterRateLimiter:
    pool = redis_clients.make_client(url, patience).connection_pool
    return SlidingWindowCounterRateLimiter(RedisStorage(url, pool, key_prefix="mailhub:keys", wrap_exceptions=True))


def check_rate(key_id: int, per_minute: int) -> None:
    """Count one request. Raises Problem if it exceeds the limit, or if Redis does not answer."""
    if not take_requests(key_id, per_minute, 1):
        raise rate_refusal(key_id, per_minute)


def precheck_rate(key_id: int, per_minute: int) -> None:
    """Raise Problem if the key exceeded its limit a moment ago. Counts nothing."""
    until = _full.get((key_id, per_minute))
    if until and time.monotonic() < until:
        raise rate_refusal(key_id, per_minute)


def take_requests(key_id: int, per_minute: int, requests: int) -> int:
    """Count requests. Returns how many of them may be served. Raises Problem if Redis does not answer."""
    if not per_minute:
        return requests
    limit, limiter = RateLimitItemPerMinute(per_minute), _make_limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        if limiter.hit(limit, str(key_id), cost=requests):
            return requests
        granted = 0
        while granted < requests - 1 and limiter.hit(limit, str(key_id)):
            granted += 1
    except StorageError as error:
        raise unavailable_problem("The requests of this key cannot be counted") from error
    _full[key_id, per_minute] = time.monotonic() + MOMENT
    return granted


def take_render_steps(sponsor_id: int, steps: int) -> None:
    """Count rendering steps of a sponsor before they are used. Raises Problem if none are left."""
    limit, name = RateLimitItemPerMinute(max(1, settings.RENDER_STEPS // THOUSAND)), f"render {sponsor_id}"
    limiter = _make_limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        if limiter.hit(limit, name, cost=min(limit.amount, -(-steps // THOUSAND))):
            return
        wait = limiter.get_window_stats(limit, name).reset_time - time.time()
    except StorageError as error:
        raise unavailable_problem("The rendering of this sponsor cannot be counted") from error
    detail = f"The templates of this sponsor may take {settings.RENDER_STEPS:,} steps of rendering a minute."
    raise Problem("rate-limited", detail, retry_after=wait)


def subscribe_again(recipient: str, per_minute: int) -> None:
    """Count a recipient who subscribes again. Raises Problem if it is too often, or if Redis does not answer."""
    limiter = _make_limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        if limiter.hit(RateLimitItemPerMinute(per_minute), f"again {recipient}"):
            return
    except StorageError as error:
        raise unavailable_problem("Those who subscribe again cannot be counted") from error
    raise Problem("rate-limited", "This recipient subscribes again too often.", retry_after=60)


def rate_refusal(key_id: int, per_minute: int) -> Problem:
    """Return the problem for a request above the limit. Raises Problem if Redis does not answer."""
    limit, limiter = RateLimitItemPerMinute(per_minute), _make_limiter(settings.REDIS_URL, settings.STORE_PATIENCE)
    try:
        window = limiter.get_window_stats(limit, str(key_id))
    except StorageError as error:
        raise unavailable_problem("The requests of this key cannot be counted") from error
    wait = max(1, round(window.reset_time - time.time()))
    headers = {
        "RateLimit-Policy": f'"key";q={per_minute};w=60',
        "RateLimit": f'"key";r={window.remaining};t={wait}',
    }
    detail = f"This key may ask {per_minute:,} times a minute."
    return Problem("rate-limited", detail, retry_after=wait, headers=headers)


REQUEST_STEPS = 1_000_000  # about a quarter of a second
FREE = 4_000  # about a millisecond, not counted: the limit of requests bounds it
LIGHT = 12_000  # steps after which a request needs a turn for expensive work
GRANTED = 1_000  # steps after which a request yields to others
LARGEST = 16_000  # steps counted at a time, so that one request does not use up the minute in one go


class RenderBudget(Budget):
    """Counts a sponsor's steps before they are used, so work refused midway is counted too."""

    def __init__(self, sponsor_id: int) -> None:
        self._sponsor_id = sponsor_id
        self._portion, self._drawn, self._counted = FREE, 0, 0

    def foresee(self, *templates: str) -> None:
        """Check templates before they are compiled. Raises TurnsOutDear if they take long without a turn for that."""
        if is_intricate(*templates):
            turn_dear()

    def draw_steps(self) -> int:
        give_way()
        if not self._counted:
            self._counted = self._granted_steps()
        granted = min(self._counted, GRANTED)
        self._counted -= granted
        return granted

    def draw_portion(self) -> int:
        granted, self._counted = self._counted or self._granted_steps(), 0
        return granted

    def _granted_steps(self) -> int:
        if self._drawn >= REQUEST_STEPS:
            detail = f"up to here the request takes more than {REQUEST_STEPS:,} steps to render: send fewer at a time"
            raise OverBudget(f"{detail}, or say it with fewer rounds and smaller fields")
        if self._drawn >= LIGHT:
            turn_dear()
        portion = min(self._portion, REQUEST_STEPS - self._drawn)
        if self._drawn:
            self._count_steps(portion)
        self._drawn += portion
        self._portion = min(2 * portion, LARGEST)
        return portion

    def _count_steps(self, steps: int) -> None:
        try:
            take_render_steps(self._sponsor_id, steps)
        except Problem as problem:
            raise OverBudget(problem.detail) from problem


def budget_problem(over: OverBudget, pointer: str) -> Problem:
    """Return the client's answer: the request is too expensive, or the sponsor's minute is used up."""
    if isinstance(over.__cause__, Problem):
        return over.__cause__
    return invalid_problem([make_error(pointer, "budget", str(over))])
