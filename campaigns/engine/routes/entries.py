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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from django.db import connection
from django.db.models import F, Q

from campaigns.engine import ports
from campaigns.engine.ports import NotEntitled
from campaigns.models import Campaign, Entitlement, Job, Route, RouteEntry, Sponsor
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
WHY_NOT = """
SELECT l.id, a.patience, v.id, {why}, {said}, coalesce({brief}, {closed})
FROM unnest(%(ids)s::bigint[], %(patiences)s::int[]) a(id, patience)
    JOIN vendors_credential l ON l.id = a.id JOIN vendors_vendor v ON v.id = l.vendor_id
""".format(
    why=WHY.replace("%(patience)s", "a.patience"), said=shut.SAID, brief=shut.BRIEF,
    closed=_CLOSED.replace("%(patience)s", "a.patience"),
)  # fmt: skip


class ClosedReason(NamedTuple):
    """A credential's reason to take no work now, or "". brief: for those who may not read the vendor's own reason."""

    vendor_id: int
    why: str
    brief: str


def closed_reasons(credential_ids: Collection[int], patience: int) -> dict[int, ClosedReason]:
    """Return the reason of each credential. patience: seconds."""
    found = reasons_by_patience([(login, patience) for login in credential_ids])
    return {login: reason for (login, _patience), reason in found.items()}


def reasons_by_patience(asked: Iterable[tuple[int, int]]) -> dict[tuple[int, int], ClosedReason]:
    """Return each reason by (credential id, a route's patience in seconds). One statement."""
    pairs = sorted(set(asked))
    with connection.cursor() as cursor:
        cursor.execute(WHY_NOT, {"ids": [one for one, _ in pairs], "patiences": [one for _, one in pairs]})
        rows: Any = cursor.fetchall()
    return {
        (login, patience): ClosedReason(vendor, said.read(why, data and json.loads(data)), said.Said(brief))
        for login, patience, vendor, why, data, brief in rows
    }


def closed_credentials(credential_ids: Collection[int], patience: int) -> dict[int, str]:
    """Return the reason each credential takes no work now, or "" if it does. patience: seconds.

    The reason is abridged for users who may not read the vendor's own (vendors.ownership.is_disclosed).
    """
    return {
        login: one.why if ownership.is_disclosed(one.vendor_id) else one.brief
        for login, one in closed_reasons(credential_ids, patience).items()
    }


@dataclass(frozen=True, slots=True)
class RouteState:
    """An entry of a route, seen from one campaign. why: the reason it gets no messages now, or "" if it can.

    brief: the same for those who may not read the vendor's own reason. is_permitted: the sponsor may use it.
    """

    credential: Credential
    why: str
    brief: str = ""
    is_permitted: bool = True


def route_states(campaign: Campaign) -> list[RouteState]:
    """Return the state of each entry of the campaign's route, in the route's order."""
    return states_of([campaign.pk])[campaign.pk]


def states_of(campaign_ids: Collection[int]) -> dict[int, list[RouteState]]:
    """Return the states of each campaign's entries, in a fixed number of statements for any number of campaigns."""
    stored = Campaign.objects.filter(pk__in=campaign_ids).select_related("identity", "credential__vendor")
    campaigns = list(stored.defer("body", "credential__secret"))
    entries = _entries_of({one.route_id for one in campaigns if one.route_id})
    rows = [row for of in entries.values() for row in of]
    facts = _read_facts(campaigns, [row.credential for row in rows])
    closed = reasons_by_patience([(row.credential_id, row.route.patience) for row in rows])
    pairs = [(one, row) for one in campaigns for row in entries.get(one.route_id or 0, ())]
    classes = ports.gates.refuse_classes(
        [(one.sponsor_id, row.credential, facts.classes.get(one.pk, MailClass.BULK), one.size) for one, row in pairs]
    )
    found: dict[int, list[RouteState]] = {pk: [] for pk in campaign_ids}
    for (campaign, row), no_class in zip(pairs, classes, strict=True):
        shut = closed[row.credential_id, row.route.patience]
        own = facts.entry_fault(campaign, row.credential) or no_class
        why = shut.why if ownership.is_disclosed(shut.vendor_id) else shut.brief
        may = facts.may_use(campaign.sponsor_id, row.credential)
        found[campaign.pk].append(RouteState(row.credential, why or own, shut.brief or own, may))
    return found


def _entries_of(route_ids: Collection[int]) -> dict[int, list[RouteEntry]]:
    rows = RouteEntry.objects.filter(route__in=route_ids).select_related("credential__vendor", "route")
    found: dict[int, list[RouteEntry]] = {}
    for row in rows.defer("credential__secret").order_by("route", "position") if route_ids else ():
        found.setdefault(row.route_id, []).append(row)
    return found


def named_route(sponsor: Sponsor, name: str) -> Route:
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


def usable_credentials(route: Route, sponsor: Sponsor) -> list[Credential]:
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
    able = [row for row in mine if _cuts_children(row.credential.vendor)]
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


def vendors_of_route(route: Route) -> list[Vendor]:
    """Return the vendors of the route's entries."""
    return [row.credential.vendor for row in route.entries.select_related("credential__vendor")]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What decides, beside the state of the vendors, which credentials can carry campaigns.

    rights: sponsor, vendor, and the credential or None for all. needs, classes: by campaign. cutting: vendors with an
    enabled mailcaster that cuts children, which every routed campaign needs.
    """

    rights: frozenset[tuple[int, int, int | None]]
    needs: dict[int, frozenset[str]]
    classes: dict[int, int]
    cutting: frozenset[int]

    def may_use(self, sponsor_id: int, login: Credential) -> bool:
        whole, single = (sponsor_id, login.vendor_id, None), (sponsor_id, login.vendor_id, login.pk)
        return not sponsor_id or whole in self.rights or single in self.rights

    def entry_fault(self, campaign: Campaign, login: Credential) -> str:
        """Return the reason this credential cannot carry the campaign, or "". Ignores the state of the vendor."""
        vendor = login.vendor
        if not self.may_use(campaign.sponsor_id, login):
            return "its sponsor may not use it"
        if vendor.sandbox != campaign.credential.vendor.sandbox:
            return "one is a sandbox, the other delivers"
        if vendor.channel != campaign.credential.vendor.channel:
            return f"it delivers {vendor.channel}"
        if campaign.identity is None and ports.gates.needs_identity(vendor):
            return "it needs a sender identity, and the campaign has none"
        if campaign.identity is not None and not campaign.identity.enabled:
            return "the campaign's sender identity is disabled"
        if missing := self.needs[campaign.pk] - ports.letters.carried_by(vendor.adapter, vendor.settings):
            return f"it carries no {' and no '.join(sorted(missing))}"
        return "" if vendor.pk in self.cutting else UNCUT


def _read_facts(campaigns: Sequence[Campaign], logins: Sequence[Credential]) -> _Facts:
    sponsors, vendors = {one.sponsor_id for one in campaigns}, {one.vendor_id for one in logins}
    rights = Entitlement.objects.filter(sponsor__in=sponsors, vendor__in=vendors)
    parents = Job.objects.filter(campaign__in=campaigns, parent=None).order_by("campaign", "pk").distinct("campaign")
    return _Facts(
        frozenset(rights.values_list("sponsor", "vendor", "credential")),
        _needs_of(campaigns),
        dict(parents.values_list("campaign", "mail_class")),
        frozenset(_cutting().filter(vendor__in=vendors).values_list("vendor", flat=True)),
    )


def _needs_of(campaigns: Sequence[Campaign]) -> dict[int, frozenset[str]]:
    """Return what each campaign needs of a vendor. Bodies are read a few at a time, and only where they decide."""
    with_files = [one.pk for one in campaigns if one.has_files and one.html]
    needs = {one.pk: one.needs_with("") for one in campaigns if one.pk not in with_files}
    if with_files:
        of = {one.pk: one for one in campaigns}
        bodies = Campaign.objects.filter(pk__in=with_files).values_list("pk", "body").iterator(chunk_size=10)
        needs |= {pk: of[pk].needs_with(body) for pk, body in bodies}
    return needs


def _cutting() -> Any:
    """Select the enabled mailcasters that cut children."""
    return Mailcaster.objects.filter(enabled=True).exclude(kind=Mailcaster.Kind.SMALL_ONLY)


def _cuts_children(vendor: Vendor) -> bool:
    return bool(_cutting().filter(vendor=vendor).exists())
