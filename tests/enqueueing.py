"""A job in the hands of a sender that has only copied its messages to ops."""

import asyncio

from campaigns.claiming import claims
from campaigns.connections import connect
from campaigns.models import Job


def enqueue(lease: claims.Lease, low: int, high: int) -> bool:
    """On a connection of its own, as a sender's."""

    async def run() -> bool:
        rows = await connect()
        try:
            return await claims.enqueue(rows, lease, low, high)
        finally:
            await rows.close()

    return asyncio.run(run())


def started(job: Job) -> claims.Lease:
    """The notification has arrived; all messages are in ops, none is called."""
    lease = claims.take(job.pk, job.fence)
    assert lease and claims.start(lease) and enqueue(lease, job.first_message, job.end)
    return lease
