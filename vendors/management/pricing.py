"""`manage.py vendor price`: a vendor's prices, and their first days."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from vendors import prices
from vendors.history import Actor
from vendors.management import arguments
from vendors.management.output import write_result, write_rows
from vendors.models import Price
from vendors.prices import NotAPrice

SHOWN = ("since", "credential", "per_unit", "per_message", "currency", "reason", "entered_by")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("slug")
    parser.add_argument("amount", nargs="?", metavar="AMOUNT", help="for each unit; without it: show the prices")
    parser.add_argument("currency", nargs="?", metavar="CURRENCY", help="ISO 4217, as EUR")
    parser.add_argument("--per-message", default="0", metavar="AMOUNT", help="in addition for each message")
    parser.add_argument("--since", metavar="YYYY-MM-DD", help="from that day on (UTC); default: today")
    parser.add_argument("--credential", metavar="NAME", help="of this credential alone")
    parser.add_argument("--reason", default="", help="why past days get another price")


def run_price(out: OutputWrapper, slug: str, options: Mapping[str, Any]) -> None:
    """Show the prices, or add one."""
    row = arguments.find_vendor(slug)
    login = arguments.find_credential(row, options["credential"]) if options["credential"] else None
    if options["amount"] is None:
        found = Price.objects.filter(vendor=row, **({"credential": login} if login else {}))
        write_rows(out, map(_price_facts, found.select_related("credential")), options["json"], SHOWN)
        return
    if options["currency"] is None:
        raise CommandError("say the currency, too: vendor price SLUG 0.0075 EUR", returncode=2)
    wanted = Price(
        vendor=row,
        credential=login,
        since=_parse_day(options["since"]),
        currency=options["currency"],
        per_unit=_parse_amount(options["amount"]),
        per_message=_parse_amount(options["per_message"]),
        reason=options["reason"].strip(),
    )
    arguments.check_row(wanted)
    try:
        new = prices.add_price(wanted, Actor(arguments.shell_user()))
    except NotAPrice as error:
        raise CommandError(f"{slug}: {error} (--reason)") from None
    write_result(
        out, f"{login or slug}: {wanted}: {'added' if new else 'already so'}", _price_facts(wanted), options["json"]
    )


def _parse_amount(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or found < 0:
        raise CommandError(f"{text!r} is not an amount: write it like 0.0075")
    return found


def _parse_day(text: str | None) -> date:
    if text is None:
        return prices.pricing_day()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is not a day: write it like 2026-12-01") from None


def _price_facts(row: Price) -> dict[str, Any]:
    return {
        "vendor": row.vendor.slug,
        "credential": row.credential.name if row.credential else None,
        "since": row.since.isoformat(),
        "per_unit": f"{row.per_unit.normalize():f}",
        "per_message": f"{row.per_message.normalize():f}",
        "currency": row.currency,
        "reason": row.reason,
        "entered_by": row.entered_by,
    }
