"""Leases of jobs, renewed for all streams of an event loop together.

Only that of a stream is renewed that has said since the last time that it lives: one that hangs loses its job, as it
would with its process.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from psycopg import Error as RowsError

from campaigns.claiming import claims
from campaigns.claiming.letters import Lease

log = logging.getLogger(__name__)

# What is locked is not waited for, so that one job keeps no other from being renewed, nor two who lock many of them
# wait for each other in a circle.
RENEW = """
UPDATE campaigns_job SET heartbeat_at = clock_timestamp() WHERE id = ANY(ARRAY(
    SELECT j.id FROM unnest(%(jobs)s::bigint[], %(fences)s::int[]) AS l(job, fence)
    JOIN campaigns_job j ON j.id = l.job AND j.fence = l.fence AND j.status IN ('SENDING', 'STOPPED')
    FOR NO KEY UPDATE OF j SKIP LOCKED
)) RETURNING id
"""


async def renew(connection: Any, leases: Sequence[Lease]) -> set[int]:
    """Renews the leases of those that nobody has locked; returns which jobs that were."""
    params = {"jobs": [lease.job_id for lease in leases], "fences": [lease.fence for lease in leases]}
    rows = await connection.execute(RENEW, params)
    return {job_id for (job_id,) in await rows.fetchall()}


class Leases:
    """Renews those of all streams of an event loop, every HEARTBEAT_SECONDS."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._alive: set[Lease] = set()
        self._alone: set[Lease] = set()  # whose job was locked: each is renewed when that is over
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def kept(self, lease: Lease) -> Iterator[Callable[[], None]]:
        """In the block the lease is renewed for as long as the stream calls this often enough: it lives."""
        if not self._tasks:
            self._start(self._renew())
        try:
            yield lambda: self._alive.add(lease)
        finally:
            self._alive.discard(lease)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(settings.HEARTBEAT_SECONDS)
            alive, self._alive = self._alive - self._alone, set()
            if not alive:
                continue
            try:
                renewed = await renew(self._rows, list(alive))
            except Exception as error:  # the streams find out by themselves, and end if it lasts
                log.info("%s leases are not renewed: %s", len(alive), error)
                continue
            for lease in alive:
                if lease.job_id not in renewed:
                    self._alone.add(lease)
                    self._start(self._renew_alone(lease))

    async def _renew_alone(self, lease: Lease) -> None:
        """Waits for whoever has locked the job: who waits for it behind us finds the lease renewed."""
        try:
            await claims.heartbeat(self._rows, lease)
        except RowsError as error:
            log.info("the lease of job %s is not renewed: %s", lease.job_id, error)
        finally:
            self._alone.discard(lease)
