"""The adapters under contract, each with a vendor of its kind that misbehaves."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.contracts import wild_http
from tests.contracts.wild import PATIENCE, Case, Wild, closed_port
from vendors.adapters import load
from vendors.adapters.base import Adapter, Letter

CONCURRENCY = 4


class Kind(ABC):
    """One adapter, the wild vendor that it is held against, and how to bring them together."""

    name: str
    cases: Sequence[Case]
    hang: Any
    good_and_close: Any

    @abstractmethod
    def vendor(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> Wild:
        """A vendor with a misbehaviour, or a good one."""

    @abstractmethod
    def plain(self, port: int) -> dict[str, Any]:
        """Settings for a vendor at a port."""

    @abstractmethod
    def secure(self, port: int) -> dict[str, Any]:
        """The same with TLS from the first byte."""

    @abstractmethod
    def deadline(self, seconds: float) -> dict[str, Any]:
        """Settings that bound every part of a call."""

    @abstractmethod
    def injections(self) -> list[Letter]:
        """Letters that try to smuggle in a line."""

    def letter(self, reference: str) -> Letter:
        return Letter(reference, "somebody@example.org", "Hello", "Dear somebody,\n.\nbye", {"amount": 3})

    @asynccontextmanager
    async def adapter(self, vendor: Wild, seconds: float = PATIENCE) -> AsyncIterator[Adapter]:
        async with self.adapter_at(self.plain(vendor.port) | self.deadline(seconds)) as adapter:
            yield adapter

    @asynccontextmanager
    async def adapter_at(self, settings: dict[str, Any]) -> AsyncIterator[Adapter]:
        adapter = load(self.name)(settings | {"concurrency": str(CONCURRENCY)}, {})
        await adapter.open()
        try:
            yield adapter
        finally:
            await adapter.close()

    def nowhere(self) -> dict[str, Any]:
        return self.plain(closed_port())


class HttpKind(Kind):
    name = "http"
    cases = wild_http.CASES
    hang = staticmethod(wild_http.hang)
    good_and_close = staticmethod(wild_http.good_and_close)

    def vendor(self, behaviour: Any = None, tls: ssl.SSLContext | None = None) -> Wild:
        return wild_http.WildHttp(behaviour, tls)

    def plain(self, port: int) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{port}/letters", "safe_statuses": "599", "timeout": str(PATIENCE)}

    def secure(self, port: int) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{port}/letters", "timeout": str(PATIENCE)}

    def deadline(self, seconds: float) -> dict[str, Any]:
        return {"timeout": str(seconds)}

    def injections(self) -> list[Letter]:
        return [
            Letter(f"a{end}Host: elsewhere", "somebody@example.org", "Hello", "") for end in ("\r\n", "\n", "\r", "\0")
        ]


KINDS: list[Kind] = [HttpKind()]
