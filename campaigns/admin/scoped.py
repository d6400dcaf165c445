"""Rows that only the pipeline writes, of the sponsors that the viewer may see, without what the viewer may not."""

from typing import Any

from django.http import HttpRequest

from campaigns import labels
from campaigns.models import scope
from vendors.listing import ReadOnly


class Scoped(ReadOnly):
    """telling: columns that tell to whom messages go; vendors' words often repeat the address."""

    telling: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = self.model.objects.of_sponsors(scope.of(request.user))
        ordering = self.get_ordering(request)
        return rows.order_by(*ordering) if ordering else rows

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [] if labels.sees_recipients(request.user) else list(self.telling)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        hidden = self.get_exclude(request)
        return [name for name in super().get_list_display(request) if name not in hidden]
