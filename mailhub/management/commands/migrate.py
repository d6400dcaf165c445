"""Django's migrate, which tells what stands still before it begins.

Additive migrations are applied while mail goes out (mailhub/upgrades.py). For others no call starts: a sender could not
store the outcomes of its calls.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import DatabaseError, InterfaceError, OperationalError, connection, connections
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from campaigns.engine.failover import guard
from mailhub import upgrades

LOOK_SECONDS = 0.5
# Polled: a statement that waits for the lock would block its holder's CREATE INDEX CONCURRENTLY.
LOCK = "SELECT pg_try_advisory_lock(hashtext('mailhub.migrate'))"
UNLOCK = "SELECT pg_advisory_unlock(hashtext('mailhub.migrate'))"


# The wait of `migrate` for a table's lock beside calls. Claims wait behind it for the same time; it is shorter than
# PostgreSQL's deadlock_timeout, so that only `migrate` gives way.
LOCK_TIMEOUT = "500ms"
LOCK_TRIES = 120
GIVES_WAY = ("55P03", "40P01")  # PostgreSQL's codes of a lock timeout and a deadlock


class Command(migrate.Command):
    help = (
        f"{migrate.Command.help} It tells what stands still, and for how long, before it begins. Mail goes on beside "
        "additive migrations; for others no call starts, and if mail is being sent it refuses to run, or waits until "
        "the calls in flight have ended (--wait). Exit codes: 0 done, 1 refused or failed, 2 usage."
    )
    _is_beside_calls = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--wait", action="store_true", help="let senders finish their calls in flight first")
        how.add_argument(
            "--force", action="store_true", help="without waiting: calls whose answers cannot be stored are in doubt"
        )
        parser.add_argument(
            "--back-to",
            choices=upgrades.RELEASES,
            help="undo the migrations that came after this release, with all that their tables and columns hold",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        _refuse_another_version()
        if options["back_to"]:
            self._go_back(options)
        elif options["plan"] or options["check_unapplied"]:
            if options["plan"] and _has_mail():
                self._tell_effects(upgrades.find_effects(_read_plan(options)), options)
            super().handle(*args, **options)
        else:
            with self._wait_until_alone():
                _refuse_another_version()
                self._go_forward(args, options)

    def _go_forward(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        plan = _read_plan(options)
        if not (plan or options["app_label"]) or not _has_mail():
            super().handle(*args, **options)
            return
        effects = upgrades.find_effects(plan)
        self._tell_effects(effects, options)
        if all(one.is_additive for one in effects) and not options["app_label"]:
            self._apply_beside_calls(args, options)
            return
        with self._forbid_calls(options):
            super().handle(*args, **options)

    def _apply_beside_calls(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Apply additive migrations. Gives way to calls: each table's lock is asked for a moment only, and again."""
        self._is_beside_calls = True
        for left in reversed(range(LOCK_TRIES)):
            try:
                super().handle(*args, **options)
                return
            except OperationalError as why:
                if getattr(why.__cause__, "sqlstate", "") not in GIVES_WAY:
                    raise
                if not left:
                    raise CommandError(
                        f"a table stays locked ({why}): pg_stat_activity names the session. Say migrate again"
                    ) from why
                self._tell_at_time("a table is in use, tries again ...", options)
                time.sleep(LOOK_SECONDS)
            finally:
                _set_lock_timeout("0")

    def migration_progress_callback(self, action: str, migration: Migration | None = None, fake: bool = False) -> None:
        """Limit the waits of a migration that runs beside calls; one that builds an index waits without a lock."""
        if self._is_beside_calls and action == "apply_start" and migration is not None:
            _set_lock_timeout(LOCK_TIMEOUT if migration.atomic else "0")
        elif action == "apply_success":
            _set_lock_timeout("0")
        super().migration_progress_callback(action, migration, fake)

    def _go_back(self, options: dict[str, Any]) -> None:
        """Undo all migrations after a release, or refuse before anything is changed."""
        version = options["back_to"]
        targets = list(upgrades.RELEASES[version].items())
        with self._wait_until_alone():
            executor = MigrationExecutor(connection)
            plan = executor.migration_plan(targets)
            if not all(is_backwards for _, is_backwards in plan):
                raise CommandError(f"the tables are older than those of {version}: say migrate. Nothing was changed")
            effects = upgrades.find_effects(migration for migration, _ in plan)
            for one in effects:
                self._tell_at_time(f"undoes {one.name}: what only its columns and tables hold is lost", options)
            if kept := [f"{one.name} ({one.no_way_back})" for one in effects if one.no_way_back]:
                raise CommandError(
                    f"there is no way back to {version} but a dump: {', '.join(kept)}. Nothing was changed"
                )
            if options["plan"] or not plan:
                return
            with self._forbid_calls(options):
                executor.migrate(targets, plan)
                guard.finish_migration()
            self._tell_at_time(f"install {version}, say its migrate once, and start its processes", options)

    def _tell_effects(self, effects: list[upgrades.MigrationEffect], options: dict[str, Any]) -> None:
        for sentence in upgrades.describe_effects(effects):
            self._tell_at_time(sentence, options)

    @contextmanager
    def _forbid_calls(self, options: dict[str, Any]) -> Iterator[None]:
        """Let no call start in the block, once a person or an option has agreed."""
        _ask_person(options)
        closed = self._stop_calls(options)
        began = time.monotonic()
        yield
        if closed:
            took = f"the tables were changed in {time.monotonic() - began:.1f} s"
            self._tell_at_time(
                f"{took}: processes of {options['back_to'] or 'this version'} may start calls again", options
            )

    @contextmanager
    def _wait_until_alone(self) -> Iterator[None]:
        """Wait until no other `migrate` works on this database; the first to end would permit calls for both."""
        waits = False
        with connection.cursor() as cursor:
            while not _is_true(cursor, LOCK):
                if not waits:
                    self._tell_at_time("waits for another migrate of this database ...")
                    waits = True
                time.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            # connection lost, and the lock with it
            with suppress(DatabaseError, InterfaceError), connection.cursor() as cursor:
                cursor.execute(UNLOCK)

    def _stop_calls(self, options: dict[str, Any]) -> bool:
        """Forbid calls, then wait for those permitted before. Returns False if the tables do not exist yet."""
        if not options["wait"] and not options["force"]:
            _refuse_while_mail_is_sent()
        before, began = guard.close_before_migration(), time.monotonic()
        if before is None:
            return False
        try:
            self._tell_at_time("no call starts from now on", options)
            if options["wait"]:
                self._wait_until_nobody_sends()
            elif not options["force"]:
                _refuse_while_mail_is_sent()
        except BaseException:
            guard.undo_close(before)
            raise
        if not options["force"]:
            self._tell_at_time(f"no call is open any more, after {time.monotonic() - began:.1f} s", options)
        return True

    def _wait_until_nobody_sends(self) -> None:
        """Wait. Within a second senders notice the prohibition, finish their calls and put their jobs back."""
        shown = 0
        while jobs := guard.count_live_jobs(settings.LEASE_SECONDS):
            if jobs != shown:
                self._tell_at_time(f"waits for the open calls of {'1 job' if jobs == 1 else f'{jobs} jobs'} ...")
                shown = jobs
            time.sleep(LOOK_SECONDS)

    def _tell_at_time(self, sentence: str, options: dict[str, Any] | None = None) -> None:
        """Write a sentence, unless `options` ask for silence."""
        if options is None or options["verbosity"]:
            self.stderr.write(f"{timezone.localtime():%H:%M:%S} {sentence}")
            self.stderr.flush()


def _refuse_while_mail_is_sent() -> None:
    if jobs := guard.count_live_jobs(settings.LEASE_SECONDS):
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


def _read_plan(options: dict[str, Any]) -> list[Migration]:
    """Return the migrations to apply. Raises if their files cannot be read."""
    executor = MigrationExecutor(connections[options["database"]])
    return [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]


def _has_mail() -> bool:
    """Return False for a new database, where nothing can stand still."""
    with connection.cursor() as cursor:
        return _is_true(cursor, "SELECT to_regclass('campaigns_store') IS NOT NULL")


def _set_lock_timeout(timeout: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [timeout])


def _ask_person(options: dict[str, Any]) -> None:
    """Ask at a terminal, unless an option has decided."""
    if options["wait"] or options["force"] or not options["interactive"] or not sys.stdin.isatty():
        return
    if input("Stop calls now? [y/N] ").strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was changed")
