"""A thread that does to rows what users and processes do, halted before a chosen one of its statements."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

import psycopg
from django.db import connection

from campaigns.engine.connections import open_connection
from tests.waiting import joined

DEADLINE = 120.0  # seconds; what takes longer hangs
# They neither read nor lock anything: a halt before one of them is a halt before the next statement.
IDLE = ("SAVEPOINT", "RELEASE SAVEPOINT", "SET ")


class Hangs(Exception):
    """A verb that neither ended nor waits for a lock."""


class VerbThread:
    """Has a connection of Django and one of a sender, both its own. One verb at a time.

    statements: those of the verb so far, commits among them. result, error: what came of it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.statements: list[str] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.pids: tuple[int, ...] = ()
        self._changed = threading.Condition()
        self._work: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._halt_at = 0
        self._halted = self._busy = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"verbs {name}", daemon=True)
        self._thread.start()
        if not self._ready.wait(DEADLINE):
            raise Hangs("no connection to the database")

    def start(self, verb: Callable[[], Any], halt_at: int = 0) -> None:
        """halt_at: before which of its statements, from 1; 0: nowhere."""
        with self._changed:
            self.statements, self.result, self.error = [], None, None
            self._halt_at, self._halted, self._busy = halt_at, False, True
        self._work.put(verb)

    def go_on(self) -> None:
        with self._changed:
            self._halt_at, self._halted = 0, False
            self._changed.notify_all()

    def rests(self, seconds: float = DEADLINE) -> bool:
        """Waits until the verb has ended or is halted."""
        with self._changed:
            return self._changed.wait_for(lambda: self._halted or not self._busy, seconds)

    def wait(self) -> None:
        """Waits until the verb has ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._busy, DEADLINE):
                raise Hangs(f"{self.name} after {self.statements[-1:]}")

    def ended(self) -> bool:
        with self._changed:
            return not self._busy

    def close(self) -> None:
        self.go_on()
        self._work.put(None)
        joined(self._thread)

    # What verbs use: within the thread's own thread.

    def run(self, step: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """A statement of a sender, over its connection."""
        return self._loop.run(step(self._rows))

    @staticmethod
    def raw() -> Any:
        """Django's connection, as the sender uses it."""
        connection.ensure_connection()
        return connection.connection

    def _live(self) -> None:
        with asyncio.Runner() as self._loop:
            self._rows = self._loop.run(open_connection())
            connection.ensure_connection()
            self.pids = self._rows.info.backend_pid, connection.connection.info.backend_pid
            self._hear(self._rows, connection.connection)
            self._ready.set()
            while (verb := self._work.get()) is not None:
                try:
                    self.result = verb()
                except Exception as error:
                    self.error = error
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
            self._loop.run(self._rows.close())
            connection.close()

    def _hear(self, rows: Any, ours: Any) -> None:
        """Each round trip of a connection passes by `_halt`: psycopg makes them all through its `wait`."""
        there, back = rows.wait, ours.wait

        async def of_sender(trip: Any, *args: Any, **options: Any) -> Any:
            self._halt(trip)
            return await there(trip, *args, **options)

        def of_django(trip: Any, *args: Any, **options: Any) -> Any:
            self._halt(trip)
            return back(trip, *args, **options)

        rows.wait, ours.wait = of_sender, of_django

    def _halt(self, trip: Any) -> None:
        statement = _statement(trip)
        if statement is None:
            return
        with self._changed:
            self.statements.append(statement)
            if len(self.statements) == self._halt_at:
                self._halted = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._halted)


def _statement(trip: Any) -> str | None:
    """What a round trip says; None: nothing that matters to others."""
    kind = trip.__name__
    if kind != "_execute_gen":
        return "COMMIT" if kind in ("_commit_gen", "_exit_gen") else "ROLLBACK" if kind == "_rollback_gen" else None
    query = trip.gi_frame.f_locals.get("query", "")
    text = " ".join((query.decode() if isinstance(query, bytes) else str(query)).split())
    return None if text.startswith(IDLE) else text


def blocked(asking: "psycopg.Connection[Any] | Any", thread: VerbThread) -> bool:
    """Whether a statement of the thread waits for a lock."""
    row = asking.execute(
        "SELECT sum(cardinality(pg_blocking_pids(pid))) FROM unnest(%s::int[]) AS a(pid)", [list(thread.pids)]
    )
    return bool(row.fetchone()[0])
