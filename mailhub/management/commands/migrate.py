"""Django's migrate, except that no mail is sent meanwhile: a sender could not store the outcomes of its calls."""

import time
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from campaigns.failover import guard

LOOK_SECONDS = 0.5


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
            "--force", action="store_true", help="at once: calls whose answers cannot be stored are in doubt"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if why := guard.another_version():
            raise CommandError(f"{why}. Nothing was changed")
        if options["plan"] or options["check_unapplied"] or not _something_to_do(options):
            super().handle(*args, **options)
            return
        before = guard.close()
        try:
            if not options["force"]:
                self._until_nobody_sends(options["wait"])
        except BaseException:
            guard.undo_close(before)
            raise
        super().handle(*args, **options)

    def _until_nobody_sends(self, patient: bool) -> None:
        """Wait: within a second senders see that they may not claim, finish their calls and put their jobs back."""
        shown = 0
        while jobs := guard.alive(settings.LEASE_SECONDS):
            if not patient:
                raise CommandError(
                    f"{'1 job is' if jobs == 1 else f'{jobs} jobs are'} being sent: end the workers first, or say "
                    "--wait to let them finish their open calls (--force: at once, and what cannot be stored any more "
                    "is in doubt). Nothing was changed"
                )
            if jobs != shown:
                self.stderr.write(f"waits for the open calls of {jobs} jobs ...")
                shown = jobs
            time.sleep(LOOK_SECONDS)


def _something_to_do(options: dict[str, Any]) -> bool:
    executor = MigrationExecutor(connections[options["database"]])
    return bool(options["app_label"] or executor.migration_plan(executor.loader.graph.leaf_nodes()))
