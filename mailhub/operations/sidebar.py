"""The sidebar of the operators' pages, in the order of their work.

Technical tables are listed under "All tables" on the operations page only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

GROUPS = (
    (gettext_noop("Work"), ("Job", "Campaign", "Message", "ParkedTask")),
    (
        gettext_noop("Sponsors"),
        (
            "Sponsor",
            "Identity",
            "Topic",
            "Template",
            "Route",
            "Entitlement",
            "SponsorTurn",
            "SponsorQuota",
            "Suppression",
            "ComplaintPause",
            "InboundMessage",
            "RecipientAnswer",
            "CostEntry",
        ),
    ),
    (gettext_noop("Vendors"), ("Vendor", "Credential", "VendorChange", "Mailcaster", "Price", "ReceiverDomain")),
    (gettext_noop("Access"), ("User", "Group", "ApiKey", "Webhook")),
)


@dataclass(frozen=True, slots=True)
class SidebarLink:
    """A link. here: it leads to the current page, or to its list."""

    name: str
    address: str
    here: bool


def sidebar_groups(available: Sequence[Mapping[str, Any]], request: Any) -> list[tuple[str, list[SidebarLink]]]:
    """Return the groups with the links that this user may follow. available: the admin's own list of apps."""
    models = {one["object_name"]: one for app in available for one in app["models"] if one.get("admin_url")}
    found = []
    for name, wanted in GROUPS:
        links = [
            _sidebar_link(str(models[one]["name"]), models[one]["admin_url"], request)
            for one in wanted
            if one in models
        ]
        if wanted[0] == "Job":
            links = [*_links_of_operations(request), *links]
        if links:
            found.append((_(name), links))
    return found


def _links_of_operations(request: Any) -> list[SidebarLink]:
    home, attention = reverse("admin:index"), reverse("admin:attention")
    links = [SidebarLink(_("Operations"), home, request.path == home)]
    if request.user.has_perm("campaigns.view_message"):
        links.append(SidebarLink(_("Needs attention"), attention, request.path.startswith(attention)))
    return links


def _sidebar_link(name: str, address: str, request: Any) -> SidebarLink:
    here = request.path.startswith(address) and not request.path.startswith(reverse("admin:attention"))
    return SidebarLink(name, address, here)
