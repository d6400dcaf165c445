"""Calls a described vendor as a sender does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from vendors.adapters.base import Letter
from vendors.described.adapter import Described
from vendors.outcomes import Outcome


def with_adapter(
    settings: Mapping[str, Any], secret: Mapping[str, str], story: Callable[[Described], Coroutine[Any, Any, Any]]
) -> Any:
    """The story's result."""

    async def whole() -> Any:
        adapter = Described(settings, secret)
        await adapter.open()
        try:
            return await story(adapter)
        finally:
            await adapter.close()

    return asyncio.run(whole())


def send(settings: Mapping[str, Any], secret: Mapping[str, str], *letters: Letter) -> list[Outcome]:
    """One call after the other."""

    async def story(adapter: Described) -> list[Outcome]:
        return [(await adapter.send([letter]))[0] for letter in letters]

    outcomes: list[Outcome] = with_adapter(settings, secret, story)
    return outcomes
