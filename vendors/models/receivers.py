"""Receiving domains of a vendor's mail: those that wait, and limits of their own."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from vendors.models.vendors import LONGEST_WINDOW, Credential, Vendor

AT_A_TIME = 0.01
"""Seconds of a window that counts calls at the same time: a place is held until its call has ended."""


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


class ReceiverLimit(models.Model):
    """At most `units` calls to a receiving domain in any window of `seconds`.

    The limits of vendor and credential hold beside it.
    `receiver`: a group of vendors/receivers; "*" has all domains that are in none, together. A window of AT_A_TIME
    limits connections. `grows_from`: a warm-up; on that day `units` are allowed, on each later one `growth` times as
    many as on the day before, by the vendor's clock.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="receiver_limits", db_index=False)
    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, related_name="receiver_limits", null=True, blank=True,
        help_text=gettext_lazy("Empty: over all credentials of the vendor together."),
    )  # fmt: skip
    receiver = models.CharField(
        gettext_lazy("receiver"), max_length=40, help_text=gettext_lazy("Such as gmail; * for all others together")
    )
    units = models.PositiveIntegerField()
    seconds = models.FloatField(validators=[MinValueValidator(AT_A_TIME), MaxValueValidator(LONGEST_WINDOW)])
    grows_from = models.DateField(
        gettext_lazy("grows from"), null=True, blank=True, help_text=gettext_lazy("The first day of a warm-up")
    )
    growth = models.FloatField(
        gettext_lazy("growth"), default=1.5, db_default=1.5,
        validators=[MinValueValidator(1.0), MaxValueValidator(10.0)],
        help_text=gettext_lazy("Each day so many times the day before"),
    )  # fmt: skip

    class Meta:
        ordering = ["receiver", "seconds"]
        verbose_name = gettext_lazy("limit of a receiver")
        verbose_name_plural = gettext_lazy("limits of receivers")
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "credential", "receiver", "seconds"], name="receiver_window", nulls_distinct=False
            ),
            models.CheckConstraint(condition=Q(seconds__gt=0), name="receiver_window_positive"),
            models.CheckConstraint(condition=Q(growth__gte=1), name="receiver_growth"),
        ]

    def __str__(self) -> str:
        if self.seconds == AT_A_TIME:
            return f"{self.units} at a time"
        grows = f" on {self.grows_from}, each day times {self.growth:g}" if self.grows_from else ""
        return f"{self.units}/{self.seconds:g} s{grows}"
