"""Receiving domains of a vendor's mail: those that wait, and limits of their own."""

from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy

from vendors.limits.values import AT_A_TIME, Limit
from vendors.models.constraints import SentenceCheck
from vendors.models.vendors import LONGEST_WINDOW, Credential, Vendor
from vendors.receivers import OTHERS, known_groups
from vendors.said import Said, gettext_noop

MOST_STEPS = 60
"""Days after which a warm-up grows no more."""
MOST_UNITS = 2e9
AT_ONCE = gettext_noop("%(count)s at a time")
GROWS = gettext_noop("today %(now)s, tomorrow %(then)s")
NO_GROUP = gettext_noop("There is no receiver %(name)s. There are: %(known)s.")
NO_GROWTH = gettext_noop("Calls at a time do not grow. Give the warm-up a window of a day (86400 seconds).")
NO_MAIL = gettext_noop("%(vendor)s sends no e-mail, so it has no receivers.")
OTHER_VENDOR = gettext_noop("%(credential)s is no credential of %(vendor)s.")


class ReceiverWait(models.Model):
    """A receiving domain that asked a credential to slow down. It is called again after `until`, slowly at first.

    The row is deleted once the receiver has accepted a message again. `receiver`: a group of vendors/receivers, or a
    domain outside all groups. `seconds`: length of the last wait; the next one doubles it. `refused`: it refused mail
    for good because of us, so a person should look. `reported`: by bounces or delivery reports, which come after the
    acceptance of a relay or service; then the row stays some time longer.
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
    warned_at = models.DateTimeField(gettext_lazy("warned at"), null=True)
    reported = models.BooleanField(gettext_lazy("reported"), default=False, db_default=False)

    class Meta:
        ordering = ["credential", "receiver"]
        default_permissions = ()
        verbose_name = gettext_lazy("receiver that waits")
        verbose_name_plural = gettext_lazy("receivers that wait")
        constraints = [models.UniqueConstraint(fields=["credential", "receiver"], name="one_wait_a_receiver")]

    def __str__(self) -> str:
        return f"{self.credential_id}/{self.receiver}"


class ReceiverDomain(models.Model):
    """A domain that operators put into a group of receivers. It wins over receivers.toml.

    Written by vendors/receiver_domains.py. With each row the database raises `limits_version` of the vendors of e-mail,
    so senders read the rows again.
    """

    domain = models.CharField(
        gettext_lazy("domain"), max_length=253, unique=True, help_text=gettext_lazy("Such as example.org")
    )
    receiver = models.CharField(
        gettext_lazy("group"), max_length=40, help_text=gettext_lazy("Such as gmail, or a new name; * for none")
    )

    class Meta:
        ordering = ["domain"]
        verbose_name = gettext_lazy("domain of a receiver")
        verbose_name_plural = gettext_lazy("domains of receivers")

    def __str__(self) -> str:
        return f"{self.domain}: {self.receiver}"


class ReceiverMove(models.Model):
    """The last row of the ledger from before a domain came into a group: one for each group that ever gained one.

    Rows up to `ledger` are split by former groups, so the group's rebuilt windows count each of them whole.
    """

    receiver = models.CharField(max_length=40, primary_key=True)
    ledger = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        verbose_name = gettext_lazy("move of domains")
        verbose_name_plural = gettext_lazy("moves of domains")

    def __str__(self) -> str:
        return f"{self.receiver}: {self.ledger}"


class ReceiverStamp(models.Model):
    """Counts the changes of a credential's waits, so that senders read them only then. The database writes it."""

    credential_id = models.BigIntegerField(primary_key=True)
    stamp = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        verbose_name = gettext_lazy("stamp of the waits of a credential")
        verbose_name_plural = gettext_lazy("stamps of waits")

    def __str__(self) -> str:
        return f"{self.credential_id}: {self.stamp}"


class ReceiverLimit(models.Model):
    """At most `units` calls to a receiving domain in any window of `seconds`.

    The limits of vendor and credential hold beside it. `receiver`: a group of vendors/receivers; "*" stands for all
    domains outside groups, together. A window of AT_A_TIME limits connections. `grows_from`: a warm-up; on that day
    `units` are allowed, on each later one `growth` times as many as on the day before, by the vendor's clock.
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
    may_be_gone = False  # no field: another row names the receiver; its domains may be gone

    class Meta:
        ordering = ["receiver", "seconds"]
        verbose_name = gettext_lazy("limit of a receiver")
        verbose_name_plural = gettext_lazy("limits of receivers")
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "credential", "receiver", "seconds"], name="receiver_window", nulls_distinct=False
            ),
            SentenceCheck(
                condition=Q(seconds__gt=0),
                name="receiver_window_positive",
                violation_error_message=gettext_lazy("A limit's window must be longer than 0 seconds."),
            ),
            SentenceCheck(
                condition=Q(growth__gte=1),
                name="receiver_growth",
                violation_error_message=gettext_lazy("A limit cannot shrink from day to day: growth is at least 1."),
            ),
        ]

    def __str__(self) -> str:
        return Said.join_parts(": ", [self.receiver, self.terms])

    @property
    def terms(self) -> Said:
        """The limit as a sentence, with the numbers of today and tomorrow if it is a warm-up."""
        if self.seconds == AT_A_TIME:
            return Said(AT_ONCE, count=self.units)
        if self.grows_from is None:
            return Limit(self.units, self.seconds).terms
        today = timezone.localdate(timezone=ZoneInfo(self.vendor.time_zone))
        days = (today, today + timedelta(days=1))
        now, then = (Limit(self.units_on(day), self.seconds).terms for day in days)
        return Said(GROWS, now=now, then=then)

    def units_on(self, day: date) -> int:
        """Return the units allowed on a day of the vendor's clock (engine/claiming/contexts.py)."""
        if self.grows_from is None:
            return self.units
        days = min(MOST_STEPS, max(0, (day - self.grows_from).days))
        return int(min(MOST_UNITS, self.units * self.growth**days))

    def clean(self) -> None:
        """Refuse what would never hold back a call. `vendor` may be empty if there is a credential."""
        if self.receiver not in (*known_groups(), OTHERS) and not (self.may_be_gone or self._is_stored()):
            known = ", ".join([*known_groups(), OTHERS])
            why = Said(NO_GROUP, name=self.receiver, known=known)
            raise ValidationError({"receiver": why})
        if self.grows_from is not None and self.seconds == AT_A_TIME:
            raise ValidationError({"grows_from": Said(NO_GROWTH)})
        of: Any = self.vendor if self.vendor_id else self.credential and self.credential.vendor
        if of and of.channel != Vendor.Channel.EMAIL:
            raise ValidationError(Said(NO_MAIL, vendor=of.slug))
        if self.credential_id and of and self.credential and self.credential.vendor_id != of.pk:
            raise ValidationError(Said(OTHER_VENDOR, credential=str(self.credential), vendor=of.slug))

    def _is_stored(self) -> bool:
        """Return True if the row names its receiver already: a group may lose its last domain."""
        return bool(self.pk) and ReceiverLimit.objects.filter(pk=self.pk, receiver=self.receiver).exists()
