"""Vendors as the API needs them: read from the database at most about once a second for a whole process."""

import threading
import time
from dataclasses import dataclass

from campaigns.content.parts import carried_by
from vendors.health import HealthPolicy
from vendors.limits.values import Limit
from vendors.models import Credential, Vendor

FRESH = 0.8  # seconds; an edit takes effect within one second


@dataclass(frozen=True, slots=True)
class VendorSnapshot:
    """A vendor with the credential that the API uses. paused: the reason, if no work is accepted.

    carries: what its letters may have beside subject and body (vendors.adapters.base.PARTS).
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


class VendorCache:
    """Snapshots of all vendors, by slug; safe for threads."""

    def __init__(self) -> None:
        self._snapshots: dict[str, VendorSnapshot] = {}
        self._read_at = 0.0
        self._lock = threading.Lock()

    def snapshots(self) -> dict[str, VendorSnapshot]:
        """Read again if older than FRESH. Raises django.db's errors."""
        if not self._read_at or time.monotonic() - self._read_at > FRESH:
            with self._lock:
                if not self._read_at or time.monotonic() - self._read_at > FRESH:
                    began = time.monotonic()
                    self._snapshots = {snapshot.slug: snapshot for snapshot in _read()}
                    self._read_at = began
        return self._snapshots

    def find(self, slug: str) -> VendorSnapshot | None:
        """An unknown vendor is looked up in the database at once: it may be new."""
        found = self.snapshots().get(slug)
        if found is None:
            self.forget()
            found = self.snapshots().get(slug)
        return found

    def forget(self) -> None:
        """Read the vendors anew at the next request."""
        self._read_at = 0.0


def _read() -> list[VendorSnapshot]:
    return [_snapshot(vendor) for vendor in Vendor.objects.prefetch_related("limits", "credentials")]


def _snapshot(vendor: Vendor) -> VendorSnapshot:
    login = _login(list(vendor.credentials.all()))
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
        paused=_paused(vendor, login),
        carries=carried_by(vendor.adapter, vendor.settings),
    )


def _login(logins: list[Credential]) -> Credential | None:
    """The vendor's only credential, or the one called default."""
    if len(logins) == 1:
        return logins[0]
    return next((login for login in logins if login.name == "default"), None)


def _paused(vendor: Vendor, login: Credential | None) -> str | None:
    if vendor.paused:
        return vendor.paused_reason or "paused"
    if login is None:
        return "it has no credential, or several and none of them is called default"
    return (login.paused_reason or "its credential is paused") if login.paused else None


vendor_cache = VendorCache()
