"""What recipients wrote that no rule is sure of: a person reads it."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Index, Q
from django.db.models.functions import Now
from django.utils.translation import gettext, gettext_lazy

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors.models import Vendor
from vendors.said import gettext_noop

NO_TEXT = gettext_noop("No text could be read in this mail.")


class RecipientAnswer(models.Model):
    """An answer in the inbox of unread answers. It is decided once: treated as a stop, or read.

    sponsor: whose inbox; empty: an SMS to a number without an identity, which concerns the sponsors in `concerned`.
    name: identifies a repeat. sender: the recipient who wrote, as the list had it. to: the address that got it. near:
    perhaps it asks to stop. message, message_uuid, campaign: those that it answers, if known. written_at: as stated by
    the vendor or the mail's arrival. decided_by: a person's or key's name.
    """

    class Kind(models.TextChoices):
        SMS = "sms", gettext_lazy("SMS")
        REPLY = "reply", gettext_lazy("Reply to an e-mail")
        FRAUD = "fraud", gettext_lazy("Report of fraud")

    class Outcome(models.TextChoices):
        UNREAD = "", gettext_lazy("Unread")
        STOP = "stop", gettext_lazy("Treated as stop")
        READ = "read", gettext_lazy("Marked as read")

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    concerned = ArrayField(models.BigIntegerField(), db_default=[], default=list)
    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    channel = models.CharField(max_length=5, choices=Vendor.Channel.choices)
    kind = models.CharField(max_length=5, choices=Kind.choices)
    near = models.BooleanField(gettext_lazy("perhaps a stop"), db_default=False, default=False)
    name = models.CharField(max_length=100, unique=True)
    sender = models.CharField(gettext_lazy("from"), max_length=320)
    to = models.CharField(gettext_lazy("addressed to"), max_length=320)
    text = models.TextField(gettext_lazy("text"))
    message = models.BigIntegerField(null=True)
    message_uuid = models.UUIDField(null=True)
    campaign = models.BigIntegerField(gettext_lazy("campaign"), null=True)
    written_at = models.DateTimeField(gettext_lazy("written at"), db_default=Now())
    stored_at = models.DateTimeField(db_default=Now())
    outcome = models.CharField(gettext_lazy("state"), max_length=5, choices=Outcome.choices, blank=True, db_default="")
    decided_by = models.CharField(gettext_lazy("decided by"), max_length=150, blank=True, db_default="")
    decided_at = models.DateTimeField(gettext_lazy("decided at"), null=True)

    objects = OfSponsors.as_manager()

    class Meta:
        verbose_name = gettext_lazy("answer of a recipient")
        verbose_name_plural = gettext_lazy("answers of recipients")
        ordering = ["-id"]
        indexes = [
            Index(fields=["sponsor", "id"], name="recipient_answer_sponsor"),
            Index(fields=["sponsor", "id"], condition=Q(outcome=""), name="recipient_answer_unread"),
        ]

    @property
    def readable_text(self) -> str:
        """Return the recipient's text unchanged; a note of ours in the reader's language."""
        return gettext(NO_TEXT) if self.text == NO_TEXT else self.text

    def __str__(self) -> str:
        return gettext("answer %(answer)s") % {"answer": self.pk}
