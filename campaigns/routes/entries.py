"""Which vendors of a route take work now, and which of them can carry a campaign; why not, as texts.

A vendor takes no work while it or its credential is shut (vendors/shut.py: paused, also because it refuses the login,
or with a limit of 0), when it could not be reached for longer than the route's patience, when it has asked to wait for
longer than that, and while no mailcaster of it is enabled that takes parts of a campaign. A window that is used up is
no reason: that is the speed which was agreed with it.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import connection
from django.db.models import F, Q

from campaigns import entitlements
from campaigns.content.parts import carried_by
from campaigns.entitlements import NotEntitled
from campaigns.models import Campaign, Entitlement, Route, RouteEntry, Sponsor
from vendors import ownership, shut
from vendors.models import Credential, Mailcaster, Vendor

Offered = TypeVar("Offered")
PROBE = 60  # seconds after its last closing for which a vendor that was not reached counts so; then it is tried again
UNCUT = "no enabled mailcaster of it takes parts of a campaign"
# Of a vendor v and its credential l.
WHY = f"""coalesce({shut.WHY}, CASE
    WHEN l.unreached_since <= clock_timestamp() - %(patience)s * interval '1 second'
        AND l.retry_after_until > clock_timestamp() - interval '{PROBE} seconds'
        THEN 'not reached since ' || to_char(l.unreached_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
    WHEN l.retry_after_until > clock_timestamp() + %(patience)s * interval '1 second'
        THEN 'it asked to wait until ' || to_char(l.retry_after_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
    WHEN NOT EXISTS (SELECT FROM vendors_mailcaster k WHERE k.vendor_id = v.id AND k.enabled AND k.kind <> 'small-only')
        THEN '{UNCUT}'
    ELSE '' END)"""
WHY_NOT = f"""
SELECT l.id, v.id, {WHY} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id WHERE l.id = ANY(%(ids)s)
"""


def why_not(credential_ids: Collection[int], patience: int) -> dict[int, str]:
    """Why each of these credentials takes no work now; empty: it does. patience: seconds.

    In words, but for a user who may not read those of the vendor (vendors.ownership.is_disclosed).
    """
    with connection.cursor() as cursor:
        cursor.execute(WHY_NOT, {"ids": list(credential_ids), "patience": patience})
        rows = cursor.fetchall()
    return {login: why if ownership.is_disclosed(vendor) else shut.brief(why) for login, vendor, why in rows}


@dataclass(frozen=True, slots=True)
class RouteState:
    """An entry of a route for one campaign. why: why it gets nothing of it now; empty: it may."""

    credential: Credential
    why: str


def states(campaign: Campaign) -> list[RouteState]:
    """The entries of the campaign's route, in their order."""
    route = campaign.route
    if route is None:
        return []
    rows = list(route.entries.select_related("credential__vendor").defer("credential__secret"))
    closed = why_not([row.credential_id for row in rows], route.patience)
    return [RouteState(row.credential, closed[row.credential_id] or cannot(campaign, row)) for row in rows]


def named(sponsor: Sponsor, name: str) -> Route:
    """The sponsor's route of that name, else the one of that name for all. Raises NotEntitled."""
    mine = Q(sponsor=None) | Q(sponsor=sponsor.pk) if sponsor.pk else Q(sponsor=None)
    found = Route.objects.filter(mine, name=name).order_by(F("sponsor").asc(nulls_last=True)).first()
    if found is None:
        known = ", ".join(Route.objects.filter(mine).values_list("name", flat=True)) or "none"
        raise NotEntitled(f"{sponsor.name} has no route {name!r}; there are: {known}")
    return found


def usable(route: Route, sponsor: Sponsor) -> list[Credential]:
    """Its credentials that the sponsor may use; with the first one a campaign begins. Raises NotEntitled.

    Those whose vendors have no mailcaster for it come last.
    """
    rows = list(route.entries.select_related("credential__vendor"))
    mine = [row for row in rows if _may(sponsor, row.credential)]
    if not mine:
        names = ", ".join(str(row.credential) for row in rows) or "it has none"
        raise NotEntitled(f"{sponsor.name} may use no credential of the route {route.name}: {names}")
    able = [row for row in mine if _cuts(row.credential.vendor)]
    drawn = share_out([(row.credential, row.weight) for row in able], random.random())
    return [*drawn, *(row.credential for row in mine if row not in able)]


def share_out(weighted: Sequence[tuple[Offered, int]], drawn: float) -> list[Offered]:
    """In this order, but first the one that is drawn among those with a weight, if any has one. 0 <= drawn < 1."""
    found = [one for one, _ in weighted]
    place = drawn * sum(weight for _, weight in weighted)
    for n, (_, weight) in enumerate(weighted):
        if place < weight:
            return [found.pop(n), *found]
        place -= weight
    return found


def _may(sponsor: Sponsor, login: Credential) -> bool:
    try:
        entitlements.require(sponsor, login)
    except NotEntitled:
        return False
    return True


def vendors(route: Route) -> list[Vendor]:
    """Those by which its campaigns may go."""
    return [row.credential.vendor for row in route.entries.select_related("credential__vendor")]


def cannot(campaign: Campaign, entry: RouteEntry) -> str:
    """Why the campaign may not, or cannot, go by this entry, whether it takes work or not; empty: it can."""
    login, vendor = entry.credential, entry.credential.vendor
    of = Q(credential=None) | Q(credential=login)
    if campaign.sponsor_id and not Entitlement.objects.filter(of, sponsor=campaign.sponsor_id, vendor=vendor).exists():
        return "its sponsor may not use it"
    if vendor.sandbox != campaign.credential.vendor.sandbox:
        return "one is a sandbox, the other delivers"
    if vendor.channel != campaign.credential.vendor.channel:
        return f"it delivers {vendor.channel}"
    if campaign.identity is None and entitlements.needs_identity(vendor):
        return "it needs a sender identity, and the campaign has none"
    if campaign.identity is not None and not campaign.identity.enabled:
        return "the campaign's sender identity is disabled"
    if missing := campaign.needs - carried_by(vendor.adapter, vendor.settings):
        return f"it carries no {' and no '.join(sorted(missing))}"
    return "" if _cuts(vendor) else UNCUT


def _cuts(vendor: Vendor) -> bool:
    """Whether a mailcaster of it takes parts of campaigns; each campaign with a route is sent in parts."""
    return Mailcaster.objects.filter(vendor=vendor, enabled=True).exclude(kind=Mailcaster.Kind.SMALL_ONLY).exists()
