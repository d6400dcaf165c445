"""Requests for approval of a campaign: who asked, what exactly was frozen, and who decided. Kept for good."""

from django.db import models
from django.db.models import F, Index, Q
from django.utils.translation import gettext

from campaigns.models.campaigns import Campaign, OfSponsors, Sponsor

APPROVE = "campaigns.approve_campaign"
UNDECIDED = Index(fields=["id"], condition=Q(verdict=None), name="approval_undecided")
DECIDED = (
    Index(fields=["decided_at"], condition=Q(verdict__isnull=False), name="approval_decided_at"),
    Index(fields=["sponsor", "decided_at"], condition=Q(verdict__isnull=False), name="approval_decided_of"),
)


class Approval(models.Model):
    """A campaign that needs a second person's approval: stored with it, decided once, never changed or deleted.

    A trigger enforces that, even against statements typed by hand. kinds: the type of who asked or decided, stored with
    its name at the time: a user (with its number, which is never reused), an API key by its prefix, or the user of a
    shell. frozen: what is approved, with digests of texts, files and all messages in order; digest: its SHA-256.
    changed: parts that differed by the time of approval and were approved as such: {"from": "..."}.
    """

    class Kind(models.TextChoices):
        USER = "user", "User"
        KEY = "key", "API key"
        SHELL = "shell", "Shell"

    class Verdict(models.TextChoices):
        APPROVED = "approved", "Approved"
        REFUSED = "refused", "Refused"

    SPONSOR = "sponsor"
    campaign = models.OneToOneField(Campaign, on_delete=models.PROTECT, related_name="approval")
    sponsor = models.ForeignKey(  # copied from the campaign by the database; an index finds the newest of one sponsor
        Sponsor, on_delete=models.PROTECT, related_name="approvals", db_index=False, editable=False
    )
    asked_kind = models.CharField(max_length=5, choices=Kind.choices)
    asked_by = models.CharField(max_length=150)
    asked_user = models.IntegerField(null=True)
    asked_at = models.DateTimeField()
    recipients = models.PositiveIntegerField()
    frozen = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of what is frozen")
    changed = models.JSONField(null=True)
    verdict = models.CharField(max_length=8, choices=Verdict.choices, null=True)
    decided_kind = models.CharField(max_length=5, choices=Kind.choices, null=True)
    decided_by = models.CharField(max_length=150, null=True)
    decided_user = models.IntegerField(null=True)
    decided_at = models.DateTimeField(null=True)
    remark = models.TextField(blank=True, default="", db_default="")

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        permissions = [("approve_campaign", "Can approve campaigns of others, and refuse them")]
        indexes = [UNDECIDED, *DECIDED]
        constraints = [
            models.CheckConstraint(
                condition=Q(verdict=None, decided_at=None)
                | Q(verdict__isnull=False, decided_at__isnull=False, decided_user__isnull=False),
                name="approval_decided",
            ),
            models.CheckConstraint(
                condition=~Q(verdict="approved", asked_user__isnull=False, decided_user=F("asked_user")),
                name="approval_by_another",
            ),
        ]

    def __str__(self) -> str:
        return gettext("approval of campaign %(campaign)s") % {"campaign": self.campaign_id}
