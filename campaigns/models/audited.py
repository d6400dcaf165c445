"""What the audit found last."""

from django.db import models


class Audited(models.Model):
    """One row: what beat's audit, or a person's, found last (promises P1 to P7). checks: as campaigns.audit.Check."""

    at = models.DateTimeField()
    checks = models.JSONField()

    class Meta:
        verbose_name_plural = "audited"

    def __str__(self) -> str:
        return f"audited at {self.at}"
