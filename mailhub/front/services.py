"""GET /services: all vendors, whether each accepts work now, and if not, when to try again."""

import math
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja import Router

from mailhub.front.forecasts import forecasts
from mailhub.front.keys import Caller, Key
from mailhub.front.schemas import ProblemOut, ServicesOut
from mailhub.front.vendor_cache import VendorSnapshot, vendor_cache
from vendors import health

router = Router(tags=["services"])
PROBLEMS = dict.fromkeys((401, 403, 429, 503), ProblemOut)


@router.get(
    "/services", auth=Key("send", "read", "ops"), response={200: ServicesOut, **PROBLEMS}, summary="All vendors"
)
def list_services(request: HttpRequest) -> dict[str, Any]:
    """A test key sees sandbox vendors only."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    vendors = [vendor for _, vendor in sorted(vendor_cache.snapshots().items()) if vendor.sandbox or not caller.test]
    return {"data": [_facts(vendor) for vendor in vendors]}


def _facts(vendor: VendorSnapshot) -> dict[str, Any]:
    status = health.at(settings.REDIS_URL).look(vendor.id, vendor.policy)
    wait = vendor.policy.retry_after if vendor.paused else status.seconds
    accepting = vendor.paused is None and status.accepting
    return {
        "slug": vendor.slug,
        "name": vendor.name,
        "channel": vendor.channel,
        "sandbox": vendor.sandbox,
        "accepting": accepting,
        "paused": vendor.paused,
        "retry_after": None if accepting else max(1, math.ceil(wait)),
        "good": status.good,
        "bad": status.bad,
        "ratio": status.ratio,
        "threshold": vendor.policy.min_ratio,
        "limits": [f"{limit.units}/{limit.seconds:g}" for limit in vendor.limits],
        "waiting": forecasts.waiting(vendor),
        "forecast": forecasts.of(vendor, 1, None),
    }
