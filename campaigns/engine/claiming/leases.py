"""Leases of jobs, renewed for all streams of an event loop together.

A lease is renewed only if its stream has reported itself alive since the last renewal. A stream that hangs loses its
job, as it would if its process hung.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from campaigns.engine.claiming.letters import Lease
from campaigns.engine.threads import LOCKED_SECONDS, cut_off
from vendors import alarms

log = logging.getLogger(__name__)

# Locked jobs are skipped, so that one job keeps no other from being renewed, and this statement cannot deadlock with
# another one that locks many jobs.
HELD = """
    SELECT j.id FROM unnest(%(jobs)s::bigint[], %(fences)s::int[]) AS l(job, fence)
    JOIN campaigns_job j ON j.id = l.job AND j.fence = l.fence AND j.status IN ('SENDING', 'STOPPED')
"""
RENEW = f"""
WITH held AS ({HELD}), renewed AS (
    UPDATE campaigns_job SET heartbeat_at = clock_timestamp()
    WHERE id = ANY(ARRAY({HELD} FOR NO KEY UPDATE OF j SKIP LOCKED)) RETURNING id
)
SELECT id FROM held WHERE id <> ALL(ARRAY(SELECT id FROM renewed))
"""


async def renew_leases(connection: Any, leases: Sequence[Lease]) -> set[int]:
    """Renew the leases that are still valid. A stopped job keeps its lease until its calls in flight are recorded.

    Returns the locked jobs, whose leases were not renewed.
    """
    params = {"jobs": [lease.job_id for lease in leases], "fences": [lease.fence for lease in leases]}
    rows = await connection.execute(RENEW, params)
    return {job_id for (job_id,) in await rows.fetchall()}


class Leases:
    """Renews the leases of all streams of an event loop, every HEARTBEAT_SECONDS.

    rows: connections on which nobody waits for the lock of a job.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._kept: set[Lease] = set()
        self._alive: set[Lease] = set()
        self._locked: set[Lease] = set()  # retried until unlocked: their streams may wait for the same lock
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def kept(self, lease: Lease) -> Iterator[Callable[[], None]]:
        """Renew the lease inside the block, provided that the stream keeps calling the yielded function."""
        if not self._tasks:
            self._start_task(self._beat_hearts())
        self._kept.add(lease)
        try:
            yield lambda: self._alive.add(lease)
        finally:
            for of in (self._kept, self._alive, self._locked):
                of.discard(lease)

    async def close(self) -> None:
        await cut_off(*self._tasks)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _beat_hearts(self) -> None:
        while True:
            await asyncio.sleep(settings.HEARTBEAT_SECONDS)
            alive, self._alive = self._alive - self._locked, set()
            if alive:  # not awaited: while one connection hangs, another one renews the leases
                self._start_task(self._renew_kept(alive))

    async def _renew_kept(self, leases: set[Lease]) -> None:
        try:
            while leases := leases & self._kept:
                async with asyncio.timeout(settings.LEASE_SECONDS / 3):
                    locked = await renew_leases(self._rows, list(leases))
                self._locked -= leases
                leases = {lease for lease in leases & self._kept if lease.job_id in locked}
                self._locked |= leases
                if leases:
                    await asyncio.sleep(LOCKED_SECONDS)
        except Exception as error:  # the streams notice it, and end if it lasts
            alarms.LEASES_NOT_RENEWED.log(log, len(leases), error)
            self._locked -= leases
