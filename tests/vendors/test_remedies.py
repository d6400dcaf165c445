"""A shut vendor or credential leaves nobody without a way on: who can mend it is said, and a button or command does."""

import html
import re
from collections.abc import Callable

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from campaigns.models import Job, Sponsor
from tests import factories
from tests.campaigns.rows import manage
from tests.vendors.test_ownership import alpha, beta, owned, user_of
from vendors.models import Credential, RateLimit, Vendor

__all__ = ["alpha", "beta", "user_of"]
pytestmark = pytest.mark.django_db
Users = Callable[..., Client]
ALL = "all sponsors"


@pytest.fixture
def login(alpha: Sponsor) -> Credential:
    vendor = factories.at_work(factories.vendor("good"))
    Vendor.objects.filter(pk=vendor.pk).update(name="Good Mail")
    login = factories.credential(vendor, "main")
    Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason="http 401")
    return login


@pytest.fixture
def job(alpha: Sponsor, login: Credential) -> Job:
    return factories.campaign_with_job(3, of=login, by=alpha, status="DISPATCHED")


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())).split())


def button(login: Credential) -> str:
    return f'href="/admin/vendors/credential/{login.pk}/pause/"'


def test_an_owner_is_told_whom_to_ask_and_not_that_somebody_lets_it_go_on(
    user_of: Users, alpha: Sponsor, login: Credential, job: Job
) -> None:
    ann = user_of([alpha], "campaign owner")
    page = text(ann, f"/campaigns/{job.campaign_id}/")
    assert "It waits: nothing more is sent until its vendor is called again." in page
    assert "The account at Good Mail is paused, for all campaigns that use it. Ask whoever runs mailhub" in page
    assert "until somebody lets it go on" not in page and button(login) not in page


def test_whoever_may_resumes_it_from_the_campaign_or_the_job(
    user_of: Users, alpha: Sponsor, login: Credential, job: Job
) -> None:
    bob = user_of([alpha], "operator", ALL)
    campaign, of_job = f"/campaigns/{job.campaign_id}/", f"/admin/campaigns/job/{job.pk}/change/"
    assert button(login) in bob.get(campaign).content.decode()
    page = bob.get(of_job).content.decode()
    assert button(login) in page and f'href="/admin/vendors/credential/{login.pk}/change/"' in page
    assert "manage.py credential resume good main" in page
    pause = f"/admin/vendors/credential/{login.pk}/pause/"
    assert pause in bob.get(f"/admin/vendors/credential/{login.pk}/change/").content.decode()
    assert "It is paused: http 401" in text(bob, pause)
    decided = {"confirmed": "1", "was": "paused", "reason": "a new password"}
    assert "goes on" in bob.post(pause, decided, follow=True).content.decode()
    assert not Credential.objects.get(pk=login.pk).paused
    assert "resumed. Reason: a new password" in LogEntry.objects.latest("pk").change_message
    assert "somebody else has paused or resumed" in bob.post(pause, decided, follow=True).content.decode()
    assert button(login) not in bob.get(campaign).content.decode()


def test_the_command_that_is_named_does_it(user_of: Users, alpha: Sponsor, login: Credential, job: Job) -> None:
    page = text(user_of([alpha], "operator", ALL), f"/admin/campaigns/job/{job.pk}/change/")
    found = re.search(r"manage\.py (credential resume \S+ \S+)", page)
    assert found and "resumed" in manage(*found[1].split())
    assert not Credential.objects.get(pk=login.pk).paused


def test_a_paused_vendor_and_a_limit_of_0_have_their_buttons(
    user_of: Users, alpha: Sponsor, login: Credential, job: Job
) -> None:
    admin, at = user_of([alpha], "vendor admin", "campaign owner", ALL), f"/campaigns/{job.campaign_id}/"
    Credential.objects.update(paused=False)
    RateLimit.objects.create(vendor_id=login.vendor_id, units=0, seconds=60)
    assert f'/admin/vendors/vendor/{login.vendor_id}/change/"' in admin.get(at).content.decode()
    assert "until its limit is raised" in text(user_of([alpha], "campaign owner"), at)
    Vendor.objects.update(paused=True, paused_reason="stocktaking")
    page = admin.get(at).content.decode()
    assert f'/admin/vendors/vendor/{login.vendor_id}/pause/"' in page and "Resume this vendor" in page


def test_a_credential_without_its_secret_stays_paused(user_of: Users, alpha: Sponsor, beta: Sponsor) -> None:
    login = factories.credential(owned(alpha, "own"), "second")
    Vendor.objects.update(adapter="anymail", settings={"service": "mailgun", "sender_domain": "example.com"})
    Credential.objects.filter(pk=login.pk).update(paused=True, secret={})
    pause = f"/admin/vendors/credential/{login.pk}/pause/"
    resume = {"confirmed": "1", "was": "paused", "reason": "go"}
    page = user_of([alpha], "vendor admin").post(pause, resume, follow=True).content.decode()
    assert "It stays paused" in page and Credential.objects.get(pk=login.pk).paused


@pytest.mark.parametrize("groups", [("operator",), ("vendor admin",), ("auditor", ALL), ("campaign owner", ALL)])
def test_nobody_else_resumes_it(user_of: Users, beta: Sponsor, login: Credential, groups: tuple[str, ...]) -> None:
    other, pause = user_of([beta], *groups), f"/admin/vendors/credential/{login.pk}/pause/"
    done = other.post(pause, {"confirmed": "1", "was": "paused", "reason": "mine"})
    assert done.status_code in (302, 403, 404) and other.get(pause).status_code in (302, 403, 404)
    assert Credential.objects.get(pk=login.pk).paused
