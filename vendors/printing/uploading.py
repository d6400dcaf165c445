"""Uploads a batch completely or not at all, and only once.

PDF and manifest are written under temporary names and then renamed, the manifest last: its final name marks the batch
as complete. Before that rename the vendor sees nothing.

If the answer to the rename is lost, removing the temporary file settles it: only one of rename and removal can succeed,
because the other finds no file.
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
    """A batch to upload. `folder`: where the vendor looks; `temporary`: a suffix the vendor ignores.

    Temporary names belong to one upload, so a late rename or write of an earlier upload finds nothing.
    """

    opens: Opens
    folder: str
    temporary: str
    name: str
    upload: str = field(default_factory=lambda: token_hex(4))

    def remote_path(self, end: str) -> str:
        return f"{self.folder.rstrip('/')}/{self.name}{end}"

    def temporary_path(self, end: str) -> str:
        """Return the temporary name."""
        return self.remote_path(f".{self.upload}{end}{self.temporary}")

    async def bring_batch(
        self, pdf: bytes, manifest: bytes, seconds: float, settling: float
    ) -> NotSent | InDoubt | None:
        """Upload the batch. Returns None if the vendor has it, NotSent if provably nothing of it is visible.

        `seconds`: time until the rename. `settling`: time to find out whether an unanswered rename took effect.
        """
        begun = False
        try:
            async with asyncio.timeout(seconds), self.opens() as place:
                if await place.file_size(self.remote_path(".csv")) is not None:
                    return None  # an earlier call uploaded it
                await place.write_file(self.temporary_path(".pdf"), pdf)
                await place.write_file(self.temporary_path(".csv"), manifest)
                await self._replace_pdf(place)
                begun = True
                await place.rename_file(self.temporary_path(".csv"), self.remote_path(".csv"))
                return None
        except TimeoutError:
            error = PlaceError(f"it took more than {seconds:g} s", answered=False)
        except PlaceError as why:
            error = why
        return await self._settle_rename(error, settling) if begun else not_sent(error)

    async def _replace_pdf(self, place: Place) -> None:
        """Rename the PDF, replacing one left by an earlier call. Without its manifest it means nothing."""
        if await place.file_size(self.remote_path(".pdf")) is not None:
            await place.remove_file(self.remote_path(".pdf"))
        await place.rename_file(self.temporary_path(".pdf"), self.remote_path(".pdf"))

    async def _settle_rename(self, error: PlaceError, seconds: float) -> NotSent | InDoubt | None:
        """Find out whether a failed or unanswered rename took effect."""
        try:
            async with asyncio.timeout(seconds), self.opens() as place:
                removed = await place.remove_file(self.temporary_path(".csv"))
                visible = await place.file_size(self.remote_path(".csv")) is not None
                if not removed and (visible or not error.answered):  # renamed; the vendor may have collected it since
                    return None
                if not removed:  # the rename was refused, and somebody else removed the temporary file
                    return InDoubt(f"{self.name}: {error.reason}; its temporary name is gone", pause=error.pause)
                if visible:
                    return InDoubt(f"{self.name}: {error.reason}; there are both names")
                return not_sent(error)  # the PDF may stay: without its manifest it is not a batch
        except TimeoutError:
            return InDoubt(f"{self.name}: {error.reason}; then it took more than {seconds:g} s")
        except PlaceError as later:
            return InDoubt(f"{self.name}: {error.reason}; then: {later.reason}")


def not_sent(error: PlaceError) -> NotSent:
    wait = None if error.pause else WAIT
    return NotSent(error.reason, retry_after=wait, scope="credential", pause=error.pause)
