"""The groups that people are put in: viewer, operator, vendor admin, auditor; and who sees the mail of all sponsors.

Made once, after the migrations; what an installation changes in them stays. A person without the group "all sponsors"
sees the mail of the sponsors that name the person, whatever else the person may do.
"""

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission

LOOK = ["campaigns.view_*", "mailhub.view_parkedtask"]
OPERATE = ["campaigns.change_job", "campaigns.add_resolution", "campaigns.see_recipients", "mailhub.change_parkedtask"]
VENDORS = ["vendors.*"]
APPS = ("campaigns", "vendors", "mailhub", "admin")
ROLES: dict[str, list[str]] = {
    "viewer": LOOK,
    "operator": [*LOOK, *OPERATE, "vendors.view_*"],
    "vendor admin": [*LOOK, *VENDORS],
    "auditor": [*LOOK, "campaigns.see_recipients", "vendors.view_*", "admin.view_logentry"],
    "all sponsors": ["campaigns.all_sponsors"],
}


def create() -> None:
    """Those of the groups that are not there yet."""
    missing = set(ROLES) - set(Group.objects.filter(name__in=ROLES).values_list("name", flat=True))
    if not missing:
        return
    for app in APPS:
        create_permissions(apps.get_app_config(app), verbosity=0)  # they may be made after us otherwise
    known = list(Permission.objects.select_related("content_type"))
    for name in sorted(missing):
        group = Group.objects.create(name=name)
        group.permissions.set([one for one in known if any(_fits(one, rule) for rule in ROLES[name])])


def _fits(one: Permission, rule: str) -> bool:
    app, _, codename = rule.partition(".")
    if one.content_type.app_label != app:
        return False
    return one.codename.startswith(codename[:-1]) if codename.endswith("*") else one.codename == codename
