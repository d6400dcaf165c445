"""`manage.py costs`: vendors' charges by month, sponsor and vendor."""

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.doors.sponsors import named_sponsor
from campaigns.reporting import accounts
from campaigns.reporting.accounts import MonthCost
from vendors import prices
from vendors.management import arguments
from vendors.management.output import write_file, write_rows
from vendors.said import count_of

SHOWN = ("month", "sponsor", "vendor", "messages", "units", "money", "doubtful")


class Command(BaseCommand):
    help = (
        "Vendors' charges for accepted messages, by the month of the call (UTC), by sponsor and vendor, at the prices "
        "of `vendor price`. Exit codes: 0 done, 1 unknown name, bad value, or the file cannot be written, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--month", metavar="YYYY-MM", help="only this one; default: the last twelve")
        parser.add_argument("--sponsor", metavar="NAME")
        parser.add_argument("--vendor", metavar="SLUG")
        parser.add_argument("--csv", metavar="FILE", help="write them to this new file; - is the output")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        first, last = _months_of_option(options["month"])
        sponsors = [named_sponsor(options["sponsor"]).pk] if options["sponsor"] else None
        vendors = [arguments.find_vendor(options["vendor"]).slug] if options["vendor"] else None
        found = accounts.accounts_of_months(first, last, sponsors, vendors)
        if options["csv"]:
            write_file(self.stdout, options["csv"], len(found), lambda file: accounts.write_csv(found, file))
            return
        write_rows(self.stdout, map(_account_row, found), options["json"], SHOWN)
        if not options["json"] and len(found) > 1:
            self.stdout.write(_totals_line(found))


def _months_of_option(text: str | None) -> tuple[date, date]:
    if text is None:
        return accounts.past_twelve_months()
    try:
        month = accounts.parse_month(text)
    except ValueError as error:
        raise CommandError(str(error)) from None
    return month, month


def _account_row(account: MonthCost) -> dict[str, Any]:
    return {**accounts.account_facts(account), "money": account.money, "doubtful": account.doubtful}


def _totals_line(found: list[MonthCost]) -> str:
    sums = ", ".join(
        prices.format_amount(value, currency) for currency, value in accounts.sum_by_currency(found).items()
    )
    unpriced = sum(one.messages for one in found if one.amount is None)
    more = f"; without a price: {count_of(unpriced, 'message')}" if unpriced else ""
    return f"together: {sums or 'no amount'}{more}"
