"""Delivery reports: the keys that verify them, and counts."""

from typing import Any

from django.db import models
from django.utils.translation import gettext

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
