"""Who may send what as whom: sender identities of sponsors, and entitlements to vendors and credentials.

campaigns/entitlements.py decides by these rows.
"""

import re
from email.utils import parseaddr
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from campaigns.models.campaigns import OfSponsors, Sponsor
from vendors.adapters import mime
from vendors.adapters.base import Origin
from vendors.adapters.dkim import DkimKey, private_key
from vendors.models import Credential, EncryptedJSONField, Vendor

LONGEST_MAILBOX = 64 - 41  # before the @, where a token follows; 64 is SMTP's limit (RFC 5321)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")


class Identity(models.Model):
    """As whom a sponsor's e-mails go out. A disabled one is used for nothing new.

    A change counts from the next sender on that takes a job. secret: {'private_key': an RSA key in PEM}, for DKIM.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="identities", db_index=False)
    name = models.CharField(max_length=50, help_text="By which campaigns and programs name it; letters, digits, . _ -")
    from_name = models.CharField(max_length=200, blank=True)
    from_address = models.CharField(max_length=254)
    reply_to = models.CharField(max_length=460, blank=True, help_text="An address, or a name with an address in <>")
    return_path = models.CharField(max_length=254, blank=True, help_text="Where bounces go; empty: to From's address")
    verp = models.BooleanField(
        "bounces come back to mailhub",
        default=False,
        db_default=False,
        help_text="Each message gets a return path of its own (VERP): name+token@domain, of the return path",
    )
    default = models.BooleanField(default=False, help_text="Of campaigns and requests that name none")
    enabled = models.BooleanField(default=True)
    dkim_domain = models.CharField(max_length=253, blank=True, help_text="Of From's address, or above it")
    dkim_selector = models.CharField(max_length=63, blank=True, help_text="<selector>._domainkey.<domain> has the key")
    secret: Any = EncryptedJSONField(default=dict, blank=True, help_text="{'private_key': '...'}; write-only")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["sponsor", "name"]
        verbose_name_plural = "identities"
        constraints = [
            models.UniqueConstraint(fields=["sponsor", "name"], name="identity_name"),
            models.UniqueConstraint(fields=["sponsor"], condition=Q(default=True), name="one_default_identity"),
        ]

    def __str__(self) -> str:
        return f"{self.sponsor.name}/{self.name}"

    @property
    def shown(self) -> str:
        """Name <address>"""
        return f"{self.from_name} <{self.from_address}>" if self.from_name else self.from_address

    @property
    def dkim(self) -> DkimKey | None:
        key = self.secret.get("private_key")
        return DkimKey(self.dkim_domain, self.dkim_selector, key) if key else None

    @property
    def bounce_mailbox(self) -> str:
        """The address of which each message's return path is made, if `verp` is set; its domain in ASCII."""
        return mime.written(self.origin).return_path

    @property
    def origin(self) -> Origin:
        """What letters get of it."""
        return Origin(self.from_address, self.from_name, self.reply_to, self.return_path, self.dkim)

    def clean(self) -> None:
        faults: dict[str, str] = {}
        if self.name and not NAME.fullmatch(self.name):
            faults["name"] = "letters, digits, dots, hyphens and underscores only, at most 50"
        parts = {
            "from_name": Origin("a@example.com", name=self.from_name),
            "from_address": Origin(self.from_address or "a@example.com"),
            "reply_to": Origin("a@example.com", reply_to=self.reply_to),
            "return_path": Origin("a@example.com", return_path=self.return_path),
        }
        for field, part in parts.items():
            try:
                mime.written(part)
            except ValueError as error:
                faults[field] = str(error)
        if "<" in self.return_path:
            faults["return_path"] = "an address without a name"
        if not faults and self.verp and len(self.bounce_mailbox.rpartition("@")[0]) > LONGEST_MAILBOX:
            faults["return_path"] = f"at most {LONGEST_MAILBOX} characters before the @: a token is added to them"
        if not faults:
            faults = self._dkim_faults()
        if faults:
            raise ValidationError(faults)

    def _dkim_faults(self) -> dict[str, str]:
        given = (self.dkim_domain, self.dkim_selector, self.secret)
        if not any(given):
            return {}
        if not all(given):
            return {"dkim_domain": "a signature needs all three: domain, selector and private key"}
        if not LABEL.fullmatch(self.dkim_selector):
            return {"dkim_selector": "not a name that the DNS can have"}
        domain = mime.written(self.origin).domain.lower()
        if not f".{domain}".endswith(f".{self.dkim_domain.lower()}"):
            return {"dkim_domain": f"it must be {domain} or a domain above it, or DMARC takes the mails for forged"}
        try:
            private_key(self.secret.get("private_key", ""))
        except ValueError as error:
            return {"secret": str(error)}
        return {}


def named_address(text: str) -> dict[str, str]:
    """The fields from_name and from_address from "address" or "Name <address>"."""
    name, address = parseaddr(text) if text.isprintable() else ("", text)
    return {"from_name": name, "from_address": address}


class Entitlement(models.Model):
    """A sponsor may use a vendor: one of its credentials, or all that it has and will have."""

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="entitlements", db_index=False)
    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="entitlements")
    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, null=True, blank=True, help_text="Empty: all of the vendor"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["sponsor", "vendor", "credential"]
        constraints = [
            models.UniqueConstraint(
                fields=["sponsor", "vendor", "credential"], name="entitled_once", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return f"{self.sponsor.name} may use {self.credential or self.vendor}"

    def clean(self) -> None:
        if self.credential_id and self.vendor_id and self.credential and self.credential.vendor_id != self.vendor_id:
            raise ValidationError({"credential": "it is a credential of another vendor"})
