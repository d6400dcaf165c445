"""Step 6, send: takes a job that a notification names, streams its messages, and leaves it in the right state."""

import logging
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection

from campaigns.claiming import claims
from campaigns.claiming.claims import LeasedJob
from campaigns.connections import Connections, LoopThread
from campaigns.sending import recording
from campaigns.sending.recording import StreamEnd, put_off
from campaigns.sending.stream import Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a notification. ours: the job was ours to send; left: something waits; until: when it may go on."""

    job_id: int
    ours: bool = True
    left: bool = False
    until: datetime | None = None


class Sender:
    """Sends jobs one after the other, in one thread. Connections stay open from job to job until `close`."""

    def __init__(self) -> None:
        self._connections = Connections()
        self._loop: LoopThread | None = None

    def send(self, job_id: int, fence: int, stopping: Callable[[], bool] = bool) -> Sent:
        """Sends the job that a mailcaster claimed under this fence. A doubled or late notification does nothing.

        stopping: asked several times a second; once true, open calls are finished and the rest is put back.
        """
        lease = claims.take(job_id, fence)
        if lease is None:
            return Sent(job_id, ours=False)
        try:
            job = claims.load(lease)
        except Exception as error:
            log.exception("job %s cannot be sent", job_id)
            until = recording.in_a_minute()
            recording.put_back(job_id, lease.fence, not_before=until, waits_for=f"cannot be sent: {error}")
            return Sent(job_id, left=True, until=until)
        if not claims.start(lease):  # stopped meanwhile
            return Sent(job_id)
        end: StreamEnd | None = None
        while (end is None or end.drained) and not recording.drain(_connected(), lease, job.first, job.end):
            due = recording.due(_connected(), lease, job.first, job.end) if end else None
            end = put_off(due) if due else self._run(self._stream(job, stopping))
            if not end.drained:
                _connected()
                held = end.until if end.held else None
                left = recording.put_back(job_id, lease.fence, not_before=held, waits_for=end.reason, paused=end.paused)
                return Sent(job_id, left=left, until=end.until if left else None)
        return Sent(job_id)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run(self._connections.close())
            self._loop.close()
            self._loop = None

    async def _stream(self, job: LeasedJob, stopping: Callable[[], bool]) -> StreamEnd:
        async with self._connections.to_vendor(job.credential_id, job.connection_key, job.adapter) as adapter:
            return await Stream(replace(job, adapter=adapter), self._connections, stopping).run()

    def _run(self, job: Coroutine[Any, Any, StreamEnd]) -> StreamEnd:
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop.run(job)


def send(job_id: int, fence: int, stopping: Callable[[], bool] = bool) -> Sent:
    """Sends one job by a sender of its own; see Sender.send."""
    with closing(Sender()) as sender:
        return sender.send(job_id, fence, stopping)


def _connected() -> Any:
    """The process's connection, made anew if it was lost while the loop ran."""
    if connection.connection is not None and not connection.is_usable():
        connection.close()
    connection.ensure_connection()
    return connection.connection
