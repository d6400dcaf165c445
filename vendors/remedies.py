"""Remedies: steps by which a person gets a vendor called again, their pages, and the people to ask.

A condition names its cure and the command for it (vendors/condition). A remedy adds the page with the button, who may
press it, and a sentence for those who may not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext as _

from vendors.condition.reading import (
    CONFIRM_VENDOR,
    ENTER_SECRET,
    RAISE_LIMIT,
    RELEASE,
    RESUME_LOGIN,
    RESUME_VENDOR,
    TRY_NOW,
    conditions_to_mend,
)
from vendors.condition.values import Condition, Mender, Mending
from vendors.models import Vendor
from vendors.ownership import governs_vendor, is_disclosed, owned_vendors
from vendors.said import gettext_noop, show

OPERATE = "vendors.operate_vendor"  # to pause and resume vendors and credentials
# By the label of the button: the row's page, and the right that its button needs.
PAGES: Mapping[str, tuple[str, str]] = {
    RESUME_VENDOR: ("vendor_pause", OPERATE),
    CONFIRM_VENDOR: ("vendor_change", "vendors.view_vendor"),
    RESUME_LOGIN: ("credential_pause", OPERATE),
    TRY_NOW: ("credential_try", OPERATE),
    RELEASE: ("credential_try", OPERATE),
    ENTER_SECRET: ("credential_change", "vendors.change_credential"),
    RAISE_LIMIT: ("vendor_change", "vendors.change_vendor"),
}
CLOSED = gettext_noop("Nothing is sent by %(vendor)s until somebody opens it again.")
WAITS: Mapping[str, str] = {  # by the label of the button: what waits for it
    RESUME_VENDOR: gettext_noop("%(vendor)s is paused, for all campaigns that use it."),
    RESUME_LOGIN: gettext_noop("The account at %(vendor)s is paused, for all campaigns that use it."),
    RAISE_LIMIT: gettext_noop("Nothing is sent by %(vendor)s until its limit is raised."),
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """What mends the condition of a vendor's credential. `name`: the vendor's name."""

    mending: Mending
    vendor_id: int
    name: str
    login_id: int | None

    @classmethod
    def of(cls, condition: Condition, vendor_id: int, name: str, login_id: int | None) -> "Remedy | None":
        """Return the remedy; None if nobody has to do anything."""
        if condition.works or (condition.mending.mender is Mender.NOBODY and not condition.mending.command):
            return None
        return cls(condition.mending, vendor_id, name, login_id)

    @property
    def command(self) -> str:
        """Return the command that does it; "" if nobody here can do anything."""
        return f"manage.py {self.mending.command}" if self.mending.command else ""

    @property
    def button(self) -> str:
        """Return the label of the button."""
        return show(self.mending.button)

    @property
    def address(self) -> str:
        """Return the page with the button, or ""."""
        page, _right = PAGES.get(self.mending.button, ("", ""))
        pk = self.login_id if page.startswith("credential") else self.vendor_id
        return reverse(f"admin:vendors_{page}", args=[pk]) if page and pk else ""

    @property
    def asks(self) -> str:
        """Return a sentence that names the people to ask, or says that nobody needs asking."""
        if self.mending.mender is Mender.NOBODY:
            return _("It goes on by itself then.")
        if self.mending.mender is Mender.VENDOR:
            said = _("mailhub tries again by itself, and goes on as soon as %(vendor)s answers.")
        else:
            said = gettext(WAITS.get(self.mending.button, CLOSED)) + " "
            owned = self.mending.mender is Mender.OWNER and is_disclosed(self.vendor_id)
            said += _("Ask whoever looks after this vendor for you.") if owned else _("Ask whoever runs mailhub.")
        return said % {"vendor": self.name}

    def is_offered_to(self, user: Any) -> bool:
        """Return True if the user can press the button."""
        _page, right = PAGES.get(self.mending.button, ("", ""))
        return bool(right and user.is_staff and user.has_perm(right) and governs_vendor(user, self.vendor_id))


@dataclass(frozen=True, slots=True)
class ShutVendor:
    """A vendor, or a credential of it, that the user can open again."""

    condition: Condition
    remedy: Remedy


def remedies_of(user: Any) -> list[ShutVendor]:
    """Return the remedies of shut or braked items that wait for this user, newest first; a page with a button once.

    One statement for those who govern all vendors, two for those who govern some, none for all others.
    """
    if not user.is_staff or not any(user.has_perm(right) for _page, right in PAGES.values()):
        return []
    mine = owned_vendors(user)
    ids = None if mine is None else [row["pk"] for row in mine]
    found = conditions_to_mend(ids) if ids is None or ids else []
    names = dict(Vendor.objects.filter(pk__in={one[0] for one in found}).values_list("pk", "name")) if found else {}
    shut: dict[str, ShutVendor] = {}
    for vendor_id, login_id, condition in found:
        remedy = Remedy.of(condition, vendor_id, names[vendor_id], login_id)
        if remedy and remedy.address and user.has_perm(PAGES[remedy.mending.button][1]):
            shut.setdefault(remedy.address, ShutVendor(condition, remedy))
    return sorted(shut.values(), key=_sort_age, reverse=True)


def _sort_age(one: ShutVendor) -> float:
    """Return the time of its beginning, for sorting; 0 if unknown."""
    return one.condition.since.timestamp() if one.condition.since else 0.0
