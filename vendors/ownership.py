"""Owners of vendors, and which users may read and change a vendor with all that belongs to it.

A vendor is the installation's, or a sponsor's (`Vendor.owner`). Its credentials, limits, mailcasters, prices, nights,
ledger and entitlements follow it. A sponsor is named by its model's name, since vendors know nothing of campaigns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from django.db.models import QuerySet

from vendors.models import Credential, Vendor

ALL_SPONSORS = "campaigns.all_sponsors"


def owned_vendors(user: Any) -> "QuerySet[Any] | None":
    """The vendors that a user governs, for a condition.

    None (all) with the permission for all sponsors, else those that a sponsor of the user owns.
    """
    return None if user.has_perm(ALL_SPONSORS) else Vendor.objects.filter(owner__users=user).order_by().values("pk")


_GOVERNED: ContextVar[Callable[[], frozenset[int] | None] | None] = ContextVar("governed", default=None)


@contextmanager
def shown_to(user: Any) -> Iterator[None]:
    """Within it `is_disclosed` answers for this user, as texts are in the language of the page.

    So nothing that says why a vendor is not called needs to be told who asks: queues, routes and jobs are read by the
    same functions for a page, a command and a task. Outside of it everything is told.
    """
    before = _GOVERNED.set(cache(lambda: _governed_ids(user)))
    try:
        yield
    finally:
        _GOVERNED.reset(before)


def _governed_ids(user: Any) -> frozenset[int] | None:
    """None: all, also for somebody without a log-in: for programs with a key the API itself asks who owns a vendor."""
    mine = owned_vendors(user) if user.is_authenticated else None
    return None if mine is None or are_alone() else frozenset(row["pk"] for row in mine)


def is_disclosed(vendor_id: int) -> bool:
    """Whether who looks may read in words why this vendor is not called, and how much it is used."""
    governed = _GOVERNED.get()
    ids = governed() if governed else None
    return ids is None or vendor_id in ids


def are_alone() -> bool:
    """Whether the installation has one sponsor at most, from whom nothing of its vendors needs to be kept."""
    owner: Any = Vendor._meta.get_field("owner").related_model
    return len(owner.objects.order_by("pk").values_list("pk", flat=True)[:2]) < 2


def owns(user: Any, vendor_id: int) -> bool:
    """Whether the user governs this vendor."""
    mine = owned_vendors(user)
    return mine is None or mine.filter(pk=vendor_id).exists()


def limit_rows(rows: "QuerySet[Any]", user: Any, path: str = "vendor") -> "QuerySet[Any]":
    """Those of these rows whose vendor the user governs. path: from a row to its vendor."""
    mine = owned_vendors(user)
    return rows if mine is None else rows.filter(**{f"{path}__in": mine})


def owned_credentials(user: Any) -> "QuerySet[Credential]":
    """The credentials that a user governs, with their vendors and without their secrets."""
    return limit_rows(Credential.objects.select_related("vendor").defer("secret"), user)
