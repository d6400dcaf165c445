"""Whether a vendor is in good health: its good and bad answers, counted in Redis (document 002, step 1).

What is good the adapter says. The rule is the one of the Post Office: fewer answers than min_requests pass; a share of
good answers under min_ratio (equal is not under) closes the vendor to programs for retry_after seconds. Then one batch
may probe: its answers open the vendor again, or close it for as long. All counts are forgotten ttl seconds after the
first. Campaigns are not stopped by it: their answers count, and may open it as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

from vendors import redis_clients
from vendors.models import Vendor

LONGEST = 200  # characters of what a bad answer said
SCRIPT = Path(__file__).with_name("health.lua").read_text()


class HealthStoreUnreachable(Exception):
    """The status store is away: nobody knows whether the vendor is in health, so no work is taken."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Of one vendor, as its row has them. ttl and retry_after in seconds."""

    min_requests: int
    min_ratio: float
    ttl: int
    retry_after: int

    @classmethod
    def of(cls, vendor: Vendor) -> "HealthPolicy":
        return cls(vendor.min_requests, vendor.min_ratio, vendor.health_ttl, vendor.retry_after)

    def words(self, verb: str, good: int = 0, bad: int = 0) -> list[Any]:
        ttl, pause = max(1, self.ttl), max(1, self.retry_after)
        return [verb, self.min_requests, self.min_ratio, ttl, pause, good, bad]


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """state: open; closed for so many seconds more; half-open: the next batch is the probe; probe: this batch is.

    trouble: what the last bad answer said, and when.
    """

    state: str
    good: int
    bad: int
    seconds: float
    trouble: str = ""
    trouble_at: datetime | None = None

    @property
    def accepting(self) -> bool:
        return self.state != "closed"

    def __str__(self) -> str:
        share = "no answers yet" if self.ratio is None else f"{self.ratio:.0%} good of {self.good + self.bad:,}"
        return f"{self.state} for {self.seconds:.0f} s, {share}" if self.seconds else f"{self.state}, {share}"

    @property
    def ratio(self) -> float | None:
        total = self.good + self.bad
        return self.good / total if total else None


class Health:
    """For code that may block. Every verb raises Unreachable."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._script = redis, redis.register_script(SCRIPT)

    def admit(self, vendor_id: int, terms: HealthPolicy) -> HealthStatus:
        """May a batch be taken for this vendor now? Of the many that ask when its pause is over, one is the probe."""
        return self._ask(vendor_id, terms.words("admit"))

    def look(self, vendor_id: int, terms: HealthPolicy) -> HealthStatus:
        """The same without consequences."""
        return self._ask(vendor_id, terms.words("look"))

    def note(self, vendor_id: int, terms: HealthPolicy, good: int, bad: int, trouble: str = "") -> None:
        """So many more answers; trouble: what the last bad one said, which names nobody."""
        if good or bad:
            self._ask(vendor_id, [*terms.words("note", good, bad), trouble[:LONGEST]])

    def reset(self, vendor_id: int) -> None:
        """Forget all answers: the vendor is open."""
        try:
            self._redis.delete(_key(vendor_id))
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error

    def _ask(self, vendor_id: int, words: Sequence[Any]) -> HealthStatus:
        try:
            reply: Any = self._script(keys=[_key(vendor_id)], args=words)
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error
        state, good, bad, seconds, trouble, at = reply
        when = datetime.fromtimestamp(float(at), UTC) if trouble else None
        return HealthStatus(state.decode(), int(good), int(bad), float(seconds), trouble.decode(errors="replace"), when)


def at(url: str) -> Health:
    """The status store of this address, one client for a process; unreachable after settings.STORE_PATIENCE."""
    return _client(url, settings.STORE_PATIENCE)


@cache
def _client(url: str, patience: float) -> Health:
    return Health(redis_clients.connect(url, patience))


class AsyncHealth:
    """For the sender's event loop, which only counts."""

    def __init__(self, redis: AsyncRedis) -> None:
        self._script = redis.register_script(SCRIPT)

    async def note(self, vendor_id: int, terms: HealthPolicy, good: int, bad: int, trouble: str = "") -> None:
        """See Health.note."""
        try:
            await self._script(keys=[_key(vendor_id)], args=[*terms.words("note", good, bad), trouble[:LONGEST]])
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error


def _key(vendor_id: int) -> str:
    return f"mailhub:{{v{vendor_id}}}:health"
