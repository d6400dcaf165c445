"""`manage.py waiter`: list, release or cancel parked tasks (document 004)."""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from kombu.exceptions import OperationalError

from vendors.management.output import write_result, write_rows
from waiter import parking
from waiter import release as releasing
from waiter.models import ParkedTask

COLUMNS = ("id", "due_in", "task", "queue")


class Command(BaseCommand):
    help = (
        "Tasks due in more than 15 minutes wait in the database. Lists them, next one first; releases or cancels "
        "some. Exit codes: 0 done, 1 unknown number (nothing was done) or not all could be released, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_mutually_exclusive_group()
        verbs.add_argument("--release", nargs="+", type=int, metavar="ID", help="run these now")
        verbs.add_argument("--cancel", nargs="+", type=int, metavar="ID", help="never run these")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, release: list[int] | None, cancel: list[int] | None, **options: Any) -> None:
        if release:
            self._tell_tasks("released", _release_tasks(_check_known(release)), options["json"])
        elif cancel:
            self._tell_tasks("cancelled", parking.cancel(_check_known(cancel), parking.now()), options["json"])
        else:
            write_rows(self.stdout, _task_facts(ParkedTask.waiting.iterator()), options["json"], COLUMNS)

    def _tell_tasks(self, done: str, rows: Iterable[ParkedTask], as_json: bool) -> None:
        for row in rows:
            write_result(
                self.stdout, f"{done} {row.pk}: {row}", {"id": row.pk, "task_id": row.task_id, "done": done}, as_json
            )


def _check_known(ids: list[int]) -> list[int]:
    unknown = set(ids).difference(ParkedTask.waiting.filter(pk__in=ids).values_list("pk", flat=True))
    if unknown:
        raise CommandError(f"no task waits with the number {', '.join(map(str, sorted(unknown)))}; nothing was done")
    return ids


def _release_tasks(ids: list[int]) -> Iterator[ParkedTask]:
    rows = list(ParkedTask.waiting.filter(pk__in=ids))
    parking.bring_forward(ids, parking.now())
    try:
        releasing.release(ids=ids)
    except OperationalError as why:
        raise CommandError(f"the broker cannot be reached; the next sweep releases what is left: {why}") from why
    left = set(ParkedTask.waiting.filter(pk__in=ids).values_list("pk", flat=True))
    yield from (row for row in rows if row.pk not in left)
    if left:
        raise CommandError(f"a sweep is busy with {', '.join(map(str, sorted(left)))}; it is due now")


def _task_facts(rows: Iterable[ParkedTask]) -> Iterator[dict[str, Any]]:
    now = parking.now()
    for row in rows:
        yield {
            "id": row.pk,
            "due_in": row.due_in(now),
            "due_at": row.due_at,
            "task": row.task,
            "task_id": row.task_id,
            "queue": row.queue,
        }
