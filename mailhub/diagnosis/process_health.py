"""Checks of mailhub's own processes: workers, their queues and versions, and what they stored."""

from collections.abc import Iterator

from django.conf import settings

from campaigns.engine.audit import leftover_bounds
from campaigns.reporting.forecast import streams
from mailhub import running_versions, stored_moments, worker_queues
from mailhub.diagnosis.postgres_health import read_rows
from mailhub.diagnosis.verdicts import HealthVerdict, all_well, error_of, warning_of
from mailhub.running_versions import ProgramVersion, RunningProcess
from vendors import redis_clients, restarts
from vendors.said import Said, gettext_noop

NAMED = 5  # queues named in a sentence


def look_at_queues() -> Iterator[HealthVerdict]:
    """Check that a worker reads every queue, and that senders begin jobs in time."""
    late = streams.late_alarms(streams.streams_of_vendors())
    for sentence in late:
        yield error_of(sentence, "Start worker-vendors, or do what the sentence says")
    workers = redis_clients.registered_workers(settings.REDIS_URL)
    unread = [name for name in worker_queues.queues_to_read() if not redis_clients.workers_reading(name, workers)]
    if not workers:
        yield warning_of("no worker runs", "Start the Procfile's workers: manage.py up")
    elif unread:
        named = ", ".join(unread[:NAMED]) + (", ..." if len(unread) > NAMED else "")
        yield error_of(
            f"no worker reads the queues {named}",
            "Start a worker for each: docs/how-to/install.md names them",
        )
    elif not late:
        yield all_well(f"each queue has a worker; workers: {len(workers)}")


OTHER_VERSIONS = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name ~ '^mailhub( |$)'
    AND application_name <> current_setting('application_name')
GROUP BY 1 ORDER BY 1
"""


def look_at_processes() -> Iterator[HealthVerdict]:
    """Check that no process runs another version of the program, or of an adapter."""
    there = [*find_other_versions(), *(warning_of(one, "Restart it") for one in restarts.needed_restarts())]
    yield from there or [all_well("all processes are of this version")]


def find_other_versions() -> Iterator[HealthVerdict]:
    """Find processes of another version than this command. Raises WorkerRegistryUnreachable."""
    for name, count in read_rows(OTHER_VERSIONS):
        yield warning_of(
            f"sessions of another version, {name}: {count}",
            "Restart those processes; pg_stat_activity names their machines",
        )
    own, callers = running_versions.version_of_this_process(), running_versions.read_callers()
    for process in running_versions.read_processes():
        if process.program != own:
            yield warning_of(_describe_other(process, own, callers), "Restart it")


def _describe_other(process: RunningProcess, own: ProgramVersion, callers: set[str]) -> str:
    runs = f"{process.name} runs {process.program.version}"
    if process.program.tables not in callers:
        return f"{runs}, and these are not its tables: it calls nobody"
    if process.program.tables != own.tables:
        return f"{runs} of other tables than this command: the older one may go on until the next migrate"
    return f"{runs}, and this command is {own.version}"


def look_at_bounds() -> Iterator[HealthVerdict]:
    """Find constraints that refuse messages."""
    for one in leftover_bounds.find_leftover_bounds():
        yield error_of(one, leftover_bounds.REMEDY)


def look_at_stored_moments() -> Iterator[HealthVerdict]:
    """Find stored times that lay in the future when mailhub corrected them, within the last hour."""
    for one in stored_moments.found_lately():
        yield warning_of(one, Said(gettext_noop("Set the clocks of all machines by NTP")))
