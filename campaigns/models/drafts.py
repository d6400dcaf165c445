"""Drafts: campaigns made step by step on pages, with their lists. campaigns/lists/drafts/ has the verbs.

The list is stored as uploaded, in blocks, and a second time as checked, in rows ready to be sent.
"""

import uuid
from hashlib import sha256
from typing import Any

import orjson
from django.conf import settings
from django.db import models
from django.utils import timezone

from campaigns.models.campaigns import Campaign, OfSponsors, Sponsor, Topic
from campaigns.models.files import StoredFile
from campaigns.models.identities import Identity
from campaigns.models.routes import Route
from campaigns.models.templates import TemplateVersion
from vendors import said
from vendors.mail_classes import MailClass
from vendors.models import Credential, Vendor, known_zone


class Draft(models.Model):
    """A campaign that has not been stored yet. campaign: the one made from it, once.

    Each part has its own revision, so two windows cannot overwrite each other unnoticed, and changes to different parts
    do not conflict. busy: the kind of task at work on it. Only the task with the current fence may write, and after the
    lease another one may take over. facts: the result of the last check, together with its input.
    """

    CHECKING, SENDING = "checking", "sending"
    WHEN = (("now", "now"), ("nightly", "tonight"), ("at", "at a time"))
    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="drafts", db_index=False)
    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False, help_text="Of the page that made it")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", help_text="Who sends it"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)
    campaign = models.OneToOneField(Campaign, on_delete=models.CASCADE, null=True, related_name="draft")

    message_revision = models.PositiveIntegerField(default=1)
    name = models.CharField(max_length=200)
    credential = models.ForeignKey(Credential, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    route = models.ForeignKey(Route, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    identity = models.ForeignKey(Identity, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    topic = models.ForeignKey(Topic, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    transactional = models.BooleanField(default=False)
    mail_class = models.SmallIntegerField(choices=MailClass.choices, null=True, help_text="Empty: by its kind")
    subject = models.TextField(blank=True, default="")
    html = models.TextField(blank=True, default="")
    text = models.TextField(blank=True, default="", help_text="The body, if there is no HTML, else beside it")
    headers: Any = models.JSONField(null=True, help_text="Further headers of its template")
    template_version = models.ForeignKey(
        TemplateVersion,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        help_text="With which its message began",
    )

    list_revision = models.PositiveIntegerField(default=1)
    list_name = models.CharField(max_length=200, blank=True, default="")
    list_bytes = models.BigIntegerField(default=0)
    list_sha256 = models.CharField(max_length=64, blank=True, default="")
    list_version = models.PositiveIntegerField(default=0, help_text="Of the blocks that hold it; 0: there is no list")
    columns = models.JSONField(default=dict, help_text="recipient: its column; names: of fields by column")
    leave_out = models.BooleanField(default=False, help_text="Bad rows are left out")

    when_revision = models.PositiveIntegerField(default=1)
    when = models.CharField(max_length=7, choices=WHEN, default="now")
    send_at = models.DateTimeField(null=True)
    hours_from = models.TimeField(null=True)
    hours_to = models.TimeField(null=True)
    hours_of_each = models.BooleanField(default=False, db_default=False, help_text="By each recipient's clock")
    time_zone = models.CharField(max_length=64, blank=True, default="", validators=[known_zone])
    first = models.PositiveIntegerField(null=True, help_text="Recipients after whom it waits")

    busy = models.CharField(max_length=8, blank=True, default="")
    fence = models.PositiveIntegerField(default=0)
    lease_at = models.DateTimeField(null=True)
    percent = models.PositiveSmallIntegerField(default=0, help_text="How far the task is")
    facts = models.JSONField(null=True)
    failure = models.TextField(blank=True, default="", help_text="Why it could not be sent, as a sentence")
    failure_said = models.JSONField(null=True, editable=False)
    tests = models.PositiveIntegerField(default=0, help_text="Test-sends so far")

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-updated_at"]
        indexes = [
            models.Index(fields=["sponsor", "-updated_at"], name="draft_of_sponsor"),
            models.Index(fields=["id"], condition=models.Q(busy__gt=""), name="draft_busy"),
            models.Index(fields=["updated_at"], name="draft_updated"),
            models.Index(
                fields=["sponsor", "id"], condition=models.Q(failure__gt="", campaign=None), name="draft_failed"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def why_failed(self) -> str:
        """The reason for a failure to send it; empty: nobody has tried, or no attempt has failed."""
        return said.read(self.failure, self.failure_said)

    @property
    def channel(self) -> str:
        """The channel of its vendor or route; empty if none is chosen."""
        if self.route_id and self.route:
            return self.route.channel
        return self.credential.vendor.channel if self.credential_id and self.credential else ""

    @property
    def is_html(self) -> bool:
        return bool(self.html.strip()) and self.channel != Vendor.Channel.SMS

    @property
    def body(self) -> str:
        return self.html if self.is_html else self.text

    @property
    def seen(self) -> str:
        """The revisions of all parts, as a page shows them."""
        return f"{self.message_revision}.{self.list_revision}.{self.when_revision}"

    @property
    def question(self) -> str:
        """A digest of everything that a check of the list depends on."""
        parts: list[Any] = [self.list_version, self.columns, self.channel, self.subject, self.html, self.text]
        parts += [self.headers, self.transactional, self.sponsor.phone_region, self.credential_id, self.route_id]
        parts += [self.topic_id, self.identity_id]  # for suppressions and costs
        if self.hours_of_each and self.hours_from is not None and self.channel != Vendor.Channel.SMS:
            parts.append("time_zone")  # of each row
        return sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]

    @property
    def found(self) -> dict[str, Any] | None:
        """The result of the list's check, if it still applies to the list and the message."""
        facts = self.facts
        return facts if facts and self.list_version and facts["question"] == self.question else None


class DraftBlock(models.Model):
    """A part of a file of a draft. kind: the list as uploaded, its checked rows, or the rows left out."""

    LIST, ROWS, LEFT_OUT = "list", "rows", "left_out"
    draft = models.ForeignKey(Draft, on_delete=models.CASCADE, related_name="blocks", db_index=False)
    kind = models.CharField(max_length=8)
    version = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["draft", "kind", "version", "number"], name="one_block_of_a_number")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of draft {self.draft_id}"


class DraftFile(models.Model):
    """A file attached to each letter of a draft's campaign."""

    draft = models.ForeignKey(Draft, on_delete=models.CASCADE, related_name="files", db_index=False)
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=200)
    content_type = models.CharField(max_length=100)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["draft", "name"], name="one_draft_file_of_a_name")]

    def __str__(self) -> str:
        return self.name
