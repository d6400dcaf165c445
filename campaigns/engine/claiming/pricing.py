"""Claims for letters that differ in cost: they are made and priced before permits are asked for."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import OperationalError

from campaigns.engine import ports
from campaigns.engine.claiming import claims
from campaigns.engine.claiming.claims import Claimed, InOrder, PermittedCall
from campaigns.engine.claiming.letters import ClaimedMessage, LeasedJob, letters_in_turn
from campaigns.engine.claiming.limits import Need
from vendors.adapters.base import Letter
from vendors.causes import AnswerCause
from vendors.limits.values import Scope
from vendors.outcomes import Refused

SECONDS = 5.0  # that pricing may take before the letters priced so far go out
TOO_DEAR = "too_dear"


class Priced(NamedTuple):
    """A message and the cost of its letter in units. 0: it is not called, and `letter` says why."""

    message: ClaimedMessage
    letter: Letter | Refused
    units: int


class Pricing:
    """Makes and prices the letters of a job."""

    def __init__(self, job: LeasedJob, cache: Any = None) -> None:
        self._job = job
        self._files = ports.letters.files_of(job.campaign, cache) if cache else None

    async def price_letters(self, found: Sequence[ClaimedMessage]) -> list[Priced]:
        """Return the priced letters of these messages, in order: as many as can be priced within SECONDS."""
        priced, latest = list[Priced](), time.monotonic() + SECONDS
        for message, letter in zip(found, await letters_in_turn(self._job, found), strict=True):
            whole = letter if self._files is None else await self._letter_with_files(letter)
            priced.append(await self._price_letter(message, letter, whole))
            if time.monotonic() > latest:
                break  # the priced ones go first
        return priced

    async def _letter_with_files(self, letter: Letter | Refused) -> Letter | Refused:
        """Return the letter with its files, for pricing only. It waits without them, because they may be large.

        Raises OperationalError if they cannot be read now.
        """
        assert self._files is not None
        [whole] = await self._files.enclose([letter])
        if isinstance(whole, Letter | Refused):
            return whole
        raise OperationalError(getattr(whole, "reason", "its files cannot be read"))

    async def _price_letter(self, message: ClaimedMessage, letter: Letter | Refused, whole: Letter | Refused) -> Priced:
        if not isinstance(whole, Letter):
            return Priced(message, whole, 0)
        return Priced(message, letter, max(1, await self._job.adapter.weigh(whole)))


class ByCost(InOrder):
    """A claimer that makes and prices letters before it asks for permits.

    They are called in order: cheap letters do not overtake a dear one that has to wait.
    """

    def __init__(self, job: LeasedJob, cache: Any = None) -> None:
        self._job, self.pricing = job, Pricing(job, cache)
        self._ahead: deque[Priced] = deque()
        self._cursor = job.first

    async def read_ahead(self, connection: Any, scope: Scope, cursor: int, most: int) -> None:
        self._smallest = scope.dearest_for()
        if cursor < self._cursor:  # the stream starts over
            self._ahead.clear()
        self._cursor = cursor
        while self._ahead and self._ahead[0].message.id < cursor:
            self._ahead.popleft()
        if len(self._ahead) < most:
            after = self._ahead[-1].message.id + 1 if self._ahead else cursor
            found = await claims.read_waiting_messages(connection, after, self._job.end, most - len(self._ahead))
            self._ahead.extend(await self.pricing.price_letters(found))

    def need(self, most: int) -> Need:
        self._next = [refuse_too_dear(priced, self._smallest) for priced in list(self._ahead)[:most]]
        return Need(sum(priced.units for priced in self._next), self._next[0].units if self._next else 0)

    def fit_messages(self, units: int) -> tuple[int, dict[int, int] | None]:
        self._fitting = {priced.message.id: priced for priced in _affordable_prefix(self._next, units)}
        return len(self._fitting), {id: priced.units for id, priced in self._fitting.items()}

    def calls(self, claimed: Claimed, permits: Sequence[str], latest: float) -> list[PermittedCall]:
        if claimed.claim is None:
            self._ahead.clear()  # one of them may have an end from elsewhere, so they are read again
            return []
        names, calls = iter(permits), []
        for message in claimed.messages:
            _, letter, cost = self._fitting[message.id]
            uses = tuple(next(names) for _ in range(cost))
            calls.append(PermittedCall(message, claimed.claim, uses, latest, letter))
        return calls


def refuse_too_dear(priced: Priced, smallest: int | None) -> Priced:
    """Return the letter, refused if it costs more than this limit."""
    if smallest is None or priced.units <= smallest:
        return priced
    reason = f"it costs {priced.units} units, more than the limit of {smallest}"
    return Priced(priced.message, Refused(TOO_DEAR, reason, AnswerCause.CONTENT), 0)


def _affordable_prefix(priced: list[Priced], units: int) -> list[Priced]:
    """Return the first letters that together cost at most this many units."""
    fitting = []
    for one in priced:
        units -= one.units
        if units < 0:
            break
        fitting.append(one)
    return fitting
