"""The page about the weights by which sponsors share a vendor."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from campaigns.doors.admin_base import OfSeenVendors
from campaigns.lists.admin import SponsorFilter
from campaigns.models import SponsorTurn
from campaigns.models.campaigns import sponsors_of
from campaigns.senders.admin.identities import OfTheirSponsors
from vendors.models import Vendor
from vendors.ownership import owned_vendors, owns_vendor


@admin.register(SponsorTurn)
class SponsorTurnAdmin(OfTheirSponsors):
    """Weights are set by the vendor's owner. A sponsor's users see their own only."""

    fields = ["sponsor", "vendor", "weight"]
    list_display = ["sponsor", "vendor", "weight"]
    list_filter = [SponsorFilter, ("vendor", OfSeenVendors)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = SponsorTurn.objects.select_related("sponsor", "vendor")
        mine, vendors = sponsors_of(request.user), owned_vendors(request.user)
        return rows if mine is None else rows.filter(Q(sponsor__in=mine) | Q(vendor__in=vendors))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["sponsor", "vendor"] if obj else []

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        mine = owned_vendors(request.user)
        if db_field.name == "vendor" and mine is not None:
            kwargs["queryset"] = Vendor.objects.filter(pk__in=mine)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or owns_vendor(request.user, obj.vendor_id))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it to the vendor's owner: a row must go with its vendor or sponsor. No row is weight 1."""
        return super().has_delete_permission(request, obj) and (obj is None or owns_vendor(request.user, obj.vendor_id))
