"""Keys with which a vendor signs its reports, created here or by the vendor, and the accounts they stand for.

A vendor's credentials may be separate accounts with their own ids and signatures. A report proved by one account's key
or secret names no letter of another. Two keys are valid during a rotation.
"""

import base64
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Least

from vendors import adapters
from vendors.adapters.reports import NotTheVendor, ReportSource
from vendors.models import Credential, ReportKey, Vendor

Stated = TypeVar("Stated")
OVERLAP = timedelta(days=1)  # overlap of the old and the new key


@transaction.atomic
def rotate_key(vendor: Vendor, at: datetime, credential: Credential | None = None) -> str:
    """Create a signing key and return its secret, which is not shown again. Older keys expire after OVERLAP."""
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    _store_key(vendor, secret, at, credential)
    return secret


@transaction.atomic
def enter_key(vendor: Vendor, secret: str, at: datetime, credential: Credential | None = None) -> None:
    """Store the vendor's own secret for its reports. Older keys expire after OVERLAP.

    Raises ValueError for a secret that could prove nothing.
    """
    adapters.load(vendor.adapter).check_report_key(vendor.settings, secret)
    _store_key(vendor, secret, at, credential)


def _store_key(vendor: Vendor, secret: str, at: datetime, credential: Credential | None) -> None:
    before = ReportKey.objects.filter(vendor=vendor, credential=credential)
    before.update(expires_at=Least(Coalesce(F("expires_at"), at + OVERLAP), at + OVERLAP))
    row = ReportKey(vendor=vendor, credential=credential)
    row.secret = {"key": secret}
    row.save()


def revoke_keys(vendor: Vendor, credential: Credential | None = None) -> int:
    """Delete all signing keys, or those of a credential, so their reports are refused. Returns the number deleted."""
    rows = ReportKey.objects.filter(vendor=vendor)
    return (rows.filter(credential=credential) if credential else rows).delete()[0]


@dataclass(frozen=True, slots=True)
class ReportProof:
    """Proof that a report comes from these credentials; empty: from any of the vendor's."""

    credentials: tuple[int, ...]
    source: ReportSource


@dataclass(frozen=True, slots=True, repr=False)
class ReportingVendor:
    """A vendor and the proofs for its reports.

    `accounts`: proofs for one credential each. `common`: for those without a key of their own, if there is a key for
    these.
    """

    id: int
    slug: str
    adapter: str
    settings: Any
    accounts: Sequence[ReportProof]
    common: ReportProof | None


def reporting_vendor(slug: str, at: datetime) -> ReportingVendor | None:
    """Return the vendor with its valid signing keys, newest first, and its credentials; None if there is none."""
    row = Vendor.objects.filter(slug=slug).first()
    if row is None:
        return None
    rows: Any = ReportKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=at), vendor=row)
    keys = [(key.credential_id, key.secret["key"]) for key in rows]
    logins: Any = list(Credential.objects.filter(vendor=row).order_by("pk"))
    if len(logins) <= 1:
        every = ReportProof(
            (), ReportSource(row.settings, [key for _, key in keys], [login.secret for login in logins])
        )
        return ReportingVendor(row.pk, row.slug, row.adapter, row.settings, (), every)
    owned = {credential: [key for of, key in keys if of == credential] for credential, _ in keys}
    accounts = [
        ReportProof((one.pk,), ReportSource(row.settings, owned.get(one.pk, []), [one.secret])) for one in logins
    ]
    others = [login for login in logins if login.pk not in owned]
    common = None
    if others and (shared := owned.get(None)):
        those = tuple(login.pk for login in others) if len(others) < len(logins) else ()
        common = ReportProof(those, ReportSource(row.settings, shared, [login.secret for login in others]))
    return ReportingVendor(row.pk, row.slug, row.adapter, row.settings, accounts, common)


def read_for_accounts(
    read_by: Callable[[ReportSource], Sequence[Stated]], vendor: ReportingVendor
) -> tuple[list[Stated], tuple[int, ...]]:
    """Return the content of a request, and the credentials it speaks for; empty: all of the vendor's.

    `read_by`: reads the request with one proof, and raises NotTheVendor if it does not match. A request that two
    credentials prove, as with two of one account, speaks for both. Passes on the errors of `read_by`.
    """
    found = list(_read_by_accounts(read_by, vendor.accounts))
    if not found:
        if vendor.common is None:
            raise NotTheVendor
        return list(read_by(vendor.common.source)), vendor.common.credentials
    return found[0][0], tuple(credential for _, credentials in found for credential in credentials)


def _read_by_accounts(
    read_by: Callable[[ReportSource], Sequence[Stated]], accounts: Sequence[ReportProof]
) -> Iterator[tuple[list[Stated], tuple[int, ...]]]:
    for account in accounts:
        try:
            yield list(read_by(account.source)), account.credentials
        except NotTheVendor:
            continue
