"""Claims where letters cost different numbers of units: they are made and priced before permits are asked for."""

from collections import deque
from typing import Any, NamedTuple

from campaigns.claiming import claims
from campaigns.claiming.claims import PermittedCall
from campaigns.claiming.letters import ClaimedMessage, LeasedJob, letters_in_turn
from campaigns.claiming.limits import Need, PermittedCalls
from vendors.adapters.base import Letter
from vendors.limits.values import Grant, Scope
from vendors.outcomes import Refused

TOO_DEAR = "too_dear"


class Priced(NamedTuple):
    """A message and the cost of its letter in units; 0: it is not called, and `letter` says why."""

    message: ClaimedMessage
    letter: Letter | Refused
    units: int


class ByCost:
    """Makes and prices letters before it asks for permits.

    They are called in order: cheap letters do not overtake a dear one that has to wait.
    """

    def __init__(self, job: LeasedJob) -> None:
        self._job, self._cost = job, job.adapter.capabilities.cost
        self._ahead: deque[Priced] = deque()
        self._cursor = job.first

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        await self._look_ahead(connection, cursor, most)
        smallest = min((limit.units for limit in scope.limits if limit.units), default=None)
        self._next = [_within(priced, smallest) for priced in list(self._ahead)[:most]]
        return Need(sum(priced.units for priced in self._next), self._next[0].units if self._next else 0)

    async def claim(self, connection: Any, params: dict[str, Any], grant: Grant, latest: float) -> PermittedCalls:
        fitting = {priced.message.id: priced for priced in _prefix(self._next, grant.units)}
        units = [priced.units for priced in fitting.values()]
        claimed = await claims.claim_these(connection, params, list(fitting), units)
        messages, claim, nothing_waits, suppressions = claimed
        if claim is None:
            self._ahead.clear()  # an end of one of them may have been learned otherwise: they are read anew
            return PermittedCalls([], nothing_waits and not fitting)
        permits = iter(grant.places())
        calls = []
        for message in messages:
            _, letter, cost = fitting[message.id]
            calls.append(PermittedCall(message, claim, tuple(next(permits) for _ in range(cost)), latest, letter))
        return PermittedCalls(calls, suppressions=suppressions)

    async def _look_ahead(self, connection: Any, cursor: int, most: int) -> None:
        if cursor < self._cursor:  # the stream begins again from the start
            self._ahead.clear()
        self._cursor = cursor
        while self._ahead and self._ahead[0].message.id < cursor:
            self._ahead.popleft()
        if len(self._ahead) < most:
            after = self._ahead[-1].message.id + 1 if self._ahead else cursor
            found = await claims.ahead(connection, after, self._job.end, most - len(self._ahead))
            self._ahead.extend(map(self._price, found, await letters_in_turn(self._job, found)))

    def _price(self, message: ClaimedMessage, letter: Letter | Refused) -> Priced:
        return Priced(message, letter, max(1, self._cost(letter)) if isinstance(letter, Letter) else 0)


def _within(priced: Priced, smallest: int | None) -> Priced:
    if smallest is None or priced.units <= smallest:
        return priced
    reason = f"it costs {priced.units} units, more than the limit of {smallest}"
    return Priced(priced.message, Refused(TOO_DEAR, reason), 0)


def _prefix(priced: list[Priced], units: int) -> list[Priced]:
    """The first letters that together cost at most so many units."""
    fitting = []
    for one in priced:
        units -= one.units
        if units < 0:
            break
        fitting.append(one)
    return fitting
