"""`manage.py services`: show, start, stop, rebuild or reset the embedded PostgreSQL and Redis."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from mailhub import embedded

NOT_RUNNING = 3  # the exit code of service managers


class Command(BaseCommand):
    help = (
        "The embedded PostgreSQL and Redis: status (exit code 3 if one is not running), start, stop; rebuild-redis "
        "puts the data of Redis aside and begins with an empty one, and all mail stays; reset deletes everything."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["status", "start", "stop", "rebuild-redis", "reset"])
        parser.add_argument("--yes", action="store_true", help="reset: do not ask before all data is deleted")

    def handle(self, *args: Any, action: str, yes: bool, **options: Any) -> None:
        home = embedded.Home()
        try:
            if action == "status":
                self._show_status(home)
            elif action == "start":
                embedded.ensure_servers(home)
                self._show_status(home)
            elif action == "stop":
                self._stop_and_tell(home)
            elif action == "rebuild-redis":
                self._rebuild_redis(home)
            else:
                self._reset_if_agreed(home, yes)
        except embedded.EmbeddedError as why:
            raise CommandError(str(why)) from why

    def _show_status(self, home: embedded.Home) -> None:
        states = embedded.server_states(home)
        for state in states:
            self.stdout.write(_engine_sentence(state))
        if not all(state.running for state in states):
            raise SystemExit(NOT_RUNNING)

    def _stop_and_tell(self, home: embedded.Home) -> None:
        stopped = embedded.stop_servers(home)
        self.stdout.write(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")

    def _rebuild_redis(self, home: embedded.Home) -> None:
        aside = embedded.rebuild_redis(home)
        old = f" Its old data is in {aside}: delete that when all is well." if aside else ""
        self.stdout.write(f"Redis is empty; all mail is in PostgreSQL and stays.{old}")
        self.stdout.write(
            "The sweep finds the jobs again; the throttle is written anew from the ledger before a vendor is called."
        )

    def _reset_if_agreed(self, home: embedded.Home, yes: bool) -> None:
        if not yes and not self._has_agreed(home):
            raise CommandError("Nothing was deleted")
        embedded.reset_servers(home)
        self.stdout.write(f"Deleted the databases in {home.path}")

    def _has_agreed(self, home: embedded.Home) -> bool:
        try:
            return input(f"Delete all mail, jobs and queues in {home.path}? Type yes: ").strip() == "yes"
        except EOFError:
            return False


def _engine_sentence(state: embedded.State) -> str:
    if state.given:
        return f"{state.title}: given by {state.variable}"  # its URL may contain a password
    if state.running:
        return f"{state.title}: running, process {state.pid}, {state.url}"
    return f"{state.title}: " + ("not answering" if state.pid else "not running")
