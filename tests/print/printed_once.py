"""For tests that are about what comes after the printing: what was printed before is not printed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from vendors.printing import pages

PRINTED: dict[str, pages.Printed] = {}
MERGED: dict[tuple[tuple[bytes, ...], bool], bytes] = {}


@pytest.fixture
def printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time each letter, and each batch of the same letters, is made as always, by a process."""
    printing, merging = pages.PageMaker.render_letter, pages.PageMaker.merge_parts

    async def letter(maker: pages.PageMaker, question: dict[str, Any], files: Any) -> pages.Printed:
        asked = repr((question, files))
        if asked not in PRINTED:
            PRINTED[asked] = await printing(maker, question, files)
        return PRINTED[asked]

    async def merge(maker: pages.PageMaker, parts: Sequence[bytes], *, fronts: bool) -> bytes:
        asked = tuple(parts), fronts
        if asked not in MERGED:
            MERGED[asked] = await merging(maker, parts, fronts=fronts)
        return MERGED[asked]

    monkeypatch.setattr(pages.PageMaker, "render_letter", letter)
    monkeypatch.setattr(pages.PageMaker, "merge_parts", merge)
