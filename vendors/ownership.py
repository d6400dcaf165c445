"""Owners of vendors, and the users who may read and change a vendor with all its rows.

A vendor belongs to the installation or to a sponsor (`Vendor.owner`). Its credentials, limits, mailcasters, prices,
nights, ledger and entitlements follow it. The sponsor is referred to by its model's name, since vendors know nothing of
campaigns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from django.db.models import QuerySet

from vendors.models import Credential, Vendor

ALL_SPONSORS = "campaigns.all_sponsors"

Selected = TypeVar("Selected", bound=QuerySet[Any, Any])


def owned_vendors(user: Any) -> "QuerySet[Any] | None":
    """Return the vendors that a user governs, for use in a condition.

    None (all) with the permission for all sponsors, else the vendors of the user's sponsors.
    """
    return None if user.has_perm(ALL_SPONSORS) else Vendor.objects.filter(owner__users=user).order_by().values("pk")


_GOVERNED: ContextVar[Callable[[], frozenset[int] | None] | None] = ContextVar("governed", default=None)


@contextmanager
def shown_to(user: Any) -> Iterator[None]:
    """Run the block with `is_disclosed` answering for this user.

    This works like the language of a page: functions that explain a vendor's standstill need no user argument, since
    pages, commands and tasks share them. Outside of it everything is disclosed.
    """
    before = _GOVERNED.set(cache(lambda: _governed_ids(user)))
    try:
        yield
    finally:
        _GOVERNED.reset(before)


def _governed_ids(user: Any) -> frozenset[int] | None:
    """Return the governed ids; None: all. Also None without a log-in: for API keys the API checks ownership itself."""
    mine = owned_vendors(user) if user.is_authenticated else None
    return None if mine is None or are_alone() else frozenset(row["pk"] for row in mine)


def is_disclosed(vendor_id: int) -> bool:
    """Return True if the current user may read why this vendor is not called, and how much it is used."""
    governed = _GOVERNED.get()
    ids = governed() if governed else None
    return ids is None or vendor_id in ids


def sees_all_sponsors() -> bool:
    """Return True if the current user may read names and numbers of all sponsors, as commands and operators do.

    Not for the API, whose keys are of one sponsor each.
    """
    governed = _GOVERNED.get()
    return governed is None or governed() is None


def are_alone() -> bool:
    """Return True if the installation has at most one sponsor; its vendors then need no hiding."""
    owner: Any = Vendor._meta.get_field("owner").related_model
    return len(owner.objects.order_by("pk").values_list("pk", flat=True)[:2]) < 2


def owns_vendor(user: Any, vendor_id: int) -> bool:
    """Return True if the user governs this vendor."""
    mine = owned_vendors(user)
    return mine is None or mine.filter(pk=vendor_id).exists()


def governs_vendor(user: Any, vendor_id: int) -> bool:
    """Return True if the user governs this vendor. The governed ids are kept with the user, so for a request."""
    if not hasattr(user, "governed_vendors"):
        mine = owned_vendors(user)
        user.governed_vendors = None if mine is None else frozenset(mine.values_list("pk", flat=True))
    return user.governed_vendors is None or vendor_id in user.governed_vendors


def limit_rows(rows: Selected, user: Any, path: str = "vendor") -> Selected:
    """Return the rows whose vendor the user governs. `path`: from a row to its vendor."""
    mine = owned_vendors(user)
    return rows if mine is None else rows.filter(**{f"{path}__in": mine})


def owned_credentials(user: Any) -> "QuerySet[Credential]":
    """Return the credentials that a user governs, with their vendors and without their secrets."""
    return limit_rows(Credential.objects.select_related("vendor").defer("secret"), user)
