"""Sponsors that share a vendor: their weights, and what each was given there (campaigns/engine/turns)."""

from django.db import models
from django.db.models import Q, UniqueConstraint
from django.utils.translation import gettext, gettext_lazy

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors.mail_classes import MailClass
from vendors.models import Vendor
from vendors.models.constraints import SentenceCheck

WEIGHT_MAX = 1000


class SponsorTurn(models.Model):
    """A sponsor at a vendor. No row: weight 1, and nothing given yet.

    given, clock and rate are neither written nor read any more: ClassTurn has them for each class.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    weight = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="Its share of the vendor while others wait too: 2 gets twice as much as 1."
    )
    given = models.FloatField(default=0.0, db_default=0.0, editable=False)
    clock = models.FloatField(default=0.0, db_default=0.0, editable=False)
    rate = models.FloatField(default=0.0, db_default=0.0, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["vendor", "sponsor"]
        verbose_name = "weight at a vendor"
        verbose_name_plural = "weights at vendors"
        constraints = [
            UniqueConstraint(fields=["vendor", "sponsor"], name="sponsor_turn_once"),
            SentenceCheck(
                condition=Q(weight__gte=1, weight__lte=WEIGHT_MAX),
                name="sponsor_turn_weight",
                violation_error_message=gettext_lazy("The weight must be a whole number from 1 to 1000."),
            ),
        ]

    def __str__(self) -> str:
        return gettext("%(sponsor)s at %(vendor)s") % {"sponsor": self.sponsor.name, "vendor": self.vendor.slug}


class ClassTurn(models.Model):
    """The service given to a sponsor at a vendor, in one class of mail.

    given: the units of its calls, each divided by the weight of that moment (virtual time of fair queueing). clock: the
    virtual time of the class at the sponsor's last turn before others, or last units given to it alone. The largest
    clock of the rows of a vendor and class is the class's. rate: units a second of one of its streams, lately.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    mail_class = models.SmallIntegerField(choices=MailClass.choices)
    given = models.FloatField(default=0.0, db_default=0.0)
    clock = models.FloatField(default=0.0, db_default=0.0)
    rate = models.FloatField(default=0.0, db_default=0.0)

    objects = OfSponsors.as_manager()

    class Meta:
        constraints = [UniqueConstraint(fields=["vendor", "mail_class", "sponsor"], name="class_turn_once")]

    def __str__(self) -> str:
        return f"{self.sponsor_id} at {self.vendor_id}, {MailClass(self.mail_class).word}"


class ClassCredit(models.Model):
    """The part of its floor that a lower class of mail may still be given at a vendor (campaigns/engine/turns).

    credit: units; it grows by the floor's share of everything given to the vendor, and shrinks by the units given to
    the class. most: the most units saved up; least: the most units owed, negative. The row of urgent mail has neither.
    needed: mailcasters that urgent letters needed at once lately (turns/reserve.py), until needed_until.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    mail_class = models.SmallIntegerField(choices=MailClass.choices)
    credit = models.FloatField(default=0.0, db_default=0.0)
    most = models.FloatField(default=0.0, db_default=0.0)
    least = models.FloatField(default=0.0, db_default=0.0)
    needed = models.SmallIntegerField(default=0, db_default=0)
    needed_until = models.DateTimeField(null=True)

    class Meta:
        constraints = [UniqueConstraint(fields=["vendor", "mail_class"], name="class_credit_once")]

    def __str__(self) -> str:
        return f"{MailClass(self.mail_class).word} at {self.vendor_id}"
