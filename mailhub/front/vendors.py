"""The API's endpoints about vendors.

GET /services: the sponsor's vendors, whether each accepts work now, and if not, when to try again. GET /identities: as
whom the sponsor may send. POST /receipts/{vendor}: a
vendor's delivery reports on letters that it had accepted.
"""

import math
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status

from campaigns import delivery_reports, tasks
from campaigns.models import Identity
from mailhub.front.forecasts import forecasts
from mailhub.front.keys import Caller, Key
from mailhub.front.problems import Problem, invalid, located
from mailhub.front.schemas import IdentitiesOut, ProblemOut, ReceiptsOut, ServicesOut
from mailhub.front.vendor_cache import VendorSnapshot, vendor_cache
from vendors import adapters, configuration, health
from vendors.adapters.reports import BadReport, NotTheVendor, Reported
from vendors.models import Vendor

router = Router()
PROBLEMS = dict.fromkeys((401, 403, 429, 503), ProblemOut)
REPORT_PROBLEMS = dict.fromkeys((400, 401, 413, 422, 503), ProblemOut)
SIGNED = [
    {"in": "header", "name": name, "schema": {"type": "string"}, "description": "As Standard Webhooks has it"}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
]
BODY = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ReceiptsIn"}}}, "required": True}


@router.get(
    "/services",
    tags=["services"],
    auth=Key("send", "read", "ops"),
    response={200: ServicesOut, **PROBLEMS},
    summary="The vendors that you may use",
)
def list_services(request: HttpRequest) -> dict[str, Any]:
    """A test key sees sandbox vendors only."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    mine = vendor_cache.offered_to(caller.sponsor_id).vendors.values()
    return {"data": [_facts(vendor) for vendor in mine if vendor.sandbox or not caller.test]}


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
    return {"data": [_identity(row) for row in vendor_cache.offered_to(caller.sponsor_id).identities.values()]}


def _identity(row: Identity) -> dict[str, Any]:
    return {
        "name": row.name,
        "from_name": row.from_name,
        "from_address": row.from_address,
        "reply_to": row.reply_to,
        "default": row.default,
        "signed": bool(row.dkim_selector),
    }


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


@router.post(
    "/receipts/{vendor}",
    tags=["vendors"],
    response={202: ReceiptsOut, **REPORT_PROBLEMS},
    summary="A vendor's receipts: delivered or bounced",
    openapi_extra={"parameters": SIGNED, "requestBody": BODY, "security": []},  # the signature takes a key's place
)
def take_receipts(request: HttpRequest, vendor: str) -> Status[ReceiptsOut]:
    """Signed with the vendor's secret (manage.py vendor receipts). Posting the same again changes nothing."""
    vendor_id, reported = _reported(request, vendor)
    taken = delivery_reports.take(vendor_id, reported, vendor)
    if taken.calls:
        tasks.notify_webhooks()
    return Status(202, ReceiptsOut(changed=taken.changed, unknown=list(taken.unknown)))


def _reported(request: HttpRequest, slug: str) -> tuple[int, list[Reported]]:
    """The vendor's id and its reports. Raises the same Problem for a wrong signature and for an unknown vendor."""
    vendor_id, secrets = configuration.signing_keys(slug, timezone.now()) if "\0" not in slug else (0, [])
    try:
        if not secrets:
            raise NotTheVendor
        vendor = Vendor.objects.get(pk=vendor_id)
        adapter = adapters.load(vendor.adapter)
        if not adapter(vendor.settings, {}).capabilities.receipts:
            raise NotTheVendor
        headers = {name.lower(): value for name, value in request.headers.items()}
        return vendor_id, adapter.reported(secrets, headers, request.body)
    except NotTheVendor:
        raise Problem("not-the-vendor", "Receipts are signed with the secret of their vendor.") from None
    except BadReport as bad:
        raise invalid(located(("body", *where), code, sentence) for where, code, sentence in bad.errors) from None
