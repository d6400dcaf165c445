"""What lists of the admin share: rows that only the pipeline writes, tables that are too large to count."""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model
from django.http import HttpRequest
from django.utils.functional import cached_property

COUNTED = 10_000  # rows; further pages are reached by the filters


class ReadOnly(admin.ModelAdmin):
    """Rows that only the pipeline writes. Whoever may change them may use the actions of the list, no more."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return obj is None and super().has_change_permission(request)


class CappedPaginator(Paginator):
    """Never counts a table of millions to draw page numbers."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return min(COUNTED, rows.order_by()[: COUNTED + 1].count())
