"""A sender's way to the vendor's window: places in it, when it opens again, and places that come back."""

import logging
import time
from datetime import datetime
from typing import Any

from campaigns import failpoints
from campaigns.claiming import limits
from campaigns.claiming.claims import LeasedJob
from campaigns.sending.claimers import Need
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Scope, Wait

log = logging.getLogger(__name__)

LEAD = 1.0  # seconds before a place is free at which a job is taken again: its sender is ready then


class Permits:
    """For one job. hold: seconds within which a call under a grant has surely ended."""

    def __init__(self, throttle: AsyncThrottle, work: LeasedJob, hold: float) -> None:
        self._throttle, self._work, self._hold = throttle, work, hold

    async def acquire(
        self, rows: Any, scope: Scope, need: Need, note: str, patience: float
    ) -> tuple[AcquireResult, datetime | None]:
        """What the throttle answers; and, where the wait is longer than `patience`, until when no caster need try.

        note: what for; Redis remembers it. Raises Unreachable.
        """
        answer = await self._ask(scope, need, note)
        if not isinstance(answer, Wait) or answer.seconds <= patience:
            return answer, None
        opens_at = await limits.full(rows, self._work.credential_id, answer.seconds - LEAD)
        # Whoever cancels places clears that row, but may have done it just before it was written.
        answer = await self._ask(scope, need, note)
        if isinstance(answer, Grant):
            await limits.reopen(rows, self._work.vendor_id)
        return answer, opens_at

    async def _ask(self, scope: Scope, need: Need, note: str) -> AcquireResult:
        if not need.least:
            return Grant("", 0, time.monotonic() + self._hold)
        return await self._throttle.acquire(scope, need.want, self._hold, need.least, note)

    async def done(self, scope: Scope, places: list[str]) -> None:
        """Their calls are over."""
        failpoints.here("before_done")
        try:
            await self._throttle.done(scope, places)
        except ThrottleUnreachable:  # they run out by themselves, later
            log.warning("job %s: places could not be handed back", self._work.lease.job_id)
        failpoints.here("after_done")

    async def cancel(self, rows: Any, scope: Scope, places: list[str]) -> None:
        """No call was started for them: somebody else may have them at once."""
        try:
            await self._throttle.cancel(scope, places)
        except ThrottleUnreachable:
            log.warning("job %s: places could not be handed back", self._work.lease.job_id)
        else:
            await limits.reopen(rows, self._work.vendor_id)
