"""The page about quotas: how much a sponsor may send, and how much of it is used."""

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from campaigns.doors import labels
from campaigns.doors.admin_base import OfSeenVendors
from campaigns.lists.admin import SponsorFilter
from campaigns.models import SponsorQuota
from campaigns.models.campaigns import sponsors_of
from campaigns.senders.admin.identities import OfTheirSponsors
from campaigns.senders.quotas import admission
from vendors.listing import badge, choice_column
from vendors.models import Vendor
from vendors.ownership import owned_vendors, owns_vendor
from vendors.said import show


@admin.register(SponsorQuota)
class SponsorQuotaAdmin(OfTheirSponsors):
    """A quota at a vendor is set by the vendor's owner, one in all by those who govern all vendors.

    A sponsor's users see their own.
    """

    fields = ["sponsor", "vendor", "most", "measure", "currency", "span", "warn_percent", "used"]
    list_display = ["sponsor", "vendor", "most_of", choice_column("span"), "used", "warn_percent"]
    list_filter = [SponsorFilter, ("vendor", OfSeenVendors), "span", "measure"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = SponsorQuota.objects.select_related("sponsor", "vendor")
        mine, vendors = sponsors_of(request.user), owned_vendors(request.user)
        return rows if mine is None else rows.filter(Q(sponsor__in=mine) | Q(vendor__in=vendors or ()))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Show 1000000 and 12.5, not the places of the column."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            row.most = Decimal(f"{row.most.normalize():f}")
        return row

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_fields(request, obj)
        return fields if obj else [name for name in fields if name != "used"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["sponsor", "vendor", "measure", "currency", "span", "used"] if obj else []

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Count what is used of the page's quotas in one go."""
        found = super().get_changelist_instance(request)
        uses = admission.find_uses({row.sponsor_id for row in found.result_list})
        for row in found.result_list:
            row.use = uses.get(row.pk)
        return found

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        mine = owned_vendors(request.user)
        if db_field.name == "vendor" and mine is not None:
            kwargs["queryset"] = Vendor.objects.filter(pk__in=mine)
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if db_field.name == "vendor" and mine is not None:
            field.required = True  # one for all vendors is not theirs to set
        return field

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or _governs_quota(request.user, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or _governs_quota(request.user, obj))

    @admin.display(description=gettext_lazy("allowed"))
    def most_of(self, row: SponsorQuota) -> str:
        return show(row.describe_allowance)

    @admin.display(description=gettext_lazy("used"))
    def used(self, row: SponsorQuota) -> str:
        use = getattr(row, "use", None) or admission.find_uses({row.sponsor_id}).get(row.pk)
        if use is None:
            return "-"
        text = labels.format_percent(use.percent)
        return badge(text, "bad" if use.percent >= 100 else "warn") if use.warns else text


def _governs_quota(user: Any, row: SponsorQuota) -> bool:
    if row.vendor_id is None:
        return owned_vendors(user) is None
    return owns_vendor(user, row.vendor_id)
