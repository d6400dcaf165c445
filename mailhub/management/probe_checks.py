"""The checks of `doctor` that ask /readyz's probes or read the Procfile, and the list of all checks."""

from collections.abc import Iterator

from django.conf import settings

from campaigns.engine.connections import CLAIMING, RECORDING
from campaigns.engine.failover import guard
from campaigns.engine.threads import BLOCKING
from mailhub import environment
from mailhub.diagnosis import postgres_health as postgres
from mailhub.diagnosis import registry
from mailhub.diagnosis.verdicts import HealthVerdict, InstallationCheck, VerdictLevel, all_well, error_of, warning_of
from mailhub.management.commands.up import process_formation
from mailhub.monitoring import probes


def look_at_broker() -> Iterator[HealthVerdict]:
    """Check that the broker answers and takes messages within the probes' time-out."""
    probes.probe_broker()
    yield all_well(f"the broker answers within {probes.SECONDS:g} s")


def look_at_beat() -> Iterator[HealthVerdict]:
    """Check that beat sends tasks."""
    if not (fault := probes.probe_database()["beat"]):
        yield all_well("beat sends tasks")
        return
    level = VerdictLevel.WARNING if probes.beat_sent_at() is None else VerdictLevel.ERROR
    yield HealthVerdict(level, fault, "Start the Procfile's beat; workers sweep without it, and nothing else")


def look_at_calls() -> Iterator[HealthVerdict]:
    """Check that calls may start."""
    if fault := probes.probe_database()["calls"]:
        yield error_of(fault, "Decide it: manage.py recover_store")
    else:
        yield all_well("calls may start")


def look_at_tables() -> Iterator[HealthVerdict]:
    """Check that the tables are those of this version, and that a message can be stored."""
    if why := guard.another_version():
        yield error_of(why, "Start that version, or restore the database of this one")
    elif guard.has_unapplied() or (why := guard.tables_unfit_reason()):
        yield error_of(
            why or "migrations of this version are not applied",
            "Say manage.py migrate",
        )
    elif why := probes.probe_storing()["storing"]:
        yield error_of(why, "Say manage.py audit; free space, or call the partition function again")
    else:
        yield all_well("the tables are those of this version, and store messages")


def count_connections(processes: dict[str, str]) -> int:
    """Return how many sessions these processes of the Procfile (up.process_formation) may open at the same time."""
    of_front = settings.WEB_THREADS + 2 + len(probes.CHECKS)  # docs/how-to/scale.md; each probe has its own
    by_line = {
        "web": of_front,
        "api": of_front,
        "beat": 1,
        "worker-hub": 1 + int(environment.number_setting("HUB_PROCESSES", 2)),
        "worker-vendors": 2 + BLOCKING + CLAIMING + RECORDING,
        "worker-webhooks": 1 + 2 * int(environment.number_setting("WEBHOOK_PROCESSES", 2)),
        "bounces": 2,
    }
    return sum(by_line.get(name.partition(".")[0], 0) for name in processes)


FEWEST_FREE = 5
SESSIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""


def look_at_connections() -> Iterator[HealthVerdict]:
    """Check that PostgreSQL allows the sessions that the processes of one machine open."""
    [(most, used)] = postgres.read_rows(SESSIONS)
    wanted = count_connections(process_formation())
    remedy = f"Raise max_connections, by {wanted} for each machine like this"
    if used > most - FEWEST_FREE:
        yield error_of(f"{used} of {most} sessions are in use", remedy)
    elif wanted > most:
        yield warning_of(
            f"the Procfile's processes may open {wanted} sessions, and PostgreSQL allows {most}",
            remedy,
        )
    else:
        yield all_well(f"{used} of {most} sessions are in use; the Procfile's processes may open {wanted}")


ROWS = frozenset({registry.DATABASE})
# The servers come first: what needs them is left out if they are away.
CHECKS = (
    *registry.SERVER_CHECKS,
    InstallationCheck(registry.BROKER, look_at_broker, frozenset({registry.BROKER})),
    InstallationCheck("migrations", look_at_tables, ROWS),
    InstallationCheck("calls", look_at_calls, ROWS),
    InstallationCheck("beat", look_at_beat, ROWS),
    InstallationCheck("connections", look_at_connections, ROWS),
    *registry.CHECKS,
)
