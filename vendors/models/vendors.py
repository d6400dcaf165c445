"""Vendors with their credentials, rate limits and mailcasters, and the ledger of calls (documents 000 and 003).

Secrets of credentials and signing keys are encrypted in the database (EncryptedJSONField).
"""

import base64
import hashlib
import json
from datetime import time, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext, gettext_lazy

from vendors import said
from vendors.mail_classes import FLOOR, FLOOR_MAX
from vendors.models.constraints import SentenceCheck
from vendors.said import Said


def _make_fernet() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]  # the first encrypts, all decrypt
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(str(k).encode()).digest())) for k in keys])


class Unreadable(ValueError):
    """None of the keys decrypts a stored secret."""


if TYPE_CHECKING:  # where alone Django's fields have parameters
    _TextField = models.TextField[Any, Any]
else:
    _TextField = models.TextField


class EncryptedJSONField(_TextField):
    """A JSON object, stored as a Fernet token."""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        """Return the decrypted object. Raises Unreadable."""
        try:
            return json.loads(_make_fernet().decrypt(value)) if value else {}
        except InvalidToken:
            raise Unreadable("SECRET_KEY and SECRET_KEY_FALLBACKS do not open a stored secret") from None

    def get_prep_value(self, value: Any) -> str:
        token = bytes(_make_fernet().encrypt(json.dumps(value or {}).encode()))
        return token.decode()

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) and value else value or {}

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.get_prep_value(self.value_from_object(obj)))  # a dump contains the token, never the secret


LONGEST_WINDOW = 366 * 86400.0  # seconds; a longer one could overflow, and no contract needs it


def every_day() -> list[int]:
    return [1, 2, 3, 4, 5, 6, 7]


def project_zone() -> str:
    return settings.TIME_ZONE


@cache
def _zones_by_lower_name() -> dict[str, str]:
    """Return the zones of the world; names that mean something else on each machine are none."""
    return {zone.lower(): zone for zone in available_timezones() - {"localtime", "Factory", "posixrules"}}


def find_zone(name: str) -> str | None:
    """Return a time zone's name as the IANA list writes it; None: unknown. Takes any letter case, blanks for _."""
    return _zones_by_lower_name().get(name.lower().replace(" ", "_"))


def known_zone(name: str) -> None:
    if find_zone(name) != name:
        raise ValidationError(Said("%(name)s is not a time zone; for example Europe/London", name=repr(name)))


def queue_of(slug: str) -> str:
    """Return the Celery queue for a vendor's command packets."""
    return f"vendor.{slug}"


class Vendor(models.Model):
    """A company that delivers mail. Its Celery queue is vendor.<slug>; its rate limits apply to all its credentials."""

    class Channel(models.TextChoices):
        PRINT = "print"
        EMAIL = "email", "E-mail"
        SMS = "sms", "SMS"

    slug = models.SlugField(unique=True, max_length=50)
    name = models.CharField(max_length=100)
    owner = models.ForeignKey(  # not indexed: only the removal of a sponsor searches by it
        "campaigns.Sponsor",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="vendors",
        db_index=False,
        help_text="The sponsor whose contract it is, and whose users govern it; empty: the installation's",
    )
    channel = models.CharField(max_length=10, choices=Channel.choices, default=Channel.EMAIL)
    adapter = models.CharField(max_length=50, default="http", help_text="The name of an entry point mailhub.adapters")
    settings = models.JSONField(default=dict, blank=True)
    small_audience_threshold = models.PositiveIntegerField(
        default=100,
        help_text="A job with fewer messages is small; the others are cut into children (document 003).",
    )
    paused = models.BooleanField(default=False)
    paused_reason = models.CharField(max_length=255, blank=True)
    paused_reason_said = models.JSONField(gettext_lazy("sentence"), null=True, editable=False)  # vendors/said.py
    unconfirmed = models.BooleanField(  # new, and paused until a second person confirms it
        gettext_lazy("unconfirmed"), default=False, db_default=False, editable=False
    )
    sandbox = models.BooleanField(default=False, help_text="Delivers to nobody: the only kind that a test key may use.")
    min_requests = models.PositiveIntegerField(
        default=20, db_default=20, help_text="Below so many answers the vendor counts as healthy (document 002)."
    )
    min_ratio = models.FloatField(
        default=0.8,
        db_default=0.8,
        validators=[MinValueValidator(0.0), MaxValueValidator(1.0)],
        help_text="Below this share of good answers programs hear 503; 0: never.",
    )
    health_ttl = models.PositiveIntegerField(
        default=600, db_default=600, help_text="Seconds after which the answers counted so far are forgotten."
    )
    retry_after = models.PositiveIntegerField(
        default=60, db_default=60, help_text="Seconds that programs are told to wait; then one of them may probe."
    )
    floor = models.PositiveSmallIntegerField(
        default=FLOOR,
        db_default=FLOOR,
        validators=[MaxValueValidator(FLOOR_MAX)],
        help_text="Percent of its rate that usual and bulk mail each keep while more urgent mail comes; 0: none",
    )
    dispatch_at = models.TimeField(default=time(18, 0), help_text="Local time of the nightly dispatch (document 000)")
    time_zone = models.CharField(max_length=64, default=project_zone, validators=[known_zone])
    weekdays = ArrayField(
        models.PositiveSmallIntegerField(validators=[MinValueValidator(1), MaxValueValidator(7)]),
        default=every_day,
        help_text="ISO weekdays: 1 is Monday",
    )
    catch_up = models.DurationField(
        default=timedelta(hours=6),
        validators=[MinValueValidator(timedelta(minutes=1))],
        help_text="A missed nightly run still starts this late; then it is flagged.",
    )
    generation = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="Of the throttle's window; a loss of Redis begins a new one."
    )
    limits_version = models.PositiveBigIntegerField(
        default=0, db_default=0, editable=False, help_text="Counts the edits of the vendor's limits."
    )
    receivers_version = models.PositiveBigIntegerField(  # written by the database
        default=0, db_default=0, editable=False, help_text="Counts the edits of its receivers' limits."
    )
    limits_since = models.DateTimeField(
        db_default=Now(), editable=False, help_text="Every call after it was allowed under the limits of today."
    )
    destination = models.PositiveBigIntegerField(  # written by the database (vendors/destinations.py)
        default=0,
        db_default=0,
        editable=False,
        help_text="Grows when calls are made elsewhere or as somebody else.",
    )
    suppressions = models.BigIntegerField(
        default=0, db_default=0, editable=False, help_text="Position of the last change of its channel's suppressions."
    )
    reports_by_id = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="Its reports name its own ids of letters alone."
    )
    # Begin and end of its last pause; the database writes both.
    paused_at = models.DateTimeField(null=True, editable=False)
    resumed_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        permissions = [("operate_vendor", "Can pause and resume vendors and credentials")]

    @property
    def why_paused(self) -> str:
        """The reason of the pause: a sentence of the program, or the words of whoever paused it."""
        return said.read(self.paused_reason, self.paused_reason_said)

    def __str__(self) -> str:
        return self.slug

    @property
    def queue(self) -> str:
        """The Celery queue for this vendor's command packets."""
        return queue_of(self.slug)


class Credential(models.Model):
    """An account at a vendor. `exclusive`: it serves one campaign at a time (document 001)."""

    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="credentials", db_index=False)
    name = models.CharField(max_length=100, default="default")
    exclusive = models.BooleanField(default=False)
    secret = EncryptedJSONField(
        default=dict, blank=True, help_text="Headers or user and password, as the adapter asks; write-only."
    )
    paused = models.BooleanField(default=False)
    paused_reason = models.CharField(max_length=255, blank=True)
    paused_reason_said = models.JSONField(gettext_lazy("sentence"), null=True, editable=False)  # vendors/said.py
    awaits_secret = models.BooleanField(  # paused until its first secret is entered
        gettext_lazy("awaits secret"), default=False, db_default=False, editable=False
    )
    destination = models.PositiveBigIntegerField(  # like the vendor's
        default=0, db_default=0, editable=False, help_text="Grows when its calls are made as somebody else."
    )
    retry_after_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="The vendor said Retry-After: no call before then."
    )
    unreached_since = models.DateTimeField(
        null=True, editable=False, help_text="Since then no call has reached the vendor."
    )
    paused_at = models.DateTimeField(null=True, editable=False)  # like the vendor's; so is resumed_at
    resumed_at = models.DateTimeField(null=True, editable=False)
    # Seconds it was last closed because its vendor asked to wait. NULL: it has answered well since.
    asked_wait = models.FloatField(null=True, editable=False)
    # Seconds it was last closed because nobody answered.
    backoff = models.FloatField(default=0.0, db_default=0.0, editable=False)
    rate_limited_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="The window has no place before then."
    )

    # Bytes of a mail that the relay takes, as its last EHLO said (SIZE, RFC 1870). NULL: it said none.
    relay_size = models.PositiveBigIntegerField(null=True, editable=False)

    # The brake (vendors/condition/brake.py). While it is on, `retry_after_until` is the time of the next probe, or the
    # end of the present probe's lease. `brake_held_at`: an operator holds it, so nothing probes. `brake_wait`: seconds
    # between two probes. `probe_no`: names the present probe; `brake_no`: its value at the start of the brake.
    braked_at = models.DateTimeField(null=True, editable=False)
    brake_held_at = models.DateTimeField(null=True, editable=False)
    brake_wait = models.FloatField(default=0.0, db_default=0.0, editable=False)
    brake_released_at = models.DateTimeField(null=True, editable=False)
    probed_at = models.DateTimeField(null=True, editable=False)
    probe_no = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    brake_no = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)

    class Meta:
        ordering = ["vendor", "name"]
        constraints = [models.UniqueConstraint(fields=["vendor", "name"], name="credential_name")]

    @property
    def why_paused(self) -> str:
        """The reason of the pause: a sentence of the program, or the words of whoever paused it."""
        return said.read(self.paused_reason, self.paused_reason_said)

    def __str__(self) -> str:
        return f"{self.vendor.slug}/{self.name}"


class RateLimit(models.Model):
    """At most `units` calls in any window of `seconds` at the vendor's own clock; 0 units means paused."""

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="limits", db_index=False)
    credential = models.ForeignKey(
        Credential,
        on_delete=models.CASCADE,
        related_name="limits",
        null=True,
        blank=True,
        help_text="Empty: the limit holds over all credentials of the vendor together.",
    )
    units = models.PositiveIntegerField()
    seconds = models.FloatField(validators=[MinValueValidator(0.01), MaxValueValidator(LONGEST_WINDOW)])

    class Meta:
        ordering = ["seconds"]
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "credential", "seconds"], name="limit_window", nulls_distinct=False
            ),
            SentenceCheck(
                condition=Q(seconds__gt=0),
                name="limit_window_positive",
                violation_error_message=gettext_lazy("A limit's window must be longer than 0 seconds."),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.units}/{self.seconds:g} s"


class Mailcaster(models.Model):
    """A sending slot of a vendor. It takes one leaf job at a time and cuts children by its own sizes (document 003)."""

    class Kind(models.TextChoices):
        SMALL_ONLY = "small-only"
        SMALL_PRIORITY = "small-priority"
        LARGE_PRIORITY = "large-priority"
        LARGE_ONLY = "large-only"

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="mailcasters", db_index=False)
    name = models.CharField(max_length=50)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    min_size = models.PositiveIntegerField(default=2000)
    max_size = models.PositiveIntegerField(default=10_000)
    percentage = models.FloatField(default=3)
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["vendor", "name"]
        constraints = [
            models.UniqueConstraint(fields=["vendor", "name"], name="mailcaster_name"),
            SentenceCheck(
                condition=Q(min_size__gte=1),
                name="mailcaster_min",
                violation_error_message=gettext_lazy("The smallest part must have at least 1 message."),
            ),
            SentenceCheck(
                condition=Q(max_size__gte=F("min_size")),
                name="mailcaster_sizes",
                violation_error_message=gettext_lazy("The largest part must not be smaller than the smallest one."),
            ),
            SentenceCheck(
                condition=Q(percentage__gt=0, percentage__lte=100),
                name="mailcaster_percentage",
                violation_error_message=gettext_lazy("The percentage must be above 0 and at most 100."),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.vendor.slug}/{self.name}"

    def clean(self) -> None:
        if (self.min_size or 0) > (self.max_size or 0):
            raise ValidationError(Said("the minimum is over the maximum"))


class Usage(models.Model):
    """The ledger of calls allowed to start. The throttle's log is rebuilt from it if Redis loses it.

    A row is written in the transaction that claims the messages, so no call starts without one. Until `until` its calls
    may be open, except those known to have ended: by `ended_at`, and by the answers of existing claims
    (campaigns/engine/claiming/rebuild.py).

    `ended_at`: NULL: nothing is known; infinity: a claim whose calls may be open was deleted, so nothing will ever be
    known.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    at = models.DateTimeField()
    until = models.DateTimeField(help_text="The hard deadline: by then the last of these calls had ended.")
    units = models.PositiveIntegerField()
    receivers = models.JSONField(null=True, help_text="Units by receiver, where receivers have limits.")
    grant = models.CharField(max_length=32, null=True, help_text="Under which the throttle gave these places.")
    ended_at = models.DateTimeField(
        null=True, help_text="When the last answer of its claims that have ended was stored."
    )

    class Meta:
        indexes = [models.Index(fields=["vendor", "until"], name="usage_vendor_until")]

    def __str__(self) -> str:
        return gettext("%(units)s at %(at)s") % {"units": self.units, "at": self.at}


class Minute(models.Model):
    """Outcomes of a vendor's calls within one minute, for plots and forecasts; written together with the outcomes.

    `sponsor`: the sponsor's id; users of other sponsors do not see the row. `share`: spreads jobs over several rows, so
    that senders of one vendor need not wait for each other. `units`: the cost of these calls in the vendor's units.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    at = models.DateTimeField(help_text="The beginning of the minute")
    sponsor = models.BigIntegerField(db_default=0)
    share = models.PositiveSmallIntegerField()
    accepted = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)
    in_doubt = models.PositiveIntegerField(default=0)
    units = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["at", "vendor", "sponsor", "share"], name="one_row_a_minute")]

    def __str__(self) -> str:
        return f"{self.accepted} at {self.at}"
