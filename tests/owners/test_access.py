"""Who sees the pages of campaign owners, and of which sponsors."""

import pytest
from django.contrib.auth.models import User

from tests import factories

pytestmark = pytest.mark.django_db


def test_ann_logs_in_and_sees_the_campaigns_of_her_sponsor_alone(client, owner):
    theirs, hers = factories.campaign_with_job(3).campaign, factories.campaign_with_job(3).campaign
    hers.sponsor.users.add(owner)
    client.logout()
    assert client.get("/").headers["Location"] == "/login/?next=/"
    client.post("/login/", {"username": "ann", "password": "a long password", "next": "/"})
    page = client.get("/").content.decode()
    assert hers.sponsor.name in page
    assert theirs.sponsor.name not in page


@pytest.mark.parametrize(
    ("referer", "leads"),
    [
        ("http://testserver/drafts/?x=1", "/drafts/%3Fx%3D1"),
        ("http://elsewhere.example/drafts/", "/"),
        ("", "/"),
    ],
)
def test_who_is_logged_out_when_a_form_is_sent_comes_back_to_its_page(client, owner, referer, leads):
    """Its own address answers no GET."""
    client.logout()
    answer = client.post("/drafts/1/delete/", headers={"Referer": referer} if referer else {})
    assert answer.headers["Location"] == f"/login/?next={leads}"


def test_who_may_not_look_at_campaigns_is_refused(client):
    client.force_login(User.objects.create_user("somebody"))
    assert client.get("/").status_code == 403


def test_a_poll_without_a_session_is_told_where_to_log_in(client):
    poll = client.get("/", headers={"HX-Request": "true"})
    assert (poll.status_code, poll.headers["X-Login"]) == (401, "/login/")
