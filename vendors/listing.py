"""Base classes for the admin's lists: restricted look-ups, read-only rows, a paginator for large tables."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.core.paginator import Paginator
from django.db.models import Model
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.utils.functional import cached_property

COUNTED = 10_000  # rows; those after them are found by filters


class OwnLookups(admin.ModelAdmin):
    """An admin list that allows only the look-ups of its own filters.

    With any other look-up a user could find out a masked or hidden field letter by letter.
    """

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in self._own_lookups

    @cached_property
    def _own_lookups(self) -> frozenset[str]:
        return frozenset(name for one in self.list_filter for name in self._offered(one))

    def _offered(self, one: Any) -> tuple[str, ...]:
        """The query parameters of a filter: of one of our own, or of Django's for a field, possibly over relations."""
        if not isinstance(one, str):
            return getattr(one, "names", None) or (one.parameter_name,)
        field: Any = get_fields_from_path(self.model, one)[-1]
        if field.is_relation:
            one_row = LOOKUP_SEP.join((one, field.related_model._meta.pk.name, "exact"))
            return (one_row, f"{one}__isnull")
        return (one, f"{one}__exact", f"{one}__isnull")


class ReadOnly(OwnLookups):
    """Rows that only the program writes. The permission to change them allows the list's actions only."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return obj is None and super().has_change_permission(request)


class CappedPaginator(Paginator):
    """Counts at most COUNTED rows, so that a table of millions is not counted for page numbers."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return min(COUNTED, rows.order_by()[: COUNTED + 1].count())
