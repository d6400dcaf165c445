"""Finds the entries of a route that take work now and can carry a campaign, and the reasons against the others.

A vendor takes no work in any of these cases:

- It or its credential is shut (vendors/shut.py): paused, also after it rejected the credential, or with a limit of 0.
- It has been unreachable for longer than the route's patience.
- It has asked to wait for longer than that patience.
- None of its enabled mailcasters cuts children from a campaign.

A full window is not a reason to move: the vendor agreed to that rate.
"""

import json
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from django.db import connection
from django.db.models import F, Q

from campaigns.engine import ports
from campaigns.engine.ports import NotEntitled
from campaigns.models import Campaign, Entitlement, Route, RouteEntry, Sponsor
from vendors import ownership, said, shut
from vendors.mail_classes import MailClass
from vendors.models import Credential, Mailcaster, Vendor
from vendors.said import Said

Offered = TypeVar("Offered")
PROBE = 60  # seconds for which an unreachable vendor stays closed after its last backoff ends; then it is tried again
UNCUT = "no enabled mailcaster of it takes parts of a campaign"
# The SQL expects the aliases v (vendor) and l (credential).
_CLOSED = f"""CASE
    WHEN l.unreached_since <= clock_timestamp() - %(patience)s * interval '1 second'
        AND l.retry_after_until > clock_timestamp() - interval '{PROBE} seconds'
        THEN 'not reached since ' || to_char(l.unreached_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
    WHEN l.braked_at <= clock_timestamp() - %(patience)s * interval '1 second'
        AND l.retry_after_until > clock_timestamp() - interval '{PROBE} seconds'
        THEN 'no clear answer since ' || to_char(l.braked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
    WHEN l.braked_at IS NULL AND l.retry_after_until > clock_timestamp() + %(patience)s * interval '1 second'
        THEN 'it asked to wait until ' || to_char(l.retry_after_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
    WHEN NOT EXISTS (SELECT FROM vendors_mailcaster k WHERE k.vendor_id = v.id AND k.enabled AND k.kind <> 'small-only')
        THEN '{UNCUT}'
    ELSE '' END"""
WHY = f"coalesce({shut.WHY}, {_CLOSED})"
WHY_NOT = f"""
SELECT l.id, v.id, {WHY}, {shut.SAID}, coalesce({shut.BRIEF}, {_CLOSED})
FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id WHERE l.id = ANY(%(ids)s)
"""


class ClosedReason(NamedTuple):
    """A credential's reason to take no work now, or "". brief: for those who may not read the vendor's own reason."""

    vendor_id: int
    why: str
    brief: str


def closed_reasons(credential_ids: Collection[int], patience: int) -> dict[int, ClosedReason]:
    """Return the reason of each credential. patience: seconds."""
    with connection.cursor() as cursor:
        cursor.execute(WHY_NOT, {"ids": list(credential_ids), "patience": patience})
        rows: Any = cursor.fetchall()
    return {
        login: ClosedReason(vendor, said.read(why, data and json.loads(data)), said.Said(brief))
        for login, vendor, why, data, brief in rows
    }


def why_not(credential_ids: Collection[int], patience: int) -> dict[int, str]:
    """Return the reason each credential takes no work now, or "" if it does. patience: seconds.

    The reason is abridged for users who may not read the vendor's own (vendors.ownership.is_disclosed).
    """
    return {
        login: one.why if ownership.is_disclosed(one.vendor_id) else one.brief
        for login, one in closed_reasons(credential_ids, patience).items()
    }


@dataclass(frozen=True, slots=True)
class RouteState:
    """An entry of a route, seen from one campaign. why: the reason it gets no messages now, or "" if it can."""

    credential: Credential
    why: str


def states(campaign: Campaign) -> list[RouteState]:
    """Return the state of each entry of the campaign's route, in the route's order."""
    route = campaign.route
    if route is None:
        return []
    rows = list(route.entries.select_related("credential__vendor").defer("credential__secret"))
    closed = why_not([row.credential_id for row in rows], route.patience)
    mail_class = _class_of(campaign)
    return [
        RouteState(
            row.credential,
            closed[row.credential_id]
            or cannot(campaign, row)
            or ports.gates.refuse_class(campaign.sponsor_id, row.credential, mail_class, campaign.size),
        )
        for row in rows
    ]


def _class_of(campaign: Campaign) -> int:
    """Return the class of a stored campaign's mail, as its jobs have it."""
    jobs = campaign.jobs.filter(parent=None).order_by("pk")
    return jobs.values_list("mail_class", flat=True).first() or MailClass.BULK


def named(sponsor: Sponsor, name: str) -> Route:
    """Return the sponsor's route with this name, else the shared one. Raises NotEntitled."""
    mine = Q(sponsor=None) | Q(sponsor=sponsor.pk) if sponsor.pk else Q(sponsor=None)
    found = Route.objects.filter(mine, name=name).order_by(F("sponsor").asc(nulls_last=True)).first()
    if found is None:
        known = ", ".join(Route.objects.filter(mine).values_list("name", flat=True)) or "none"
        raise NotEntitled(
            Said(
                "%(sponsor)s has no route %(name)s; there are: %(known)s",
                sponsor=sponsor.name,
                name=repr(name),
                known=known,
            )
        )
    return found


def usable(route: Route, sponsor: Sponsor) -> list[Credential]:
    """Return the route's credentials that the sponsor may use; a campaign starts with the first. Raises NotEntitled.

    Credentials of vendors without a mailcaster for campaigns come last.
    """
    rows = list(route.entries.select_related("credential__vendor"))
    mine = [row for row in rows if ports.gates.may_use(sponsor, row.credential)]
    if not mine:
        names = ", ".join(str(row.credential) for row in rows) or "it has none"
        raise NotEntitled(
            Said(
                "%(sponsor)s may use no credential of the route %(route)s: %(names)s",
                sponsor=sponsor.name,
                route=route.name,
                names=names,
            )
        )
    able = [row for row in mine if _cuts(row.credential.vendor)]
    drawn = share_out([(row.credential, row.weight) for row in able], random.random())
    return [*drawn, *(row.credential for row in mine if row not in able)]


def share_out(weighted: Sequence[tuple[Offered, int]], drawn: float) -> list[Offered]:
    """Keep the order, but move one entry to the front, drawn by weight (0 <= drawn < 1). No weights: no change."""
    found = [one for one, _ in weighted]
    place = drawn * sum(weight for _, weight in weighted)
    for n, (_, weight) in enumerate(weighted):
        if place < weight:
            return [found.pop(n), *found]
        place -= weight
    return found


def vendors(route: Route) -> list[Vendor]:
    """Return the vendors of the route's entries."""
    return [row.credential.vendor for row in route.entries.select_related("credential__vendor")]


def cannot(campaign: Campaign, entry: RouteEntry) -> str:
    """Return the reason this entry cannot carry the campaign, or "" if it can. Ignores the state of the vendor."""
    login, vendor = entry.credential, entry.credential.vendor
    of = Q(credential=None) | Q(credential=login)
    if campaign.sponsor_id and not Entitlement.objects.filter(of, sponsor=campaign.sponsor_id, vendor=vendor).exists():
        return "its sponsor may not use it"
    if vendor.sandbox != campaign.credential.vendor.sandbox:
        return "one is a sandbox, the other delivers"
    if vendor.channel != campaign.credential.vendor.channel:
        return f"it delivers {vendor.channel}"
    if campaign.identity is None and ports.gates.needs_identity(vendor):
        return "it needs a sender identity, and the campaign has none"
    if campaign.identity is not None and not campaign.identity.enabled:
        return "the campaign's sender identity is disabled"
    if missing := campaign.needs - ports.letters.carried_by(vendor.adapter, vendor.settings):
        return f"it carries no {' and no '.join(sorted(missing))}"
    return "" if _cuts(vendor) else UNCUT


def _cuts(vendor: Vendor) -> bool:
    """Return True if an enabled mailcaster of the vendor cuts children, which every routed campaign needs."""
    return Mailcaster.objects.filter(vendor=vendor, enabled=True).exclude(kind=Mailcaster.Kind.SMALL_ONLY).exists()
