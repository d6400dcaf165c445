"""The page about routes: their vendors, in order, and the reasons why each takes no work now."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from campaigns.engine.routes.entries import closed_credentials
from campaigns.lists.admin import SponsorFilter
from campaigns.models import Route, RouteEntry
from campaigns.models.campaigns import sponsors_of
from campaigns.senders.admin.identities import OfTheirSponsors
from campaigns.senders.entitlements import credentials_seen
from vendors.listing import NamedFields, Rows, choice_column
from vendors.said import Said


class EntriesForm(NamedFields):
    def clean(self) -> None:
        """Require vendors of the route's channel, and no sandbox next to a real one."""
        super().clean()
        rows = [one.cleaned_data for one in self.forms if getattr(one, "cleaned_data", None)]
        vendors = [row["credential"].vendor for row in rows if row.get("credential") and not row.get("DELETE")]
        if not vendors:
            raise forms.ValidationError(Said("a route has one vendor at least"))
        if other := [vendor.slug for vendor in vendors if vendor.channel != self.instance.channel]:
            raise forms.ValidationError(
                Said(
                    "%(vendors)s: not of the channel %(channel)s",
                    vendors=", ".join(other),
                    channel=self.instance.channel,
                )
            )
        if len({vendor.sandbox for vendor in vendors}) > 1:
            raise forms.ValidationError(Said("sandboxes and vendors that deliver are never in one route"))


class Entries(Rows):
    model = RouteEntry
    formset = EntriesForm
    fields = ["position", "credential", "weight"]
    extra = 2

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "credential":
            kwargs["queryset"] = credentials_seen(request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(Route)
class RouteAdmin(OfTheirSponsors):
    fields = ["sponsor", "name", "channel", "patience"]
    list_display = ["name", "sponsor", choice_column("channel"), "by", "takes_no_work", "patience"]
    list_filter = [SponsorFilter, "channel"]
    search_fields = ["name", "sponsor__name"]
    inlines = [Entries]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("entries__credential__vendor")

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if field and db_field.name == "sponsor":  # only users who see all sponsors make a route for all
            field.required = sponsors_of(request.user) is not None
        return field

    @admin.display(description=gettext_lazy("by"))
    def by(self, route: Route) -> str:
        return ", then ".join(str(entry) for entry in route.entries.all()) or "-"

    @admin.display(description=gettext_lazy("takes no work"))
    def takes_no_work(self, route: Route) -> str:
        logins = {entry.credential_id: str(entry.credential) for entry in route.entries.all()}
        closed = closed_credentials(logins, route.patience)
        return "; ".join(f"{logins[pk]}: {why}" for pk, why in closed.items() if why) or "-"
