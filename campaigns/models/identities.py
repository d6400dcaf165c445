"""Sender identities of sponsors, and their entitlements to vendors and credentials.

campaigns/senders/entitlements.py decides by these rows.
"""

import re
from collections.abc import Collection, Sequence
from email.utils import parseaddr
from functools import cached_property
from hashlib import blake2b
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext

from campaigns.models.campaigns import OfSponsors, Sponsor
from campaigns.texts.given_texts import given_value
from campaigns.texts.phone_numbers import parse_e164
from vendors.adapters import mime
from vendors.adapters.base import Origin
from vendors.adapters.dkim import DkimKey, private_key
from vendors.adapters.segments import fits_gsm
from vendors.models import Credential, EncryptedJSONField, Vendor
from vendors.said import Said, gettext_noop

LONGEST_MAILBOX = 64 - 41  # characters before the @; a token follows them, and SMTP's limit is 64 (RFC 5321)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")


MOST_NUMBERS = 100  # of a pool; each one adds a little to the choice for a recipient
MOST_TEXTS = 50  # further words for each of STOP, START and HELP
SENDER_ID = re.compile(r"(?!\+?[0-9 ]+$)\S(?:.{0,9}\S)?")


class NumberPool:
    """The numbers that send an identity's SMS. A recipient always sees the same one.

    It is chosen by the highest hash of number and recipient. A new number therefore takes over only its own recipients,
    and removing one leaves all others unchanged.
    """

    def __init__(self, numbers: Sequence[str]) -> None:
        self._origins = [(blake2b(one.encode(), digest_size=8), Origin(one)) for one in sorted(numbers)]

    def of(self, recipient: str) -> Origin:
        named, highest, found = recipient.encode(), b"", self._origins[0][1]
        for begun, origin in self._origins:
            with_recipient = begun.copy()
            with_recipient.update(named)
            if (value := with_recipient.digest()) > highest:
                highest, found = value, origin
        return found


def _texts_field(like: str) -> Any:
    about = f"Of SMS: further words that ask {like}, in any language"
    word = models.CharField(max_length=40)
    return ArrayField(word, size=MOST_TEXTS, default=list, blank=True, db_default=[], help_text=about)


class Identity(models.Model):
    """The sender of a sponsor's e-mails or SMS. A disabled one is used for nothing new.

    A change applies from the next sender that takes a job. secret: {'private_key': an RSA key in PEM}, for DKIM. An SMS
    has either a sender id, which nobody can answer, or numbers. A number belongs to one identity only, because an
    answer to it goes to its sponsor.
    """

    CHANNELS = (("email", "E-mail"), ("sms", "SMS"))
    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="identities", db_index=False)
    name = models.CharField(max_length=50, help_text="By which campaigns and programs name it; letters, digits, . _ -")
    channel = models.CharField(max_length=5, choices=CHANNELS, default="email", db_default="email")
    from_name = models.CharField(max_length=200, blank=True)
    from_address = models.CharField(max_length=254, blank=True)
    reply_to = models.CharField(max_length=460, blank=True, help_text="An address, or a name with an address in <>")
    return_path = models.CharField(max_length=254, blank=True, help_text="Where bounces go; empty: to From's address")
    verp = models.BooleanField(
        "bounces come back to mailhub",
        default=False,
        db_default=False,
        help_text="Each message gets a return path of its own (VERP): name+token@domain, of the return path",
    )
    sender_id = models.CharField(
        max_length=11, blank=True, default="", db_default="", help_text="Of SMS: up to 11 letters, digits and signs"
    )
    numbers: Any = ArrayField(
        models.CharField(max_length=20),
        default=list,
        blank=True,
        db_default=[],
        help_text="Of SMS: each recipient always sees the same of these numbers",
    )
    stop_texts = _texts_field("as STOP does")
    start_texts = _texts_field("as START does")
    help_texts = _texts_field("as HELP does")
    help_answer = models.CharField(
        "answer to HELP", max_length=480, blank=True, default="", db_default="", help_text="Of SMS; empty: none is sent"
    )
    default = models.BooleanField(default=False, help_text="Of campaigns and requests of its channel that name none")
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
            models.UniqueConstraint(
                fields=["sponsor", "channel"], condition=Q(default=True), name="one_default_identity"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.sponsor.name}/{self.name}"

    @property
    def shown(self) -> str:
        """Name <address>; for SMS the sender id or the numbers."""
        if self.channel == Vendor.Channel.SMS:
            return self.sender_id or ", ".join(self.numbers)
        return f"{self.from_name} <{self.from_address}>" if self.from_name else self.from_address

    @property
    def dkim_key(self) -> DkimKey | None:
        key = self.secret.get("private_key")
        return DkimKey(self.dkim_domain, self.dkim_selector, key) if key else None

    @property
    def reply_address(self) -> str:
        """The address in Reply-To, in lower case; empty: answers go to From."""
        return parseaddr(self.reply_to)[1].lower()

    @property
    def bounce_mailbox(self) -> str:
        """The address that each message's return path is made from if `verp` is set; its domain in ASCII."""
        return mime.parse_origin(self.origin).return_path

    @property
    def origin(self) -> Origin:
        """The origin of its e-mails."""
        return Origin(self.from_address, self.from_name, self.reply_to, self.return_path, self.dkim_key)

    @cached_property
    def number_pool(self) -> "NumberPool | None":
        """For SMS, the pool that gives each recipient its origin; else None."""
        if self.channel != Vendor.Channel.SMS:
            return None
        return NumberPool([self.sender_id] if self.sender_id else self.numbers)

    def origin_for(self, recipient: str) -> Origin:
        """Return the origin of the letter to this recipient."""
        return self.number_pool.of(recipient) if self.number_pool else self.origin

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Clean the texts as every text that comes in (campaigns/texts/given_texts.py), at every door."""
        for name in ("from_name", "from_address", "reply_to", "return_path", "help_answer", "dkim_domain"):
            setattr(self, name, given_value(getattr(self, name)))
        for name in ("stop_texts", "start_texts", "help_texts"):
            setattr(self, name, [given_value(one) for one in getattr(self, name)])
        super().clean_fields(exclude)

    def clean(self) -> None:
        faults: dict[str, str] = {}
        if self.name and not NAME.fullmatch(self.name):
            faults["name"] = Said("letters, digits, dots, hyphens and underscores only, at most 50")
        faults |= self._sms_faults() if self.channel == Vendor.Channel.SMS else self._mail_faults(dict(faults))
        if faults:
            raise ValidationError(faults)

    def _sms_faults(self) -> dict[str, str]:
        """Convert the numbers to E.164 and return the faults.

        Callers check that no other identity has one of them after entitlements.one_change.
        """
        of_mail = ("from_name", "from_address", "reply_to", "return_path", "verp", "dkim_domain", "dkim_selector")
        faults: dict[str, str] = {name: Said("is for e-mail") for name in of_mail if getattr(self, name)}
        if bool(self.sender_id) == bool(self.numbers):
            faults["sender_id"] = Said("an SMS goes out as a sender id, or from numbers: give one of the two")
        elif self.sender_id and not _is_sender_id(self.sender_id):
            faults["sender_id"] = Said(
                "1 to 11 characters of the alphabet of SMS, not digits alone, no blank at its ends"
            )
        if "{%" in self.help_answer:
            faults["help_answer"] = Said("is sent as it is: no {%")
        if len(self.numbers) > MOST_NUMBERS:
            return faults | {"numbers": Said("at most %(count)s", count=str(MOST_NUMBERS))}
        try:
            region = self.sponsor.phone_region if self.sponsor_id else ""
            self.numbers = list(dict.fromkeys(parse_e164(one, region) for one in self.numbers))
        except ValueError as error:
            return faults | {"numbers": str(error)}
        others = Identity.objects.filter(numbers__overlap=self.numbers).exclude(pk=self.pk) if self.numbers else ()
        if taken := [number for one in others for number in one.numbers if number in self.numbers]:
            faults["numbers"] = Said(
                "%(numbers)s is another identity's; a number belongs to one identity only",
                numbers=", ".join(taken),
            )
        return faults

    def _mail_faults(self, faults: dict[str, str]) -> dict[str, str]:
        of_sms = ("sender_id", "numbers", "stop_texts", "start_texts", "help_texts", "help_answer")
        faults |= {name: Said("is for SMS") for name in of_sms if getattr(self, name)}
        if not self.from_address:
            faults["from_address"] = Said("an e-mail needs one")
        parts = {
            "from_name": Origin("a@example.com", name=self.from_name),
            "from_address": Origin(self.from_address or "a@example.com"),
            "reply_to": Origin("a@example.com", reply_to=self.reply_to),
            "return_path": Origin("a@example.com", return_path=self.return_path),
        }
        for field, part in parts.items():
            try:
                mime.parse_origin(part)
            except ValueError as error:
                faults[field] = str(error)
        if "<" in self.return_path:
            faults["return_path"] = Said("an address without a name")
        if not faults and self.verp and len(self.bounce_mailbox.rpartition("@")[0]) > LONGEST_MAILBOX:
            faults["return_path"] = Said(
                "at most %(most)s characters before the @: a token is added to them", most=str(LONGEST_MAILBOX)
            )
        return faults or self._dkim_faults()

    def _dkim_faults(self) -> dict[str, str]:
        given = (self.dkim_domain, self.dkim_selector, self.secret)
        if not any(given):
            return {}
        if not all(given):
            return {"dkim_domain": Said("a signature needs all three: domain, selector and private key")}
        if not LABEL.fullmatch(self.dkim_selector):
            return {"dkim_selector": Said("not a name that the DNS can have")}
        domain = mime.parse_origin(self.origin).domain.lower()
        if not f".{domain}".endswith(f".{self.dkim_domain.lower()}"):
            return {
                "dkim_domain": Said(
                    "it must be %(domain)s or a domain above it, or DMARC takes the mails for forged", domain=domain
                )
            }
        try:
            private_key(self.secret.get("private_key", ""))
        except ValueError as error:
            return {"secret": str(error)}
        return {}


def _is_sender_id(text: str) -> bool:
    return SENDER_ID.fullmatch(text) is not None and text.isprintable() and fits_gsm(text)


def named_address(text: str) -> dict[str, str]:
    """Return the fields from_name and from_address for "address" or "Name <address>"."""
    name, address = parseaddr(text) if text.isprintable() else ("", text)
    return {"from_name": name, "from_address": address}


class Urgent(models.TextChoices):
    """The right of a sponsor to send urgent mail: the larger right is the later one."""

    NOTHING = "nothing", gettext_noop("nothing")
    SINGLE = "single", gettext_noop("single letters")
    ALL = "all", gettext_noop("everything")


class Entitlement(models.Model):
    """A sponsor's right to use a vendor: one of its credentials, or all present and future ones."""

    Urgent = Urgent

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.CASCADE, related_name="entitlements", db_index=False)
    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="entitlements")
    credential = models.ForeignKey(
        Credential, on_delete=models.CASCADE, null=True, blank=True, help_text="Empty: all of the vendor"
    )
    urgent = models.CharField(
        max_length=7,
        choices=Urgent.choices,
        default=Urgent.SINGLE,
        db_default=Urgent.SINGLE,
        help_text="What it may send as urgent, before the mail of all others",
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
        what = self.credential or self.vendor
        return gettext("%(sponsor)s may use %(what)s") % {"sponsor": self.sponsor.name, "what": what}

    def clean(self) -> None:
        if self.credential_id and self.vendor_id and self.credential and self.credential.vendor_id != self.vendor_id:
            raise ValidationError({"credential": Said("it is a credential of another vendor")})
