"""What is heard of messages after their calls, how many mails brought it, and which letter a vendor's own id names.

Also what recipients write to the numbers of sender identities.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Index, Q, UniqueConstraint
from django.db.models.functions import Now
from django.utils.translation import gettext

from campaigns.models.campaigns import Campaign, OfSponsors, Sponsor
from campaigns.models.identities import Identity
from campaigns.models.jobs import Message
from vendors.models import Vendor


class MessageEvent(models.Model):
    """What happened to a message that was accepted: appended, never changed. Whoever reports it twice, it is one row.

    A sending of a message has at most one event of each kind, so a vendor's number of
    the event need not be kept, and a campaign's rate is its events by its messages.
    resend_no: which sending. at: when it happened, as the reporter says; stored_at: when we heard of it. source: the
    receiver, the mailbox, or the vendor's slug. code: the enhanced status (RFC 3463) or SMTP's code, if there was one;
    note: the reporter's text. digest: of a soft bounce, the keyed hash of the recipient, by which such bounces count.
    """

    class Kind(models.TextChoices):
        HARD_BOUNCE = "hard_bounce", "Hard bounce"  # the recipient does not exist
        SOFT_BOUNCE = "soft_bounce", "Soft bounce"  # not delivered this time: mailbox full, host away, no reason given
        BLOCKED = "blocked", "Blocked"  # refused because of us or of the content, not of the recipient
        FAILED = "failed", "Failed"  # the vendor has given up for another reason
        COMPLAINT = "complaint", "Complaint"  # the recipient has called it spam
        UNSUBSCRIBED = "unsubscribed", "Unsubscribed"  # with the vendor's own link, or by STOP
        OPENED = "opened", "Opened"  # for the first time
        CLICKED = "clicked", "Clicked"  # likewise

    SPONSOR = "campaign__sponsor"
    message = models.ForeignKey(
        Message, on_delete=models.PROTECT, related_name="events", db_constraint=False, db_index=False
    )
    campaign = models.ForeignKey(
        Campaign, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    resend_no = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    at = models.DateTimeField()
    stored_at = models.DateTimeField(db_default=Now())
    source = models.CharField(max_length=100)
    code = models.CharField(max_length=20, blank=True)
    note = models.CharField(max_length=255, blank=True)
    digest = models.BigIntegerField(null=True, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [UniqueConstraint(fields=["message", "resend_no", "kind"], name="message_event_once")]
        indexes = [
            Index(fields=["campaign", "kind"], name="message_event_campaign"),
            Index(fields=["digest"], condition=Q(digest__isnull=False), name="message_event_soft"),
        ]

    def __str__(self) -> str:
        what = gettext(self.get_kind_display())
        return gettext("%(what)s of message %(message)s") % {"what": what, "message": self.message_id}


BOUNCES = (
    MessageEvent.Kind.HARD_BOUNCE,
    MessageEvent.Kind.SOFT_BOUNCE,
    MessageEvent.Kind.BLOCKED,
    MessageEvent.Kind.FAILED,
)
"""The kinds that say that a message which was accepted did not arrive."""


class DayCount(models.Model):
    """How many messages of a sponsor were delivered or came back on a day (UTC), and who complained or unsubscribed.

    Whatever stores reports, events or such wishes appends a row in the same transaction (day_counts.py); the sweep adds
    the rows of a day up (`summed`). A later report of the same message takes an earlier one back on its day, so numbers
    may fall, and those of a single row be negative.
    """

    SPONSOR = "sponsor"
    day = models.DateField()
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    delivered = models.BigIntegerField(db_default=0)
    bounced = models.BigIntegerField(db_default=0)
    complained = models.BigIntegerField(db_default=0)
    unsubscribed = models.BigIntegerField(db_default=0)
    summed = models.BooleanField(db_default=False)

    objects = OfSponsors.as_manager()

    class Meta:
        indexes = [
            Index(fields=["day"], name="day_count_day"),
            Index(fields=["id"], condition=Q(summed=False), name="day_count_to_sum"),
        ]
        constraints = [
            UniqueConstraint(fields=["day", "sponsor"], condition=Q(summed=True), name="day_count_summed_once")
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.delivered} delivered"


class InboundCount(models.Model):
    """How many mails came back on a day, by what they were (campaigns/bounces/): also those that are no events."""

    day = models.DateField()
    what = models.CharField(max_length=20)
    mails = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [UniqueConstraint(fields=["day", "what"], name="inbound_count_once")]

    def __str__(self) -> str:
        return f"{self.day}: {self.mails} {self.what}"


class VendorMessageId(models.Model):
    """The id that a vendor has given a letter: written with its acceptance, and deleted after KEPT (vendor_ids.py).

    Only of vendors whose reports name nothing else (`Vendor.reports_by_id`): an index on the messages themselves would
    cost every message of every vendor another write. message, uuid, resend_no: of the message's reference.
    destination: where it was called (vendors/destinations.py); empty: unknown.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    name = models.CharField(max_length=255)
    message = models.BigIntegerField()
    uuid = models.UUIDField()
    resend_no = models.PositiveSmallIntegerField()
    at = models.DateTimeField(db_default=Now())
    destination = models.PositiveBigIntegerField(null=True)

    class Meta:
        indexes = [Index(fields=["vendor", "name"], name="vendor_message_id")]

    def __str__(self) -> str:
        return f"{self.name} is message {self.message}"


class WaitingReport(models.Model):
    """A report whose vendor's id no acceptance has named yet: it may be earlier than the answer of its call.

    said: what `vendors.adapters.reports.Reported` holds beside the id; kind: its kind, of which one waits.
    look_at: when to look whether its letter is known. credentials: those whose letters it may name; empty: all.
    destinations: {id of a credential of the vendor: where it called when the report came}.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    name = models.CharField(max_length=255)
    kind = models.CharField(max_length=20, db_default="")
    said = models.JSONField()
    source = models.CharField(max_length=100)
    credentials = ArrayField(models.BigIntegerField(), db_default=[])
    destinations = models.JSONField(null=True)
    at = models.DateTimeField(db_default=Now())
    look_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [UniqueConstraint(fields=["vendor", "name", "kind", "credentials"], name="waiting_report_once")]
        indexes = [Index(fields=["look_at"], name="waiting_report_look")]

    def __str__(self) -> str:
        return f"a report of {self.name}"


class InboundMessage(models.Model):
    """An SMS that somebody wrote to one of our numbers: stored once, however often its vendor hands it on.

    sponsor, identity: whose the number is; empty: of none that may use the vendor. name: the vendor's id of it. sender,
    to: in E.164. written_at: as the vendor says, else when it was stored. command: what its words ask for, which is
    done when it is stored. answer: the campaign that answers HELP.
    """

    class Command(models.TextChoices):
        STOP = "stop", "STOP"
        START = "start", "START"
        HELP = "help", "HELP"
        NONE = "", "none"

    SPONSOR = "sponsor"
    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="+", db_index=False)
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    identity = models.ForeignKey(Identity, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    name = models.CharField(max_length=255)
    sender = models.CharField(max_length=255)
    to = models.CharField(max_length=255)
    text = models.TextField()
    command = models.CharField(max_length=5, choices=Command.choices, blank=True)
    answer = models.ForeignKey(
        "Campaign", on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    written_at = models.DateTimeField(db_default=Now())
    stored_at = models.DateTimeField(db_default=Now())

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [UniqueConstraint(fields=["vendor", "name"], name="inbound_message_once")]
        indexes = [
            Index(fields=["sponsor", "id"], name="inbound_message_sponsor"),
            Index(fields=["sender", "written_at"], name="inbound_message_sender"),
        ]

    def __str__(self) -> str:
        return gettext("%(what)s to %(number)s") % {"what": self.command or gettext("message"), "number": self.to}
