"""Prices of vendors: the one that holds on a day, new ones, and the format of amounts.

Prices that have begun never change; a new one begins today or later. One that begins earlier, or on the same day as
another, is a correction: it needs a reason, and the earlier rows stay. Amounts are exact decimals; currencies are never
converted.
"""

from datetime import date
from decimal import Decimal

from babel.numbers import get_currency_precision
from django.db import transaction
from django.utils import timezone

from vendors import history, locks
from vendors.history import Actor
from vendors.models import Credential, Price, Vendor
from vendors.said import Said, gettext_noop

# The row of the price that holds; for a LATERAL join.
HOLDS = """SELECT p.* FROM vendors_price p
    WHERE p.vendor_id = {vendor} AND p.since <= {day} AND (p.credential_id IS NULL OR p.credential_id = {credential})
    ORDER BY p.credential_id IS NULL, p.since DESC, p.id DESC LIMIT 1"""
HELD = HOLDS.format(vendor="%(vendor)s", credential="%(credential)s", day="%(day)s")


class NotAPrice(ValueError):
    """The price is not valid; the text says what is missing."""


def pricing_day() -> date:
    """Return the day for prices and accounts, in UTC."""
    return timezone.now().date()


def price_on(vendor_id: int, credential_id: int | None, day: date) -> Price | None:
    """Return the price that holds on this day, or None."""
    return next(iter(Price.objects.raw(HELD, {"vendor": vendor_id, "credential": credential_id, "day": day})), None)


def check_price(price: Price) -> None:
    """Check the price. Raises NotAPrice for a correction without a reason."""
    if price.credential_id and price.credential and price.credential.vendor_id != price.vendor_id:
        raise NotAPrice(Said("the credential is not of %(vendor)s", vendor=price.vendor))
    if price.reason.strip() or price.since > pricing_day():
        return
    others = Price.objects.filter(vendor=price.vendor_id, credential=price.credential_id, since__lte=pricing_day())
    if price.since == pricing_day():
        others = others.filter(since=price.since)
    if others.exists():
        raise NotAPrice(Said("it corrects prices that have begun: say why with a reason"))


@transaction.atomic
def add_price(price: Price, by: Actor) -> bool:
    """Add the price and record it in its vendor's history. Returns False if the same price already holds from that day.

    In both cases `price` has the row's key afterwards. Raises NotAPrice.
    """
    locks.lock_vendor(price.vendor_id)  # of two concurrent additions the second sees the first
    there = Price.objects.filter(vendor=price.vendor_id, credential=price.credential_id, since=price.since)
    last = there.order_by("-id").first()
    if last and _price_terms(last) == _price_terms(price):
        price.pk = last.pk
        return False
    check_price(price)
    price.entered_by = by.name[:150]
    price.save(force_insert=True)
    login: Credential | None = price.credential
    form = gettext_noop("price of %(login)s added: %(price)s") if login else gettext_noop("price added: %(price)s")
    what = Said(form, login=login.name if login else "", price=price.terms)
    history.record_changes(by, Vendor, [(price.vendor_id, what)], price.reason)
    return True


def _price_terms(price: Price) -> tuple[str, Decimal, Decimal]:
    return price.currency, price.per_unit, price.per_message


def format_amount(value: Decimal, currency: str) -> str:
    """Return the exact amount, with at least the currency's number of decimals: 1,212.3456 EUR."""
    return f"{value:,.{_decimal_places(value, currency)}f} {currency}"


def format_digits(value: Decimal, currency: str) -> str:
    """Return the exact number of an amount, without separators."""
    return f"{value:.{_decimal_places(value, currency)}f}"


def _decimal_places(value: Decimal, currency: str) -> int:
    return max(get_currency_precision(currency), -int(value.normalize().as_tuple().exponent))
