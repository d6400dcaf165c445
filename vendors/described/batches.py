"""Batches: which letters go together in one call, and the body that carries them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import orjson

from vendors.adapters.base import Letter
from vendors.adapters.letter_faults import refuse_letter
from vendors.outcomes import Outcome


class BatchBody(Protocol):
    """Writes the body of a call for several letters."""

    def read(self, letter: Letter) -> Any:
        """Return this letter's part of the body. Raises ValueError or TypeError if it cannot be sent."""

    def calls(self, letters: Sequence[Any]) -> Sequence[Sequence[int]]:
        """Group the letters into calls, by position."""

    def body(self, letters: Sequence[Any]) -> bytes:
        """Return the body of a call. Raises ValueError or TypeError if it cannot be sent."""


class JsonList:
    """A JSON list with an entry for each letter; `within` names the member of an object that holds it."""

    def __init__(self, make: Callable[[Letter], bytes], within: str | None) -> None:
        self.read = make
        self._begin, self._end = b"[", b"]"
        if within:
            self._begin, self._end = b"{" + orjson.dumps(within) + b":[", b"]}"

    def calls(self, letters: Sequence[bytes]) -> Sequence[Sequence[int]]:
        return [range(len(letters))] if letters else []

    def body(self, letters: Sequence[bytes]) -> bytes:
        return self._begin + b",".join(letters) + self._end


async def send_batch(
    writer: BatchBody, letters: Sequence[Letter], call: Callable[[bytes, Sequence[str]], Awaitable[list[Outcome]]]
) -> list[Outcome]:
    """Send the letters and return the outcome of each. `call` makes one call from a body and its references.

    Letters that cannot go together get separate calls, at most one for each letter.
    """
    outcomes: dict[int, Outcome] = {}
    read: list[Any] = []
    places: list[int] = []
    for place, letter in enumerate(letters):
        try:
            read.append(writer.read(letter))
            places.append(place)
        except (ValueError, TypeError) as error:
            outcomes[place] = refuse_letter(error)

    async def send_call(positions: Sequence[int]) -> None:
        mine = [places[position] for position in positions]
        try:
            body = writer.body([read[position] for position in positions])
        except (ValueError, TypeError) as error:
            outcomes.update(dict.fromkeys(mine, refuse_letter(error)))
            return
        answered = await call(body, [letters[place].reference for place in mine])
        outcomes.update(zip(mine, answered, strict=True))

    match writer.calls(read):
        case []:
            pass
        case [positions]:
            await send_call(positions)
        case several:
            await asyncio.gather(*map(send_call, several))
    return [outcomes[place] for place in range(len(letters))]
