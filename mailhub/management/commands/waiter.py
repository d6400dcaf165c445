"""manage.py waiter: what is due later, and what a person can do about it (document 004)."""

import json
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from kombu.exceptions import OperationalError
from rich.console import Console
from rich.table import Table

from mailhub import parking, waiter
from mailhub.models import ParkedTask


class Command(BaseCommand):
    help = (
        "Tasks that are due in more than 15 minutes wait in the database. Lists them, releases or cancels them by "
        "number. Exit code 1 if a number is unknown (nothing is done then) or the broker cannot be reached."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_mutually_exclusive_group()
        verbs.add_argument("--release", nargs="+", type=int, metavar="ID", help="run these now")
        verbs.add_argument("--cancel", nargs="+", type=int, metavar="ID", help="never run these")
        parser.add_argument("--json", action="store_true", help="one JSON object a line")

    def handle(self, *args: Any, release: list[int] | None, cancel: list[int] | None, **options: Any) -> None:
        if release:
            self._say("Released", release_now(_known(release)), options["json"])
        elif cancel:
            self._say("Cancelled", parking.cancel(_known(cancel), waiter.now()), options["json"])
        elif options["json"]:
            self._lines(ParkedTask.waiting.iterator())
        else:
            self._table()

    def _say(self, done: str, rows: list[ParkedTask], as_json: bool) -> None:
        if as_json:
            self._lines(rows)
        else:
            self.stdout.write("\n".join(f"{done}: {row.pk} {row}" for row in rows))

    def _lines(self, rows: Any) -> None:
        for row in rows:
            self.stdout.write(json.dumps(_facts(row)))

    def _table(self) -> None:
        table = Table("ID", "Due in", "Task", "Queue", box=None)
        now = waiter.now()
        for row in ParkedTask.waiting.iterator():
            table.add_row(str(row.pk), due_in(row, now), row.task, row.queue)
        if table.row_count:
            Console(file=self.stdout).print(table)  # type: ignore[arg-type]
        else:
            self.stdout.write("No task waits")


def release_now(ids: list[int]) -> list[ParkedTask]:
    """Publish these at once. Raises CommandError when the broker is away: they are due now and the sweep goes on."""
    rows = list(ParkedTask.waiting.filter(pk__in=ids))
    parking.bring_forward(ids, waiter.now())
    try:
        waiter.release(ids=ids)
    except OperationalError as why:
        raise CommandError(f"The broker cannot be reached; the sweep will release them: {why}") from why
    return rows
