"""`manage.py read_bounces`: reads returned mails from a mailbox, by IMAP."""

import time
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, close_old_connections

from campaigns import tasks
from campaigns.audience.bounces import mailbox
from campaigns.audience.bounces.inbound import TakenMail
from campaigns.audience.bounces.mailbox import MailboxError
from vendors.management.output import write_result


class Command(BaseCommand):
    help = (
        "Read bounces, complaints and mails that unsubscribe from the mailbox in the setting BOUNCE_MAILBOX, such as "
        "imaps://user:password@mail.example.com/INBOX: the unread ones, which it marks as read, at most 500 at a time. "
        "Reading a mail twice changes nothing. Exit codes: 0 read, 1 the mailbox cannot be read."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--move-to", default="", metavar="FOLDER", help="move mails there after reading; take all mails"
        )
        parser.add_argument("--every", type=float, metavar="SECONDS", help="read again and again; Ctrl-C ends it")
        parser.add_argument("--json", action="store_true", help="how many mails of each kind, as one object a reading")

    def handle(self, *args: Any, move_to: str, every: float | None, json: bool, **options: Any) -> None:
        if not settings.BOUNCE_MAILBOX:
            raise CommandError("BOUNCE_MAILBOX is empty: set it to imaps://user:password@host/INBOX")
        if every is not None and not 1 <= every <= 86_400:
            raise CommandError("--every is a number of seconds from 1 to 86,400", returncode=2)
        while True:
            more = False
            try:
                more = self._read_once(move_to, json) >= mailbox.AT_ONCE
            except MailboxError as error:
                if every is None:
                    raise CommandError(str(error)) from None
                self.stderr.write(f"{error}; once more in {every:g} s")
            except Error as error:  # of the database; uncommitted mails are read again
                if every is None:
                    raise
                self.stderr.write(f"the database: {type(error).__name__}: {error}; once more in {every:g} s")
            if every is None:
                return
            if not more:
                time.sleep(every)
            close_old_connections()

    def _read_once(self, move_to: str, json: bool) -> int:
        """Read once. Returns the number of mails."""
        where = mailbox.parse_address(settings.BOUNCE_MAILBOX)
        counts: Counter[str] = Counter()
        calls: list[int] = []

        def count_taken(one: TakenMail) -> None:
            counts[one.what] += 1
            calls.extend(one.calls)

        try:
            number = mailbox.read_mails(where, move_to, count_taken)
        finally:
            if calls:
                tasks.notify_webhooks()
        found = ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "no mails"
        write_result(self.stdout, found, dict(counts), json)
        return number
