"""Suppressed addresses, the key of the digests that find them, and the keys of tokens in letters."""

from django.db import models
from django.db.models import F, Index, Q, UniqueConstraint
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext, gettext_lazy

from campaigns.models.campaigns import OfSponsors, Sponsor, Topic
from vendors import said
from vendors.models import EncryptedJSONField, Vendor
from vendors.models.constraints import SentenceCheck


class Suppression(models.Model):
    """An address that gets nothing more from a sponsor, or from any sponsor, for one reason.

    digest: the keyed hash of channel and address that finds the row; it remains after the address is erased. position:
    its place in the order in which suppressions were stored, changed and lifted; a later commit has a higher one.
    since: the time of the reason; until: end of validity; set when one is lifted. source: its origin, such as a file, a
    person or a campaign. topic: set if somebody unsubscribed from this topic only.
    """

    class Reason(models.TextChoices):
        UNSUBSCRIBED = "unsubscribed", "Unsubscribed"
        BOUNCED = "bounced", "Hard bounce"
        COMPLAINED = "complained", "Complaint"
        STOP = "stop", "STOP"
        BY_HAND = "by_hand", "By hand"

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_index=False,
        related_name="suppressions",
        help_text="Empty: of all sponsors",
    )
    channel = models.CharField(max_length=10, choices=Vendor.Channel.choices)
    digest = models.BigIntegerField(editable=False)
    address = models.TextField(null=True, blank=True, help_text="Empty: erased")
    reason = models.CharField(max_length=12, choices=Reason.choices)
    source = models.CharField(max_length=200, blank=True)
    source_said = models.JSONField(gettext_lazy("sentence"), null=True, editable=False)  # vendors/said.py
    topic = models.ForeignKey(
        Topic, on_delete=models.PROTECT, null=True, blank=True, db_index=False, help_text="Empty: everything"
    )
    since = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(null=True, blank=True, help_text="Empty: for good")
    position = models.BigIntegerField(editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        permissions = [("suppress_for_all", "Can change the suppressions of all sponsors")]
        constraints = [
            UniqueConstraint(
                F("digest"), Coalesce("sponsor", 0), F("reason"), Coalesce("topic", 0), name="suppressed_once"
            ),
            SentenceCheck(
                condition=Q(topic=None) | Q(sponsor__isnull=False, reason="unsubscribed"),
                name="suppressed_topic",
                violation_error_message=gettext_lazy(
                    "A topic goes with a sponsor and the reason “unsubscribed” alone: choose them, or no topic."
                ),
            ),
        ]
        indexes = [
            Index(fields=["position"], name="suppression_position"),
            Index(fields=["sponsor", "id"], name="suppression_sponsor"),
        ]

    def __str__(self) -> str:
        return gettext("suppression %(suppression)s") % {"suppression": self.pk}

    @property
    def origin(self) -> str:
        """The source: a sentence of the program, or somebody's own words."""
        return said.read(self.source, self.source_said)


class SuppressionKey(models.Model):
    """The key of the digests: one row, made with the first suppression, never changed. `rotate_keys` re-encrypts it."""

    secret = EncryptedJSONField(editable=False)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_suppression_key")]

    def __str__(self) -> str:
        return "the key of the suppressions"


class TokenKey(models.Model):
    """A key of tokens in letters (campaigns/doors/token_keys.py). `rotate_keys` re-encrypts it."""

    secret = EncryptedJSONField(editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"token key {self.pk}"
