"""With what a vendor signs its receipts: made, rotated, taken away."""

import base64
import secrets
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Least

from vendors.models import ReceiptKey, Vendor

OVERLAP = timedelta(days=1)  # both keys are valid so long


@transaction.atomic
def rotate(vendor: Vendor, at: datetime) -> str:
    """A new secret, which nobody can see again; the ones before it end in a day."""
    before = ReceiptKey.objects.filter(vendor=vendor)
    before.update(expires_at=Least(Coalesce(F("expires_at"), at + OVERLAP), at + OVERLAP))
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    row = ReceiptKey(vendor=vendor)
    row.secret = {"key": secret}
    row.save()
    return secret


def revoke(vendor: Vendor) -> int:
    """No receipt of this vendor is taken any more; how many keys there were."""
    return ReceiptKey.objects.filter(vendor=vendor).delete()[0]


def of(slug: str, at: datetime) -> tuple[int, list[str]]:
    """The vendor's id and its valid secrets; 0 and none where there are none."""
    valid = Q(expires_at=None) | Q(expires_at__gt=at)
    rows = list(ReceiptKey.objects.filter(valid, vendor__slug=slug))
    return (rows[0].vendor_id, [row.secret["key"] for row in rows]) if rows else (0, [])
