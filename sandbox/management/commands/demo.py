"""`manage.py demo`: the whole product at work on one screen (sandbox/demo/ has the scenario)."""

import secrets
import shutil
import sys
import traceback
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from sandbox.demo import report, setup, verify
from sandbox.demo.processes import Broken, Processes
from sandbox.demo.scenario import Story, play, stay
from sandbox.demo.screen import HEIGHT, WIDTH, PlainOutput, Screen


class Command(BaseCommand):
    help = (
        "Everything at work: sandbox vendors, workers, beat, web and Flower, in a home of its own below MAILHUB_HOME, "
        "fresh each time. On a terminal it stays up until Ctrl-C. Exit codes: 0 both sides' books agree, 1 not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="plain lines, and the end when the mail is out")
        help = f"of job 103; document 003 has {setup.DOCUMENT[103]:,} (default: %(default)s)"
        parser.add_argument("--recipients", type=int, default=20_000, metavar="N", help=help)

    def handle(self, *args: Any, once: bool, recipients: int, **options: Any) -> None:
        if recipients < setup.THRESHOLD:
            raise CommandError(f"job 103 is to be cut: at least {setup.THRESHOLD:,} recipients")
        self.recipients = recipients
        self.console = Console(highlight=False, markup=False)
        self.console.width = max(self.console.width, WIDTH)  # so that the report's numbers are not cut
        good = False
        with Processes(settings.MAILHUB_HOME) as processes:
            try:
                good = self._run(processes, stays=sys.stdout.isatty() and not once)
            except (Broken, CommandError) as why:
                self._say(str(why), style="bold red")
            except Exception as why:  # a store or a process is gone: the traceback goes to the log
                processes.note(traceback.format_exc())
                self._say(f"The demo cannot go on: {' '.join(str(why).split()) or type(why).__name__}", "bold red")
            finally:
                if not good:
                    self._say(f"What all processes said is in {processes.log}")
                self._say("Stopping everything")
        sys.exit(0 if good else 1)

    def _run(self, processes: Processes, stays: bool) -> bool:
        """Returns whether rows and books agree."""
        password = secrets.token_urlsafe(9)
        jobs = self._set_up(processes, password)
        watcher: Any = Screen(self.console, jobs) if stays and self._fits() else PlainOutput(self._say, jobs)
        with watcher:
            play(processes, Story(jobs, watcher.tell), watcher)
        good = self._report(processes)
        if stays:
            self.console.print(report.next_steps(processes, password))
            stay(processes)
        return good

    def _set_up(self, processes: Processes, password: str) -> setup.Jobs:
        self._say("Starting three sandbox vendors")
        for slug in setup.LIMITS:
            processes.start_vendor(slug, *setup.sandbox_options(slug))
        self._say("Starting web, Flower, beat and workers")
        processes.start_hub(password)
        processes.wait_for_tables()
        setup.make_vendors(processes.open_vendors())
        setup.make_user(password)
        self._say("Loading the lists")
        jobs = setup.load_lists(self.recipients)
        processes.wait_for_hub()
        return jobs

    def _report(self, processes: Processes) -> bool:
        accounts = [verify.compare(slug, vendor.books()) for slug, vendor in processes.vendors.items()]
        children, breaches = verify.children(), verify.audit()
        self.console.print(report.table(accounts), report.verdict(accounts, children, breaches, self.recipients))
        return all(one.agrees for one in accounts) and verify.as_in_the_document() and not breaches

    def _fits(self) -> bool:
        found = shutil.get_terminal_size()
        if found.columns >= WIDTH and found.lines >= HEIGHT:
            return True
        self._say(f"A terminal of {WIDTH} by {HEIGHT} shows more than this one of {found.columns} by {found.lines}")
        return False

    def _say(self, sentence: str, style: str = "") -> None:
        with suppress(OSError):  # the terminal may be gone; the clean-up goes on
            self.console.print(sentence, soft_wrap=True, style=style or None)
