"""How a stream claims its next messages: by count where each takes one place in the window, else by cost."""

from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from campaigns.claiming import claims
from campaigns.claiming.claims import ClaimedMessage, LeasedJob, PermittedCall, letters_in_turn
from vendors.adapters.base import Letter, one_unit
from vendors.limits.values import Grant, Scope
from vendors.outcomes import Refused

TOO_DEAR = "too_dear"


@dataclass(frozen=True, slots=True)
class Need:
    """Places for what is to be claimed next: as many as `want`, with fewer than `least` nothing can go."""

    want: int
    least: int


class Claimer(Protocol):
    """For one stream."""

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        """For at most so many messages from the cursor on."""

    async def claim(self, connection: Any, words: dict[str, Any], grant: Grant, latest: float) -> list[PermittedCall]:
        """In the order of their ids; the other places are nobody's. latest: as in PermittedCall."""


def claimer(work: LeasedJob) -> Claimer:
    return ByCount() if work.adapter.capabilities.cost is one_unit else ByCost(work)


class ByCount:
    """The usual way: what is claimed is looked at by its sender only afterwards."""

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        return Need(most, 1)

    async def claim(self, connection: Any, words: dict[str, Any], grant: Grant, latest: float) -> list[PermittedCall]:
        messages = await claims.claim(connection, words | {"most": grant.units})
        return [PermittedCall(one, (place,), latest) for one, place in zip(messages, grant.places(), strict=False)]


class Priced(NamedTuple):
    """A message with what its letter costs; 0: it is not called, `letter` says why."""

    message: ClaimedMessage
    letter: Letter | Refused
    units: int


class ByCost:
    """Looks ahead: letters are made and priced before there are places for them.

    They go in their order: a dear one that has no place yet is not passed by cheap ones behind it.
    """

    def __init__(self, work: LeasedJob) -> None:
        self._work, self._cost = work, work.adapter.capabilities.cost
        self._ahead: deque[Priced] = deque()
        self._cursor = work.first

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        await self._look_ahead(connection, cursor, most)
        smallest = min((limit.units for limit in scope.limits if limit.units), default=None)
        self._next = [_within(priced, smallest) for priced in list(self._ahead)[:most]]
        return Need(sum(priced.units for priced in self._next), self._next[0].units if self._next else 0)

    async def claim(self, connection: Any, words: dict[str, Any], grant: Grant, latest: float) -> list[PermittedCall]:
        fitting = {priced.message.id: priced for priced in _prefix(self._next, grant.units)}
        units = [priced.units for priced in fitting.values()]
        messages = await claims.claim_these(connection, words, list(fitting), units)
        places = iter(grant.places())
        tickets = []
        for message in messages:
            _, letter, cost = fitting[message.id]
            tickets.append(PermittedCall(message, tuple(next(places) for _ in range(cost)), latest, letter))
        return tickets

    async def _look_ahead(self, connection: Any, cursor: int, most: int) -> None:
        if cursor < self._cursor:  # what was not sent goes again, from the start
            self._ahead.clear()
        self._cursor = cursor
        while self._ahead and self._ahead[0].message.id < cursor:
            self._ahead.popleft()
        if len(self._ahead) < most:
            after = self._ahead[-1].message.id + 1 if self._ahead else cursor
            found = await claims.ahead(connection, self._work.lease, after, self._work.end, most - len(self._ahead))
            self._ahead.extend(map(self._price, found, await letters_in_turn(self._work, found)))

    def _price(self, message: ClaimedMessage, letter: Letter | Refused) -> Priced:
        return Priced(message, letter, max(1, self._cost(letter)) if isinstance(letter, Letter) else 0)


def _within(priced: Priced, smallest: int | None) -> Priced:
    if smallest is None or priced.units <= smallest:
        return priced
    reason = f"it takes {priced.units} places of the vendor's limit, which has {smallest}"
    return Priced(priced.message, Refused(TOO_DEAR, reason), 0)


def _prefix(priced: list[Priced], units: int) -> list[Priced]:
    """The first of them that cost no more than so many units together."""
    fitting = []
    for one in priced:
        units -= one.units
        if units < 0:
            break
        fitting.append(one)
    return fitting
