"""Checks of the Redis servers: memory, persistence, replicas, clock. Settings that a hosted one hides are unknown."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.conf import settings

from campaigns.engine.failover import durability
from mailhub import checks
from mailhub.diagnosis.postgres_health import judge_clock
from mailhub.diagnosis.verdicts import HealthVerdict, all_well, error_of, judge_message, warning_of
from vendors import redis_clients
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

SECONDS = 2.0  # for each answer
OLDEST = (6, 2)  # docs/how-to/install.md
FULL = 0.8  # part of maxmemory
LAG_SECONDS = 10


def _ask_redis(verb: Callable[[Any], Iterator[HealthVerdict]]) -> Iterator[HealthVerdict]:
    with redis_clients.make_client(settings.REDIS_URL, SECONDS) as client:
        yield from verb(client)


def look_at_server() -> Iterator[HealthVerdict]:
    """Check that the throttle's Redis answers and takes writes, and its version."""
    redis_clients.try_to_write(settings.REDIS_URL, SECONDS)
    yield from _ask_redis(_check_redis_version)


def _check_redis_version(client: Any) -> Iterator[HealthVerdict]:
    known: Any = client.info("server")
    version = str(known["redis_version"])
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        yield error_of(
            f"Redis is of version {version}",
            "Upgrade it to 6.2 or later, or use Valkey",
        )
    else:
        shown = f"Valkey {known['valkey_version']}" if "valkey_version" in known else f"Redis {version}"
        yield all_well(f"{shown} answers")


def look_at_policy() -> Iterator[HealthVerdict]:
    """Check that Redis drops nothing when its memory is full (mailhub/checks.py)."""
    found = checks.redis_keeps_all()
    for one in found:
        yield judge_message(one)
    if not found:
        yield all_well("its maxmemory-policy is noeviction")


def look_at_persistence() -> Iterator[HealthVerdict]:
    """Check that Redis keeps its data over a restart, and that its last writes to the disk succeeded."""
    found = list(durability.redis_weaknesses())
    for one in found:
        yield warning_of(one.sentence, one.remedy)
    troubles = list(_ask_redis(_check_last_writes))
    yield from troubles
    if not found and not troubles:
        yield all_well("Redis writes its data to disk")


def _check_last_writes(client: Any) -> Iterator[HealthVerdict]:
    known: Any = client.info("persistence")
    for name in ("rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status"):
        if known.get(name, "ok") != "ok":
            yield error_of(
                Said(
                    gettext_noop("Redis could not write its data: %(name)s is %(value)s"), name=name, value=known[name]
                ),
                Said(gettext_noop("Read its log; most likely its disk is full")),
            )


def look_at_memory() -> Iterator[HealthVerdict]:
    """Check the memory of Redis, and for dropped keys."""
    yield from _ask_redis(_check_memory)


def _check_memory(client: Any) -> Iterator[HealthVerdict]:
    memory: Any = client.info("memory")
    stats: Any = client.info("stats")
    used, most = memory["used_memory"], memory.get("maxmemory", 0)
    megabytes = round(used / 2**20)
    if stats.get("evicted_keys", 0):
        yield error_of(
            Said(
                gettext_noop("keys that Redis has dropped for want of memory: %(count)s"), count=stats["evicted_keys"]
            ),
            Said(gettext_noop("Set maxmemory-policy noeviction, and give it more memory")),
        )
    if most and used > FULL * most:
        yield warning_of(
            Said(gettext_noop("Redis uses %(used)s MB of %(most)s MB"), used=megabytes, most=round(most / 2**20)),
            Said(gettext_noop("Raise maxmemory, or lower RESULT_DAYS")),
        )
    else:
        yield all_well(f"Redis uses {megabytes} MB")


def look_at_replication() -> Iterator[HealthVerdict]:
    """Check that Redis is not a replica, and the lag of its replicas."""
    yield from _ask_redis(_check_replication)


def _check_replication(client: Any) -> Iterator[HealthVerdict]:
    known: Any = client.info("replication")
    if known["role"] != "master":
        yield error_of(
            Said(gettext_noop("this Redis is a replica, and takes no writes")),
            Said(gettext_noop("Let REDIS_URL name the primary")),
        )
        return
    replicas = [one for name, one in known.items() if name.startswith("slave") and isinstance(one, dict)]
    for one in replicas:
        if one.get("state") != "online" or one.get("lag", 0) > LAG_SECONDS:
            yield warning_of(
                Said(
                    gettext_noop("the replica %(address)s of Redis is %(state)s and %(seconds)s s behind"),
                    address=f"{one['ip']}:{one['port']}", state=one.get("state", ""), seconds=one.get("lag", 0),
                ),
                Said(gettext_noop("Look at its network and memory")),
            )  # fmt: skip
    yield all_well(f"replicas of Redis: {len(replicas)}")


def look_at_clock() -> Iterator[HealthVerdict]:
    """Compare Redis's clock with this machine's."""
    yield from _ask_redis(_check_redis_clock)


def _check_redis_clock(client: Any) -> Iterator[HealthVerdict]:
    client.ping()  # connects
    began, steady = time.time(), time.monotonic()
    seconds, micros = client.time()
    half = (time.monotonic() - steady) / 2
    yield judge_clock("Redis", seconds + micros / 1e6 - began - half, half)


def skip_while_away(look: Callable[[], Iterable[HealthVerdict]]) -> Callable[[], Iterator[HealthVerdict]]:
    """Return the check without its errors, for pages that report an unavailable Redis elsewhere."""

    def _look_or_skip() -> Iterator[HealthVerdict]:
        try:
            yield from look()
        except Exception as error:  # it is away, or hides its state from this user
            log.info("Redis does not tell its state: %s", error)

    return _look_or_skip
