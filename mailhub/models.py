"""Permissions given to groups, bookmarks, runs of tasks, and wrong stored times."""

from django.conf import settings
from django.contrib.auth.models import Group, Permission
from django.db import models
from django.db.models.functions import Now


class GivenPermission(models.Model):
    """Records that mailhub gave a group a permission. If somebody removes it, it is not given again."""

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="+", db_index=False)
    permission = models.ForeignKey(Permission, on_delete=models.CASCADE, related_name="+", db_index=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "permission"], name="given_once")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.group_id} {self.permission_id}"


class SavedLook(models.Model):
    """A user's bookmark of a list on the operators' pages. `address`: with its filters, without a host."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(max_length=60)
    address = models.CharField(max_length=1000)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="one_look_for_a_name")]

    def __str__(self) -> str:
        return self.name


class PeriodicRun(models.Model):
    """The last run of a periodic task, or of the workers' check, by PostgreSQL's clock (mailhub/watchdog.py)."""

    task = models.CharField(max_length=200, primary_key=True)
    ran_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.task} at {self.ran_at}"


class MomentFound(models.Model):
    """Stored times wrongly ahead of PostgreSQL's clock, as last found and corrected.

    `moment`: the model's label and the field. `ahead`: the largest distance. `number`: of rows.
    """

    moment = models.CharField(max_length=100, primary_key=True)
    at = models.DateTimeField(db_default=Now())
    number = models.PositiveIntegerField()
    ahead = models.DurationField()

    class Meta:
        default_permissions = ()
        verbose_name_plural = "moments found"

    def __str__(self) -> str:
        return self.moment
