"""Changes to where mail goes or which account sends it; they wait for a second person."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext

from vendors.models.vendors import Credential, EncryptedJSONField, Vendor


class VendorChange(models.Model):
    """A requested change of a vendor or one of its credentials, and the second person's decision.

    `fields`: new values by column. `secret`: the credential's new one; empty: unchanged. `basis`: a digest of the
    stored values at the time of the request; if they have changed since, the change cannot be confirmed. Written by
    vendors/second_person.py.
    """

    class Outcome(models.TextChoices):
        CONFIRMED = "confirmed"
        REFUSED = "refused"
        WITHDRAWN = "withdrawn"
        OUTDATED = "outdated"

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="changes")
    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="changes", null=True)
    fields: Any = models.JSONField(default=dict)
    secret: Any = EncryptedJSONField(default=dict)
    basis = models.CharField(max_length=64)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    asked_name = models.CharField("asked for by", max_length=150)
    asked_at = models.DateTimeField("asked for at", db_default=Now())
    outcome = models.CharField(max_length=10, choices=Outcome, blank=True, default="")
    decided_by = models.CharField(max_length=150, blank=True, default="")
    decided_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "credential"],
                condition=Q(outcome=""),
                name="one_open_vendor_change",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return gettext("change of %(what)s") % {"what": self.credential or self.vendor}
