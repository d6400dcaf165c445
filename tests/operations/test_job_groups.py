"""The operators' list of jobs: what holds several is said once, with the way on; the list stays as it is asked for."""

import html
import re

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from campaigns.models import Job
from tests import factories
from tests.campaigns.rows import family
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db
JOBS = "/admin/campaigns/job/"
WHY = "30 messages in a row were refused with the same words: check the account"


@pytest.fixture
def admin_user(db: None) -> User:
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


@pytest.fixture
def paused() -> Credential:
    """A login with four jobs of two sponsors, which mailhub has paused; jobs of other vendors are newer and older."""
    works = factories.at_work(factories.vendor("works", limits=[(5, 60)]))
    factories.campaign_with_job(3, of=factories.credential(works), status="DISPATCHED")
    good = factories.at_work(factories.vendor("good", limits=[(5, 60)]))
    Vendor.objects.filter(pk=good.pk).update(name="Good Mail")
    login = factories.credential(good, "acc-7")
    for by in ("Velma", "Northwind") * 2:
        factories.campaign_with_job(20, of=login, by=factories.sponsor(by), status="DISPATCHED")
    factories.campaign_with_job(3, of=factories.credential(works), status="DISPATCHED")
    Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason=WHY)
    return login


def text(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_four_jobs_of_a_paused_login_stand_below_one_line(admin_client: Client, paused: Credential) -> None:
    page = admin_client.get(JOBS, headers={"HX-Request": "true"}).content.decode()
    assert page.count(WHY) == 1 and page.count("Resume this login") == 1
    assert "Good Mail, credential paused: 4 jobs Credential acc-7 paused: 30 messages" in text(page)
    assert f"/admin/vendors/credential/{paused.pk}/pause/" in page
    held = list(Job.objects.filter(credential=paused).order_by("-id").values_list("pk", flat=True))
    others = list(Job.objects.exclude(credential=paused).order_by("-id").values_list("pk", flat=True))
    assert [int(pk) for pk in re.findall(r'id="row-(\d+)"', page)] == [*held, *others], "what is held comes first"


def test_the_list_still_filters_by_sponsor_and_status(admin_client: Client, paused: Credential) -> None:
    velma = Job.objects.filter(sponsor__name="Velma")[0].sponsor_id
    page = text(admin_client.get(f"{JOBS}?sponsor={velma}&status=Paused&date=today").content.decode())
    assert "Good Mail, credential paused: 2 jobs" in page and "Northwind E-mail" not in page


def test_who_may_not_resume_reads_whom_to_ask(client: Client, paused: Credential) -> None:
    looker = User.objects.create(username="vera", is_staff=True)
    codes = ("view_job", "all_sponsors")
    looker.user_permissions.set(Permission.objects.filter(codename__in=codes))
    client.force_login(looker)
    page = client.get(JOBS).content.decode()
    assert "Resume this login" not in page and page.count("Ask whoever runs mailhub.") == 1


def test_jobs_of_one_night_are_a_group_in_their_place(admin_client: Client) -> None:
    post = factories.credential(factories.at_work(factories.vendor("post", limits=[(5, 60)])))
    first, second = (factories.campaign_with_job(8, of=post, status="RENDERED") for _ in range(2))
    newest = factories.campaign_with_job(8, of=post, status="DISPATCHED")
    page = admin_client.get(JOBS, headers={"HX-Request": "true"}).content.decode()
    assert len(re.findall("nightly dispatch", page)) == 1 and ": 2 jobs" in text(page)
    assert [int(pk) for pk in re.findall(r'id="row-(\d+)"', page)] == [newest.pk, second.pk, first.pk]


def test_more_groups_take_no_more_statements(admin_client: Client) -> None:
    def held() -> None:
        login = factories.credential(factories.at_work(factories.vendor(limits=[(5, 60)])))
        factories.campaign_with_job(8, of=login, status="DISPATCHED")
        Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason=WHY)

    def counted() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert admin_client.get(JOBS, headers={"HX-Request": "true"}).status_code == 200
        return len(seen)

    held()
    counted()
    one = counted()
    held()
    held()
    assert counted() == one


def test_what_holds_the_parts_of_a_job_is_said_once(admin_client: Client) -> None:
    parent, children = family(parent="P_ASSIGNING", remaining=40, children=["DISPATCHED"] * 3)
    Credential.objects.filter(pk=parent.credential_id).update(paused=True, paused_reason=WHY)
    page = admin_client.get(f"{JOBS}{parent.pk}/parts/").content.decode()
    assert page.count(WHY) == 1 and "credential paused: 3 parts" in text(page)
    assert len(children) == page.count("<td>–</td></tr>")
