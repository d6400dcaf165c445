"""`manage.py days`: messages and their outcomes by day, like the chart for campaign owners."""

import csv
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError

from campaigns.doors.sponsors import named_sponsor
from campaigns.engine import day_counts
from vendors.management.output import write_file, write_rows

SHOWN = ("day", *day_counts.KINDS)


class Command(BaseCommand):
    help = (
        "What happened to messages by day (UTC), today's last: sent on the day of the call; delivered, bounced, "
        "complained and unsubscribed on the day on which it happened. A day may be negative, where a later report "
        "corrects one of that day. Exit codes: 0 done, 1 unknown sponsor, bad value, or the file cannot be written, "
        "2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--sponsor", metavar="NAME", help="only of this one; default: of all together")
        about = f"days to show, today included; up to {day_counts.MOST_DAYS}; default: {day_counts.DAYS_SHOWN}"
        parser.add_argument("--days", type=int, metavar="N", default=day_counts.DAYS_SHOWN, help=about)
        parser.add_argument("--csv", metavar="FILE", help="write them to this new file; - is the output")
        parser.add_argument("--json", action="store_true", help="one object a day")

    def handle(self, *args: Any, **options: Any) -> None:
        sponsors = [named_sponsor(options["sponsor"]).pk] if options["sponsor"] else None
        try:
            found = day_counts.sum_days(sponsors, options["days"])
        except ValueError as error:
            raise CommandError(f"--days: {error}") from None
        rows = [asdict(one) | {"day": one.day.isoformat()} for one in found]
        if options["csv"]:
            write_file(self.stdout, options["csv"], len(rows), lambda file: _write_days(rows, file))
            return
        together = [asdict(day_counts.sum_all_days(found)) | {"day": "together"}]
        write_rows(self.stdout, rows if options["json"] else [*rows, *together], options["json"], SHOWN)


def _write_days(rows: list[dict[str, Any]], file: TextIO) -> None:
    writer = csv.DictWriter(file, SHOWN)
    writer.writeheader()
    writer.writerows(rows)
