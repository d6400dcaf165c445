"""Templates kept by sponsors. Their versions never change; a campaign has a copy, and names its version."""

import re
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors.mail_classes import MailClass
from vendors.models import Vendor
from vendors.said import Said

NAME = re.compile(r"[^\s@/\\](?:[^@/\\]*[^\s@/\\])?")


def known_name(name: str) -> None:
    """Check a template's name; raises ValidationError.

    NAME@3 is a version in commands and requests, and the API has names in its paths.
    """
    if not (NAME.fullmatch(name) and name.isprintable()):
        raise ValidationError(Said("a template's name has no @, / or \\ in it, and begins and ends with no blank"))


class Template(models.Model):
    """A named text that a sponsor uses again and again; its versions have the content. Archived: out of use."""

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="templates", db_index=False)
    name = models.CharField(
        max_length=100, validators=[known_name], help_text="By which campaigns and programs name it"
    )
    channel = models.CharField(max_length=10, choices=Vendor.Channel.choices)
    mail_class = models.SmallIntegerField(
        "class",
        choices=MailClass.choices,
        null=True,
        blank=True,
        help_text="Of campaigns that name none; empty: by their kind",
    )
    archived_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["sponsor", "name"]
        constraints = [models.UniqueConstraint(fields=["sponsor", "name"], name="template_name")]

    def __str__(self) -> str:
        return self.name


class TemplateVersion(models.Model):
    """The content of a template from one change to the next. number: 1, 2, 3 ..."""

    SPONSOR = "template__sponsor"
    template = models.ForeignKey(Template, on_delete=models.PROTECT, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    subject = models.TextField(blank=True)
    body = models.TextField()
    html = models.BooleanField(default=False)
    text = models.TextField(blank=True)
    headers: Any = models.JSONField(null=True)
    remark = models.CharField(max_length=255, blank=True)
    made_by = models.CharField(max_length=150)
    made_at = models.DateTimeField(default=timezone.now)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["template", "number"], name="template_number")]

    def __str__(self) -> str:
        return f"{self.template.name}@{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("a version of a template never changes; add the next one")
        super().save(*args, **kwargs)
