"""The API's endpoints about vendors.

GET /services: the sponsor's vendors, whether each accepts work now, and if not, when to try again. GET /identities: the
sender identities that the sponsor may use.
"""

import math
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja import Router

from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.schemas import ProblemOut
from campaigns.doors.front.vendor_cache import VendorSnapshot, vendor_cache
from campaigns.models import Identity
from campaigns.reporting.api.forecasts import condition_facts, forecasts, iso_utc
from campaigns.senders.api.vendor_schemas import IdentitiesOut, ServicesOut
from campaigns.senders.refused_senders import RefusedSender, find_refused
from vendors import health
from vendors.condition.values import ConditionKind

router = Router()
CALLABLE = (ConditionKind.WORKS, ConditionKind.UNTRIED)
PROBLEMS = dict.fromkeys((401, 403, 429, 503), ProblemOut)


@router.get(
    "/services",
    tags=["services"],
    auth=Key("send", "read", "ops"),
    response={200: ServicesOut, **PROBLEMS},
    summary="The vendors that you may use",
)
def list_services(request: HttpRequest) -> dict[str, Any]:
    """A test key sees sandbox vendors only. For a vendor governed by others, `good` and `bad` are shares of a hundred
    answers, and only your own messages count as waiting."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    mine = vendor_cache.offered_to(caller.sponsor_id).vendors.values()
    return {"data": [_vendor_facts(vendor, caller) for vendor in mine if vendor.sandbox or not caller.test]}


@router.get(
    "/identities",
    tags=["services"],
    auth=Key("send", "read", "ops"),
    response={200: IdentitiesOut, **PROBLEMS},
    summary="The sender identities that you may use",
)
def list_identities(request: HttpRequest) -> dict[str, Any]:
    """Operators make them (manage.py identity)."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    rows = vendor_cache.offered_to(caller.sponsor_id).identities.values()
    refused = find_refused([row.pk for row in rows])
    return {"data": [_identity_facts(row, refused.get(row.pk)) for row in rows]}


def _identity_facts(row: Identity, refused: RefusedSender | None) -> dict[str, Any]:
    return {
        "name": row.name,
        "channel": row.channel,
        "from_name": row.from_name,
        "from_address": row.from_address,
        "senders": [row.sender_id] if row.sender_id else row.numbers,
        "reply_to": row.reply_to,
        "default": row.default,
        "signed": bool(row.dkim_selector),
        "refused": refused
        and {
            "since": iso_utc(refused.since),
            "campaigns": refused.campaigns,
            "reason": str(refused.reason),
        },
    }


def _vendor_facts(vendor: VendorSnapshot, caller: Caller) -> dict[str, Any]:
    status = health.health_store(settings.REDIS_URL).look(vendor.id, vendor.policy)
    condition = forecasts.condition_of(vendor)
    wait = status.seconds if status.seconds and vendor.paused is None else vendor.policy.retry_after
    accepting = vendor.paused is None and status.accepting and condition.kind in CALLABLE
    good, bad, ratio = status.good, status.bad, status.ratio
    if not vendor.disclosed and ratio is not None:
        good = round(100 * ratio)
        bad, ratio = 100 - good, good / 100
    return {
        "slug": vendor.slug,
        "name": vendor.name,
        "channel": vendor.channel,
        "sandbox": vendor.sandbox,
        "accepting": accepting,
        "condition": condition_facts(condition, vendor.disclosed),
        "paused": vendor.paused,
        "retry_after": None if accepting else max(1, math.ceil(wait)),
        "good": good,
        "bad": bad,
        "ratio": ratio,
        "threshold": vendor.policy.min_ratio,
        "limits": [f"{limit.units}/{limit.seconds:g}" for limit in vendor.limits],
        "waiting": forecasts.waiting(vendor, caller.sponsor_id),
        "forecast": forecasts.of(vendor, caller.sponsor_id, 1, None),
    }
