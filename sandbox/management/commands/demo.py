"""`manage.py demo`: the whole product at work on one screen (sandbox/demo/ has the scenario)."""

import secrets
import shutil
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from sandbox.demo import logins, report, setup, verify
from sandbox.demo.channels import ChannelStory
from sandbox.demo.processes import Broken, Processes
from sandbox.demo.scenario import DocumentStory
from sandbox.demo.screen import HEIGHT, WIDTH, PlainOutput, Screen
from sandbox.demo.story import Story, play, stay

NUMBERS = {3: "three", 4: "four"}


class Command(BaseCommand):
    help = (
        "Everything at work: sandbox vendors, workers, beat, web and Flower, in a home of its own below MAILHUB_HOME, "
        "fresh each time. On a terminal it stays up until Ctrl-C. Exit codes: 0 both sides' books agree, 1 not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="plain lines, and the end once all mail is out")
        help = f"of job 103; document 003 has {setup.DOCUMENT[103]:,} (default: %(default)s)"
        parser.add_argument("--recipients", type=int, default=20_000, metavar="N", help=help)

        help = "letters, SMS and e-mail side by side, by sandboxes of Lob, Twilio, Amazon SES and Mailgun"
        parser.add_argument("--channels", choices=("all",), help=help)

    def handle(self, *args: Any, once: bool, recipients: int, channels: str | None, **options: Any) -> None:
        if recipients < setup.THRESHOLD:
            raise CommandError(f"job 103 is to be cut: at least {setup.THRESHOLD:,} recipients")
        self.story: Story = ChannelStory() if channels else DocumentStory(recipients)
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
        """Run the story. Returns True if rows and books agree."""
        password = secrets.token_urlsafe(9)
        story = self.story
        self._set_up(processes, password)
        watcher: Any
        if stays and self._fits():
            watcher = Screen(self.console, story.panels, story.counted)
        else:
            watcher = PlainOutput(self._say, story.summary)
        story.tell = watcher.tell
        with watcher:
            play(processes, story, watcher)
        good = self._report(processes)
        if stays:
            self.console.print(report.next_steps(processes, password, story.tries))
            stay(processes)
        return good

    def _set_up(self, processes: Processes, password: str) -> None:
        self._say(f"Starting {NUMBERS[len(self.story.limits)]} sandbox vendors")
        for slug, limit in self.story.limits.items():
            processes.start_vendor(slug, limit, *self.story.options(slug))
        self._say("Starting web, Flower, beat and workers")
        processes.start_hub(password)
        began = time.monotonic()
        processes.wait_for_tables()
        self._say(f"The tables are made ({time.monotonic() - began:.0f} s)")
        processes.open_vendors()
        self.story.make_vendors(processes)
        logins.make(password)
        self._say("Loading the lists")
        self.story.load_lists()
        logins.furnish()
        processes.wait_for_hub(self._say)

    def _report(self, processes: Processes) -> bool:
        accounts = [verify.compare(vendor) for vendor in processes.vendors.values()]
        books, audit = report.promises(accounts, verify.audit())
        points = [books, *self.story.points(), audit]
        self.console.print(report.table(accounts), report.verdict(points, self.story.remark()))
        return all(good for good, _, _ in points)

    def _fits(self) -> bool:
        found = shutil.get_terminal_size()
        if found.columns >= WIDTH and found.lines >= HEIGHT:
            return True
        self._say(f"A terminal of {WIDTH} by {HEIGHT} shows more than this one of {found.columns} by {found.lines}")
        return False

    def _say(self, sentence: str, style: str = "") -> None:
        with suppress(OSError):  # the terminal may be gone; the clean-up continues
            self.console.print(sentence, soft_wrap=True, style=style or None)
