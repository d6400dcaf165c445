"""Requesting and returning the permits of vendors."""

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from campaigns.engine import failpoints
from campaigns.engine.claiming import limits
from campaigns.engine.claiming.limits import Need
from vendors import alarms
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Scope, Wait

log = logging.getLogger(__name__)


class Permits:
    """Requests permits from the throttle and returns them. rows: executes statements like a database connection."""

    def __init__(self, throttle: AsyncThrottle, rows: Any) -> None:
        self._throttle, self._rows = throttle, rows

    async def acquire_permits(
        self, scope: Scope, need: Need, hold: float, note: str, waiter: str = ""
    ) -> tuple[AcquireResult, datetime | None]:
        """Return (the throttle's answer, until when mailcasters need not try).

        The second item is None unless the wait is longer than PATIENCE. hold: seconds within which a call is certain to
        have ended; note: kept by Redis beside the grant; waiter: see Throttle.acquire. Raises ThrottleUnreachable.
        """
        answer = await self._ask_throttle(scope, need, hold, note, waiter)
        if not isinstance(answer, Wait) or answer.seconds <= limits.PATIENCE:
            return answer, None
        opens_at = await limits.mark_limit_full(self._rows, scope.credential_id, answer.seconds - limits.LEAD)
        # A sender that cancels permits clears this row, but may have done so just before it was written.
        answer = await self._ask_throttle(scope, need, hold, note, waiter)
        if isinstance(answer, Grant):
            await limits.undo_full(self._rows, scope.vendor_id)
        return answer, opens_at

    async def _ask_throttle(self, scope: Scope, need: Need, hold: float, note: str, waiter: str) -> AcquireResult:
        if not need.least:
            return Grant("", 0, time.monotonic() + hold)
        return await self._throttle.acquire(scope, need.want, hold, need.least, note, waiter, need.letters, need.asker)

    async def done(
        self, scope: Scope, permits: Sequence[str], receivers: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Return the permits of calls that have ended. receivers: as in Throttle.done."""
        failpoints.here("before_done")
        try:
            await self._throttle.done(scope, permits, receivers)
        except ThrottleUnreachable:  # they expire anyway
            alarms.PERMITS_NOT_RETURNED.log(log, scope.vendor_id)
        failpoints.here("after_done")

    async def cancel_permits(self, scope: Scope, permits: Sequence[str], counted: bool = False) -> None:
        """Return permits whose calls never started. They can be granted again immediately.

        counted: the ledger may contain them, so the windows keep them too.
        """
        try:
            await self._throttle.cancel(scope, permits, counted)
        except ThrottleUnreachable:
            alarms.PERMITS_NOT_RETURNED.log(log, scope.vendor_id)
        else:
            await limits.undo_full(self._rows, scope.vendor_id)
