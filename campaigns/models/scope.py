"""Whose jobs, campaigns and messages a person or a program may see: one method of every queryset that holds some.

The admin and the commands use it with `of`, the HTTP front with the sponsor of its key.
"""

from collections.abc import Collection
from typing import Any, Self

from django.db.models import QuerySet

ALL_SPONSORS = "campaigns.all_sponsors"


class OfSponsors(QuerySet):
    """Rows that belong to a sponsor, by the path that their model names in SPONSOR."""

    def of_sponsors(self, sponsors: "Collection[int] | QuerySet[Any] | None") -> Self:
        """Those of these sponsors; None: of all."""
        if sponsors is None:
            return self
        model: Any = self.model
        return self.filter(**{f"{model.SPONSOR}__in": sponsors})


def sponsors_of(user: Any) -> "QuerySet[Any] | None":
    """The sponsors of a person: all (None) for who has the permission, else those that name the person."""
    return None if user.has_perm(ALL_SPONSORS) else user.sponsors.values("pk")


def sponsor_ids_of(user: Any) -> list[int] | None:
    """The same for statements of our own."""
    mine = sponsors_of(user)
    return None if mine is None else [row["pk"] for row in mine]
