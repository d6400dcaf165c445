"""Sessions: the receipt that the HTTP front gives for a send request (document 002's Session DB)."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from campaigns.models.mail import Job, Sponsor
from campaigns.models.scope import OfSponsors


class Session(models.Model):
    """One accepted request, stored in the statement that stores its messages, and never without them.

    answer: what the client was told, word for word, for a repeat with the same idempotency key. references: the
    client's own names of the messages, in their order. finished_at, shard and in_doubt are the consumer's: when the
    result was written, on which result server (its number in settings.RESULT_URLS; empty: on none, the result is
    rebuilt from the rows), and how many messages were in doubt then. A retry empties them again.
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
            # Of the sponsor, not of the API key: a repeat after the key was rotated must not send twice.
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
        """As clients know it."""
        return f"ses_{self.pk.hex}"
