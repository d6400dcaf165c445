"""`manage.py alive`: whether a process of this machine lives, for probes."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mailhub import process_life


class Command(BaseCommand):
    help = (
        "Tell whether a process of this machine lives: web, api and flower by their port; beat, bounces and workers by "
        "the sign that they leave in MAILHUB_HOME every few seconds. It asks no server, which no restart brings back. "
        "Exit codes: 0 it lives, 1 it does not."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        about = "its name in the Procfile, as worker-hub, or worker-vendors.2; default: MAILHUB_ROLE"
        parser.add_argument("role", nargs="?", default=None, help=about)

    def handle(self, *args: Any, role: str | None, **options: Any) -> None:
        role = role or settings.MAILHUB_ROLE
        if not role:
            raise CommandError("which process? Name it, or set MAILHUB_ROLE")
        if death := process_life.find_death(role, settings.MAILHUB_HOME):
            raise CommandError(death)
        self.stdout.write(f"{role} lives")
