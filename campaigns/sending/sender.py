"""From the bell to letting go: take the job, stream its messages, leave it in the right state."""

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
    """What came of one bell: was the job ours to send, and when it may go on if something is left and not stopped."""

    job_id: int
    ours: bool = True
    left: bool = False
    until: datetime | None = None


class Sender:
    """Sends jobs one after the other, for one thread. What it opens for one it keeps for the next, until `close`."""

    def __init__(self) -> None:
        self._connections = Connections()
        self._loop: LoopThread | None = None

    def send(self, job_id: int, fence: int, stopping: Callable[[], bool] = bool) -> Sent:
        """Sends the job that a caster claimed under this fence. A doubled or late bell does nothing.

        stopping: asked several times a second; once true, open calls are finished and the rest is put back.
        """
        lease = claims.take(job_id, fence)
        if lease is None:
            return Sent(job_id, ours=False)
        try:
            work = claims.load(lease)
        except Exception as error:
            log.exception("job %s cannot be sent", job_id)
            until = recording.in_a_minute()
            recording.put_back(job_id, lease.fence, not_before=until, waits_for=f"cannot be sent: {error}")
            return Sent(job_id, left=True, until=until)
        if not claims.start(lease):  # stopped meanwhile
            return Sent(job_id)
        end: StreamEnd | None = None
        while (end is None or end.drained) and not recording.drain(_connected(), lease, work.first, work.end):
            due = recording.due(_connected(), lease, work.first, work.end) if end else None
            end = put_off(due) if due else self._run(self._stream(work, stopping))
            if not end.drained:
                _connected()
                held = end.until if end.held else None
                left = recording.put_back(job_id, lease.fence, not_before=held, waits_for=end.words, paused=end.paused)
                return Sent(job_id, left=left, until=end.until if left else None)
        return Sent(job_id)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run(self._connections.close())
            self._loop.close()
            self._loop = None

    async def _stream(self, work: LeasedJob, stopping: Callable[[], bool]) -> StreamEnd:
        async with self._connections.to_vendor(work.credential_id, work.way, work.adapter) as adapter:
            return await Stream(replace(work, adapter=adapter), self._connections, stopping).run()

    def _run(self, work: Coroutine[Any, Any, StreamEnd]) -> StreamEnd:
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop.run(work)


def send(job_id: int, fence: int, stopping: Callable[[], bool] = bool) -> Sent:
    """One job by a sender of its own: see Sender.send."""
    with closing(Sender()) as sender:
        return sender.send(job_id, fence, stopping)


def _connected() -> Any:
    """This process's connection; the one from before hours in the loop may be gone."""
    if connection.connection is not None and not connection.is_usable():
        connection.close()
    connection.ensure_connection()
    return connection.connection
