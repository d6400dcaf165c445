"""Complaints of a sponsor's recipients by receiving domain (vendors/receivers), their rates, and pauses after too many.

campaigns/engine/pausing/complaints.py writes and judges them.
"""

from decimal import Decimal

from django.db import models
from django.db.models import Index, Q, UniqueConstraint
from django.db.models.functions import Now
from django.utils.translation import gettext, gettext_lazy

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors.receivers import OTHERS
from vendors.said import Said, gettext_noop

RECEIVER_MAX = 100


def rate_in_percent(complaints: int, accepted: int) -> Decimal:
    """Return the rate in percent, with the two places that sentences show."""
    return Decimal(f"{100 * complaints / max(1, accepted):.2f}")


def provider_name(receiver: str) -> str:
    """Return the name of a group of receiving domains, for people."""
    return Said(gettext_noop("all other providers")) if receiver == OTHERS else receiver


class UncountedComplaint(models.Model):
    """A complaint not in a rate yet: stored with its event, deleted in the transaction that counts it.

    sent_at: the call of the message complained about. A rate row is never locked by the code that takes reports.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    receiver = models.CharField(max_length=RECEIVER_MAX)
    sent_at = models.DateTimeField()

    objects = OfSponsors.as_manager()

    class Meta:
        indexes = [Index(fields=["sponsor"], name="uncounted_complaint_sponsor")]

    def __str__(self) -> str:
        return f"{self.sponsor_id}: {self.receiver}"


class ComplaintRate(models.Model):
    """Complaints about the mails that a sponsor sent to one receiver in one stretch.

    A stretch is a day (UTC), or the part of it since somebody resumed. since: its start. A complaint counts in the
    stretch in which its mail was sent, however late it comes. accepted: mails of the stretch at the last count; empty:
    not needed yet. sent: messages of the sponsor on the day, to all receivers, at that time. waits: too few are
    accepted to judge by, so it is looked at again as more are. seen: the rate in percent that somebody accepted by
    resuming.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    receiver = models.CharField(max_length=RECEIVER_MAX)
    since = models.DateTimeField()
    complaints = models.PositiveBigIntegerField(db_default=0)
    accepted = models.PositiveBigIntegerField(null=True)
    sent = models.PositiveBigIntegerField(db_default=0)
    waits = models.BooleanField(db_default=False)
    warned_at = models.DateTimeField(null=True)
    seen = models.FloatField(db_default=0.0)

    objects = OfSponsors.as_manager()

    class Meta:
        constraints = [UniqueConstraint(fields=["sponsor", "receiver", "since"], name="complaint_rate_once")]
        indexes = [
            Index(fields=["sponsor"], condition=Q(waits=True), name="complaint_rate_waits"),
            Index(fields=["warned_at"], condition=Q(warned_at__isnull=False), name="complaint_rate_warned"),
        ]

    def __str__(self) -> str:
        return f"{self.receiver}: {self.complaints}"

    @property
    def provider(self) -> str:
        """The provider's name, for people."""
        return provider_name(self.receiver)

    @property
    def figures(self) -> Said:
        """The rate, in figures."""
        accepted = self.accepted or 0
        return Said(
            gettext_noop("%(rate)s%% of %(count)s accepted complained (%(complained)s)"),
            rate=rate_in_percent(self.complaints, accepted), count=accepted, complained=self.complaints,
        )  # fmt: skip


class ComplaintPause(models.Model):
    """A sponsor's bulk mail to one receiver has paused itself because too many recipients there complained.

    The figures are those at the pause: complaints about the mails of the stretch since `since`, the accepted mails of
    that stretch, and the limit in percent. resumed_at: empty while it lasts. Resuming accepts the rate and begins a new
    stretch.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="+", editable=False)
    receiver = models.CharField(max_length=RECEIVER_MAX, editable=False)
    paused_at = models.DateTimeField(db_default=Now(), editable=False)
    since = models.DateTimeField(editable=False)
    complaints = models.PositiveBigIntegerField(editable=False)
    accepted = models.PositiveBigIntegerField(editable=False)
    limit = models.FloatField(editable=False, help_text="Percent of the accepted")
    resumed_at = models.DateTimeField(null=True, editable=False)
    resumed_by = models.CharField(max_length=150, blank=True, db_default="", editable=False)
    resumed_reason = models.CharField(max_length=255, blank=True, db_default="", editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        verbose_name = gettext_lazy("pause after complaints")
        verbose_name_plural = gettext_lazy("pauses after complaints")
        ordering = ["-id"]
        constraints = [
            UniqueConstraint(
                fields=["sponsor", "receiver"], condition=Q(resumed_at=None), name="complaint_pause_lasts_once"
            )
        ]

    def __str__(self) -> str:
        return gettext("pause of %(receiver)s") % {"receiver": self.receiver}

    @property
    def provider(self) -> str:
        """The provider's name, for people."""
        return provider_name(self.receiver)

    @property
    def figures(self) -> Said:
        """The reason, in figures."""
        return Said(
            gettext_noop("%(rate)s%% of %(count)s accepted complained (%(complained)s); the limit is %(limit)s%%"),
            rate=rate_in_percent(self.complaints, self.accepted), count=self.accepted, complained=self.complaints,
            limit=Decimal(f"{self.limit:.3g}"),
        )  # fmt: skip
