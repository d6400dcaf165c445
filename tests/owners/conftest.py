"""Somebody who looks at the pages of campaign owners."""

import pytest
from django.contrib.auth.models import Group, User


@pytest.fixture
def owner(client):
    """Ann, a campaign owner who is no member of the staff, logged in."""
    ann = User.objects.create_user("ann", password="a long password")
    ann.groups.add(Group.objects.get(name="campaign owner"))
    client.force_login(ann)
    return ann
