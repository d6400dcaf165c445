"""Prices of vendors: which holds on a day, how one is added, how amounts are written.

What has begun is never changed: a new price begins today or later. One that begins earlier, or on the day of another
one, corrects what was entered: it says why, and the rows before it stay. Amounts are exact decimals; nothing is
converted from one currency into another.
"""

from datetime import date
from decimal import Decimal

from babel.numbers import get_currency_precision
from django.conf import settings
from django.db import transaction
from django.utils import timezone, translation

from vendors import history, locks
from vendors.history import Actor
from vendors.models import Credential, Price, Vendor

# The row of the price that holds; to be used in a LATERAL join.
HOLDS = """SELECT p.* FROM vendors_price p
    WHERE p.vendor_id = {vendor} AND p.since <= {day} AND (p.credential_id IS NULL OR p.credential_id = {credential})
    ORDER BY p.credential_id IS NULL, p.since DESC, p.id DESC LIMIT 1"""
HELD = HOLDS.format(vendor="%(vendor)s", credential="%(credential)s", day="%(day)s")


class NotAPrice(ValueError):
    """The text says what is missing."""


def today() -> date:
    """The day by which prices and accounts go: UTC."""
    return timezone.now().date()


def held(vendor_id: int, credential_id: int | None, day: date) -> Price | None:
    """The price that holds on this day; None: there is none."""
    return next(iter(Price.objects.raw(HELD, {"vendor": vendor_id, "credential": credential_id, "day": day})), None)


def check(price: Price) -> None:
    """Raises NotAPrice for a correction without a reason."""
    if price.credential_id and price.credential and price.credential.vendor_id != price.vendor_id:
        raise NotAPrice(f"the credential is not of {price.vendor}")
    if price.reason.strip() or price.since > today():
        return
    others = Price.objects.filter(vendor=price.vendor_id, credential=price.credential_id, since__lte=today())
    if price.since == today():
        others = others.filter(since=price.since)
    if others.exists():
        raise NotAPrice("it corrects prices that have begun: say why with a reason")


@transaction.atomic
def add(price: Price, by: Actor) -> bool:
    """Adds the price, and records it in the history of its vendor. False: the same holds from that day already.

    Either way it has the row's key then. Raises NotAPrice.
    """
    locks.lock_vendor(price.vendor_id)  # of two at once the second sees the first
    there = Price.objects.filter(vendor=price.vendor_id, credential=price.credential_id, since=price.since)
    last = there.order_by("-id").first()
    if last and _terms(last) == _terms(price):
        price.pk = last.pk
        return False
    check(price)
    price.entered_by = by.name[:150]
    price.save(force_insert=True)
    login: Credential | None = price.credential
    whose = f" of {login.name}" if login else ""
    with translation.override(settings.LANGUAGE_CODE):  # what is stored
        what = f"price{whose} added: {price}"
    history.record(by, Vendor, [(price.vendor_id, what)], price.reason)
    return True


def _terms(price: Price) -> tuple[str, Decimal, Decimal]:
    return price.currency, price.per_unit, price.per_message


def amount(value: Decimal, currency: str) -> str:
    """The exact amount, with at least as many decimals as the currency has: 1,212.3456 EUR."""
    return f"{value:,.{_places(value, currency)}f} {currency}"


def digits(value: Decimal, currency: str) -> str:
    """The exact number of an amount, without separators."""
    return f"{value:.{_places(value, currency)}f}"


def _places(value: Decimal, currency: str) -> int:
    return max(get_currency_precision(currency), -int(value.normalize().as_tuple().exponent))
