"""Django's migrate, but without mail being sent meanwhile: a sender could not store the outcomes of its calls."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import DatabaseError, InterfaceError, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from campaigns.engine.failover import guard

LOOK_SECONDS = 0.5
# Polled: a statement that waits for the lock would block its holder's CREATE INDEX CONCURRENTLY.
LOCK = "SELECT pg_try_advisory_lock(hashtext('mailhub.migrate'))"
UNLOCK = "SELECT pg_advisory_unlock(hashtext('mailhub.migrate'))"


class Command(migrate.Command):
    help = (
        f"{migrate.Command.help} No call starts while migrations are applied. If mail is being sent it refuses to "
        "run, or waits until the calls in flight have ended (--wait)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--wait", action="store_true", help="let senders finish their calls in flight first")
        how.add_argument(
            "--force", action="store_true", help="without waiting: calls whose answers cannot be stored are in doubt"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        _refuse_another_version()
        if options["plan"] or options["check_unapplied"]:
            super().handle(*args, **options)
            return
        with self._alone():
            _refuse_another_version()
            has_to = guard.has_unapplied() or _something_to_do(options)
            closed = has_to and self._stop_calls(options)
            began = time.monotonic()
            super().handle(*args, **options)
            if closed:
                took = f"the tables were changed in {time.monotonic() - began:.1f} s"
                self._tell(f"{took}: processes of this version may start calls again", options)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other `migrate` works on this database; the first to end would permit calls for both."""
        waits = False
        with connection.cursor() as cursor:
            while not _is_true(cursor, LOCK):
                if not waits:
                    self._tell("waits for another migrate of this database ...")
                    waits = True
                time.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            # connection lost, and the lock with it
            with suppress(DatabaseError, InterfaceError), connection.cursor() as cursor:
                cursor.execute(UNLOCK)

    def _stop_calls(self, options: dict[str, Any]) -> bool:
        """Forbid calls, then wait for those permitted before. Returns False if there are no tables for it yet."""
        if not options["wait"] and not options["force"]:
            _refuse_while_mail_is_sent()
        before, began = guard.close(), time.monotonic()
        if before is None:
            return False
        try:
            self._tell("no call starts from now on", options)
            _something_to_do(options)  # raises if migrations cannot be read; senders finish calls meanwhile
            if options["wait"]:
                self._until_nobody_sends()
            elif not options["force"]:
                _refuse_while_mail_is_sent()
        except BaseException:
            guard.undo_close(before)
            raise
        if not options["force"]:
            self._tell(f"no call is open any more, after {time.monotonic() - began:.1f} s", options)
        return True

    def _until_nobody_sends(self) -> None:
        """Wait. Within a second senders notice that they may not claim, finish their calls and put their jobs back."""
        shown = 0
        while jobs := guard.alive(settings.LEASE_SECONDS):
            if jobs != shown:
                self._tell(f"waits for the open calls of {'1 job' if jobs == 1 else f'{jobs} jobs'} ...")
                shown = jobs
            time.sleep(LOOK_SECONDS)

    def _tell(self, sentence: str, options: dict[str, Any] | None = None) -> None:
        """Write a sentence, unless `options` ask for silence."""
        if options is None or options["verbosity"]:
            self.stderr.write(f"{timezone.localtime():%H:%M:%S} {sentence}")
            self.stderr.flush()


def _refuse_while_mail_is_sent() -> None:
    if jobs := guard.alive(settings.LEASE_SECONDS):
        raise CommandError(
            f"{'1 job is' if jobs == 1 else f'{jobs} jobs are'} being sent: end the workers first, or say "
            "--wait to let them finish their open calls (--force: at once, and what cannot be stored any more "
            "is in doubt). Nothing was changed"
        )


def _refuse_another_version() -> None:
    if why := guard.another_version():
        raise CommandError(f"{why}. Nothing was changed")


def _is_true(cursor: Any, question: str) -> bool:
    cursor.execute(question)
    return bool(cursor.fetchone()[0])


def _something_to_do(options: dict[str, Any]) -> bool:
    executor = MigrationExecutor(connections[options["database"]])
    return bool(options["app_label"] or executor.migration_plan(executor.loader.graph.leaf_nodes()))
