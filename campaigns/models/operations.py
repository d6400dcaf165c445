"""Rows about operation: nights, decisions about doubts, the last audit, vendors' charges.

Also the identity of the PostgreSQL that wrote the rows.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Index, Q, UniqueConstraint
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from campaigns.models.campaigns import OfSponsors, Sponsor
from campaigns.models.jobs import Message
from vendors.models import Credential, Vendor


class DispatchRun(models.Model):
    """The nightly dispatch of one vendor on one local date; the row makes it happen only once (promise P6)."""

    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="runs", db_index=False)
    local_date = models.DateField()
    due_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    missed = models.BooleanField(default=False, help_text="Nothing started it within the catch-up period.")
    dispatched = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-local_date", "vendor"]
        constraints = [models.UniqueConstraint(fields=["vendor", "local_date"], name="one_run_a_night")]

    def __str__(self) -> str:
        return f"{self.vendor} {self.local_date}"


class Resolution(models.Model):
    """A person's decision about a message in doubt: who, what, why. Never changed, never deleted.

    Also a message that mailhub put back itself, after a run of equal refusals (campaigns/engine/refusal_runs).

    SAME alone settles nothing. It states that the vendor's present account is the one of the call, so the vendor may be
    asked. resend_no: of the message at that time, and so of the settled sending; None: not recorded then.
    """

    class Decision(models.TextChoices):
        SENT = "sent"
        FAILED = "failed"
        RESEND = "resend", "send again"
        SAME = "same", "the same account"

    SPONSOR = "message__campaign__sponsor"
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="resolutions", db_constraint=False)
    resend_no = models.PositiveSmallIntegerField(null=True, editable=False)
    decision = models.CharField(max_length=10, choices=Decision.choices)
    reason = models.TextField()
    decided_by = models.CharField(max_length=150)
    evidence = models.TextField(blank=True, help_text="What had been seen of the call")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{gettext(self.get_decision_display().lower())} {self.message_id}"


class RefusalRun(models.Model):
    """Equal refusals in a row over one credential, since its last acceptance (campaigns/engine/refusal_runs).

    code, sub_type: their words; messages: those refused so; since: the first refusal. full_at: the time of its becoming
    full.
    """

    credential = models.OneToOneField(
        Credential, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    code = models.TextField()
    sub_type = models.TextField()
    messages = ArrayField(models.BigIntegerField())
    since = models.DateTimeField()
    full_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.code} {self.sub_type}".strip()


class SponsorRefusalRun(models.Model):
    """Equal refusals in a row of one sponsor's mail over one credential, since its last acceptance.

    Columns as of RefusalRun.
    """

    SPONSOR = "sponsor"
    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    code = models.TextField()
    sub_type = models.TextField()
    messages = ArrayField(models.BigIntegerField())
    since = models.DateTimeField()
    full_at = models.DateTimeField(null=True)

    objects = OfSponsors.as_manager()

    class Meta:
        constraints = [UniqueConstraint(fields=["credential", "sponsor"], name="sponsor_refusal_run_once")]

    def __str__(self) -> str:
        return f"{self.code} {self.sub_type}".strip()


class RefusalTail(models.Model):
    """Calls over a credential, open at the moment a run of equal refusals was put back.

    Their messages refused in the same words (code, sub_type) are put back too.
    """

    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    code = models.TextField()
    sub_type = models.TextField()
    messages = ArrayField(models.BigIntegerField())
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.code} {self.sub_type}".strip()


class Audited(models.Model):
    """One row: the result of beat's last audit (promises P1 to P7).

    checks: see campaigns.engine.audit.Check. said: the sentences of each as form and values; NULL in rows of before.
    """

    at = models.DateTimeField()
    checks = models.JSONField()
    said = models.JSONField(null=True)

    class Meta:
        verbose_name_plural = "audited"

    def __str__(self) -> str:
        return f"audited at {self.at}"


class Store(models.Model):
    """One row: the PostgreSQL that wrote the rows. Calls start only on this one (campaigns/engine/failover/guard.py).

    system: the cluster and the database in it; relation: this table; timeline: of the write-ahead log. At least one of
    them differs after a failover, a restore or a move. adoptions: how often an operator adopted the store. applied: the
    newest migrations; tables: those of the oldest program that may call, one version before if what came since is
    additive, and empty while the tables change. mark: of the machine and the disk, if mailhub brings its own PostgreSQL
    (mailhub/presence.py). held: why calls wait for a person, and the store found in its place (failover/holding.py).
    """

    system = models.CharField(max_length=100)
    relation = models.BigIntegerField()
    timeline = models.CharField(max_length=8)
    adoptions = models.PositiveIntegerField(default=1)
    adopted_at = models.DateTimeField(db_default=Now())
    noticed_at = models.DateTimeField(null=True, help_text="When it was first seen that the store was taken over.")
    tables = models.TextField(blank=True)
    applied = models.TextField(blank=True, db_default="")
    mark = models.JSONField(null=True)
    held = models.JSONField(null=True)

    class Meta:
        verbose_name_plural = "store"

    def __str__(self) -> str:
        return f"{self.system}, timeline {self.timeline}"


class CostEntry(models.Model):
    """Messages accepted by vendors, with their units, by the day of the call (UTC).

    Code that stores acceptances appends a row for them in the same transaction (engine/merging.py,
    engine/ground_truth.py). The sweep sums up the rows of a day (`summed`). So accounts are sums of rows at any moment.
    Nothing else changes them.
    """

    SPONSOR = "sponsor"
    day = models.DateField()
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False)
    credential = models.ForeignKey(
        Credential, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    messages = models.PositiveBigIntegerField()
    units = models.PositiveBigIntegerField()
    summed = models.BooleanField(db_default=False)

    objects = OfSponsors.as_manager()

    class Meta:
        verbose_name = "cost"
        indexes = [
            Index(fields=["day"], name="cost_day"),
            Index(fields=["id"], condition=Q(summed=False), name="cost_to_sum"),
        ]
        constraints = [
            UniqueConstraint(
                fields=["day", "sponsor", "vendor", "credential"], condition=Q(summed=True), name="cost_summed_once"
            )
        ]

    def __str__(self) -> str:
        said = ngettext("%(messages)s message on %(day)s", "%(messages)s messages on %(day)s", self.messages)
        return said % {"messages": self.messages, "day": self.day}
