"""Tasks that wait in the database until the broker may hold them (document 004)."""

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils.timesince import timeuntil
from django.utils.translation import gettext


class WaitingTasks(models.Manager["ParkedTask"]):
    """Only waiting rows, without those kept against duplicates."""

    def get_queryset(self) -> models.QuerySet["ParkedTask"]:
        return super().get_queryset().filter(done_at=None)


class ParkedTask(models.Model):
    """A Celery message due later than the horizon, unchanged, and the state of its release.

    A row is normally deleted when its message is published. It is kept, with done_at, if the message may have been
    published more than once (a sweep was killed): the publication received first is stored in `received`, and the
    others are dropped (waiter/parking.py).
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
        """Format the time until it is due: "2 days, 3 hours" or "overdue"."""
        if self.due_at <= at:
            return gettext("overdue")
        return timeuntil(self.due_at, at).replace("\xa0", " ")


class Revocation(models.Model):
    """A task revoked by its id or by a stamped header, kept while its message may wait somewhere.

    Workers keep revokes in memory, so one that restarts or was down knows none. name: the task's id or the header.
    value: the header's, as JSON; "" for a task's id.
    """

    name = models.TextField()
    value = models.TextField(default="")
    revoked_at = models.DateTimeField()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["name", "value"], name="revoked_once")]

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name
