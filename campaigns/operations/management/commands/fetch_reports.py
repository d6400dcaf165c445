"""`manage.py fetch_reports`: fetches vendors' report files, as beat does every minute."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns import tasks
from campaigns.engine import fetched_reports
from campaigns.engine.fetched_reports import FetchedFromVendor
from vendors.management import arguments
from vendors.management.output import write_result
from vendors.said import count_of


class Command(BaseCommand):
    help = (
        "Fetch what vendors report in files, such as acknowledgements of print files; beat does so every minute. "
        "Fetching twice changes nothing. Exit codes: 0 fetched, 1 a vendor could not be reached."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("vendor", nargs="?", default="", help="slug; default: all that report in files")
        parser.add_argument("--json", action="store_true", help="one object for each vendor")

    def handle(self, *args: Any, vendor: str, json: bool, **options: Any) -> None:
        if vendor:
            arguments.find_vendor(vendor)
        found = fetched_reports.fetch_all(vendor)
        if not found:
            raise CommandError(f"{vendor} does not report in files" if vendor else "no vendor reports in files")
        for one in found:
            write_result(self.stdout, self._fetched_line(one), self._fetched_facts(one), json)
            for sentence in one.strange:
                self.stderr.write(f"{one.vendor}: {sentence}")
        if any(one.calls for one in found):
            tasks.notify_webhooks()
        if failed := [f"{one.vendor}: {one.why}" for one in found if one.why]:
            raise CommandError("\n".join(failed))

    @staticmethod
    def _fetched_line(one: FetchedFromVendor) -> str:
        rest = f", {one.unknown:,} of letters that are not known" if one.unknown else ""
        rest += f"; {count_of(one.left_out, 'row says', 'rows say')} nothing" if one.left_out else ""
        return f"{one.vendor}: {count_of(one.files, 'file')}, {count_of(one.reports, 'report')}{rest}"

    @staticmethod
    def _fetched_facts(one: FetchedFromVendor) -> dict[str, Any]:
        names = ("vendor", "files", "reports", "unknown", "left_out", "why")
        return {name: getattr(one, name) for name in names}
