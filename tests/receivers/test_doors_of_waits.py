"""Every door tells of receivers that wait: pages, status, API, metrics and alarms; whoever may ends a wait there."""

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from campaigns.models import Job, Sponsor
from mailhub.installation import create_groups, make_permissions
from mailhub.monitoring import metrics
from tests import factories
from tests.receivers.test_admin import URL, rows
from tests.receivers.test_doors import waiting
from tests.vendors.test_admin import form
from vendors import deferrals
from vendors.models import Credential, ReceiverDomain, ReceiverLimit, ReceiverWait, Vendor

pytestmark = pytest.mark.django_db
SLOWED = "gmail waits until"


@pytest.fixture
def alpha() -> Sponsor:
    return factories.sponsor("Alpha")


@pytest.fixture
def login(alpha: Sponsor) -> Credential:
    """A credential of Alpha's own vendor; Beta is there, so nobody is alone."""
    factories.sponsor("Beta")
    made = factories.credential(factories.vendor("relay", channel="email", owner=alpha), "main")
    factories.entitle([alpha], [made.vendor])
    return made


@pytest.fixture
def job(login: Credential, alpha: Sponsor) -> Job:
    return factories.campaign_with_job(3, status="DISPATCHED", of=login, by=alpha)


@pytest.fixture
def person() -> Callable[..., Client]:
    make_permissions()
    create_groups()

    def made(of: Sponsor | None, *groups: str) -> Client:
        user = User.objects.create(username=factories.unique("user"), is_staff=True)
        user.groups.set(Group.objects.filter(name__in=groups))
        if of:
            of.users.add(user)
        client = Client()
        client.force_login(user)
        return client

    return made


def receivers_page(login: Credential) -> str:
    return f"/admin/vendors/credential/{login.pk}/receivers/"


def read_page(client: Client, at: str) -> str:
    answer = client.get(at)
    assert answer.status_code == 200
    return answer.content.decode()


def test_pages_tell_it_and_lead_whoever_may_to_the_page_that_ends_it(
    person: Callable[..., Client], login: Credential, job: Job, alpha: Sponsor
) -> None:
    waiting(login, answer="slow down, 192.0.2.1")
    operator, viewer = person(alpha, "operator", "campaign owner"), person(alpha, "viewer", "campaign owner")
    link = f'href="{receivers_page(login)}"'
    for at in (f"/campaigns/{job.campaign_id}/", f"/admin/campaigns/job/{job.pk}/change/", "/admin/"):
        assert SLOWED in read_page(operator, at) and link in read_page(operator, at), at
        assert SLOWED in read_page(viewer, at) and link not in read_page(viewer, at), at
    assert SLOWED in read_page(operator, f"/admin/vendors/credential/{login.pk}/change/")
    assert "192.0.2.1" in read_page(operator, receivers_page(login))


def test_a_sponsor_sees_no_domain_of_another_ones_mail_on_a_shared_credential(
    person: Callable[..., Client], alpha: Sponsor
) -> None:
    """A domain in no group is stored by its name, so only those who govern the vendor read it."""
    factories.sponsor("Beta")
    shared = factories.credential(factories.vendor("shared", channel="email"))
    job = factories.campaign_with_job(3, status="DISPATCHED", of=shared, by=alpha)
    later = timezone.now() + timedelta(hours=1)
    for number in range(deferrals.MOST_SHOWN + 1):
        waiting(shared, f"client{number}-of-beta.example", until=later)
    waiting(shared)
    ReceiverDomain.objects.create(domain="firm.example", receiver="firm")
    waiting(shared, "firm")
    reader, governor = person(alpha, "operator", "campaign owner"), person(None, "operator", "campaign owner")
    all_sponsors = Permission.objects.get(codename="all_sponsors")
    User.objects.get(pk=governor.session["_auth_user_id"]).user_permissions.add(all_sponsors)
    for at in (f"/campaigns/{job.campaign_id}/", f"/admin/campaigns/job/{job.pk}/change/", "/admin/"):
        page = read_page(reader, at)
        assert "-of-beta" not in page, at
        assert at == "/admin/" or (SLOWED in page and "firm waits until" in page), at
        assert "client0-of-beta.example waits" in read_page(governor, at), at
    Sponsor.objects.filter(name="Beta").delete()
    assert "client0-of-beta.example waits" in read_page(reader, f"/campaigns/{job.campaign_id}/"), (
        "nobody else is there"
    )


def test_an_operator_ends_a_wait_with_a_reason_that_the_history_keeps(
    person: Callable[..., Client], login: Credential, alpha: Sponsor
) -> None:
    waiting(login)
    waiting(login, "small.example")
    client = person(alpha, "operator")
    client.post(receivers_page(login), {"receiver": "gmail", "reason": "the list has removed us"})
    assert ReceiverWait.objects.get().receiver == "small.example"
    said = LogEntry.objects.latest("id").change_message
    assert said == "the wait of gmail ended. Reason: the list has removed us"
    entries = LogEntry.objects.count()
    page = client.post(receivers_page(login), {"receiver": "gmail"}, follow=True).content.decode()
    assert "gmail does not wait any more" in page and LogEntry.objects.count() == entries


@pytest.mark.parametrize(("of", "group"), [("Alpha", "auditor"), ("Beta", "operator"), ("Beta", "vendor admin")])
def test_nobody_else_ends_it(person: Callable[..., Client], login: Credential, of: str, group: str) -> None:
    waiting(login)
    client = person(Sponsor.objects.get(name=of), group)
    assert client.post(receivers_page(login), {"receiver": "gmail"}).status_code in (403, 404)
    assert ReceiverWait.objects.exists()
    if of == "Beta":
        assert client.get(receivers_page(login)).status_code == 404
    else:
        assert "Call it again" not in read_page(client, receivers_page(login))


def test_status_names_a_few_of_them_and_the_command(login: Credential) -> None:
    for number in range(7):
        waiting(login, f"small{number}.example")
    said, facts = StringIO(), StringIO()
    call_command("status", stdout=said)
    text = " ".join(said.getvalue().split())
    assert "small3.example waits" in text and "2 more receiving domains wait" in text
    assert "receiver list" in text
    call_command("status", "--json", stdout=facts)
    [row] = [one for line in facts.getvalue().splitlines() if (one := json.loads(line))["vendor"] == "relay"]
    assert len(row["receivers"]) == deferrals.MOST_SHOWN and row["receivers"][0]["answer"] == "slow down"


def lasting(login: Credential, receiver: str = "gmail") -> None:
    waiting(login, receiver, since=timezone.now() - deferrals.LONG - timedelta(minutes=1))


def test_a_long_wait_is_an_alarm_that_is_logged_once(login: Credential, caplog: pytest.LogCaptureFixture) -> None:
    waiting(login, "yahoo")
    lasting(login)
    with caplog.at_level(logging.WARNING):
        deferrals.warn_of_lasting_waits()
        deferrals.warn_of_lasting_waits()
    assert caplog.text.count("gmail has accepted nothing since") == 1 and "yahoo" not in caplog.text
    said = StringIO()
    with pytest.raises(CommandError, match="accepted nothing for hours"):
        call_command("status", "--check", stdout=said)
    assert "vendor relay: gmail has accepted nothing since" in said.getvalue()


@pytest.mark.django_db(transaction=True)
def test_metrics_count_them_by_vendor(login: Credential) -> None:
    assert 'mailhub_receivers_waiting_seconds{vendor="relay"} 0.0' in metrics.metrics_text().decode()
    lasting(login)
    waiting(login, "small.example")
    found = metrics.metrics_text().decode()
    assert 'mailhub_receivers_waiting{vendor="relay"} 2.0' in found
    [seconds] = [line for line in found.splitlines() if line.startswith("mailhub_receivers_waiting_seconds{")]
    assert float(seconds.split()[-1]) > deferrals.LONG.total_seconds()


def test_a_wait_of_tomorrow_says_so(login: Credential) -> None:
    at = timezone.now() + timedelta(days=1)
    assert f"{timezone.localtime(at):%d %b %H:%M}" in deferrals.describe_wait(waiting(login, until=at))


def test_who_waits_is_read_with_two_statements_or_one_if_none_does(
    login: Credential, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        assert deferrals.waits_of_vendors([login.vendor_id]) == {login.vendor_id: deferrals.NO_WAITS}
    for number in range(9):
        waiting(login, f"small{number}.example")
    other = factories.credential(factories.vendor("quiet", channel="email"))
    with django_assert_num_queries(2):
        found = deferrals.waits_of_vendors([login.vendor_id, other.vendor_id])
        assert (len(found[login.vendor_id].rows), found[login.vendor_id].total) == (deferrals.MOST_SHOWN, 9)
        assert found[other.vendor_id].total == 0


def test_a_vendor_admin_of_the_owner_edits_limits_and_an_operator_does_not(
    person: Callable[..., Client], login: Credential, alpha: Sponsor
) -> None:
    of, typed = login.vendor, rows({"units": 100})
    Vendor.objects.filter(pk=of.pk).update(settings=URL)
    at = f"/admin/vendors/vendor/{of.pk}/change/"
    body = form(**typed, slug=of.slug, owner=alpha.pk)
    for client, stored in ((person(alpha, "operator"), 0), (person(alpha, "vendor admin"), 1)):
        assert client.post(at, body).status_code == (302 if stored else 403)
        assert ReceiverLimit.objects.count() == stored
