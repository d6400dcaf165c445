"""Groups of users grow with mailhub, and what somebody has removed from one stays removed."""

import pytest
from django.contrib.auth.models import Group, Permission

from mailhub import installation
from mailhub.models import GivenPermission

pytestmark = pytest.mark.django_db


def held(name: str) -> set[str]:
    return set(Group.objects.get(name=name).permissions.values_list("codename", flat=True))


def remove(name: str, *codenames: str) -> None:
    Group.objects.get(name=name).permissions.remove(*Permission.objects.filter(codename__in=codenames))


def test_what_somebody_removes_stays_removed_and_a_deleted_group_is_made_whole() -> None:
    installation.create_groups()
    remove("campaign owner", "see_recipients")
    for _ in range(2):
        installation.create_groups()
        assert "see_recipients" not in held("campaign owner") and "add_campaign" in held("campaign owner")
    Group.objects.get(name="campaign owner").delete()
    installation.create_groups()
    assert "see_recipients" in held("campaign owner")


def test_a_group_is_given_what_its_role_has_from_this_version_on(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = installation.ROLES
    monkeypatch.setattr(installation, "ROLES", roles | {"viewer": [*roles["viewer"], "campaigns.add_topic"]})
    installation.create_groups()
    monkeypatch.setattr(installation, "ROLES", roles | {"auditor": [*roles["auditor"], "campaigns.add_topic"]})
    installation.create_groups()
    assert "add_topic" in held("viewer") & held("auditor")


def test_groups_of_a_version_that_kept_no_record_get_what_is_newer_than_they_are() -> None:
    """As an earlier version left them: made at once of the permissions that there were, and changed by hand since."""
    installation.create_groups()
    GivenPermission.objects.all().delete()
    owner = Group.objects.get(name="campaign owner")
    ordered = list(owner.permissions.order_by("-pk").values_list("codename", flat=True))
    later = ordered[:3]  # of models that this version brings
    remove("campaign owner", *later, "see_recipients")
    Group.objects.get(name="viewer").permissions.clear()
    assert "see_recipients" not in later
    for _ in range(2):
        installation.create_groups()
        assert held("campaign owner") == set(ordered) - {"see_recipients"}
        assert held("viewer") == set()
