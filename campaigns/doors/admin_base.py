"""The base of admin pages for rows that only the pipeline writes: limits the rows and columns a user sees.

Also the filter for document 000's look-up by date, with a custom range.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from campaigns.doors import filters, labels
from campaigns.models.campaigns import sponsors_of
from campaigns.senders import entitlements
from vendors.listing import OfOwnVendors, ReadOnly


class CreatedFilter(admin.ListFilter):
    """Rows created from one day to another, both included, in the current zone."""

    title = "created"
    template = "admin/campaigns/date_range.html"
    names = ("created_from", "created_to")

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.names:
            value = params.pop(name, [""])
            self.used_parameters[name] = value[-1] if isinstance(value, list) else value

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        """Yield the two inputs, and the other filters to keep."""
        others = {key: value for key, value in changelist.get_filters_params().items() if key not in self.names}
        kept = [(key, one) for key, value in others.items() for one in (value if isinstance(value, list) else [value])]
        inputs = [(name, self.used_parameters[name]) for name in self.names]
        yield {
            "fault": self._read_dates()[2],
            "inputs": inputs,
            "kept": kept,
            "query": changelist.query,
            "selected": any(v for _, v in inputs),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since, until, _fault = self._read_dates()
        return filters.dated_within(queryset, since, until, "created")

    def _read_dates(self) -> tuple[datetime | None, datetime | None, str]:
        """Return since, until, and their fault as a sentence; values with a fault filter nothing."""
        first, last = (str(self.used_parameters[name]) for name in self.names)
        try:
            since, until = filters.parse_days(first, last)
        except ValueError as error:
            return None, None, str(error)
        if since and until and since >= until:
            return None, None, filters.REVERSED % {"first": first, "last": last}
        return since, until, ""


class OfSeenVendors(OfOwnVendors):
    """Filters by vendor, among those the user may see."""

    def offered_vendors(self, user: Any) -> Any:
        return entitlements.vendors_seen(user).order_by().values("pk")


class Scoped(ReadOnly):
    """Read-only rows of the user's sponsors. telling: columns that may show recipients, such as vendors' texts."""

    telling: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = self.model.objects.of_sponsors(sponsors_of(request.user))
        ordering = self.get_ordering(request)
        return rows.order_by(*ordering) if ordering else rows

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [] if labels.sees_recipients(request.user) else list(self.telling)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        hidden = self.get_exclude(request)
        return [name for name in super().get_list_display(request) if name not in hidden]
