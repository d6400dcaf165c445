"""Single calls that settle doubts, under the same limits, checks and ledger as a stream's calls.

The order is the same as well: get permits for the vendor's limits, commit the row that allows the call and writes the
ledger, then call. A refusal that concerns the credential, the account or waiting takes effect as in a stream.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from psycopg import AsyncConnection
from psycopg import Error as RowsError

from campaigns.engine.claiming import contexts, limits
from campaigns.engine.claiming.rebuild import rebuild_lost
from campaigns.engine.dispatch import dispatcher
from vendors import alarms
from vendors.adapters.base import Adapter
from vendors.condition import brake
from vendors.condition.feeding import ConditionFeed, is_clear, is_good_answer
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Lost, Never, ReceiversFull, Scope, Wait
from vendors.models import Credential
from vendors.outcomes import RETRY_DEFAULT, InDoubt, NotSent, Outcome
from vendors.receivers import receiver_of
from vendors.said import Said

log = logging.getLogger(__name__)

SLACK = 2.0  # seconds between a grant and the start of the call under it
PATIENCE = 5.0  # seconds that all calls of one run together wait for permits
UNANSWERED = 3  # calls in a row without a clear answer after which the run stops
REBUILDS = 20  # each raises the generation by one; Redis may be this many ahead of a restored database

SingleOutcome = Outcome | None
Allow = Callable[[Scope, str], Awaitable[bool | None]]


END = """
UPDATE vendors_usage SET ended_at = clock_timestamp()
WHERE vendor_id = %(vendor)s AND until > clock_timestamp() AND "grant" = %(grant)s
"""


async def tell_ended(connection: AsyncConnection[Any], vendor_id: int, grant: str) -> None:
    """Record in the ledger that the call under this grant has ended."""
    await connection.execute(END, {"vendor": vendor_id, "grant": grant})


class CredentialClosed(Exception):
    """The credential may not be used now. No call was made."""


class SingleCalls:
    """Calls with one credential's adapter. over: the reason to make no more calls; "": go on.

    probe: the number of the probe that a repeat has taken over a braked credential.
    """

    def __init__(self, adapter: Adapter, login: Credential, throttle: AsyncThrottle, rows: Any) -> None:
        self._adapter, self._vendor_id, self._credential_id = adapter, login.vendor_id, login.pk
        self._throttle, self._rows = throttle, rows
        self._destination = login.vendor.destination + login.destination
        self._condition = ConditionFeed(login.pk, self._destination, "", lambda: None)
        self._patience, self._unanswered = PATIENCE, 0
        self.probe: int | None = None
        self.over = ""

    @property
    def hold_seconds(self) -> float:
        """Seconds after which an allowed call has certainly ended."""
        return self._adapter.deadline + SLACK

    async def make_call(
        self,
        units: int,
        allow: Allow,
        start: Callable[[], Awaitable[SingleOutcome]],
        recipient: str = "",
        *,
        is_repeat: bool = False,
    ) -> SingleOutcome:
        """Make a call that costs this many units. Returns NotSent if it is not allowed. Raises CredentialClosed.

        recipient: whom a repeat is for; its receiver's own window counts it too. A look-up reaches no receiver.

        allow: runs the statement that allows the call, given the id of the grant; returns None if the credential may no
        longer be used. is_repeat: it sends a letter, so its answer counts for the condition and the brake. A look-up
        asks elsewhere, and proves nothing about letters.
        """
        found = await self._take_permits(units, recipient)
        if isinstance(found, Never):
            return NotSent(f"it costs {units}, more than the limit of {found.units}")
        if isinstance(found, ReceiversFull):
            return NotSent("its receiver's limit is used up", max(1.0, *found.full.values()), "receiver")
        scope, grant = found
        self.probe = await brake.take_probe(self._rows, self._credential_id, self.hold_seconds) if is_repeat else None
        allowed = await allow(scope, grant.id)
        if not allowed:
            if self.probe is not None:
                await brake.give_back_probe(self._rows, self._credential_id, self.probe)
            await self._hand_back(self._throttle.cancel, scope, grant)
            await limits.undo_full(self._rows, self._vendor_id)
            if allowed is None:
                raise CredentialClosed("paused, closed or under other limits by now")
            return NotSent("not allowed any more: stopped, settled, or it took too long")
        answer = await self._start_in_time(grant, start)
        await self._hand_back(self._throttle.done, scope, grant)
        if is_repeat:
            with suppress(RowsError):  # the answer is the evidence and is stored in any case
                await self._tell_condition(answer)
        await self._act_upon(answer)
        with suppress(RowsError):  # if this fails and the window is lost, the permit counts until its deadline
            await tell_ended(self._rows, self._vendor_id, grant.id)
        return answer

    async def _take_permits(self, units: int, recipient: str) -> tuple[Scope, Grant] | Never | ReceiversFull:
        """Take permits of the vendor, and with the same question of the receiver, if that has limits.

        Without room there only this doubt waits.
        """
        for _ in range(REBUILDS):
            scope = await contexts.read_vendor(self._rows, self._vendor_id, self._credential_id)
            if scope is None:
                raise CredentialClosed("paused or closed")
            if scope.destination != self._destination:
                raise CredentialClosed(Said("its vendor is called elsewhere, or as somebody else, by now"))
            try:
                answer = await self._ask_throttle(scope, units, receiver_of(recipient) if recipient else "")
                if isinstance(answer, Lost):
                    await rebuild_lost(scope)  # no sender has asked since the window was lost
            except ThrottleUnreachable as error:
                raise CredentialClosed(f"the throttle's Redis cannot be reached: {error}") from error
            if isinstance(answer, Grant):
                return scope, answer
            if isinstance(answer, Never | ReceiversFull):
                return answer
            if not isinstance(answer, Lost):
                await self._wait_for_permit(answer)
        raise CredentialClosed("rate limit reached")

    async def _ask_throttle(self, scope: Scope, units: int, receiver: str) -> AcquireResult:
        smallest = scope.smallest_of(receiver)
        if smallest is None:
            return await self._throttle.acquire(scope, units, self.hold_seconds, units)
        if smallest == 0:
            return ReceiversFull({receiver: RETRY_DEFAULT})
        dearest = scope.dearest_for(receiver)
        if dearest is not None and units > dearest:
            return Never(dearest)
        return await self._throttle.acquire(scope, units, self.hold_seconds, units, letters=[(receiver, units)])

    async def _wait_for_permit(self, answer: Any) -> None:
        """Wait for a permit due soon; a sender may still take it first."""
        if not isinstance(answer, Wait) or answer.seconds > self._patience:
            raise CredentialClosed("rate limit reached")
        self._patience -= answer.seconds
        await asyncio.sleep(answer.seconds)

    async def _hand_back(self, verb: Any, scope: Scope, grant: Grant) -> None:
        try:
            await verb(scope, grant.places())
        except ThrottleUnreachable:  # they expire anyway
            alarms.PERMITS_NOT_RETURNED.log(log, self._vendor_id)

    async def _start_in_time(self, grant: Grant, start: Callable[[], Awaitable[SingleOutcome]]) -> SingleOutcome:
        if time.monotonic() > grant.deadline - self._adapter.deadline:
            return NotSent("its permit was too old to start a call")
        try:
            async with asyncio.timeout(self._adapter.deadline):
                return await start()
        except TimeoutError:
            return InDoubt("no answer before the deadline")
        except Exception as error:  # a bug in an adapter must not count as an answer
            alarms.ADAPTER_FAILED.log(log, exc_info=True)
            return InDoubt(f"{type(error).__name__} in the adapter")

    async def _tell_condition(self, answer: SingleOutcome) -> None:
        """Count the answer of a repeat. A clear one releases the brake; any other puts the next probe off."""
        clear = is_clear(answer)
        if clear:
            if slug := await brake.release_brake(self._rows, self._credential_id, 0.0):
                dispatcher.wake_vendor(self._vendor_id, slug)
        elif self.probe is not None:
            await brake.put_off_probe(self._rows, self._credential_id, self.probe)
        good = is_good_answer(answer)
        self._condition.note_outcome(answer, good, getattr(answer, "reason", ""))
        await self._condition.write_notes(self._rows)

    async def _act_upon(self, answer: SingleOutcome) -> None:
        """Pause or close the credential if the answer says so, as a stream does."""
        if not isinstance(answer, InDoubt | NotSent):
            self._unanswered = 0
            await limits.record_reached(self._rows, self._credential_id)
            await limits.record_good_answer(self._rows, self._credential_id)
        elif isinstance(answer, NotSent) and answer.scope in ("receiver", "sender"):
            self._unanswered = 0  # the streams let the receiver or the campaign wait
        elif answer.pause:
            await limits.pause_credential(self._rows, self._credential_id, answer.reason)
            self.over = answer.reason
        elif isinstance(answer, NotSent) and answer.scope == "credential":
            if answer.retry_after is None:
                await limits.back_off(self._rows, self._credential_id)
            else:
                await limits.close_credential(self._rows, self._credential_id, answer.retry_after)
            self.over = answer.reason
        else:
            self._unanswered += 1
            self.over = "it does not answer" if self._unanswered >= UNANSWERED else ""
