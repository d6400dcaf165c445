"""What a sender does with the rows of a job, one statement at a time; whether it calls is up to the test."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from campaigns.engine.claiming import claims, contexts
from campaigns.engine.claiming.claims import ClaimedMessage, Lease, OpenClaim, PermittedCall
from campaigns.engine.connections import open_connection
from campaigns.engine.lifecycle import merge_answers
from campaigns.engine.sending import recording
from campaigns.models import Job
from vendors.outcomes import Outcome

T = TypeVar("T")


def costs(message_id: int) -> int:
    """The units that a call of this message takes, each time."""
    return 1 + message_id % 3


def started(job: Job) -> Lease:
    """The notification has arrived; nothing is claimed."""
    begun = claims.start_job(job.pk, job.fence)
    assert begun
    return begun.lease


def by_sender(step: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Runs the step on a connection of its own, as a sender's."""

    async def run() -> T:
        rows = await open_connection()
        try:
            return await step(rows)
        finally:
            await rows.close()

    return asyncio.run(run())


async def claim(rows: Any, job: Job, lease: Lease, most: int = 1, **more: Any) -> claims.Claimed:
    """Claims like a sender, up to the moment before the first call."""
    [seen] = await contexts.read_contexts(rows, [contexts.Read(lease, job.vendor_id, job.credential_id)])
    one = asked(job, lease, most=most, destination=seen.scope.destination, **more)
    [claimed] = await claims.claim_for_jobs(rows, await to_claim(rows, job, lease), [one])
    return claimed


def asked(job: Job, lease: Lease, **more: Any) -> claims.ToClaim:
    """For the whole job from its start."""
    return claims.ToClaim(**{"lease": lease, "cursor": job.first_message, "end": job.end, "most": 1, **more})


async def to_claim(rows: Any, job: Job, lease: Lease) -> dict[str, Any]:
    """What a claim of the credential's jobs has to know."""
    [seen] = await contexts.read_contexts(rows, [contexts.Read(lease, job.vendor_id, job.credential_id)])
    return {
        "vendor": job.vendor_id, "limits_version": seen.limits_version, "hold": 5.0, "adoptions": seen.adoptions,
        "credential": job.credential_id, "generation": seen.scope.generation,
    }  # fmt: skip


async def append(rows: Any, lease: Lease, of: OpenClaim, answers: Iterable[tuple[int, Outcome]]) -> None:
    """Stores what calls of the claim came to: (message, outcome)."""
    results = [
        recording.CallResult(PermittedCall(ClaimedMessage(id, "", "", {}), of, ("permit",) * costs(id), 0.0), outcome)
        for id, outcome in answers
    ]
    await recording.append_results(rows, [recording.JobResults(lease, results)])


async def answer(rows: Any, lease: Lease, of: OpenClaim, answers: Iterable[tuple[int, Outcome]]) -> None:
    """Stores them and merges them into the messages."""
    await append(rows, lease, of, answers)
    await merge_answers(rows, [lease.job_id])
