"""Sponsors and campaigns, and the rule that decides which rows a user or an API key may see.

Every queryset over a sponsor's rows has `of_sponsors`. The admin passes it the result of `sponsors_of`, the HTTP API
the sponsor of its key.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Self, TypeVar

from django.conf import settings
from django.contrib.postgres.indexes import OpClass
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Func, Index, Q, QuerySet
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy

from campaigns.texts import parts
from campaigns.texts.headers import Headers, HeaderTemplates, header_templates
from campaigns.texts.phone_numbers import known_region
from campaigns.texts.templates import Budget
from vendors import said
from vendors.mail_classes import MailClass
from vendors.models import Credential, known_zone
from vendors.ownership import ALL_SPONSORS
from vendors.said import Said, gettext_noop

_Row = TypeVar("_Row", bound=models.Model)


class OfSponsors(QuerySet[_Row]):
    """A queryset of rows that belong to a sponsor, through the path in their model's SPONSOR."""

    def of_sponsors(self, sponsors: "Collection[int] | QuerySet[Any] | None") -> Self:
        """Return the rows of these sponsors; None means all."""
        if sponsors is None:
            return self
        model: Any = self.model
        return self.filter(**{f"{model.SPONSOR}__in": sponsors})


def sponsors_of(user: Any) -> "QuerySet[Any] | None":
    """Return the sponsors that a user may see: None (all) with the permission, otherwise those that list the user."""
    return None if user.has_perm(ALL_SPONSORS) else user.sponsors.values("pk")


def sponsor_ids_of(user: Any) -> list[int] | None:
    """Return the ids of `sponsors_of`, for SQL."""
    mine = sponsors_of(user)
    return None if mine is None else [row["pk"] for row in mine]


ZONE_FIELD = "time_zone"  # the field with the time zone of a recipient of e-mail or a letter
# Finds the campaigns with a time among a hundred thousand jobs in a queue.
TIMED = Index(
    fields=["id"],
    include=["send_at", "hours_from", "hours_to", "time_zone"],
    condition=Q(send_at__isnull=False) | Q(hours_from__isnull=False),
    name="campaign_timed",
)


# Finds campaigns by template version; in a large installation most of them name none.
OF_TEMPLATE = Index(
    fields=["template_version", "id"], condition=Q(template_version__isnull=False), name="campaign_template"
)
# Counts somebody's test letters of the last hour before the next one goes.
TO_ONESELF = Index(
    fields=["sponsor", "made_by", "created_at"], condition=Q(to_oneself=True), name="campaign_to_oneself"
)
PAUSED = Index(fields=["id"], condition=Q(paused_at__isnull=False), name="campaign_paused")
# Indexes of messages. For accepted ones these columns never change, so their updates stay heap-only.
MESSAGE_DOUBTS = Index(fields=["id"], condition=Q(in_doubt_at__isnull=False), name="message_doubts")
# Finds one recipient (campaigns/audience/finding.py): the hash is smaller than the address.
MESSAGE_RECIPIENT = Index(Func(Lower("recipient"), 0, function="hashtextextended"), name="message_recipient")
MESSAGE_FAILED = Index(  # counts the failures of a campaign by reason without reading other messages
    fields=["id"],
    include=["error_code", "error_sub_type"],
    condition=Q(error_code__isnull=False),
    name="message_failed",
)


PERCENT_OF_RECEIVER = "Percent of a day's e-mails to one provider about which recipients complain,"


class Sponsor(models.Model):
    """An organisation that mail is sent for."""

    SPONSOR = "pk"
    LANGUAGES = (
        ("de", "Deutsch"), ("en", "English"), ("es", "Español"), ("fr", "Français"), ("it", "Italiano"),
        ("nl", "Nederlands"),
    )  # fmt: skip
    name = models.CharField(max_length=100, unique=True)
    users = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        blank=True,
        related_name="sponsors",
        help_text="Users who see this sponsor's mail; those with the permission for all sponsors need not be listed.",
    )
    language = models.CharField(
        max_length=10,
        blank=True,
        default="",
        db_default="",
        choices=LANGUAGES,
        help_text="Of the page on which recipients unsubscribe; empty: that of their browser",
    )
    phone_region = models.CharField(
        max_length=2,
        blank=True,
        default="",
        db_default="",
        validators=[known_region],
        help_text="Like GB: in whose form its lists write phone numbers without + and country code; empty: none",
    )
    may_be_transactional = models.BooleanField(
        default=False, db_default=False, help_text="It may mark campaigns as transactional"
    )
    approval_above = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Campaigns of more recipients wait until a second person approves them; 0: all, empty: none",
    )
    quiet_from = models.TimeField(
        "quiet hours from",
        null=True,
        blank=True,
        help_text="From then on no SMS goes out, by the clock where the recipient's number is; transactional ones do",
    )
    quiet_to = models.TimeField("quiet hours to", null=True, blank=True, help_text="... and from then on again.")
    time_zone = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        validators=[known_zone],
        help_text="Of the quiet hours, where it is not known where a number is",
    )
    complaint_warning = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text=f"{PERCENT_OF_RECEIVER} from which operators are warned; empty: the installation's, 0: never",
    )
    complaint_limit = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text=f"{PERCENT_OF_RECEIVER} from which bulk mail to it pauses; empty: the installation's, 0: never",
    )

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["name"]
        permissions = [("all_sponsors", "Can see the mail of all sponsors")]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        given = (self.quiet_from, self.quiet_to)
        if (self.quiet_from is None) != (self.quiet_to is None) or (self.quiet_from and len(set(given)) == 1):
            raise ValidationError({"quiet_to": Said("quiet hours have a start and another end, or neither")})
        if any(one is not None and (one.second or one.microsecond) for one in given):
            raise ValidationError({"quiet_from": Said("whole minutes")})
        if self.quiet_from is not None and not self.time_zone:
            raise ValidationError({"time_zone": Said("quiet hours need one, for numbers of which it is not known")})


def needs_approval(above: int | None, size: int) -> bool:
    """Tell if a campaign of this size waits for a second person. above: its sponsor's limit; None: never."""
    return above is not None and size > above


class Topic(models.Model):
    """A subject that a sponsor writes about. Recipients can unsubscribe from it alone."""

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="topics", db_index=False)
    name = models.SlugField(max_length=50, db_index=False, help_text="By which campaigns and programs name it")
    title = models.CharField(max_length=200, help_text="As recipients read it, like Weekly offers")
    archived_at = models.DateTimeField(null=True, editable=False, help_text="No new campaign may name it since then")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["sponsor", "name"]
        constraints = [models.UniqueConstraint(fields=["sponsor", "name"], name="topic_name")]

    def __str__(self) -> str:
        return f"{self.sponsor.name}/{self.name}"


PERCENT = "Percent, beyond which the campaign pauses itself; empty: the installation's limit, 0: never"


class Campaign(models.Model):
    """One content for one list of recipients, for one sponsor over one credential.

    paused_at, by, reason: nothing of it is called until somebody resumes it; its jobs have the same paused_at.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(Sponsor, on_delete=models.PROTECT, related_name="campaigns", db_index=False)
    credential = models.ForeignKey(Credential, on_delete=models.PROTECT, related_name="campaigns")
    identity = models.ForeignKey(  # a sponsor has few; campaigns are looked up by it only when one is removed
        "Identity", on_delete=models.PROTECT, null=True, blank=True, related_name="campaigns", db_index=False
    )
    route = models.ForeignKey(  # there are few; campaigns are looked up by it only when one is removed
        "Route", on_delete=models.SET_NULL, null=True, blank=True, related_name="campaigns", db_index=False
    )
    routed = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="Its jobs may have other credentials than it has"
    )
    topic = models.ForeignKey(  # a sponsor has few, as with identities
        Topic, on_delete=models.PROTECT, null=True, blank=True, related_name="campaigns", db_index=False
    )
    transactional = models.BooleanField(
        default=False, db_default=False, help_text="Nobody can unsubscribe from it, and who has done so gets it, too"
    )
    mail_class = models.SmallIntegerField(
        "class", choices=MailClass.choices, null=True, editable=False, help_text="Empty: by its kind"
    )
    template_version = models.ForeignKey(  # its text is copied into the campaign; found by an index of its own
        "TemplateVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="campaigns", db_index=False
    )
    name = models.CharField(max_length=200)
    subject = models.TextField(blank=True)
    body = models.TextField(blank=True)
    html = models.BooleanField(default=False, help_text="The body is HTML: fields are escaped in it.")
    text = models.TextField(blank=True, default="", db_default="", help_text="Beside an HTML body; a template, too.")
    headers = models.JSONField(null=True, blank=True, help_text="Further headers of e-mail: names with values")
    file_fields = models.JSONField(null=True, blank=True, help_text="Fields that name a recipient's own files")
    has_files = models.BooleanField(default=False, db_default=False, editable=False)
    first_message = models.BigIntegerField(editable=False)
    size = models.PositiveIntegerField(editable=False, help_text="Recipients")
    send_at = models.DateTimeField(null=True, blank=True, help_text="Not before this time; empty: by the job's mode.")
    hours_from = models.TimeField(null=True, blank=True, help_text="Sending hours, local: calls start from then on")
    hours_to = models.TimeField(null=True, blank=True, help_text="... and none start from then on.")
    time_zone = models.CharField(max_length=64, blank=True, validators=[known_zone], help_text="Of the sending hours")
    each_from = models.TimeField(null=True, blank=True, help_text="Hours by each recipient's clock: from then on")
    each_to = models.TimeField(null=True, blank=True, help_text="... and until then.")
    deadline = models.DateTimeField(null=True, blank=True, help_text="What was not called by then expires.")
    paused_at = models.DateTimeField(null=True, editable=False, help_text="No new call is allowed until it is resumed.")
    paused_by = models.CharField(max_length=150, blank=True, default="", db_default="", editable=False)
    paused_reason = models.CharField(max_length=255, blank=True, default="", db_default="", editable=False)
    paused_reason_said = models.JSONField(gettext_lazy("sentence"), null=True, editable=False)  # vendors/said.py
    stays_paused = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="While it waits for approval: why somebody has it stay paused after that; empty: nobody has",
    )
    bounce_limit = models.FloatField(null=True, blank=True, help_text=PERCENT)
    complaint_limit = models.FloatField(null=True, blank=True, help_text=PERCENT)
    judged = models.JSONField(
        null=True, editable=False, help_text="What campaigns/engine/pausing/rates.py remembers of it"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    columns = models.JSONField(null=True, editable=False, help_text="The fields of its list, in the list's order")
    made_by = models.CharField(
        max_length=150, blank=True, default="", db_default="", editable=False, help_text="A user or an API key's prefix"
    )

    to_oneself = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="A test letter to who has made it; needs no approval"
    )

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            TIMED,
            PAUSED,
            OF_TEMPLATE,
            TO_ONESELF,
            models.Index(fields=["sponsor", "id"], name="campaign_sponsor"),
            models.Index(fields=["name"], opclasses=["varchar_pattern_ops"], name="campaign_name"),
            models.Index(OpClass(Lower("name"), "text_pattern_ops"), name="campaign_lower_name"),
            models.Index("sponsor", OpClass(Lower("name"), "text_pattern_ops"), name="campaign_sponsor_name"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_bulk(self) -> bool:
        """True if it goes to many who can unsubscribe: neither a single letter nor transactional."""
        return self.size > 1 and not self.transactional

    @property
    def class_by_kind(self) -> MailClass:
        """Its class if none is named. A program's single letter may be urgent instead."""
        return MailClass.BULK if self.is_bulk else MailClass.USUAL

    @property
    def class_word(self) -> str:
        """Its class as a word."""
        return MailClass(self.mail_class or self.class_by_kind).word

    @property
    def why_paused(self) -> str:
        """The reason why nothing is called, and the reason to stay paused after approval, if any."""
        why = said.read(self.paused_reason, self.paused_reason_said)
        if not self.stays_paused:
            return why
        return Said(gettext_noop("%(why)s; then it stays paused: %(typed)s"), why=why, typed=self.stays_paused)

    def headers_for(self, recipient: str, params: Mapping[str, Any], budget: Budget | None = None) -> Headers:
        """Return the further headers of one letter. Raises TemplateError, and OverBudget if there is a budget."""
        if not self.headers:
            return ()
        shown = self._header_templates
        return shown.render_headers(recipient, params, budget) if shown else self.headers

    @cached_property
    def _header_templates(self) -> HeaderTemplates | None:
        return header_templates(self.headers)

    @property
    def needed_parts(self) -> frozenset[str]:
        """The members of campaigns.texts.parts.PARTS that a vendor must carry for this campaign."""
        return self.needs_with(self.body)

    def needs_with(self, body: str) -> frozenset[str]:
        """Return `needed_parts` of a row that was read without its body."""
        needed = {"text": self.text, "headers": self.headers, "attachments": self.has_files}
        needed[parts.IMAGES] = self.has_files and parts.shows_images(body, self.html)
        return frozenset(name for name, part in needed.items() if part)
