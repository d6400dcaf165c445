"""`manage.py sandbox_vendor`: a simulated vendor on this machine, to try everything with; no mail leaves it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sandbox.vendor.process import add_options, run


class Command(BaseCommand):
    help = "Run a sandbox vendor: answers like a real one, misbehaves on request, keeps its own books."
    requires_system_checks = []  # a vendor needs neither our database nor our settings

    def add_arguments(self, parser: CommandParser) -> None:
        add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run(options, self._announce)
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from error

    def _announce(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
