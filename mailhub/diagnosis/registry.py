"""The checks and their runner: one after the other, each within its time.

A silent server is asked once. Checks that need it are then left out, so the whole takes bounded time.
mailhub/management/probe_checks.py adds the checks that ask the probes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread

from django.db import connection

from mailhub.diagnosis import machine_health as machine
from mailhub.diagnosis import postgres_health as postgres
from mailhub.diagnosis import process_health as processes
from mailhub.diagnosis import redis_health as redis
from mailhub.diagnosis.verdicts import HealthVerdict, InstallationCheck, VerdictLevel, error_of, warning_of

SECONDS = 5.0  # for each check
STATEMENT = 0.8  # part of it for a statement: a slow statement is not a hanging server

DATABASE, REDIS, BROKER = "database", "redis", "broker"
_ROWS, _KEYS, _BOTH = frozenset({DATABASE}), frozenset({REDIS}), frozenset({DATABASE, REDIS})

SERVER_CHECKS = (
    InstallationCheck(DATABASE, postgres.look_at_server, _ROWS),
    InstallationCheck(REDIS, redis.look_at_server, _KEYS),
)
CHECKS = (
    InstallationCheck("versions", machine.look_at_versions),
    InstallationCheck("storing", processes.look_at_bounds, _ROWS, is_cheap=True),
    InstallationCheck("durability", postgres.look_at_durability, _ROWS, is_cheap=True),
    InstallationCheck("commits", postgres.look_at_commits, _ROWS, is_cheap=True),
    InstallationCheck("sessions", postgres.look_at_sessions, _ROWS),
    InstallationCheck("isolation", postgres.look_at_isolation, _ROWS),
    InstallationCheck("standbys", postgres.look_at_replication, _ROWS, is_cheap=True),
    InstallationCheck("vacuum", postgres.look_at_vacuum, _ROWS),
    InstallationCheck("transactions", postgres.look_at_transactions, _ROWS, is_cheap=True),
    InstallationCheck("ids", postgres.look_at_numbers, _ROWS, is_cheap=True),
    InstallationCheck("postgres-clock", postgres.look_at_clock, _ROWS, is_cheap=True),
    InstallationCheck("postgres-disk", machine.look_at_postgres_disk, _ROWS),
    InstallationCheck("clocks", processes.look_at_stored_moments, _ROWS, is_cheap=True),
    InstallationCheck("redis-policy", redis.look_at_policy, frozenset({REDIS, BROKER})),
    InstallationCheck("redis-disk", redis.look_at_persistence, _KEYS, is_cheap=True),
    InstallationCheck("redis-memory", redis.look_at_memory, _KEYS, is_cheap=True),
    InstallationCheck("replicas", redis.look_at_replication, _KEYS, is_cheap=True),
    InstallationCheck("redis-clock", redis.look_at_clock, _KEYS, is_cheap=True),
    InstallationCheck("disk", machine.look_at_disks),
    InstallationCheck("files", machine.look_at_descriptors),
    InstallationCheck("keys", machine.look_at_keys),
    InstallationCheck("https", machine.look_at_https),
    InstallationCheck("identities", machine.look_at_identities, _ROWS),
    InstallationCheck("quotas", machine.look_at_quotas, _ROWS),
    InstallationCheck("fonts", machine.look_at_fonts, _ROWS),
    InstallationCheck("queues", processes.look_at_queues, _BOTH),
    InstallationCheck("processes", processes.look_at_processes, _BOTH),
)
SERVERS = {DATABASE: "PostgreSQL", REDIS: "Redis", BROKER: "the broker"}


def examine_installation(checks: Iterable[InstallationCheck], seconds: float = SECONDS) -> Iterator[HealthVerdict]:
    """Run the checks, each within its limit of seconds. Yields the verdicts in their order."""
    away: set[str] = set()
    for check in checks:
        if missing := sorted(check.needs & away):
            yield _left_out(check, missing[0])
            continue
        found = _run_in_time(check, seconds)
        if found is None:
            away |= check.needs
            found = [_hanging_verdict(seconds)]
        elif check.name in SERVERS and any(one.level is VerdictLevel.ERROR for one in found):
            away.add(check.name)
        for one in found:
            yield one if one.name else replace(one, name=check.name)


def _run_in_time(check: InstallationCheck, seconds: float) -> list[HealthVerdict] | None:
    """Run the check in a thread of its own, with its own session; None if it hangs."""
    answer: SimpleQueue[list[HealthVerdict]] = SimpleQueue()

    def run_check() -> None:
        try:
            if DATABASE in check.needs:
                postgres.bound_statements(STATEMENT * seconds)
            answer.put(list(check.look()))
        except Exception as error:  # a server's client may raise anything
            answer.put([_unanswered_verdict(check, error)])
        finally:
            connection.close()

    Thread(target=run_check, name=f"doctor {check.name}", daemon=True).start()
    try:
        return answer.get(timeout=seconds)
    except Empty:
        return None


def _hanging_verdict(seconds: float) -> HealthVerdict:
    return error_of(
        f"no answer within {seconds:g} s",
        "Look whether that server hangs, or ask again with --seconds",
    )


def _unanswered_verdict(check: InstallationCheck, error: Exception) -> HealthVerdict:
    sentence = next(iter(str(error).splitlines()), "") or type(error).__name__
    if check.name in SERVERS:
        remedy = "Start it, or mend its address and log-in in the environment"
        return error_of(f"{SERVERS[check.name]} does not answer, or refuses: {sentence}", remedy)
    return warning_of(
        f"this cannot be seen: {sentence}",
        "Give mailhub's role the right, or look there yourself",
    )


def _left_out(check: InstallationCheck, missing: str) -> HealthVerdict:
    return warning_of(f"not asked, as {SERVERS[missing]} is away", "Mend that first", check.name)


def find_cheaply() -> list[HealthVerdict]:
    """Run the cheap checks in this thread and return the faults, worst first.

    Raises Django's database errors; leaves Redis out while it is away.
    """
    found: list[HealthVerdict] = []
    for check in CHECKS:
        if check.is_cheap:
            look = redis.skip_while_away(check.look) if REDIS in check.needs else check.look
            found += [one for one in look() if one.level is not VerdictLevel.OK]
    return sorted(found, key=lambda one: one.level is not VerdictLevel.ERROR)


def list_troubles() -> list[str]:
    """Return the findings of the cheap checks as sentences, for /readyz; mailhub still works with these faults."""
    try:
        return [str(one) for one in find_cheaply()]
    finally:
        connection.close()
