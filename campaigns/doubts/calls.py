"""Calls outside a stream, one at a time, for whoever settles doubts: under the limits, gates and ledger of a stream's.

The order is the same: places in the vendor's window, then the statement that allows the call and writes the ledger in
one commit, then the call; and what the vendor says of the login, the account or waiting is acted upon.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from campaigns.claiming import limits
from campaigns.claiming.rebuild import rebuild_lost
from vendors.adapters.base import Adapter
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import Grant, Lost, Never, Scope, Wait
from vendors.outcomes import RETRY_DEFAULT, InDoubt, NotSent, Outcome

log = logging.getLogger(__name__)

SLACK = 2.0  # seconds between a grant and the start of the call under it
PATIENCE = 5.0  # seconds that all calls together wait for places
UNANSWERED = 3  # calls in a row without a clear answer, after which the vendor is left alone
REBUILDS = 20  # each raises the generation by one; Redis may be so far ahead of a database that was restored

SingleOutcome = Outcome | None
Allow = Callable[[Scope], Awaitable[bool | None]]


class CredentialClosed(Exception):
    """Nobody may be called over this credential now; no call was made."""


class SingleCalls:
    """One credential's. `over`: why no more calls should be made, as the last answer has it; empty: go on."""

    def __init__(
        self, adapter: Adapter, vendor_id: int, credential_id: int, throttle: AsyncThrottle, rows: Any
    ) -> None:
        self._adapter, self._vendor_id, self._credential_id = adapter, vendor_id, credential_id
        self._throttle, self._rows = throttle, rows
        self._patience, self._unanswered = PATIENCE, 0
        self.over = ""

    @property
    def hold(self) -> float:
        """Seconds after which a call that was allowed has surely ended."""
        return self._adapter.deadline + SLACK

    async def call(self, units: int, allow: Allow, start: Callable[[], Awaitable[SingleOutcome]]) -> SingleOutcome:
        """A call that costs so many units. Raises Shut; NotSent also where `allow` says no.

        allow: the statement; None: the way is shut by now.
        """
        found = await self._place(units)
        if isinstance(found, Never):
            return NotSent(f"it costs {units}, more than the limit of {found.units}")
        scope, grant = found
        allowed = await allow(scope)
        if not allowed:
            await self._hand_back(self._throttle.cancel, scope, grant)
            await limits.reopen(self._rows, self._vendor_id)
            if allowed is None:
                raise CredentialClosed("paused, closed or under other terms by now")
            return NotSent("not allowed any more: stopped, settled, or it took too long")
        answer = await self._in_time(grant, start)
        await self._hand_back(self._throttle.done, scope, grant)
        await self._act_upon(answer)
        return answer

    async def _place(self, units: int) -> tuple[Scope, Grant] | Never:
        for _ in range(REBUILDS):
            scope = await limits.read_vendor(self._rows, self._vendor_id, self._credential_id)
            if scope is None:
                raise CredentialClosed("paused or closed")
            try:
                answer = await self._throttle.acquire(scope, units, self.hold, units)
                if isinstance(answer, Lost):
                    await rebuild_lost(scope)  # no sender has asked since the window was lost
            except ThrottleUnreachable as error:
                raise CredentialClosed(f"the throttle's Redis cannot be reached: {error}") from error
            if isinstance(answer, Grant):
                return scope, answer
            if isinstance(answer, Never):
                return answer
            if not isinstance(answer, Lost):
                await self._wait(answer)
        raise CredentialClosed("no place in the vendor's window")

    async def _wait(self, answer: Any) -> None:
        """For a place that is free soon; senders want it, too."""
        if not isinstance(answer, Wait) or answer.seconds > self._patience:
            raise CredentialClosed("no place in the vendor's window")
        self._patience -= answer.seconds
        await asyncio.sleep(answer.seconds)

    async def _hand_back(self, verb: Any, scope: Scope, grant: Grant) -> None:
        try:
            await verb(scope, grant.places())
        except ThrottleUnreachable:  # they run out by themselves, later
            log.warning("vendor %s: places could not be handed back", self._vendor_id)

    async def _in_time(self, grant: Grant, start: Callable[[], Awaitable[SingleOutcome]]) -> SingleOutcome:
        if time.monotonic() > grant.deadline - self._adapter.deadline:
            return NotSent("its place was too old to start a call")
        try:
            async with asyncio.timeout(self._adapter.deadline):
                return await start()
        except TimeoutError:
            return InDoubt("no answer before the deadline")
        except Exception as error:  # an adapter's mistake must not be taken for an answer
            log.exception("the adapter failed in a call")
            return InDoubt(f"{type(error).__name__} in the adapter")

    async def _act_upon(self, answer: SingleOutcome) -> None:
        """As a stream does: a login that is refused pauses the credential, being asked to wait closes it."""
        if not isinstance(answer, InDoubt | NotSent):
            self._unanswered = 0
        elif answer.pause:
            await limits.pause(self._rows, self._credential_id, answer.reason)
            self.over = answer.reason
        elif isinstance(answer, NotSent) and answer.scope == "credential":
            seconds = RETRY_DEFAULT if answer.retry_after is None else answer.retry_after
            await limits.close(self._rows, self._credential_id, seconds)
            self.over = answer.reason
        else:
            self._unanswered += 1
            self.over = "it does not answer" if self._unanswered >= UNANSWERED else ""
