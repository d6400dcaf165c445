"""The cost of a message by part: processor time of sender, PostgreSQL and Redis, bytes of WAL and of disk.

`python -m benchmarks.capacity [messages] [rounds]`. docs/explanation/capacity.md derives from these the capacity of
each part: one core carries the reciprocal of the processor time a message. Redis is also measured alone, by its own
count of processor time: grants of one place, as when the limit binds, and of a hundred.
"""

import statistics
import time
from typing import Any

from benchmarks import recipients
from benchmarks.installation import Installation
from benchmarks.results import keep
from benchmarks.sending import LOOK, login
from benchmarks.stage import console, numbers, stage
from tests import sandbox
from tests.waiting import wait_until

GRANTS = 5_000


def redis_seconds() -> float:
    from django.conf import settings

    from vendors import redis_clients

    with redis_clients.make_client(settings.REDIS_URL) as redis:
        cpu: Any = redis.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def asked(statement: str) -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return float(cursor.fetchone()[0])


def counters(at: Installation) -> dict[str, float]:
    """Return the counters that grow while mail is sent."""
    spent = {f"{part}, us of CPU": 1e6 * seconds for part, seconds in at.seconds().items()}
    return {**spent, "WAL, bytes": asked("SELECT pg_current_wal_insert_lsn() - '0/0'")}


def one_job(messages: int) -> dict[str, float]:
    """Return the cost of a message from the notification until it is in the ground truth."""
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job

    def deliver(size: int) -> None:
        job = recipients.job(size, made)
        dispatcher.dispatch_ready([job.pk])
        before.update(counters(at))
        notify_vendors([job.vendor_id])
        wait_until(Job.objects.filter(pk=job.pk, status="LOGGED").exists, "all is sent", 600, LOOK)

    with sandbox.running() as vendor:
        made, before = login(vendor.url), dict[str, float]()
        with Installation().workers() as at:
            deliver(1000)  # to warm up
            deliver(messages)
            after = counters(at)
    return {name: (value - before[name]) / messages for name, value in after.items()}


def grants(places: int) -> float:
    """Return grants for each second of Redis's processor time; each is requested, used and returned."""
    from django.conf import settings

    from vendors import redis_clients
    from vendors.limits.throttle import Throttle
    from vendors.limits.values import Grant, Limit, Scope

    with redis_clients.make_client(settings.REDIS_URL) as redis:
        throttle = Throttle(redis)
        scope = Scope(10**6 + places, 1, 1, vendor_limits=(Limit(10**6, 1.0),))
        throttle.rebuild(scope.vendor_id, 1, 60.0, [])
        before = redis_seconds()
        for _ in range(GRANTS):
            grant = throttle.acquire(scope, places, 10.0)
            assert isinstance(grant, Grant), grant
            assert grant.units == places
            throttle.done(scope, grant.places())
        return GRANTS / (redis_seconds() - before)


def main() -> None:
    messages, rounds = numbers(50_000, 3)
    costs: dict[str, list[float]] = {}
    redis: dict[str, list[float]] = {}
    with stage():
        for _ in range(rounds):
            for name, value in one_job(messages).items():
                costs.setdefault(name, []).append(value)
            for places in (1, 100):
                redis.setdefault(f"grants of {places}", []).append(grants(places))
                time.sleep(1.1)  # until the windows of the round have ended
        disk = asked("SELECT pg_total_relation_size('campaigns_message')::float / count(*) FROM campaigns_message")
    costs["message's row and index on the disk, bytes"] = [disk]
    for title, unit, rows in (
        (f"Cost of a message, in jobs of {messages:,}", "a message", costs),
        ("What one core of Redis grants", "grants/s", redis),
    ):
        keep(title, unit, rows)
        console.print(title)
        for name, values in rows.items():
            console.print(f"  {name:45} {statistics.median(values):12,.1f} ({min(values):,.1f}..{max(values):,.1f})")


if __name__ == "__main__":
    main()
