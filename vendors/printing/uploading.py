"""A batch is brought to its vendor so that it is there whole or not at all, and once.

PDF and manifest are written under temporary names, then renamed, the manifest last: its name says that the batch is
whole. Before that rename nothing is there for the vendor. When its answer is lost, what settles it is to remove the
temporary file: of rename and removal one comes first, and the other one finds nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from secrets import token_hex

from vendors.outcomes import InDoubt, NotSent
from vendors.printing.places import Opens, Place, PlaceError

WAIT = 60.0
"""Seconds until a vendor whose place could not be used is tried again."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A batch to bring. folder: where the vendor looks; temporary: the end of names that it leaves alone.

    Temporary names are of one upload alone: a late rename or write of an earlier one finds nothing.
    """

    opens: Opens
    folder: str
    temporary: str
    name: str
    upload: str = field(default_factory=lambda: token_hex(4))

    def path(self, end: str) -> str:
        return f"{self.folder.rstrip('/')}/{self.name}{end}"

    def part(self, end: str) -> str:
        """The temporary name."""
        return self.path(f".{self.upload}{end}{self.temporary}")

    async def bring(self, pdf: bytes, manifest: bytes, seconds: float, settling: float) -> NotSent | InDoubt | None:
        """None: the vendor has the batch; NotSent: provably nothing of it is visible.

        seconds: until it is renamed; settling: to find out what came of that, if no answer did.
        """
        begun = False
        try:
            async with asyncio.timeout(seconds), self.opens() as place:
                if await place.size(self.path(".csv")) is not None:
                    return None  # an earlier call has brought it
                await place.write(self.part(".pdf"), pdf)
                await place.write(self.part(".csv"), manifest)
                await self._replace(place)
                begun = True
                await place.rename(self.part(".csv"), self.path(".csv"))
                return None
        except TimeoutError:
            error = PlaceError(f"it took more than {seconds:g} s", answered=False)
        except PlaceError as why:
            error = why
        return await self._settle(error, settling) if begun else not_sent(error)

    async def _replace(self, place: Place) -> None:
        """Renames the PDF, which is nothing without its manifest; an earlier call may have left one."""
        if await place.size(self.path(".pdf")) is not None:
            await place.remove(self.path(".pdf"))
        await place.rename(self.part(".pdf"), self.path(".pdf"))

    async def _settle(self, error: PlaceError, seconds: float) -> NotSent | InDoubt | None:
        """What a rename came to that failed, or whose answer was lost."""
        try:
            async with asyncio.timeout(seconds), self.opens() as place:
                removed = await place.remove(self.part(".csv"))
                visible = await place.size(self.path(".csv")) is not None
                if not removed and (visible or not error.answered):  # renamed; the vendor may have taken it away since
                    return None
                if not removed:  # the rename was refused, and somebody else has removed what it should rename
                    return InDoubt(f"{self.name}: {error.reason}; its temporary name is gone", pause=error.pause)
                if visible:
                    return InDoubt(f"{self.name}: {error.reason}; there are both names")
                return not_sent(error)  # the PDF may stay: without its manifest it is no batch
        except TimeoutError:
            return InDoubt(f"{self.name}: {error.reason}; then it took more than {seconds:g} s")
        except PlaceError as later:
            return InDoubt(f"{self.name}: {error.reason}; then: {later.reason}")


def not_sent(error: PlaceError) -> NotSent:
    wait = None if error.pause else WAIT
    return NotSent(error.reason, retry_after=wait, scope="credential", pause=error.pause)
