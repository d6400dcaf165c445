"""Rows that only the pipeline writes, of the sponsors that the viewer may see."""

from typing import Any

from django.http import HttpRequest

from campaigns import scope
from vendors.listing import ReadOnly


class Scoped(ReadOnly):
    def get_queryset(self, request: HttpRequest) -> Any:
        rows = self.model.objects.of_sponsors(scope.of(request.user))
        ordering = self.get_ordering(request)
        return rows.order_by(*ordering) if ordering else rows
