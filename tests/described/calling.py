"""Calls a described vendor as a sender does, or as Twilio's own client does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from twilio.http.http_client import TwilioHttpClient
from twilio.rest import Client

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


class _Elsewhere(TwilioHttpClient):
    """Calls another server than Twilio's."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def request(self, method, url, *args, **kwargs):
        assert url.startswith("https://api.twilio.com/")
        return super().request(method, url.replace("https://api.twilio.com", self._server), *args, **kwargs)


@contextmanager
def twilio_client(server: str, account: str, token: str) -> Iterator[Client]:
    client = Client(account, token, http_client=_Elsewhere(server))
    try:
        yield client
    finally:
        client.http_client.session.close()
