"""A vendor's health: its good and bad answers, counted in Redis (document 002, step 1).

The adapter says which answers are good. With fewer than min_requests answers the vendor is open. A share of good
answers below min_ratio closes it to API clients for retry_after seconds. Then one batch is the probe: its answers open
the vendor again, or close it for another retry_after seconds. All counts expire ttl seconds after the first. Jobs
continue while a vendor is closed; their answers count too and may open it.
"""

from collections.abc import Mapping, Sequence
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

LONGEST = 200  # characters of a bad answer's text
SCRIPT = Path(__file__).with_name("health.lua").read_text()


class HealthStoreUnreachable(Exception):
    """Redis does not answer. The vendor's health is unknown, so no work is accepted."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """A vendor's rules, from its row. `ttl` and `retry_after` in seconds."""

    min_requests: int
    min_ratio: float
    ttl: int
    retry_after: int

    @classmethod
    def of(cls, vendor: Vendor) -> "HealthPolicy":
        return cls(vendor.min_requests, vendor.min_ratio, vendor.health_ttl, vendor.retry_after)

    def args(self, verb: str, good: int = 0, bad: int = 0) -> list[Any]:
        ttl, pause = max(1, self.ttl), max(1, self.retry_after)
        return [verb, self.min_requests, self.min_ratio, ttl, pause, good, bad]


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """The health of a vendor.

    `state`: open; closed, for `seconds` more; half-open: the next batch is the probe; probe: this batch is the probe.
    `trouble`: the text of the last bad answer; `trouble_at`: its time.
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
    """Health of vendors, for blocking code. Every method raises HealthStoreUnreachable."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._script = redis, redis.register_script(SCRIPT)

    def admit(self, vendor_id: int, policy: HealthPolicy) -> HealthStatus:
        """Ask to accept a batch now. After a closure exactly one caller gets the state `probe`."""
        return self._ask(vendor_id, policy.args("admit"))

    def look(self, vendor_id: int, policy: HealthPolicy) -> HealthStatus:
        """Return the same status as `admit`, without taking the probe."""
        return self.looks({vendor_id: policy})[vendor_id]

    def looks(self, policies: Mapping[int, HealthPolicy]) -> dict[int, HealthStatus]:
        """Return `look` by vendor, in one round trip to Redis."""
        pipe = self._redis.pipeline(transaction=False)
        for vendor_id, policy in policies.items():
            self._script(keys=[_health_key(vendor_id)], args=policy.args("look"), client=pipe)
        try:
            replies = pipe.execute()
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error
        return {vendor_id: _parse_status(reply) for vendor_id, reply in zip(policies, replies, strict=True)}

    def note(self, vendor_id: int, policy: HealthPolicy, good: int, bad: int, trouble: str = "") -> None:
        """Count answers. `trouble`: the text of the last bad one, without recipients."""
        if good or bad:
            self._ask(vendor_id, [*policy.args("note", good, bad), trouble[:LONGEST]])

    def reset(self, vendor_id: int) -> None:
        """Forget all answers; the vendor is open."""
        try:
            self._redis.delete(_health_key(vendor_id))
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error

    def _ask(self, vendor_id: int, args: Sequence[Any]) -> HealthStatus:
        try:
            reply: Any = self._script(keys=[_health_key(vendor_id)], args=args)
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error
        return _parse_status(reply)


def _parse_status(reply: Any) -> HealthStatus:
    state, good, bad, seconds, trouble, at = reply
    when = datetime.fromtimestamp(float(at), UTC) if trouble else None
    return HealthStatus(state.decode(), int(good), int(bad), float(seconds), trouble.decode(errors="replace"), when)


def health_store(url: str) -> Health:
    """Return the process's health store for this URL, with a timeout of settings.STORE_PATIENCE seconds."""
    return _make_store(url, settings.STORE_PATIENCE)


@cache
def _make_store(url: str, patience: float) -> Health:
    return Health(redis_clients.make_client(url, patience))


class AsyncHealth:
    """The part of Health that the sender's event loop needs."""

    def __init__(self, redis: AsyncRedis) -> None:
        self._script = redis_clients.AsyncScript(redis, SCRIPT)

    async def note(self, vendor_id: int, policy: HealthPolicy, good: int, bad: int, trouble: str = "") -> None:
        """See Health.note."""
        try:
            await self._script.run_script(
                [_health_key(vendor_id)], [*policy.args("note", good, bad), trouble[:LONGEST]]
            )
        except RedisError as error:
            raise HealthStoreUnreachable(str(error)) from error


def _health_key(vendor_id: int) -> str:
    return f"mailhub:{{v{vendor_id}}}:health"
