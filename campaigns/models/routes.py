"""Routes: ordered lists of vendors for campaigns, and the moves from one of them to another.

campaigns/engine/routes/ decides by these rows.
"""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import formats, timezone
from django.utils.translation import gettext

from campaigns.models.campaigns import Campaign, OfSponsors, Sponsor
from campaigns.models.jobs import Job
from vendors.models import Credential, Vendor
from vendors.said import Said

MOST_WEIGHT = 1000


class Route(models.Model):
    """An ordered list of credentials of one channel, for a sponsor; without one, for all sponsors.

    If a vendor cannot be reached or asks to wait for more than `patience` seconds, the campaign goes by the next one.
    """

    SPONSOR = "sponsor"
    sponsor = models.ForeignKey(
        Sponsor, on_delete=models.PROTECT, null=True, blank=True, related_name="routes", db_index=False,
        help_text="Who may use it; empty: all sponsors, each by the vendors that it may use",
    )  # fmt: skip
    name = models.SlugField(max_length=50, db_index=False, help_text="By which campaigns and programs name it")
    channel = models.CharField(max_length=10, choices=Vendor.Channel.choices)
    patience = models.PositiveIntegerField(
        default=5,
        validators=[MinValueValidator(1), MaxValueValidator(86_400)],
        help_text="Seconds for which a vendor may be out of reach, or ask to wait, before the next one is taken",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["sponsor", "name"], name="route_name", nulls_distinct=False)]

    def __str__(self) -> str:
        return f"{self.sponsor.name}/{self.name}" if self.sponsor else self.name


class RouteEntry(models.Model):
    """One credential of a route. position: the first entry that takes work is used.

    weight: new campaigns begin with the weighted entries, each with its weight's share of them.
    """

    SPONSOR = "route__sponsor"
    route = models.ForeignKey(Route, on_delete=models.CASCADE, related_name="entries", db_index=False)
    position = models.PositiveSmallIntegerField(help_text="The order: the first one that takes work is taken")
    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="+")
    weight = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        validators=[MaxValueValidator(MOST_WEIGHT)],
        help_text="Its share of new campaigns, among those that have one; 0 of all: they begin with the first",
    )

    class Meta:
        ordering = ["route", "position"]
        verbose_name_plural = "route entries"
        constraints = [
            models.UniqueConstraint(fields=["route", "position"], name="route_order"),
            models.UniqueConstraint(fields=["route", "credential"], name="route_credential_once"),
        ]

    def __str__(self) -> str:
        return f"{self.credential}={self.weight}" if self.weight else str(self.credential)

    def clean(self) -> None:
        if self.credential_id and self.route_id and self.credential.vendor.channel != self.route.channel:
            vendor: Any = self.credential.vendor
            raise ValidationError(
                {
                    "credential": Said(
                        "%(vendor)s delivers %(kind)s, not %(channel)s",
                        vendor=vendor.slug,
                        kind=vendor.channel,
                        channel=self.route.channel,
                    )
                }
            )


class RouteMove(models.Model):
    """A move of unsent messages from a credential to another one: first_message .. + size - 1.

    messages: how many of these waited; the others had ended without a call, or were in doubt in a part not cut yet.
    parent: the whole job; job: the one that sends them now; empty: the parent's uncut rest. Written in the transaction
    that moves them, and never changed.
    """

    SPONSOR = "campaign__sponsor"
    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, related_name="moves")
    parent = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="+", db_index=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="+", null=True, db_index=False)
    first_message = models.BigIntegerField()
    size = models.PositiveIntegerField()
    messages = models.PositiveIntegerField(help_text="Those among them that waited")
    came_from = models.ForeignKey(Credential, on_delete=models.PROTECT, related_name="+", db_index=False)
    went_to = models.ForeignKey(Credential, on_delete=models.PROTECT, related_name="+", db_index=False)
    at = models.DateTimeField(help_text="None of them was called before")
    reason = models.CharField(max_length=255)

    objects = OfSponsors.as_manager()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        facts = {"source": self.came_from, "target": self.went_to}
        shown = formats.number_format(self.messages, force_grouping=True)
        return gettext("%(messages)s from %(source)s to %(target)s") % {"messages": shown, **facts}
