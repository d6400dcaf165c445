"""Vendors for the API, read from the database about once a second for a whole process.

A sponsor sees the vendors it may use, with a credential it may use. These, and its sender identities, are read
equally often for each sponsor that asks.
"""

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Prefetch, Q

from campaigns.models import Identity, Route, Sponsor
from campaigns.models.identities import Urgent
from campaigns.senders import entitlements
from campaigns.texts.addresses import address_rules
from campaigns.texts.parts import carried_by
from campaigns.texts.signs import SignCheck, sign_check
from campaigns.texts.sizes import largest_mail
from vendors import ownership, shut
from vendors.adapters.addresses import AddressRules
from vendors.health import HealthPolicy
from vendors.limits.values import Limit
from vendors.models import Credential, Vendor

FRESH = 0.8  # seconds; an edit takes effect within one second
MOST_KNOWN = 10_000  # sponsors


@dataclass(frozen=True, slots=True)
class VendorSnapshot:
    """A vendor with the credential that the API uses. `paused`: reason to refuse work (vendors/shut.py), or None.

    `disclosed`: the vendor is the sponsor's own, or there is no other sponsor. About any other vendor, programs learn
    nothing of others' mail or of people's notes. `carries`: the parts that its letters may have beside subject and body
    (campaigns.texts.parts.PARTS). `address`: its rules for addresses. `largest_mail`: in bytes; 0: unknown. `signs`:
    its check of signs, if it draws letters here. `urgent`: the mail that the sponsor may send over it as urgent.
    """

    id: int
    slug: str
    name: str
    channel: str
    sandbox: bool
    small_below: int
    policy: HealthPolicy
    limits: tuple[Limit, ...]
    credential_id: int | None
    paused: str | None
    carries: frozenset[str] = frozenset()
    needs_identity: bool = False
    address: AddressRules | None = None
    disclosed: bool = True
    largest_mail: int = 0
    signs: SignCheck | None = None
    urgent: Urgent = Urgent.NOTHING


@dataclass(frozen=True, slots=True)
class OfferedRoute:
    """A route of a sponsor, or one for all. `vendors`: in its order, each with its credential and weight."""

    id: int
    vendors: tuple[tuple[VendorSnapshot, int], ...]


@dataclass(frozen=True, slots=True)
class OfferedTo:
    """The items open to a sponsor. `vendors`: by slug, in this order; `identities`, `routes`: by name.

    `region`: the sponsor's, for phone numbers without country code. `approval_above`: the sponsor's setting.
    """

    vendors: Mapping[str, VendorSnapshot]
    identities: Mapping[str, Identity]
    region: str = ""
    approval_above: int | None = None
    routes: Mapping[str, OfferedRoute] = field(default_factory=dict)


NO_LOGIN = "it has no credential for you, or several and none of them is called default"
NEVER: tuple[float, OfferedTo | None] = (0.0, None)


class VendorCache:
    """Cache of what each sponsor may use. Thread-safe."""

    def __init__(self) -> None:
        self._vendors: list[Vendor] = []
        self._alone = True
        self._read_at = 0.0
        self._known: dict[int, tuple[float, OfferedTo | None]] = {}
        self._lock = threading.Lock()

    def offered_to(self, sponsor_id: int) -> OfferedTo:
        """Return the sponsor's OfferedTo, read again if older than FRESH. Raises django.db's errors."""
        read_at, found = self._known.get(sponsor_id, NEVER)
        if found is None or time.monotonic() - read_at > FRESH:
            with self._lock:
                read_at, found = self._known.get(sponsor_id, NEVER)
                if found is None or time.monotonic() - read_at > FRESH:
                    found = self._read_offered(sponsor_id)
        return found

    def find_vendor(self, slug: str, sponsor_id: int) -> VendorSnapshot | None:
        """Return a vendor. An unknown one is looked up in the database, as it may be new or newly permitted."""
        found = self.offered_to(sponsor_id).vendors.get(slug)
        if found is None:
            self.forget_vendors(sponsor_id)
            found = self.offered_to(sponsor_id).vendors.get(slug)
        return found

    def forget_vendors(self, sponsor_id: int | None = None) -> None:
        """Forget the vendors and what this sponsor may use; None: what any sponsor may use."""
        with self._lock:
            self._read_at = 0.0
            if sponsor_id is None:
                self._known.clear()
            else:
                self._known.pop(sponsor_id, None)

    def _read_offered(self, sponsor_id: int) -> OfferedTo:
        began = time.monotonic()
        if not self._read_at or began - self._read_at > FRESH:
            logins = Prefetch(
                "credentials", Credential.objects.annotate(shut=shut.OF_LOGINS, brief=shut.BRIEF_OF_LOGINS)
            )
            self._vendors = list(Vendor.objects.prefetch_related("limits", logins))
            self._alone = ownership.are_alone()
            self._read_at = began
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        offered = _make_offered(sponsor_id, self._vendors, self._alone)
        self._known[sponsor_id] = (began, offered)
        return offered


def _make_offered(sponsor_id: int, vendors: list[Vendor], alone: bool) -> OfferedTo:
    rights = entitlements.rights_of(sponsor_id)
    allowed = rights.allowed
    disclosed = {vendor.pk for vendor in vendors if alone or vendor.owner_id == sponsor_id}
    mine = {
        one.slug: _take_snapshot(one, allowed[one.pk], one.pk in disclosed, rights)
        for one in vendors
        if one.pk in allowed
    }
    rows = Identity.objects.filter(sponsor=sponsor_id, enabled=True).defer("secret")
    of = Sponsor.objects.filter(pk=sponsor_id).values_list("phone_region", "approval_above").first()
    region, above = of or ("", None)
    routes = _offered_routes(sponsor_id, vendors, rights, disclosed)
    return OfferedTo(mine, {row.name: row for row in rows}, region, above, routes)


def _offered_routes(
    sponsor_id: int, vendors: list[Vendor], rights: entitlements.SponsorRights, disclosed: Collection[int]
) -> dict[str, OfferedRoute]:
    """Return routes by name, with usable credentials only. A sponsor's own takes precedence over one for all."""
    known = {vendor.pk: vendor for vendor in vendors}
    rows = Route.objects.filter(Q(sponsor=None) | Q(sponsor=sponsor_id)).prefetch_related("entries__credential")
    found: dict[str, OfferedRoute] = {}
    for row in rows.order_by(F("sponsor").asc(nulls_first=True)):
        mine = [one for one in row.entries.all() if one.credential.vendor_id in known]
        mine = [one for one in mine if _allows_login(rights.allowed, one.credential)]
        if mine:
            found[row.name] = OfferedRoute(row.pk, tuple(
                (_take_snapshot(known[of.vendor_id], {of.pk}, of.vendor_id in disclosed, rights), one.weight)
                for one in mine
                for of in [one.credential]
            ))  # fmt: skip
    return found


def _allows_login(allowed: entitlements.Allowed, login: Credential) -> bool:
    return login.vendor_id in allowed and ((only := allowed[login.vendor_id]) is None or login.pk in only)


def _take_snapshot(
    vendor: Vendor, allowed: Collection[int] | None, disclosed: bool, rights: entitlements.SponsorRights
) -> VendorSnapshot:
    login = _default_login([one for one in vendor.credentials.all() if allowed is None or one.pk in allowed])
    paused = (login.shut if disclosed else login.brief) if login else NO_LOGIN
    limits = [limit for limit in vendor.limits.all() if limit.credential_id in (None, login.pk if login else None)]
    return VendorSnapshot(
        id=vendor.pk,
        slug=vendor.slug,
        name=vendor.name,
        channel=vendor.channel,
        sandbox=vendor.sandbox,
        small_below=vendor.small_audience_threshold,
        policy=HealthPolicy.of(vendor),
        limits=tuple(Limit(limit.units, limit.seconds) for limit in limits),
        credential_id=login.pk if login else None,
        paused=paused,
        disclosed=disclosed,
        carries=carried_by(vendor.adapter, vendor.settings),
        address=address_rules(vendor.adapter, vendor.settings),
        largest_mail=largest_mail(vendor.adapter, vendor.settings, login.relay_size if login else None),
        signs=sign_check(vendor.adapter, vendor.settings),
        needs_identity=entitlements.adapter_needs_identity(vendor),
        urgent=rights.urgent_over(vendor.pk, login.pk if login else None),
    )


def _default_login(logins: list[Any]) -> Any:
    """Return the only credential, or the one named default, or None."""
    if len(logins) == 1:
        return logins[0]
    return next((login for login in logins if login.name == "default"), None)


vendor_cache = VendorCache()
