"""The condition of a credential as its last calls have shown it (vendors/condition)."""

from django.db import models

from vendors.models.vendors import Credential


class VendorCondition(models.Model):
    """The answers to the last calls of a credential, or to those for one receiving domain. Nothing expires.

    `receiver`: a group of receiving domains; empty: all calls of the credential. `destination`: where the calls went
    (vendors/destinations.py); after a change of address or account the row says nothing. `failing_since`, `tries`,
    `doubts`: of the bad answers, and of those in doubt, since the last good one. `last_answer`: the last bad one,
    without its recipient.
    """

    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, related_name="conditions", db_constraint=False, db_index=False
    )
    receiver = models.CharField(max_length=50, default="", db_default="")
    destination = models.BigIntegerField(default=0, db_default=0)
    good_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    tries = models.PositiveIntegerField(default=0, db_default=0)
    doubts = models.PositiveIntegerField(default=0, db_default=0)
    last_at = models.DateTimeField(null=True)
    last_answer = models.CharField(max_length=200, default="", db_default="")
    last_cause = models.CharField(max_length=20, default="", db_default="")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["credential", "receiver"], name="condition_once")]

    def __str__(self) -> str:
        return f"{self.credential_id} {self.receiver}".strip()
