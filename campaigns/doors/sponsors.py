"""Shared parts of commands about sponsors: sponsors and identities by name, and facts without secrets.

Each CommandError states the correct form.
"""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db.models import QuerySet

from campaigns.models import Entitlement, Identity, Sponsor
from campaigns.texts.phone_numbers import known_region
from vendors.management.arguments import NamedRow, find_named
from vendors.management.resources import declare_argument
from vendors.models import Vendor

KNOWN = 20  # names listed if one is misspelt
NEW_SPONSOR = declare_argument("--new-sponsor", action="store_true", help="create the sponsor if there is none")
OF_SPONSOR = declare_argument("--sponsor", metavar="NAME")


def named_sponsor(name: str, *, new: bool = False) -> Sponsor:
    """Return the sponsor of that name. new: create it if necessary."""
    if not new:
        return find_named(Sponsor.objects.all(), name, f"there is no sponsor {name!r}; there are", most=KNOWN)
    if found := Sponsor.objects.filter(name=name).first():
        return found
    made = new_sponsor(name)
    made.save()
    return made


def new_sponsor(name: str) -> Sponsor:
    made = Sponsor(name=name)
    try:
        made.full_clean()
    except ValidationError as error:
        raise CommandError(f"the sponsor's name: {'; '.join(error.messages)}") from None
    return made


def region_of(sponsor: Sponsor | None, channel: str, typed: str | None) -> str:
    """Return the region of phone numbers without a country code: the one typed, else the sponsor's."""
    if typed is None:
        return sponsor.phone_region if sponsor else ""
    if channel != Vendor.Channel.SMS:
        raise CommandError("--region goes with the channel sms", returncode=2)
    try:
        known_region(typed)
    except ValidationError as error:
        raise CommandError(f"--region: {error.messages[0]}") from None
    return typed


def filter_by_sponsor(rows: QuerySet[NamedRow], name: str | None) -> QuerySet[NamedRow]:
    """Return the rows of the sponsor of that name; all rows without a name."""
    return rows.filter(sponsor=named_sponsor(name)) if name else rows


def find_of_sponsor(rows: QuerySet[NamedRow], of: Sponsor, kind: str, name: str, most: int | None = None) -> NamedRow:
    """Return the sponsor's row of that name."""
    own = rows.select_related("sponsor").filter(sponsor=of)
    return find_named(own, name, f"{of.name} has no {kind} {name!r}; it has", most=most)


def named_identity(of: Sponsor, name: str) -> Identity:
    return find_of_sponsor(Identity.objects.all(), of, "sender identity", name)


def identity_facts(row: Identity) -> dict[str, Any]:
    return {
        "sponsor": row.sponsor.name,
        "name": row.name,
        "channel": row.channel,
        "from": row.shown,
        "reply_to": row.reply_to,
        "return_path": row.return_path,
        "verp": row.verp,
        "dkim": f"{row.dkim_selector}._domainkey.{row.dkim_domain}" if row.dkim_selector else None,
        "default": row.default,
        "enabled": row.enabled,
    }


def entitlement_facts(row: Entitlement) -> dict[str, Any]:
    return {
        "sponsor": row.sponsor.name,
        "vendor": row.vendor.slug,
        "credential": row.credential.name if row.credential else None,
        "urgent": row.urgent,
    }
