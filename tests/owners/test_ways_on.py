"""A campaign that stands still says who can have it go on; what waits for a reader is what this reader can decide."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone

from campaigns.models import Approval, Campaign, ComplaintPause, Job
from campaigns.operations import pausing
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, logged
from vendors.history import Actor
from vendors.models import Credential

pytestmark = pytest.mark.django_db


def text(client, path):
    page = unescape(re.sub(r"<[^>]+>", " ", client.get(path).content.decode()))
    return " ".join(page.split())


def user(name, sponsor, *groups, staff=False):
    made = User.objects.create_user(name, password="a long password", is_staff=staff)
    made.groups.set(Group.objects.filter(name__in=groups))
    sponsor.users.add(made)
    return made


@pytest.fixture
def job(owner):
    made = factories.campaign_with_job(5, status="DISPATCHED")
    made.campaign.sponsor.users.add(owner)
    return made


@pytest.fixture
def viewer(job):
    """Bob may look, and decide nothing."""
    made = user("bob", job.sponsor)
    made.user_permissions.add(Permission.objects.get(codename="view_campaign"))
    return made


def ask_for_approval(job, by):
    Approval.objects.create(
        campaign=job.campaign, sponsor=job.sponsor, asked_kind="user", asked_by=by.username, asked_user=by.pk,
        asked_at=timezone.now(), recipients=5, frozen={}, digest="0" * 64,
    )  # fmt: skip
    now = timezone.now()
    Campaign.objects.filter(pk=job.campaign_id).update(paused_at=now, paused_by="mailhub", paused_reason="waits")
    Job.objects.filter(pk=job.pk).update(paused_at=now)


def test_whoever_may_resumes_at_once_and_others_read_who_can(client, job, owner, viewer):
    path = f"/campaigns/{job.campaign_id}/"
    pausing.pause_jobs([job.pk], Actor("ann"), "wrong date")
    assert f'href="{path}resume/"' in client.get(path).text
    assert "can let it go on" not in text(client, path)
    assert f"{job.campaign.name} is paused by ann: wrong date Let it go on" in text(client, "/")
    client.force_login(viewer)
    assert "ann can let it go on." in text(client, path)
    assert "Waits for you" not in text(client, "/")
    user("cyd", job.sponsor, "campaign owner")
    assert "ann or cyd can let it go on." in text(client, path)
    User.objects.filter(username__in=["ann", "cyd"]).update(is_active=False)
    assert "Nobody can do that yet: ask whoever runs mailhub" in text(client, path)


def test_a_paused_campaign_that_has_ended_waits_for_nobody(client, job):
    pausing.pause_jobs([job.pk], Actor("ann"), "wrong date")
    Job.objects.filter(pk=job.pk).update(status="LOGGED", finished_at=timezone.now())
    assert "Waits for you" not in text(client, "/")


def test_an_approval_waits_for_somebody_else_who_may_give_it(client, job, owner, viewer):
    path, approval = f"/campaigns/{job.campaign_id}/", f"/campaigns/{job.campaign_id}/approval/"
    approver = user("dee", job.sponsor, "campaign owner")
    approver.user_permissions.add(Permission.objects.get(codename="approve_campaign"))
    ask_for_approval(job, owner)
    assert "dee can approve it." in text(client, path) and "Waits for you" not in text(client, "/")
    owner.user_permissions.add(Permission.objects.get(codename="approve_campaign"))
    assert "You have asked for it yourself. dee can approve it." in text(client, path)
    assert "Waits for you" not in text(client, "/"), "another person approves it"
    client.force_login(approver)
    assert f'href="{approval}"' in client.get(path).text and "You can approve it." in text(client, path)
    assert f"{job.campaign.name} waits for approval; ann has asked for it Look at it" in text(client, "/")
    assert "Let it go on" not in text(client, "/")


def test_doubts_are_decided_by_operators_and_listed_for_them_alone(client, owner):
    made = logged(3, [accepted(), in_doubt(), in_doubt()])
    made.campaign.sponsor.users.add(owner)
    path = f"/campaigns/{made.campaign_id}/"
    assert "An operator decides about 2 messages" in text(client, path) and "Waits for you" not in text(client, "/")
    client.force_login(user("oda", made.sponsor, "operator", "campaign owner", staff=True))
    assert f"attention/?job={made.pk}" in client.get(path).text and "You can decide about 2 messages." in text(
        client, path
    )
    assert f"{made.campaign.name} has 2 messages of which it is not known whether they were sent" in text(client, "/")


def test_mail_that_waits_after_complaints_has_a_way_on(client, job):
    of = {"since": timezone.now(), "complaints": 4, "accepted": 1000, "limit": 0.3}
    ComplaintPause.objects.create(sponsor=job.sponsor, receiver="gmail", **of)
    path = f"/campaigns/{job.campaign_id}/"
    assert "Ask whoever runs mailhub to resume the mail to this provider." in text(client, path)
    client.force_login(user("oda", job.sponsor, "operator", "campaign owner", staff=True))
    assert 'href="/admin/campaigns/complaintpause/?lasts=yes"' in client.get(path).text


def test_a_login_that_is_paused_has_its_button_for_who_may(client, job):
    Credential.objects.filter(pk=job.credential_id).update(paused=True, paused_reason="http 401")
    factories.at_work(job.vendor)
    path = f"/campaigns/{job.campaign_id}/"
    assert "Ask whoever runs mailhub" in text(client, path)
    client.force_login(User.objects.create_superuser("root"))
    assert "Resume this account" in text(client, path)
