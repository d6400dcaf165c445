"""Several letters in one call: which go together, and what is sent of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import orjson

from vendors.adapters.base import Letter
from vendors.outcomes import TEXT_MAX, Outcome, Refused


class BatchBody(Protocol):
    """What writes the body of a call for several letters."""

    def read(self, letter: Letter) -> Any:
        """What the body has of one letter. Raises ValueError or TypeError if it cannot be sent."""

    def calls(self, letters: Sequence[Any]) -> Sequence[Sequence[int]]:
        """The positions of the letters of each call."""

    def body(self, letters: Sequence[Any]) -> bytes:
        """The body of a call. Raises ValueError or TypeError if it cannot be sent."""


class JsonList:
    """A list with an entry for each letter, perhaps as the member `within` of an object."""

    def __init__(self, make: Callable[[Letter], bytes], within: str | None) -> None:
        self.read = make
        self._begin, self._end = b"[", b"]"
        if within:
            self._begin, self._end = b"{" + orjson.dumps(within) + b":[", b"]}"

    def calls(self, letters: Sequence[bytes]) -> Sequence[Sequence[int]]:
        return [range(len(letters))] if letters else []

    def body(self, letters: Sequence[bytes]) -> bytes:
        return self._begin + b",".join(letters) + self._end


async def send(
    writer: BatchBody, letters: Sequence[Letter], call: Callable[[bytes, Sequence[str]], Awaitable[list[Outcome]]]
) -> list[Outcome]:
    """The outcome of each letter. call: makes one, of a body with these references.

    One call, or one for each kind of letters that cannot go together: at most as many as there are letters.
    """
    outcomes: dict[int, Outcome] = {}
    read: list[Any] = []
    places: list[int] = []
    for place, letter in enumerate(letters):
        try:
            read.append(writer.read(letter))
            places.append(place)
        except (ValueError, TypeError) as error:
            outcomes[place] = Refused("unsendable", str(error)[:TEXT_MAX])

    async def one(positions: Sequence[int]) -> None:
        mine = [places[position] for position in positions]
        try:
            body = writer.body([read[position] for position in positions])
        except (ValueError, TypeError) as error:
            outcomes.update(dict.fromkeys(mine, Refused("unsendable", str(error)[:TEXT_MAX])))
            return
        answered = await call(body, [letters[place].reference for place in mine])
        outcomes.update(zip(mine, answered, strict=True))

    match writer.calls(read):
        case []:
            pass
        case [positions]:
            await one(positions)
        case several:
            await asyncio.gather(*map(one, several))
    return [outcomes[place] for place in range(len(letters))]
