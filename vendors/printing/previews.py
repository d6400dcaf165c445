"""Previews: letters as they will be printed, as PDF, with the envelope's window drawn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vendors import adapters
from vendors.adapters.addresses import PrintsAddresses, lines_of
from vendors.adapters.base import Letter
from vendors.printing import pages
from vendors.printing.adapter import PrintFile
from vendors.printing.pages import Look, NotPrintable, PageMaker, Stopped
from vendors.said import count_of

SECONDS = 120.0  # for all letters in a preview
AT_ONCE = 2  # concurrent previews in a process, each for another sponsor (campaigns/doors/shares.py)
_few_at_a_time = threading.BoundedSemaphore(AT_ONCE)


class Busy(ValueError):
    """Too many previews are being made in this process; each needs a whole core."""


@dataclass(frozen=True, slots=True)
class PrintPreview:
    """A PDF of several letters. `pages`: those of each letter. `duplex`: printed on both sides."""

    pdf: bytes
    pages: Sequence[int]
    duplex: bool

    @property
    def sheets(self) -> int:
        """Sheets of all letters together."""
        return sum(-(-one // 2) for one in self.pages) if self.duplex else sum(self.pages)

    @property
    def sentence(self) -> str:
        """Summary such as "2 letters, 5 pages on 3 sheets (printed on both sides)"."""
        letters, total = len(self.pages), sum(self.pages)
        sides = "printed on both sides" if self.duplex else "printed on one side"
        return f"{count_of(letters, 'letter')}, {count_of(total, 'page')} on {count_of(self.sheets, 'sheet')} ({sides})"


def make_preview(
    letters: Sequence[Letter],
    adapter: str,
    settings: Mapping[str, Any],
    look: Mapping[str, str],
    seconds: float = SECONDS,
) -> PrintPreview:
    """Render the letters as their vendor would print them.

    `look`: `paper` and `window` in place of the vendor's. `seconds`: the time for all letters. Raises ValueError with a
    sentence.
    """
    if not _few_at_a_time.acquire(blocking=False):
        raise Busy("other previews are being made: ask again in a moment")
    try:
        return _make_preview(letters, adapter, settings, look, seconds)
    finally:
        _few_at_a_time.release()


def _make_preview(
    letters: Sequence[Letter], adapter: str, settings: Mapping[str, Any], look: Mapping[str, str], seconds: float
) -> PrintPreview:
    if missing := pages.missing_libraries():
        raise ValueError(missing)
    kind = adapters.load(adapter)
    rules = kind.address_rules(settings) if issubclass(kind, PrintsAddresses) else None
    known = kind.validate(settings) if issubclass(kind, PrintFile) else {}
    own: dict[str, Any] = {name: known[name] for name in ("paper", "window", "pages_max") if name in known}
    drawn = Look(**own | {name: value for name, value in look.items() if value})

    async def render_document() -> PrintPreview:
        maker = PageMaker()
        try:
            printed = []
            for letter in letters:
                address = rules.address_lines(letter.recipient, letter.params) if rules else lines_of(letter.recipient)
                question = drawn.page_request(letter, address, frame=True)
                printed.append(await maker.render_letter(question, letter.attachments))
            whole = await maker.merge_parts([one.pdf for one in printed], fronts=False)
            return PrintPreview(whole, [one.pages for one in printed], bool(known.get("duplex")))
        finally:
            await maker.close()

    try:
        return asyncio.run(asyncio.wait_for(render_document(), seconds))
    except (NotPrintable, Stopped) as why:
        raise ValueError(str(why)) from None
    except TimeoutError:
        raise ValueError(f"it takes more than {seconds:g} s") from None
