"""Receiving domains of a vendor's mail: those that wait."""

from django.db import models
from django.utils.translation import gettext_lazy

from vendors.models.vendors import Credential


class ReceiverWait(models.Model):
    """A receiving domain that asked a credential to slow down. It is called again after `until`, slowly at first.

    The row is deleted once the receiver has accepted a message again. `receiver`: a group of vendors/receivers, or a
    domain that is in none. `seconds`: how long it was last put off; the next wait is twice as long. `refused`: it
    refused mail for good because of us, so a person should look.
    """

    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, related_name="receiver_waits", db_constraint=False, db_index=False
    )
    receiver = models.CharField(gettext_lazy("receiver"), max_length=253)
    cause = models.CharField(gettext_lazy("cause"), max_length=12)
    refused = models.BooleanField(gettext_lazy("refused"), default=False)
    since = models.DateTimeField(gettext_lazy("since"))
    until = models.DateTimeField(gettext_lazy("until"))
    seconds = models.FloatField(gettext_lazy("seconds"))
    answers = models.PositiveIntegerField(gettext_lazy("answers"), default=1)
    answer = models.CharField(gettext_lazy("last answer"), max_length=255)

    class Meta:
        ordering = ["credential", "receiver"]
        default_permissions = ()
        verbose_name = gettext_lazy("receiver that waits")
        verbose_name_plural = gettext_lazy("receivers that wait")
        constraints = [models.UniqueConstraint(fields=["credential", "receiver"], name="one_wait_a_receiver")]

    def __str__(self) -> str:
        return f"{self.credential_id}/{self.receiver}"
