"""Vendors' prices: rows with the first day on which they hold."""

from decimal import Decimal

from babel.numbers import is_currency
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy

from vendors.models.constraints import SentenceCheck
from vendors.models.vendors import Credential, Vendor
from vendors.said import Said, gettext_noop, show

DIGITS, PLACES = 20, 10  # of an amount: prices go down to a ten thousandth of a cent per message


def known_currency(code: str) -> None:
    if not (code.isascii() and code.isupper() and is_currency(code)):
        raise ValidationError(Said("%(name)s is not a currency of ISO 4217; for example EUR", name=repr(code)))


class Price(models.Model):
    """A vendor's price for an accepted message, from a day on (UTC). Rows are added, never changed (vendors/prices.py).

    The latest price that has begun holds; among those of one day, the one entered last. A credential's own price goes
    before the vendor's. `per_unit` is multiplied by the units of the message (`Capabilities.cost`).
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="prices", db_index=False)
    credential = models.ForeignKey(
        Credential,
        on_delete=models.CASCADE,
        related_name="prices",
        null=True,
        blank=True,
        db_index=False,
        help_text="Empty: the price holds for all credentials of the vendor that have none of their own.",
    )
    since = models.DateField(help_text="The first day (UTC) on which it holds")
    currency = models.CharField(max_length=3, validators=[known_currency], help_text="ISO 4217, as EUR")
    per_unit = models.DecimalField(
        max_digits=DIGITS,
        decimal_places=PLACES,
        validators=[MinValueValidator(Decimal(0))],
        help_text="For each unit: a segment of an SMS, a page, a message where the adapter counts messages",
    )
    per_message = models.DecimalField(
        max_digits=DIGITS,
        decimal_places=PLACES,
        default=Decimal(0),
        validators=[MinValueValidator(Decimal(0))],
        help_text="In addition for each message",
    )
    reason = models.CharField(max_length=255, blank=True, help_text="Needed if it corrects days that are over")
    entered_by = models.CharField(max_length=150, editable=False)
    entered_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["vendor", "credential", "-since", "-id"]
        indexes = [models.Index(fields=["vendor", "since"], name="price_since")]
        constraints = [
            SentenceCheck(
                condition=Q(per_unit__gte=0, per_message__gte=0),
                name="price_positive",
                violation_error_message=gettext_lazy("A price must not be below 0."),
            )
        ]

    def __str__(self) -> str:
        return show(self.terms)

    @property
    def terms(self) -> Said:
        """The price as a sentence for a page or the history."""
        facts = {"unit": f"{self.per_unit.normalize():f}", "currency": self.currency, "day": self.since}
        if not self.per_message:
            return Said(gettext_noop("%(unit)s %(currency)s from %(day)s"), **facts)
        facts["message"] = f"{self.per_message.normalize():f}"
        return Said(gettext_noop("%(unit)s + %(message)s a message %(currency)s from %(day)s"), **facts)
