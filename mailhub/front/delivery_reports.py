"""POST /receipts/{vendor}: a vendor's delivery reports on letters that it had accepted."""

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status

from campaigns import delivery_reports, tasks
from mailhub.front.problems import Problem, invalid, located
from mailhub.front.schemas import ProblemOut, ReceiptsOut
from vendors import adapters, configuration
from vendors.adapters.reports import BadReport, NotTheVendor, Reported
from vendors.models import Vendor

router = Router(tags=["vendors"])
PROBLEMS = dict.fromkeys((400, 401, 413, 422, 503), ProblemOut)
SIGNED = [
    {"in": "header", "name": name, "schema": {"type": "string"}, "description": "As Standard Webhooks has it"}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
]
BODY = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ReceiptsIn"}}}, "required": True}


@router.post(
    "/receipts/{vendor}",
    response={202: ReceiptsOut, **PROBLEMS},
    summary="A vendor's receipts: delivered or bounced",
    openapi_extra={"parameters": SIGNED, "requestBody": BODY},
)
def take_receipts(request: HttpRequest, vendor: str) -> Status[ReceiptsOut]:
    """Signed with the vendor's secret (manage.py vendor receipts). Posting the same again changes nothing."""
    vendor_id, reported = _reported(request, vendor)
    taken = delivery_reports.take(vendor_id, reported)
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
