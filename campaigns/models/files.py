"""Files in letters: each content is stored once for all senders, with the names under which campaigns carry it.

They are in the database, because every sending machine needs them. They are stored together with their campaign or not
at all, and one backup covers both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import models
from django.db.models.functions import Now

from campaigns.models.campaigns import Campaign, OfSponsors, Sponsor

LARGEST_MAIL = 20_000_000  # bytes of files in one letter; base64 adds a third, and many relays take 30 MB


class StoredFile(models.Model):
    """The content of a file. asked_at: when it was last stored; a day later it is deleted if nothing refers to it."""

    sha256 = models.BinaryField(primary_key=True, max_length=32)
    size = models.PositiveIntegerField(help_text="Bytes")
    content = models.BinaryField()
    asked_at = models.DateTimeField()


class UploadedFile(models.Model):
    """A content uploaded by a sponsor's programs, which refer to it by its digest. test: by a test key.

    asked_at: the upload or the last reference, to within an hour; a month later it is deleted.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="+", db_index=False)
    test = models.BooleanField(default=False)
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())

    objects = OfSponsors.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sponsor", "test", "file"], name="one_upload_of_a_content")]

    def __str__(self) -> str:
        return f"uploaded file {self.pk}"


class CampaignFile(models.Model):
    """A file of a campaign. to_all: every letter carries it.

    Otherwise the letters whose fields name it do (Campaign.file_fields). name: as in the fields, perhaps with folders.
    cid: for an image within the HTML.
    """

    SPONSOR = "campaign__sponsor"
    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="files", db_index=False)
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=200)
    content_type = models.CharField(max_length=100)
    cid = models.CharField(max_length=200, blank=True)
    to_all = models.BooleanField(help_text="Every letter carries it")

    objects = OfSponsors.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["campaign", "name"], name="one_file_of_a_name"),
        ]
        indexes = [
            models.Index(fields=["campaign"], condition=models.Q(to_all=True), name="campaign_file_to_all"),
        ]

    def __str__(self) -> str:
        return self.name


def file_names(fields: Mapping[str, Any], file_fields: Sequence[str]) -> list[str]:
    """Return the names of a recipient's own files, from the fields that name one."""
    named = (str(fields.get(field) or "").strip() for field in file_fields)
    return list(dict.fromkeys(name for name in named if name))


def shown_name(name: str) -> str:
    """Return the name as the recipient sees it: without folders."""
    return name.rpartition("/")[2]
