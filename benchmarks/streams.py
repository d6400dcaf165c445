"""What a sender process costs that carries many streams: memory, processor time, connections to PostgreSQL.

`python -m benchmarks.streams [streams ...]`. One `worker-vendors` as the Procfile starts it, and for each stream a
vendor whose limit is one call in four seconds, with a long list: the stream waits nearly all the time, and stays.
Memory is the process's own (PSS); processor time is that of half a minute, in the process and in PostgreSQL. It may go
up with the streams; the connections may not.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results import keep
from benchmarks.stage import console, numbers, stage

WINDOW = (1, 4.0)
SECONDS = 30.0
LONG = 40  # messages of a list


def memory(pid: int) -> float:
    """MB of memory that belong to the process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def processor(pids: list[int]) -> float:
    """Seconds of processor time that the processes have used."""
    used = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def backends() -> list[int]:
    """The processes of PostgreSQL that serve others than this one."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in cursor.fetchall()]


@contextmanager
def sending(streams: int, url: str) -> Iterator[int]:
    """A worker with so many streams; yields its process id."""
    from campaigns.models import Job
    from campaigns.tasks import notify_vendors
    from tests import factories, programs
    from tests.waiting import wait_until

    options = ("-P", "threads", "-c", str(max(1, streams)), "-Q", "vendors", "--without-mingle", "--without-gossip")
    with programs.running("-m", "celery", "-A", "mailhub", "worker", *options, CELERY_LOG_LEVEL="INFO") as program:
        wait_until(lambda: program.said(" ready."), "the worker is ready")
        jobs = []
        for _ in range(streams):
            made = factories.vendor(settings={"url": url}, limits=[WINDOW])
            factories.caster(made)
            jobs.append(factories.campaign_with_job(LONG, of=factories.credential(made), status="DISPATCHED"))
        notify_vendors(job.vendor_id for job in jobs)
        mine = Job.objects.filter(pk__in=[job.pk for job in jobs], status="SENDING", accepted__gt=0)
        wait_until(lambda: mine.count() == streams, f"{streams} streams", 300.0)
        yield program.process.pid
        for job in jobs:
            job.vendor.mailcasters.update(enabled=False)
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(status="STOPPED", heartbeat_at=None)


def measure(streams: int, url: str) -> tuple[float, float, float, int]:
    """(MB, processor ms a second of the process, of PostgreSQL, connections) with so many streams."""
    with sending(streams, url) as pid:
        time.sleep(5)
        ours, most, theirs = processor([pid]), 0, {one: processor([one]) for one in backends()}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            most = max(most, len(backends()))
            time.sleep(0.5)
        postgres = sum(processor([one]) - theirs.get(one, 0.0) for one in backends())
        return memory(pid), 1000 * (processor([pid]) - ours) / SECONDS, 1000 * postgres / SECONDS, most


def main() -> None:
    asked = numbers(0, 100, 300, 500)
    with stage():
        from tests.sandbox import running

        with running() as vendor:
            found = {streams: measure(streams, vendor.url) for streams in asked}
    console.print(f"A sender process with streams that wait for a limit of {WINDOW[0]} in {WINDOW[1]:g} s")
    for streams, (size, ours, postgres, connections) in found.items():
        console.print(
            f"{streams:5} streams: {size:6.1f} MB, {ours:6.1f} ms/s in the process, "
            f"{postgres:6.1f} ms/s in PostgreSQL, {connections} connections"
        )
    keep("Memory of a sender process by its streams", "MB", {f"{n} streams": [row[0]] for n, row in found.items()})


if __name__ == "__main__":
    main()
