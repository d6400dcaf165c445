"""Events of messages after their calls, counts of mails that came back, and letters by the vendor's own id.

Also messages from recipients to the numbers of sender identities.
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
    """An event of an accepted message: appended, never changed. Reports of the same event are one row.

    A sending of a message has at most one event of each kind. A vendor's own number for the event is therefore not
    kept, and a campaign's rate is its events divided by its messages.

    resend_no: which sending. at: the time stated by the reporter; stored_at: when mailhub stored it. source: the
    receiver, the mailbox, or the vendor's slug. code: the enhanced status (RFC 3463) or SMTP's code, if any; note: the
    reporter's text. digest: for a soft bounce, the keyed hash of the recipient, used to count such bounces.
    """

    class Kind(models.TextChoices):
        HARD_BOUNCE = "hard_bounce", "Hard bounce"  # the recipient does not exist
        SOFT_BOUNCE = "soft_bounce", "Soft bounce"  # not delivered this time: mailbox full, host away, reason unknown
        BLOCKED = "blocked", "Blocked"  # refused because of us or the content, not the recipient
        DEFERRED = "deferred", "Deferred"  # put off by the receiver's server for the first time; it is tried again
        FAILED = "failed", "Failed"  # the vendor gave up for another reason
        COMPLAINT = "complaint", "Complaint"  # the recipient called it spam
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
    """The number of a sponsor's messages delivered, bounced, complained about or unsubscribed from on a day (UTC).

    Code that stores reports, events or unsubscriptions appends a row in the same transaction (day_counts.py). The sweep
    sums up the rows of a day (`summed`). A later report on a message takes back the earlier one on its day, so counts
    may fall, and those of a single row may be negative.
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
    """The number of mails that came back on a day, by type (audience/bounces/), including those without an event."""

    day = models.DateField()
    what = models.CharField(max_length=20)
    mails = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [UniqueConstraint(fields=["day", "what"], name="inbound_count_once")]

    def __str__(self) -> str:
        return f"{self.day}: {self.mails} {self.what}"


class VendorMessageId(models.Model):
    """The id given to a letter by its vendor. Written with the acceptance, deleted after KEPT (vendor_ids.py).

    Only for vendors whose reports name nothing else (`Vendor.reports_by_id`). An index on the messages themselves would
    cost every message of every vendor another write. message, uuid, resend_no: from the message's reference.
    destination: of its call (vendors/destinations.py); empty: unknown.
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
    """A delivery report with a vendor's id that no acceptance has named yet. It may precede the answer to its call.

    said: the content of `vendors.adapters.reports.Reported` without the id; kind: one report of each kind waits.
    look_at: the time of the next look for its letter. credentials: those whose letters it may name; empty: all.
    destinations: {id of a credential of the vendor: its destination at the arrival of the report}.
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
    """An SMS from somebody to one of our numbers: stored once, even if its vendor delivers it several times.

    sponsor, identity: the owners of the number; empty if it belongs to none that may use the vendor. name: the vendor's
    id of it. sender, to: in E.164. written_at: as stated by the vendor, otherwise the time of storing. command: the
    request in its words, carried out as it is stored. answer: the campaign that answers HELP.
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
