"""Sentences of the history as data, beside the English text that Django's log keeps."""

from django.contrib.admin.models import LogEntry
from django.db import models
from django.utils.translation import gettext_lazy


class HistorySentence(models.Model):
    """Form and values of one entry's sentence (vendors/said.py).

    Without a constraint in the database, so that a version that does not know the table can delete entries.
    """

    entry = models.OneToOneField(
        LogEntry, on_delete=models.CASCADE, primary_key=True, related_name="sentence", db_constraint=False
    )
    said = models.JSONField(gettext_lazy("sentence"))

    class Meta:
        default_permissions = ()
        verbose_name = gettext_lazy("history sentence")
        verbose_name_plural = gettext_lazy("history sentences")

    def __str__(self) -> str:
        return str(self.pk)
