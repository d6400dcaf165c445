"""Who is told what happened, and each telling."""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from campaigns.models.mail import Sponsor
from campaigns.models.sessions import Session
from vendors.secrets import EncryptedJSONField


class Event(models.TextChoices):
    SESSION_FINISHED = "session.finished"
    MESSAGE_SENT = "message.sent"
    MESSAGE_FAILED = "message.failed"
    MESSAGE_NEEDS_ATTENTION = "message.needs_attention"
    MESSAGE_DELIVERED = "message.delivered"
    MESSAGE_BOUNCED = "message.bounced"


def all_events() -> list[str]:
    return list(Event.values)


class Webhook(models.Model):
    """Where a sponsor's events are posted to, signed (Standard Webhooks). test: events of test keys' sessions only.

    timeouts: calls in a row that were not answered in time; from some on the webhook is suspended for a while.
    """

    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    events: Any = ArrayField(models.CharField(max_length=40, choices=Event.choices), default=all_events)
    test = models.BooleanField(default=False)
    secret: Any = EncryptedJSONField(default=dict, help_text="{'key': 'whsec_...'}; write-only")
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=255, blank=True)
    timeouts = models.PositiveSmallIntegerField(default=0, editable=False)
    suspended_until = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"webhook {self.pk}"


class WebhookCall(models.Model):
    """One event for one webhook: posted until it is taken, at most ten times in three days.

    event: its id, the same however often it is posted and found again. next_at: of the next try; empty: no more. While
    a call runs it is the time at which its process must have died.
    """

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="calls")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="calls", db_index=False)
    event = models.UUIDField()
    kind = models.CharField(max_length=40, choices=Event.choices)
    body = models.TextField()
    tries = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    taken_at = models.DateTimeField(null=True)
    http_status = models.PositiveSmallIntegerField(null=True, help_text="Of the last try")
    told = models.CharField(max_length=255, blank=True, help_text="What came of the last try, in words")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["webhook", "event"], name="webhook_event_once")]
        indexes = [models.Index(fields=["webhook", "next_at"], condition=Q(next_at__isnull=False), name="webhook_due")]

    def __str__(self) -> str:
        return f"{self.kind} for {self.webhook_id}"
