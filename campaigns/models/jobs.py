"""Messages (ground truth, document 001), jobs (documents 000, 003), the hot tables of their calls, and references.

A vendor knows a message by its reference: `uuid-resend_no`. The uuid contains the message's id, so a delivery report
finds its message by the primary key. An index on random uuids would cost each import a random write for every
recipient. The uuid has version 8 of RFC 9562: 48 bits are the id, 72 are random, and naming a message takes all of
them. Uuids of other versions contain no id and are not found.
"""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now
from django.utils import timezone, translation

from campaigns.models.campaigns import MESSAGE_DOUBTS, MESSAGE_FAILED, MESSAGE_RECIPIENT, Campaign, OfSponsors, Sponsor
from campaigns.models.states import OWN_ENDS, PARENTS, RUNNING, Status
from vendors.mail_classes import MailClass
from vendors.models import Credential, Mailcaster, Vendor

ROWS = 2_000  # that share one draw of randomness
DIGITS = 18  # random hexadecimal digits in a uuid
NUMBERS = 1 << 48
WRITTEN = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})-(0|[1-9][0-9]{0,4})")


class Reference(NamedTuple):
    """A parsed reference. resend_no: the number of earlier sendings of the message."""

    id: int
    uuid: UUID
    resend_no: int


def new_uuids(ids: range) -> Iterator[bytes]:
    """Yield a new uuid for each of these messages: 32 hexadecimal digits, as PostgreSQL reads them.

    They are made here because PostgreSQL takes longer to draw one.
    """
    for first in range(ids.start, ids.stop, ROWS):
        rows = range(first, min(first + ROWS, ids.stop))
        noise = os.urandom(len(rows) * DIGITS // 2).hex().encode()
        for at, id in zip(range(0, len(noise), DIGITS), rows, strict=True):
            yield b"%012x8%b8%b" % (id % NUMBERS, noise[at : at + 3], noise[at + 3 : at + DIGITS])


def read_reference(reference: str) -> Reference | None:
    """Parse a reference; return None if it is not one of ours."""
    found = WRITTEN.fullmatch(reference)
    if found is None:
        return None
    uuid = UUID(found[1])
    return Reference(uuid.int >> 80, uuid, int(found[2]))


AN_END = Q(message_id__isnull=False) | Q(error_code__isnull=False) | Q(in_doubt_at__isnull=False)
ENDED = Q(dequeued_at=None, sent_at=None, error_code=None) | Q(dequeued_at__isnull=False) & AN_END
ANSWERED = Q(delivered_at=None) | (Q(sent_at__isnull=False) & (Q(message_id=None) ^ Q(error_code=None)))
ACCEPTED = Q(message_id=None) | Q(delivered_at__isnull=False, in_doubt_at=None)
REFUSED = Q(error_code=None) | Q(delivered_at__isnull=False) | Q(error_code__in=OWN_ENDS, sent_at=None)
IN_DOUBT = Q(in_doubt_at=None) | Q(sent_at__isnull=False, delivered_at=None, error_code=None)


class ReportKind(models.TextChoices):
    """The content of a delivery report on an accepted letter."""

    DELIVERED = "delivered"
    BOUNCED = "bounced"


REPORTED = Q(report=None) | Q(message_id__isnull=False, report_at__isnull=False, report_no__isnull=False)


class Message(models.Model):
    """One recipient of a campaign: the ground truth, kept for good. A campaign's ids are one block without gaps.

    uuid: contains the id, so that a delivery report finds its message. These columns give the state (document 001;
    docs/states.md); none is set while the message waits or is in a call (`Claim`). dequeued_at: it has an end; sent_at:
    its call was allowed to start; delivered_at: the vendor answered: with message_id it accepted, with error_code it
    refused; in_doubt_at: the answer is lost, and error_sub_type gives the evidence; error_code 'expired': the deadline
    passed before a call; 'suppressed': nobody may write to the recipient, error_sub_type says why. cause: an
    AnswerCause, of a refusal, suppression, bounce or deferral; empty: none, or from before mailhub stored it.
    put_off_at: the first time that the vendor put this message off; call_after: no call before then. report: the last
    delivery report; report_at: its time by the vendor's clock; report_no: the sending reported on; report_note: its
    text. destination: of its last call, once that has ended; asked_destination: where the vendor was last asked about
    it. Both as vendors/destinations.py numbers them; empty: 0.
    """

    SPONSOR = "campaign__sponsor"
    id = models.BigIntegerField(primary_key=True)
    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, db_index=False, db_constraint=False)
    uuid = models.UUIDField(db_default=Func(function="gen_random_uuid"))
    recipient = models.TextField()
    params = models.JSONField(default=dict)
    resend_no = models.PositiveSmallIntegerField(db_default=0)
    dequeued_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    in_doubt_at = models.DateTimeField(null=True)
    message_id = models.CharField(max_length=255, null=True)
    error_code = models.CharField(max_length=255, null=True)
    error_sub_type = models.CharField(max_length=255, null=True)
    cause = models.CharField(max_length=9, null=True, help_text="Whose fault it is (vendors/causes)")
    put_off_at = models.DateTimeField(null=True)
    call_after = models.DateTimeField(null=True)
    settle_at = models.DateTimeField(null=True, help_text="In doubt: when the vendor is asked again.")
    disproved = models.DateTimeField(
        null=True, help_text="The sent_at of the call that the vendor does not have, as a look-up proved."
    )
    report = models.CharField(max_length=9, choices=ReportKind.choices, null=True)
    report_at = models.DateTimeField(null=True)
    report_no = models.PositiveSmallIntegerField(null=True)
    report_note = models.CharField(max_length=255, null=True)
    units = models.IntegerField(null=True, help_text="What its last call cost; empty: one")
    destination = models.PositiveBigIntegerField(null=True, editable=False, help_text="In doubt: where it was called.")
    asked_destination = models.PositiveBigIntegerField(
        null=True, editable=False, help_text="In doubt: where the vendor was asked about it, or called again, last."
    )
    taken_over_at = models.DateTimeField(  # the in_doubt_at of a doubt left by a takeover of the store
        translation.gettext_lazy("taken over at"), null=True, editable=False
    )

    objects = OfSponsors.as_manager()

    class Meta:
        permissions = [("see_recipients", "Can see to whom messages go")]
        constraints = [
            models.CheckConstraint(condition=ENDED, name="message_ended"),
            models.CheckConstraint(condition=ANSWERED, name="message_answered"),
            models.CheckConstraint(condition=ACCEPTED, name="message_accepted"),
            models.CheckConstraint(condition=REFUSED, name="message_refused"),
            models.CheckConstraint(condition=IN_DOUBT, name="message_in_doubt"),
            models.CheckConstraint(condition=REPORTED, name="message_reported"),
        ]
        indexes = [MESSAGE_DOUBTS, MESSAGE_FAILED, MESSAGE_RECIPIENT]

    def __str__(self) -> str:
        return translation.gettext("message %(message)s") % {"message": self.pk}

    @property
    def reference(self) -> str:
        """The message's stable key: stored before the first call, sent to the vendor as idempotency key."""
        return f"{self.uuid}-{self.resend_no}"


class Claim(models.Model):
    """Messages whose calls may have started: committed before the first of them, deleted when all are answered.

    A message without an end in a claim under its job's fence is in flight; if the sender is lost, it becomes in doubt.
    fence: of the sender; at: when calls became allowed; units: the cost of each call, empty: one each. destination:
    address, account and key of the calls (vendors/destinations.py); empty: 0. ledger: the id of its row in
    vendors_usage, shared with other claims of the same grant.
    """

    SPONSOR = "job__sponsor"
    job = models.ForeignKey("Job", on_delete=models.PROTECT, related_name="claims", db_constraint=False)
    fence = models.PositiveIntegerField()
    at = models.DateTimeField()
    messages = ArrayField(models.BigIntegerField())
    units = ArrayField(models.PositiveIntegerField(), null=True)
    destination = models.PositiveBigIntegerField(null=True, editable=False)
    ledger = models.BigIntegerField(null=True, editable=False)

    objects = OfSponsors.as_manager()

    def __str__(self) -> str:
        return translation.gettext("claim %(claim)s") % {"claim": self.pk}


class AnswerBatch(models.Model):
    """Results of calls of one claim, appended by its sender and later merged into the messages (`merging`).

    at: time of storing; called_at: the claim's. last: all calls of the claim are now answered. The arrays have an item
    for each message, and kinds has a letter for each (`merging.KINDS`); codes: the vendor's id or its code of the
    refusal; notes: what else was seen; causes: members of AnswerCause; waits: seconds for which the vendor puts the
    message off; units: the cost of the calls. Empty arrays stand for arrays of NULLs, or of one unit each.
    """

    SPONSOR = "job__sponsor"
    job = models.ForeignKey("Job", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    claim = models.ForeignKey(Claim, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    fence = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=Now())
    called_at = models.DateTimeField()
    last = models.BooleanField()
    messages = ArrayField(models.BigIntegerField())
    kinds = models.TextField()
    codes = ArrayField(models.TextField(null=True), null=True)
    notes = ArrayField(models.TextField(null=True), null=True)
    causes = ArrayField(models.TextField(null=True), null=True)
    waits = ArrayField(models.FloatField(null=True), null=True)
    units = ArrayField(models.PositiveIntegerField(), null=True)

    objects = OfSponsors.as_manager()

    class Meta:
        indexes = [models.Index(fields=["job", "fence"], name="answers_of_job")]

    def __str__(self) -> str:
        return f"answers {self.pk}"


# An exclusive credential is in use by the campaign of such a job (document 001). The job was started and is not logged
# yet, even if it was put back or stopped, or is a parent between two children. Dispatch clears started_at.
HOLDING = Q(status__in=["ENQUEUED", "SENDING", "RECOVERING", "SENT", "P_ASSIGNING", "P_ASSIGNED"]) | Q(
    status__in=["DISPATCHED", "STOPPED"], started_at__isnull=False
)
FOR_CASTERS = Q(status__in=["DISPATCHED", "RECOVERING", "P_ASSIGNING", "P_QUEUED"])  # as states.WAITING
UNDISPATCHED = Q(status__in=["RENDERED", "READY"])
FAILED, DOUBTS = Q(refused__gt=0) | Q(expired__gt=0), Q(in_doubt__gt=0)
ENDED, STOPPED = Q(status__in=["SENT", "LOGGED", "P_FINISHED"], parent=None), Q(stopped_at__isnull=False, parent=None)
LOOKED_AT = ["vendor", "parent", "dispatched_at", "finished_at"]
LOOKED_AT_ENDS = [*LOOKED_AT, "sponsor", "status"]


class Job(models.Model):
    """A request to send the campaign's messages first_message .. first_message + size - 1.

    A leaf is sent by one mailcaster at a time. Children are cut from the front of a parent; its last messages remain.
    fence counts the claims of the job: statements under an older fence change nothing but late acceptances.
    next_message: where the next sender begins; waiting messages before it are called in another pass. paused_at: its
    campaign's.
    """

    SPONSOR = "sponsor"
    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, related_name="jobs")
    sponsor = models.ForeignKey(  # copied from the campaign, so that an index finds a list of a million jobs
        Sponsor, on_delete=models.PROTECT, related_name="jobs", db_index=False, editable=False
    )
    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="jobs", db_index=False)  # job_pick has it
    credential = models.ForeignKey(Credential, on_delete=models.PROTECT, related_name="jobs")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    mailcaster = models.ForeignKey(Mailcaster, on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.RENDERED)
    status_at = models.DateTimeField(null=True, editable=False, help_text="Since when; empty: since it was created")
    first_message = models.BigIntegerField()
    size = models.PositiveIntegerField()
    remaining = models.PositiveIntegerField(default=0, help_text="Of a parent: messages not yet cut into a child")
    next_message = models.BigIntegerField(null=True, editable=False, help_text="Where the next sender begins")
    fence = models.PositiveIntegerField(default=0, editable=False)
    revision = models.PositiveIntegerField(default=0, editable=False, help_text="Counts decisions.")
    learned = models.PositiveIntegerField(
        default=0, db_default=0, editable=False, help_text="Counts when ends became known otherwise than by its sender"
    )
    heartbeat_at = models.DateTimeField(null=True, editable=False)
    not_before = models.DateTimeField(null=True, blank=True, help_text="Waits until then")
    waits_for = models.CharField(max_length=255, blank=True, help_text="Why it waits")
    # Neither written nor read any more (campaigns/engine/refusal_runs). The version before does both.
    refusals_from = models.DateTimeField(null=True, editable=False, help_text="Equal refusals count from then on.")
    accepted = models.PositiveIntegerField(default=0, editable=False)
    refused = models.PositiveIntegerField(default=0, editable=False)
    in_doubt = models.PositiveIntegerField(default=0, editable=False)
    expired = models.PositiveIntegerField(default=0, editable=False)
    suppressed = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    wait_after = models.PositiveIntegerField(null=True, help_text="Then it waits for somebody to let the rest go")
    remaining_suppressed = models.PositiveIntegerField(
        default=0, db_default=0, editable=False, help_text="Of a parent: how many of those not yet cut are suppressed"
    )
    suppressions = models.BigIntegerField(
        default=0, db_default=0, editable=False, help_text="Up to this position its import has asked suppressions."
    )
    delivered = models.PositiveIntegerField(default=0, db_default=0, editable=False, help_text="Of those accepted")
    bounced = models.PositiveIntegerField(default=0, db_default=0, editable=False, help_text="Of those accepted")
    units = models.PositiveBigIntegerField(
        default=0, db_default=0, editable=False, help_text="What its calls cost, by the vendor's count"
    )
    mail_class = models.SmallIntegerField(  # of its campaign, decided once
        "class", choices=MailClass.choices, default=MailClass.BULK, db_default=MailClass.BULK, editable=False
    )
    run = models.ForeignKey("DispatchRun", on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    dispatched_at = models.DateTimeField(null=True, editable=False)
    started_at = models.DateTimeField(null=True, editable=False)
    stopped_at = models.DateTimeField(null=True, editable=False, help_text="No call was allowed after it (promise P5)")
    stopped_by = models.CharField(max_length=150, blank=True, editable=False)
    paused_at = models.DateTimeField(null=True, editable=False, help_text="No call is allowed after it (promise P5)")
    finished_at = models.DateTimeField(null=True, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["vendor", "status", "id"], name="job_pick"),
            # A mailcaster that looks for children must not read a hundred thousand small jobs.
            models.Index(fields=["vendor", "status", "id"], condition=Q(parent__isnull=False), name="job_pick_child"),
            models.Index(fields=["credential", "campaign"], condition=HOLDING, name="job_holds_credential"),
            # Whose turn it is, and the sponsor's next job (campaigns/engine/turns/order.py).
            models.Index(
                fields=["vendor", "mail_class", "sponsor", "status", "id"],
                condition=Q(FOR_CASTERS, parent__isnull=True),
                name="job_in_turn",
            ),
            models.Index(
                fields=["vendor", "mail_class", "sponsor", "status", "id"],
                condition=Q(FOR_CASTERS, parent__isnull=False),
                name="job_in_turn_child",
            ),
            # A sponsor's work not dispatched yet (senders/quotas/book.py). A letter of the API has none.
            models.Index(fields=["sponsor"], condition=UNDISPATCHED, name="job_undispatched"),
            # The operators' look-ups (document 000): by the chosen date, newest first. Other filter columns are
            # included, so that counting a thousand reads no other page.
            models.Index(fields=["created_at", "id"], name="job_created"),
            models.Index(fields=["dispatched_at", "id"], name="job_dispatched"),
            models.Index(fields=["finished_at", "id"], name="job_finished"),
            models.Index(fields=["sponsor", "created_at", "id"], include=[*LOOKED_AT, "status"], name="job_sponsor"),
            models.Index(fields=["status", "created_at", "id"], include=[*LOOKED_AT, "sponsor"], name="job_status"),
            models.Index(fields=["created_at", "id"], condition=FAILED, include=LOOKED_AT_ENDS, name="job_failed"),
            models.Index(fields=["created_at", "id"], condition=DOUBTS, include=LOOKED_AT_ENDS, name="job_doubts"),
            models.Index(fields=["created_at", "id"], condition=ENDED, name="job_ended"),
            models.Index(fields=["stopped_at"], condition=Q(stopped_at__isnull=False), name="job_stopped"),
            models.Index(fields=["sponsor", "stopped_at"], condition=STOPPED, name="job_stopped_of"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(size__gte=1, first_message__gte=1), name="job_slice"),
            models.CheckConstraint(condition=Q(remaining__lte=F("size")), name="job_remaining"),
            models.CheckConstraint(condition=~Q(status__in=PARENTS) | Q(parent=None), name="job_one_level"),
            models.CheckConstraint(
                condition=~Q(status__in=RUNNING) | Q(fence__gte=1, heartbeat_at__isnull=False), name="job_leased"
            ),
            models.CheckConstraint(condition=~Q(status="P_FINISHED") | Q(remaining=0), name="job_finished_whole"),
            # A mailcaster has one leaf at a time, even if two workers claim for it.
            models.UniqueConstraint(fields=["mailcaster"], condition=Q(status__in=RUNNING), name="caster_has_one_job"),
        ]

    def __str__(self) -> str:
        return translation.gettext("job %(job)s") % {"job": self.pk}

    @property
    def is_parent(self) -> bool:
        return self.status in PARENTS

    @property
    def is_done(self) -> bool:
        """LOGGED, or a finished or stopped parent whose children all are. Only a retry or a resend reopens it."""
        return self.finished_at is not None

    @property
    def is_kept_back(self) -> bool:
        """True if a person has to release the rest of a parent."""
        return self.wait_after is not None and self.size - self.remaining >= self.wait_after

    @property
    def left_to_cut(self) -> int:
        """Messages of a parent that may be cut before it waits; while it waits, all the rest, which can only expire."""
        return self.remaining - (0 if self.is_kept_back else self.size - (self.wait_after or self.size))

    @property
    def end(self) -> int:
        """The id after its last message."""
        return self.first_message + self.size
