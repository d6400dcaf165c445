"""`manage.py units`: units for systemd."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mailhub import environment
from mailhub.management import unit_files
from mailhub.management.commands.up import read_procfile

TMPFILES, SYSUSERS = "/etc/tmpfiles.d/mailhub.conf", "/etc/sysusers.d/mailhub.conf"


class Command(BaseCommand):
    help = (
        "Write units for systemd, made from the Procfile: a service for each process, mailhub.target, which starts and "
        "ends them all, mailhub-migrate.service, and the files for systemd-sysusers and systemd-tmpfiles. "
        "VENDOR_PROCESSES says how many senders. Exit codes: 0 done, 1 a file cannot be written."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        place = unit_files.UnitPlace("")
        parser.add_argument("folder", help="where to write them, as /etc/systemd/system")
        parser.add_argument("--home", default=place.home, help="MAILHUB_HOME of the services; default: %(default)s")
        about = "file with the settings, as NAME=value; default: %(default)s"
        parser.add_argument("--environment-file", default=place.environment, help=about)
        parser.add_argument("--user", default=place.user, help="whom the services run as; default: %(default)s")

    def handle(self, *args: Any, folder: str, **options: Any) -> None:
        place = unit_files.UnitPlace(
            program=_find_program(),
            home=options["home"],
            environment=options["environment_file"],
            user=options["user"],
            senders=int(environment.number_setting("VENDOR_PROCESSES", 2)),
        )
        files = unit_files.make_units(read_procfile(), place)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                Path(folder, name).write_text(text)
        except OSError as why:
            raise CommandError(f"{why.filename or folder} cannot be written: {why.strerror or why}") from None
        self.stdout.write(f"{folder} has {', '.join(files)}")
        self.stdout.write(f"Move mailhub.tmpfiles.conf to {TMPFILES} and mailhub.sysusers.conf to {SYSUSERS}")


def _find_program() -> str:
    """Return what starts mailhub: the installed command, or Python with manage.py."""
    installed = Path(sys.executable).parent / "mailhub"
    if installed.exists():
        return str(installed)
    return f"{sys.executable} {environment.PROJECT / 'manage.py'}"
