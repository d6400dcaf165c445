"""Each vendor's nightly dispatches (document 000)."""

from django.db import models

from vendors.models import Vendor


class DispatchRun(models.Model):
    """The nightly dispatch of one vendor on one local date: this row makes it once (promise P6)."""

    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="runs")
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
