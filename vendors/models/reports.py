"""Delivery reports: the keys that verify them, and counts; and counts of answers by cause."""

from typing import Any

from django.db import models
from django.utils.translation import gettext, gettext_lazy

from vendors.models.vendors import Credential, EncryptedJSONField, Vendor


class ReportKey(models.Model):
    """A secret with which a vendor signs delivery reports. Two are valid during a rotation.

    `credential`: the account whose reports it signs; empty: all accounts without a key of their own.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="report_keys")
    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="report_keys", null=True)
    secret: Any = EncryptedJSONField(help_text="{'key': '...'}; write-only")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return gettext("report key %(key)s") % {"key": self.pk}


class ReportCount(models.Model):
    """The number of events a vendor reported on a day, or of its refused requests.

    `what`: taken; unknown: events for no letter of this vendor; forged: requests without proof of the vendor;
    unreadable: requests in an unknown form.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    day = models.DateField()
    what = models.CharField(max_length=10)
    reports = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["vendor", "day", "what"], name="report_count_once")]

    def __str__(self) -> str:
        return f"{self.day}: {self.reports} {self.what}"


class CauseCount(models.Model):
    """The number of messages that a vendor has refused or put off by one cause, since mailhub counts them.

    `cause`: an AnswerCause. `what`: refused or put_off. `share`: as in Minute. A vendor has at most 192 rows.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    cause = models.CharField(gettext_lazy("cause"), max_length=9)
    what = models.CharField(gettext_lazy("what"), max_length=7)
    share = models.PositiveSmallIntegerField(gettext_lazy("share"))
    messages = models.PositiveBigIntegerField(gettext_lazy("messages"))

    class Meta:
        default_permissions = ()
        verbose_name = gettext_lazy("count of a cause")
        verbose_name_plural = gettext_lazy("counts of causes")
        constraints = [models.UniqueConstraint(fields=["vendor", "cause", "what", "share"], name="cause_count_once")]

    def __str__(self) -> str:
        return f"{self.messages} {self.what}: {self.cause}"
