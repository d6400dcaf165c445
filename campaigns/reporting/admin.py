"""The page of costs for the viewer's sponsors: vendors' charges by month, sponsor and vendor; also as CSV."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from campaigns.doors.admin_base import Scoped
from campaigns.models import CostEntry, Sponsor
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.reporting import accounts
from campaigns.reporting.accounts import MonthCost
from campaigns.senders import entitlements
from vendors import prices
from vendors.said import show

MOST_CHOICES = 500
MOST_ROWS = 200  # shown on the page; the file has all, and the sums cover all
ASKED = ("from", "to", "sponsor", "vendor")


@admin.register(CostEntry)
class CostAdmin(Scoped):
    """Shows the accounts in place of a list of entries; nothing can be changed."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if set(request.GET) - {*ASKED, "csv"}:
            raise PermissionDenied  # Django's look-ups, order and search are not available here
        asked = {name: request.GET.get(name, "")[:100] for name in ASKED}
        found = self._accounts_found(request, asked)
        if "csv" in request.GET:
            headers = {"Content-Disposition": 'attachment; filename="costs.csv"'}
            answer = HttpResponse("\ufeff", content_type="text/csv; charset=utf-8", headers=headers)
            accounts.write_csv(found, answer)  # type: ignore[arg-type]  # it is written like a file
            return answer
        vendors = entitlements.vendors_seen(request.user)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Costs"),
            "rows": found[:MOST_ROWS],
            "all": len(found),
            "more": len(found) > MOST_ROWS,
            "totals": [
                prices.format_amount(value, currency) for currency, value in accounts.sum_by_currency(found).items()
            ],
            "unpriced": sum(one.messages for one in found if one.amount is None),
            "asked": asked,
            "sponsors": Sponsor.objects.of_sponsors(sponsors_of(request.user)).only("name")[:MOST_CHOICES],
            "vendors": vendors.values_list("slug", flat=True).order_by("slug")[:MOST_CHOICES],
            "query": request.GET.urlencode(),
        }
        return TemplateResponse(request, "admin/campaigns/costs.html", context)

    def _accounts_found(self, request: HttpRequest, asked: dict[str, str]) -> list[MonthCost]:
        """Return the accounts of the viewer's sponsors; an invalid month falls back to the default, with a message."""
        mine = sponsor_ids_of(request.user)
        sponsor = asked["sponsor"]
        if sponsor.isdecimal():
            chosen = int(sponsor[:18])
            mine = [chosen] if mine is None or chosen in mine else []
        vendors = [asked["vendor"]] if asked["vendor"] else None
        first, last = accounts.past_twelve_months()
        try:
            first = accounts.parse_month(asked["from"]) if asked["from"] else first
            last = accounts.parse_month(asked["to"]) if asked["to"] else last
            return accounts.accounts_of_months(first, last, mine, vendors)
        except ValueError as error:
            messages.error(request, show(str(error)))
            return accounts.accounts_of_months(*accounts.past_twelve_months(), mine, vendors)
