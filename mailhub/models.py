"""What waits in the database until the broker may hold it (document 004), and the keys of the HTTP front."""

from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.timesince import timeuntil

from campaigns.models import Sponsor
from vendors.models import EncryptedJSONField


class WaitingTasks(models.Manager["ParkedTask"]):
    """Without the rows that only keep doubles out."""

    def get_queryset(self) -> models.QuerySet["ParkedTask"]:
        return super().get_queryset().filter(done_at=None)


class ParkedTask(models.Model):
    """A Celery message that is due later than the horizon, word for word, and how far its release has come.

    A row normally goes when its message is published. It stays, with done_at, where the message may have been
    published more than once (a sweep was killed in between): whichever publication is received first writes itself
    into received, and the others are dropped (mailhub/parking.py).
    """

    due_at = models.DateTimeField()
    task = models.TextField(help_text="The name of the Celery task")
    task_id = models.TextField()
    queue = models.TextField()
    message = models.TextField(help_text="Headers, properties, body and routing, as JSON")
    parked_at = models.DateTimeField()
    claim = models.UUIDField(null=True, help_text="The publication that was tried last")
    claimed_until = models.DateTimeField(null=True)
    publications = models.PositiveIntegerField(default=0, help_text="How many may exist, one a claim")
    received = models.UUIDField(null=True, help_text="The only publication that may run")
    done_at = models.DateTimeField(null=True, help_text="No longer waits: released, received or cancelled")

    objects = models.Manager()
    waiting = WaitingTasks()

    class Meta:
        ordering = ["due_at", "id"]
        indexes = [models.Index(fields=["due_at", "id"], condition=Q(done_at=None), name="parked_due")]

    def __str__(self) -> str:
        return f"{self.task}[{self.task_id}]"

    def due_in(self, at: datetime) -> str:
        """In words, for people."""
        if self.due_at <= at:
            return "overdue"
        return timeuntil(self.due_at, at).replace("\xa0", " ")


class KeptAnswer(models.Model):
    """What a program was told, word for word, for a repeat with the same idempotency key.

    POST /messages keeps its own with the session. The answer may show a secret, and is encrypted as that is.
    """

    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="+")
    test = models.BooleanField()
    operation = models.CharField(max_length=40)
    idempotency_key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(help_text="SHA-256 of the request's body")
    answer: Any = EncryptedJSONField(help_text="{'location': ..., 'body': ...}; write-only")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["sponsor", "test", "operation", "idempotency_key"], name="one_answer_for_a_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.idempotency_key}"


class ApiKey(models.Model):
    """A program's way in, for one sponsor. The key itself is shown once and stored nowhere: only its keyed hash."""

    class Kind(models.TextChoices):
        LIVE = "live"
        TEST = "test", "Test: to sandbox vendors only"

    class Scope(models.TextChoices):
        SEND = "send"
        READ = "read"
        OPS = "ops"

    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="api_keys")
    kind = models.CharField(max_length=4, choices=Kind.choices)
    scopes: Any = ArrayField(models.CharField(max_length=10, choices=Scope.choices))
    prefix = models.CharField(max_length=32, unique=True, help_text="The key's beginning, by which people know it")
    digest = models.BinaryField(unique=True, max_length=32)
    requests_per_minute = models.PositiveIntegerField(default=3000, help_text="0: as many as come")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, editable=False, help_text="To the minute")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.prefix

    def is_valid(self, at: datetime) -> bool:
        return not (self.revoked_at and self.revoked_at <= at) and not (self.expires_at and self.expires_at <= at)
