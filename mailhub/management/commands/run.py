"""`manage.py run`: becomes one process of the Procfile."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from mailhub.management.commands.up import read_procfile


class Command(BaseCommand):
    help = (
        "Become one process of the Procfile, for process managers and containers. A signal reaches that process "
        "itself. Exit codes: its own; 1 the Procfile has no such process."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        about = "its name in the Procfile, as web or worker-hub; default: MAILHUB_ROLE"
        parser.add_argument("role", nargs="?", default=None, help=about)

    def handle(self, *args: Any, role: str | None, **options: Any) -> None:
        role, processes = role or settings.MAILHUB_ROLE, read_procfile()
        if role not in processes:
            named = f"the Procfile has no process {role}" if role else "which process? Name it, or set MAILHUB_ROLE"
            raise CommandError(f"{named} (there are {', '.join(processes)})")
        os.environ["MAILHUB_ROLE"] = role
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        os.chdir(settings.BASE_DIR)
        connections.close_all()
        sys.stdout.flush()
        os.execv("/bin/sh", ["/bin/sh", "-c", f"exec {processes[role]}"])  # noqa: S606 (our Procfile)
