"""Which PostgreSQL wrote the rows, and for which version of the program its tables are."""

from django.db import models
from django.db.models.functions import Now


class Store(models.Model):
    """One row. Calls start only where it says what is so (campaigns/failover/guard.py).

    system: the cluster and the database in it; relation: this very table; timeline: of the write-ahead log. One of
    them differs after a failover, a restore or a move. adoptions: how often people said that all is well again.
    tables: the migrations that they are at; empty while one is under way.
    """

    system = models.CharField(max_length=100)
    relation = models.BigIntegerField()
    timeline = models.CharField(max_length=8)
    adoptions = models.PositiveIntegerField(default=1)
    adopted_at = models.DateTimeField(db_default=Now())
    noticed_at = models.DateTimeField(null=True, help_text="When it was first seen that the store was taken over.")
    tables = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "store"

    def __str__(self) -> str:
        return f"{self.system}, timeline {self.timeline}"
