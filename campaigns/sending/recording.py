"""Writes down what calls came to, over a connection of its own; an answer exists nowhere else until it is stored."""

import asyncio
import logging
from typing import Any

from django.db import Error as DjangoError
from psycopg import Error as RowsError
from psycopg import InterfaceError, InternalError, OperationalError

from campaigns.claiming import claims
from campaigns.claiming.claims import Lease
from campaigns.failover import guard as store
from campaigns.sending.connections import Connections
from vendors.outcomes import Outcome

log = logging.getLogger(__name__)

CallResult = tuple[int, Outcome]
NO_DATABASE = (OperationalError, InterfaceError, InternalError, DjangoError)  # Internal: it is read-only now


class Recorder:
    """Between `open` and `close`, for one job.

    refused: why nothing may be called: the database refuses our statements, its tables are another version's.
    """

    def __init__(self, lease: Lease, connections: Connections) -> None:
        self._lease, self._connections = lease, connections
        self._rows: Any = None
        self.refused = ""

    async def open(self) -> None:
        self._rows = await self._connections.to_rows()

    async def close(self) -> None:
        await self._connections.give_back(self._rows)

    async def store(self, answers: list[CallResult]) -> None:
        """Tried again for a minute where the database is lost or refuses; then the error is the caller's."""
        for pause in (0.1, 0.2, 0.5, 1, 2, 3, 5, 5, 5, 10, 10, 10):
            try:
                return await claims.record(self._rows, self._lease, answers)
            except NO_DATABASE as error:
                log.warning("job %s: results wait for the database: %s", self._lease.job_id, error)
            except RowsError as error:  # somebody may bring the old tables back
                self.refuse(error)
            await asyncio.sleep(pause)
            try:
                await self._rows.close()
                self._rows = await self._connections.to_rows()
            except NO_DATABASE:
                continue
        await claims.record(self._rows, self._lease, answers)
        return None

    def refuse(self, error: Exception) -> str:
        """A statement was refused. Returns why."""
        log.error("job %s: the schema does not match this version: %s", self._lease.job_id, error)
        self.refused = store.OTHER_TABLES
        return self.refused
