"""Owners' pages about approvals: who sees what waits, what is shown, and that it is decided once."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from campaigns.lists import intake
from campaigns.models import Approval, Job, Sponsor
from tests import factories
from vendors.history import Actor

pytestmark = pytest.mark.django_db


@pytest.fixture
def of() -> Sponsor:
    made = factories.sponsor()
    made.approval_above = 0
    made.save()
    return made


def member(name: str, group: str, of: Sponsor) -> tuple[User, Client]:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get(name=group))
    of.users.add(user)
    client = Client()
    client.force_login(user)
    return user, client


def asked(of: Sponsor, by: User, **more: Any) -> str:
    login = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/letters"}))
    factories.entitle([of], [login.vendor])
    facts = {"name": "Winter", "subject": "Dear {{ name }}", "body": "<p>Hello {{ name }}</p>", "html": True, **more}
    recipients = [("ann@sandbox.example", {"name": "Ann"}), ("bea@sandbox.example", {"name": "Bea"})]
    who = Actor(by.get_username(), by.pk)
    job = intake.store_campaign(sponsor=of, credential=login, recipients=recipients, by=who, at="now", **facts)
    return f"/campaigns/{job.campaign_id}/approval/"


def test_another_person_sees_what_is_frozen_approves_it_and_a_second_click_changes_nothing(of: Sponsor) -> None:
    ann, hers = member("ann", "campaign owner", of)
    _, his = member("bob", "campaign approver", of)
    page = asked(of, ann)
    assert "Winter" in hers.get("/approvals/").content.decode()
    assert re.search(r"Approvals <b class=\"count\">1</b>", his.get("/").content.decode())
    shown = his.get(page, {"row": 2}).content.decode()
    assert "Dear Bea" in shown and "bea@sandbox.example" in shown and Approval.objects.get().digest in shown
    assert "&lt;p&gt;Hello Bea&lt;/p&gt;" in shown and 'sandbox=""' in shown
    assert "no price" in his.get(f"{page}cost/").content.decode()
    assert hers.post(page, {"verdict": "approved"}).status_code == 403
    for verdict in ("approved", "refused"):
        answer = his.post(page, {"verdict": verdict, "remark": "fine"}, follow=True)
    assert "was approved by" in answer.content.decode()
    assert Approval.objects.get().verdict == "approved" and Job.objects.get().paused_at is None
    assert "Approved by bob" in hers.get(page).content.decode()
    assert "No campaign waits" in hers.get("/approvals/").content.decode()


def test_who_has_asked_may_not_approve_but_refuse(of: Sponsor) -> None:
    ann, hers = member("ann", "campaign approver", of)
    page = asked(of, ann)
    assert "You have asked for it yourself" in hers.get(page).content.decode()
    assert "another person approves it" in hers.post(page, {"verdict": "approved"}, follow=True).content.decode()
    assert "give a reason" in hers.post(page, {"verdict": "refused"}, follow=True).content.decode().lower()
    assert "Choose whether" in hers.post(page, {"verdict": "x"}, follow=True).content.decode()
    assert Approval.objects.get().verdict is None
    hers.post(page, {"verdict": "refused", "remark": "a wrong link"})
    assert Approval.objects.get().verdict == "refused"


def test_of_other_sponsors_and_without_the_permission_there_is_nothing(of: Sponsor) -> None:
    ann, _ = member("ann", "campaign owner", of)
    page = asked(of, ann)
    _, stranger = member("eve", "campaign approver", factories.sponsor())
    for path in (page, f"{page}cost/"):
        assert stranger.get(path).status_code == 404
    assert stranger.post(page, {"verdict": "approved"}).status_code == 404
    assert "Winter" not in stranger.get("/approvals/").content.decode()
    _, viewer = member("vera", "viewer", of)
    shown = viewer.get(page).content.decode()
    assert "You may not see recipients" in shown and "Dear Ann" not in shown
    assert viewer.post(page, {"verdict": "approved"}).status_code == 403


@pytest.mark.parametrize("may", [False, True])
def test_what_needs_approval_is_no_decision_of_the_sponsors_own_users(of: Sponsor, may: bool) -> None:
    user, client = member("ann", "campaign owner", of)
    user.is_staff = True
    user.save()
    groups = [Group.objects.get(name="all sponsors")] if may else []
    user.groups.add(*groups)
    user.user_permissions.add(Permission.objects.get(codename="change_sponsor"))
    page = f"/admin/campaigns/sponsor/{of.pk}/change/"
    assert client.post(page, {"name": of.name, "users": [user.pk], "approval_above": "500"}).status_code == 302
    of.refresh_from_db()
    assert of.approval_above == (500 if may else 0)


def test_what_waits_is_paused_beyond_its_approval_and_nobody_is_offered_to_let_it_go_on(of: Sponsor) -> None:
    ann, hers = member("ann", "campaign owner", of)
    _, his = member("bob", "campaign approver", of)
    approval = asked(of, ann)
    page = approval.removesuffix("approval/")
    shown, home = hers.get(page).content.decode(), hers.get("/").content.decode()
    assert shown.count("aits for approval") == 1 and "waits for approval" in home
    assert 'id="verb-pause"' in shown and f"{page}resume/" not in shown + home
    hidden = re.findall(r'name="shown" value="([^"]+)"', hers.get(f"{page}pause/").content.decode())
    done = hers.post(f"{page}pause/", {"shown": hidden, "reason": "a wrong link"}, follow=True).content.decode()
    assert "stays paused after it" in done and 'id="verb-pause"' not in done and 'id="verb-resume"' not in done
    assert "ann has paused it: a wrong link" in his.get(approval).content.decode()
    answer = his.post(approval, {"verdict": "approved"}, follow=True).content.decode()
    assert "It stays paused" in answer or "it stays paused" in answer
    assert 'id="verb-resume"' in hers.get(page).content.decode()
