"""API keys, and answers of the API kept for repeats. The app of these tables is mailhub, which made them first."""

from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors.models import EncryptedJSONField


class KeptAnswer(models.Model):
    """An answer of the API, for repeats with the same idempotency key.

    Answers of POST /messages are kept with their sessions instead. An answer may contain a secret, so it is encrypted.
    """

    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="+", db_index=False)
    test = models.BooleanField()
    operation = models.CharField(max_length=40)
    idempotency_key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(help_text="SHA-256 of the request's body")
    answer: Any = EncryptedJSONField(help_text="{'location': ..., 'body': ...}; write-only")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        app_label = "mailhub"
        constraints = [
            models.UniqueConstraint(
                fields=["sponsor", "test", "operation", "idempotency_key"], name="one_answer_for_a_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.idempotency_key}"


class ApiKey(models.Model):
    """An API key of one sponsor. The key itself is shown once; only its hash is stored."""

    class Kind(models.TextChoices):
        LIVE = "live"
        TEST = "test", "Test: to sandbox vendors only"

    class Scope(models.TextChoices):
        SEND = "send"
        READ = "read"
        OPS = "ops"

    class Hashed(models.TextChoices):
        SECRET_KEY = "secret_key", "With SECRET_KEY, or one before it"
        PLAIN = "plain", "SHA-256: a key has 192 bits that nobody can guess"

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="api_keys")
    kind = models.CharField(max_length=4, choices=Kind.choices)
    scopes: Any = ArrayField(models.CharField(max_length=10, choices=Scope.choices))
    prefix = models.CharField(max_length=32, unique=True, help_text="The key's beginning, by which people know it")
    digest = models.BinaryField(unique=True, max_length=32)
    hashed: Any = models.CharField(
        max_length=10, choices=Hashed.choices, default=Hashed.PLAIN, db_default=Hashed.SECRET_KEY, editable=False
    )
    requests_per_minute = models.PositiveIntegerField(default=3000, help_text="0: as many as come")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, editable=False, help_text="To the minute")
    made_by = models.CharField(max_length=150, blank=True, default="", db_default="", editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        app_label = "mailhub"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.prefix

    def is_valid(self, at: datetime) -> bool:
        return not (self.revoked_at and self.revoked_at <= at) and not (self.expires_at and self.expires_at <= at)


class FormerSecretKey(models.Model):
    """A former SECRET_KEY with which valid API keys were hashed, kept when it is removed (`rotate_keys`)."""

    secret: Any = EncryptedJSONField(help_text="{'key': ...}; write-only")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        app_label = "mailhub"
        default_permissions = ()

    def __str__(self) -> str:
        return f"of {self.created_at:%Y-%m-%d}"
