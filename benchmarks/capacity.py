"""What a message costs each part: processor time of sender, PostgreSQL and Redis, bytes of WAL and of disk.

`python -m benchmarks.capacity [messages] [rounds]`. From these figures docs/explanation/capacity.md says what each
part carries: a part's processor time a message, turned round, is what one core of it can take. Redis is measured by
itself too, by its own count of its processor time: grants of one place, as where the limit binds, and of a hundred.
"""

import os
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import recipients
from benchmarks.results import keep
from benchmarks.sending import login
from benchmarks.stage import console, numbers, stage
from tests import programs, sandbox

GRANTS = 5_000
TICKS = os.sysconf("SC_CLK_TCK")


def processes() -> list[tuple[int, int, int, float, float]]:
    """(pid, parent, group, seconds of its own, seconds of its children that have ended) of all there are."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = file.read_text().partition(" (")
        except OSError:
            continue  # ended meanwhile
        fields = rest.rpartition(") ")[2].split()
        own, ended = (sum(map(int, fields[at : at + 2])) / TICKS for at in (11, 13))
        found.append((int(pid), int(fields[1]), int(fields[2]), own, ended))
    return found


def worker_seconds(group: int) -> float:
    return sum(own for _, _, its, own, _ in processes() if its == group)


def postgres_seconds() -> float:
    """The server's and those of all its processes, also the ended ones."""
    from django.conf import settings

    master = int((settings.MAILHUB_HOME / "postgres" / "postmaster.pid").read_text().split()[0])
    ours = [one for one in processes() if master in one[:2]]
    return sum(own for _, _, _, own, _ in ours) + sum(ended for pid, *_, ended in ours if pid == master)


def redis_seconds() -> float:
    from django.conf import settings

    from vendors import redis_clients

    with redis_clients.connect(settings.REDIS_URL) as redis:
        cpu: Any = redis.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def asked(statement: str) -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return float(cursor.fetchone()[0])


def counters(group: int) -> dict[str, float]:
    """All that grows while mail is sent."""
    return {
        "sender, us of CPU": 1e6 * worker_seconds(group),
        "PostgreSQL, us of CPU": 1e6 * postgres_seconds(),
        "Redis, us of CPU": 1e6 * redis_seconds(),
        "WAL, bytes": asked("SELECT pg_current_wal_insert_lsn() - '0/0'"),
    }


def one_job(messages: int) -> dict[str, float]:
    """What a message costs from the notification until it is in the ground truth."""
    from campaigns.dispatch import dispatcher
    from campaigns.models import Job
    from campaigns.notifications import notify_vendors

    def deliver(size: int) -> None:
        job = recipients.job(size, made)
        dispatcher.dispatch_ready([job.pk])
        before.update(counters(program.process.pid))
        notify_vendors([job.vendor_id])
        programs.wait_until(Job.objects.filter(pk=job.pk, status="LOGGED").exists, "all is sent", 600)

    with sandbox.running() as vendor:
        made, before = login(vendor.url), dict[str, float]()
        with programs.worker(processes=1, queues=f"hub,{made.vendor.queue}", LEASE_SECONDS="15") as program:
            deliver(1000)  # to warm up
            deliver(messages)
            after = counters(program.process.pid)
    return {name: (value - before[name]) / messages for name, value in after.items()}


def grants(places: int) -> float:
    """Grants for each second of Redis's processor time: each is asked for, used and handed back."""
    from django.conf import settings

    from vendors import redis_clients
    from vendors.limits.throttle import Throttle
    from vendors.limits.values import Grant, Limit, Scope

    with redis_clients.connect(settings.REDIS_URL) as redis:
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
                time.sleep(1.1)  # the windows of the round are over
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
