"""What a sender keeps from job to job is closed in the end, whatever somebody's adapter does."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from campaigns.engine.connections import Connections
from tests import factories
from vendors.adapters.base import Adapter, Letter
from vendors.outcomes import Accepted, Outcome

pytestmark = pytest.mark.django_db(transaction=True)


class CannotClose(Adapter):
    """An adapter of somebody else. It fails whenever it is closed."""

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        pass

    async def open(self) -> None:
        pass

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        return [Accepted(letter.reference) for letter in letters]

    async def close(self) -> None:
        raise RuntimeError("closed twice")


def test_an_adapter_that_cannot_close_keeps_no_other_connection_open(caplog: pytest.LogCaptureFixture) -> None:
    login = factories.credential()

    async def use(connections: Connections, key: bytes) -> None:
        async with connections.lend_adapter(login.pk, key, CannotClose({}, {})) as adapter:
            assert isinstance(adapter, CannotClose)

    async def story() -> None:
        connections = Connections()
        await use(connections, b"former")
        await use(connections, b"present")  # closes the one of the former settings
        rows = await connections.claims.execute("SELECT 1")
        assert await rows.fetchone() == (1,)
        async with connections.claims.lend_connection() as kept:
            pass
        with pytest.raises(ValueError, match="of the stream"):
            async with connections.lend_adapter(login.pk, b"present", CannotClose({}, {})):
                raise ValueError("of the stream")
        await use(connections, b"last")
        await connections.close()
        assert kept.closed

    with caplog.at_level(logging.INFO, logger="campaigns.engine.connections"):
        asyncio.run(story())
    assert [record.getMessage() for record in caplog.records if record.name == "campaigns.engine.connections"] == [
        "CannotClose does not close its connections: RuntimeError('closed twice')"
    ] * 3
