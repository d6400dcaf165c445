"""Rows for clients of the HTTP API: their sessions (document 002's Session DB) and their webhooks."""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from campaigns.models.campaigns import OfSponsors, Sponsor
from campaigns.models.jobs import Job
from vendors import said
from vendors.models import EncryptedJSONField


class Session(models.Model):
    """One accepted request, stored in the statement that stores its messages, and never without them.

    answer: the response, for repeats with the same idempotency key. references: the client's own names of the messages,
    in their order. The consumer writes finished_at, shard and in_doubt: the time of the result, its result server (an
    index in settings.RESULT_URLS; empty: none, and the result is made from the rows), and the messages in doubt then. A
    retry clears them.
    """

    SPONSOR = "sponsor"
    id = models.UUIDField(primary_key=True, editable=False)
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="sessions", db_index=False)
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="session", db_constraint=False)
    test = models.BooleanField(default=False, help_text="Asked for with a test key")
    key_prefix = models.CharField(max_length=32, help_text="Of the API key that asked")
    idempotency_key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(help_text="SHA-256 of the request's body")
    answer = models.TextField()
    references = models.JSONField(null=True, help_text="A list as long as the job, or nothing")
    metadata = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True, editable=False)
    shard = models.PositiveSmallIntegerField(null=True, editable=False)
    in_doubt = models.PositiveIntegerField(default=0, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            # By sponsor, not by API key: a repeat after the key was rotated must not send twice.
            models.UniqueConstraint(fields=["sponsor", "test", "idempotency_key"], name="session_once")
        ]
        indexes = [
            models.Index(fields=["job"], condition=Q(finished_at=None), name="session_open"),
            models.Index(fields=["job"], condition=Q(in_doubt__gt=0), name="session_doubts"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The session's id as clients know it."""
        return f"ses_{self.pk.hex}"


class Event(models.TextChoices):
    SESSION_FINISHED = "session.finished"
    SESSION_PAUSED = "session.paused"
    MESSAGE_SENT = "message.sent"
    MESSAGE_FAILED = "message.failed"
    MESSAGE_NEEDS_ATTENTION = "message.needs_attention"
    MESSAGE_DELIVERED = "message.delivered"
    MESSAGE_BOUNCED = "message.bounced"
    MESSAGE_COMPLAINED = "message.complained"
    ANSWER_RECEIVED = "answer.received"


def all_events() -> list[str]:
    return list(Event.values)


class Webhook(models.Model):
    """An address for a sponsor's events, posted with a signature (Standard Webhooks).

    test: events of test keys' sessions only. timeouts: calls in a row without an answer in time; after a few, the
    webhook is suspended for a while.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    events: Any = ArrayField(models.CharField(max_length=40, choices=Event.choices), default=all_events)
    test = models.BooleanField(default=False)
    secret: Any = EncryptedJSONField(default=dict, help_text="{'key': 'whsec_...'}; write-only")
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=255, blank=True)
    disabled_reason_said = models.JSONField(gettext_lazy("sentence"), null=True, editable=False)  # vendors/said.py
    timeouts = models.PositiveSmallIntegerField(default=0, editable=False)
    suspended_until = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return gettext("webhook %(webhook)s") % {"webhook": self.pk}

    @property
    def why_disabled(self) -> str:
        """The reason of the program, or somebody's own words."""
        return said.read(self.disabled_reason, self.disabled_reason_said)


class WebhookCall(models.Model):
    """One event for one webhook: posted until it is accepted, at most ten times in three days.

    session: empty if the event belongs to none. event: its id, the same for every try. next_at: the time of the next
    try; empty: never. During a call, this is the time by which its process must have finished or died.
    """

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="calls", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, null=True, related_name="calls", db_index=False)
    event = models.UUIDField()
    kind = models.CharField(max_length=40, choices=Event.choices)
    body = models.TextField()
    tries = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    taken_at = models.DateTimeField(null=True)
    http_status = models.PositiveSmallIntegerField(null=True, help_text="Of the last try")
    result = models.CharField(max_length=255, blank=True, help_text="What came of the last try")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["webhook", "event"], name="webhook_event_once")]
        indexes = [
            models.Index(fields=["webhook", "next_at"], condition=Q(next_at__isnull=False), name="webhook_due"),
            # Finds old events with recipients' texts.
            models.Index(fields=["created_at"], condition=Q(session=None), name="webhook_call_of_no_session"),
        ]

    def __str__(self) -> str:
        return gettext("%(event)s for %(webhook)s") % {"event": self.kind, "webhook": self.webhook_id}
