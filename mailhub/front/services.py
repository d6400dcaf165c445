"""GET /services: every vendor, whether it takes work now, and if not, when."""

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
    """A test key sees the sandboxes."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    desks = [desk for _, desk in sorted(vendor_cache.desks().items()) if desk.sandbox or not caller.test]
    return {"data": [_facts(desk) for desk in desks]}


def _facts(desk: VendorSnapshot) -> dict[str, Any]:
    status = health.at(settings.REDIS_URL).look(desk.id, desk.terms)
    wait = desk.terms.retry_after if desk.paused else status.seconds
    accepting = desk.paused is None and status.accepting
    return {
        "slug": desk.slug,
        "name": desk.name,
        "channel": desk.channel,
        "sandbox": desk.sandbox,
        "accepting": accepting,
        "paused": desk.paused,
        "retry_after": None if accepting else max(1, math.ceil(wait)),
        "good": status.good,
        "bad": status.bad,
        "ratio": status.ratio,
        "threshold": desk.terms.min_ratio,
        "limits": [f"{limit.units}/{limit.seconds:g}" for limit in desk.limits],
        "waiting": forecasts.waiting(desk),
        "forecast": forecasts.of(desk, 1, None),
    }
