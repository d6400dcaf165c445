"""Quotas: how much a sponsor may send, in all or at one vendor (campaigns/senders/quotas)."""

from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q, UniqueConstraint
from django.utils.translation import gettext, gettext_lazy

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors import prices
from vendors.models import Vendor
from vendors.models.constraints import SentenceCheck
from vendors.models.prices import known_currency
from vendors.said import Said, gettext_noop, show

LARGEST = Decimal(10) ** 14


class SponsorQuota(models.Model):
    """A limit of a sponsor's work. It holds from the next check on; no row means no limit.

    vendor: empty for all vendors together, except sandboxes. span: work in flight (accepted and not finished), a day or
    a month (UTC, as in the accounts). warned_on: the first day of the period whose warning was logged.
    """

    class Span(models.TextChoices):
        FLIGHT = "flight", "in flight"
        DAY = "day", "a day"
        MONTH = "month", "a month"

    class Measure(models.TextChoices):
        MESSAGES = "messages", "messages"
        UNITS = "units", "units"
        MONEY = "money", "money"

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    vendor = models.ForeignKey(
        Vendor,
        on_delete=models.CASCADE,
        related_name="+",
        db_constraint=False,
        db_index=False,
        null=True,
        blank=True,
        help_text="Empty: all vendors together, except sandboxes.",
    )
    span = models.CharField(
        max_length=6, choices=Span, help_text="Days and months are counted in UTC, as in the accounts."
    )
    measure = models.CharField(max_length=8, choices=Measure, help_text="Money goes with a month.")
    most = models.DecimalField(
        max_digits=18,
        decimal_places=4,
        validators=[MinValueValidator(Decimal(0)), MaxValueValidator(LARGEST - 1)],
        help_text="So much is allowed; 0 allows nothing.",
    )
    currency = models.CharField(
        max_length=3, blank=True, validators=[known_currency], help_text="Of money only: ISO 4217, as EUR"
    )
    warn_percent = models.PositiveSmallIntegerField(
        default=80,
        db_default=80,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Warn when so many percent of it are used.",
    )
    warned_on = models.DateField(null=True, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["sponsor", "vendor", "span", "measure"]
        verbose_name = "quota"
        verbose_name_plural = "quotas"
        constraints = [
            UniqueConstraint(
                fields=["sponsor", "vendor", "span", "measure", "currency"],
                name="sponsor_quota_once",
                nulls_distinct=False,
            ),
            SentenceCheck(
                condition=Q(most__gte=0, most__lt=LARGEST, warn_percent__gte=1, warn_percent__lte=100),
                name="sponsor_quota_range",
                violation_error_message=gettext_lazy("A quota is not negative, and it warns from 1 to 100 percent on."),
            ),
            SentenceCheck(
                condition=Q(measure="money", span="month") & ~Q(currency="")
                | Q(measure__in=["messages", "units"], currency=""),
                name="sponsor_quota_money",
                violation_error_message=gettext_lazy(
                    "Money has a currency and goes with a month; messages and units have none."
                ),
            ),
        ]

    def __str__(self) -> str:
        where = self.vendor.slug if self.vendor else ""
        quota = show(self.describe_allowance)
        form = gettext("%(sponsor)s at %(vendor)s: %(quota)s") if where else gettext("%(sponsor)s: %(quota)s in all")
        return form % {"sponsor": self.sponsor.name, "vendor": where, "quota": quota}

    @property
    def describe_allowance(self) -> Said:
        """Describe the allowance: 1,000 messages a day."""
        return describe_amount(self.measure, self.span, self.most, self.currency)

    def clean(self) -> None:
        """Check what belongs together. Raises ValidationError with sentences for the page."""
        money = self.measure == self.Measure.MONEY
        if money != bool(self.currency) or (money and self.span != self.Span.MONTH):
            raise ValidationError(gettext("Money has a currency and goes with a month; messages and units have none."))
        if self.most is not None and not money and self.most != int(self.most):
            raise ValidationError({"most": gettext("Messages and units are whole numbers.")})


AMOUNTS = {
    ("messages", "flight"): gettext_noop("%(count)s messages in flight"),
    ("messages", "day"): gettext_noop("%(count)s messages a day"),
    ("messages", "month"): gettext_noop("%(count)s messages a month"),
    ("units", "flight"): gettext_noop("%(count)s units in flight"),
    ("units", "day"): gettext_noop("%(count)s units a day"),
    ("units", "month"): gettext_noop("%(count)s units a month"),
    ("money", "month"): gettext_noop("%(count)s a month"),
}


def describe_amount(measure: str, span: str, most: Decimal, currency: str) -> Said:
    """Describe a quota's allowance: 1,000 messages a day; 250.00 EUR a month."""
    form = AMOUNTS.get((measure, span)) or "%(count)s"  # a row not valid yet
    return Said(form, count=write_amount(measure, most, currency))


def write_amount(measure: str, amount: Decimal, currency: str) -> int | str:
    """Return an amount as a value of a sentence: a count, or money with its currency."""
    if measure == SponsorQuota.Measure.MONEY:
        return prices.format_amount(round(amount, 2), currency) if currency else f"{amount:f}"
    return int(amount)
