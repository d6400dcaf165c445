"""Remedies: who can make a vendor be called again, on which page and by which command."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from vendors.ownership import owns

OPERATE = "vendors.operate_vendor"  # to pause and resume vendors and credentials
LIMITS = "vendors.change_vendor"


class RemedyKind(Enum):
    """What has to be done."""

    RESUME = "resume"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a person does so that a vendor, or one of its credentials, is called again.

    name: the vendor's name. login_id: of the credential; None: the vendor itself.
    """

    kind: RemedyKind
    vendor_id: int
    slug: str
    name: str
    login_id: int | None = None
    login: str = ""

    @property
    def command(self) -> str:
        """Return the command that does it."""
        if self.kind is RemedyKind.LIMIT:
            of = f" --credential {self.login}" if self.login_id else ""
            return f"manage.py vendor limit {self.slug} N/SECONDS{of}"
        if self.login_id:
            return f"manage.py credential resume {self.slug} {self.login}"
        return f"manage.py vendor resume {self.slug}"

    @property
    def button(self) -> str:
        """Return what the button says."""
        if self.kind is RemedyKind.LIMIT:
            return _("Change the limit")
        return _("Resume the credential") if self.login_id else _("Resume %(vendor)s") % {"vendor": self.name}

    @property
    def address(self) -> str:
        """Return the page with the button."""
        model = "credential" if self.login_id else "vendor"
        page = "change" if self.kind is RemedyKind.LIMIT else "pause"
        return reverse(f"admin:vendors_{model}_{page}", args=[self.login_id or self.vendor_id])

    @property
    def asks(self) -> str:
        """Say whom to ask, for readers who cannot do it."""
        if self.kind is RemedyKind.LIMIT:
            said = _("Nothing is sent by %(vendor)s until its limit is raised. Ask whoever runs mailhub.")
        elif self.login_id:
            said = _(
                "The account at %(vendor)s is paused, for all campaigns that use it. "
                "Ask whoever runs mailhub to resume it."
            )
        else:
            said = _("%(vendor)s is paused, for all campaigns that use it. Ask whoever runs mailhub to resume it.")
        return said % {"vendor": self.name}

    def is_offered_to(self, user: Any) -> bool:
        """Return True if the user can do it on a page."""
        right = LIMITS if self.kind is RemedyKind.LIMIT else OPERATE
        return bool(user.is_staff and user.has_perm(right) and owns(user, self.vendor_id))
