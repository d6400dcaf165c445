"""However many rows there are, pages and polls take the same number of statements, and lists come page by page."""

import datetime

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.models import Approval, Draft, Identity, Sponsor, Suppression, Template, Topic, Webhook
from mailhub import installation
from mailhub.front import keys
from tests import factories
from vendors.models import Minute

pytestmark = pytest.mark.django_db

OWNERS = (
    "/", "/?state=going", "/?q=large", "/approvals/", "/templates/", "/webhooks/", "/keys/", "/suppressions/",
    "/senders/", "/senders/topics/", "/drafts/",
)  # fmt: skip
OPERATORS = (
    "/admin/", "/admin/campaigns/campaign/", "/admin/campaigns/message/attention/", "/admin/campaigns/message/",
)  # fmt: skip
POLLS = ("/campaigns/live/", "/campaigns/live/?state=going")
OPERATORS_POLLS = (
    "/admin/operations/pulse/", "/admin/operations/throughput/?minutes=1440", "/admin/operations/halt/",
    "/admin/campaigns/job/", "/admin/campaigns/job/?status=Dispatched&date=any",
)  # fmt: skip
STATES = ("RENDERED", "DISPATCHED", "SENDING", "LOGGED", "STOPPED", "P_ASSIGNING")


def more(sponsor: Sponsor, rounds: int) -> None:
    """Rows of everything that the pages show."""
    login = factories.credential(factories.vendor(limits=[(5, 60)], casters=["large-priority"]))
    for number in range(rounds):
        ended = {"finished_at": timezone.now(), "in_doubt": 1, "started_at": timezone.now()}
        for status in STATES:
            fields = ended if status == "LOGGED" else {}
            job = factories.campaign_with_job(1, status=status, of=login, by=sponsor, **fields)
        asked = {"asked_kind": "key", "asked_by": "mh", "asked_at": timezone.now(), "recipients": 1, "frozen": {}}
        Approval.objects.create(campaign=job.campaign, **asked)
        Webhook.objects.create(sponsor=sponsor, url="https://example.com/hook")
        keys.create(sponsor, "test", ["read"])
        name = f"{login.vendor.slug}-{number}"
        Topic.objects.create(sponsor=sponsor, name=name, title="News")
        Identity.objects.create(sponsor=sponsor, name=name, from_address="news@example.com")
        template = Template.objects.create(sponsor=sponsor, name=name, channel="email")
        template.versions.create(number=1, body="Hello", made_by="ann")
        Draft.objects.create(sponsor=sponsor, name=name)
        known = {"digest": login.pk * 1000 + number, "position": number, "address": "r@example.com"}
        Suppression.objects.create(sponsor=sponsor, channel="email", reason="by_hand", **known)
        at = timezone.now().replace(second=0, microsecond=0) - datetime.timedelta(minutes=number + 1)
        Minute.objects.create(vendor=login.vendor, at=at, sponsor=sponsor.pk, share=0, accepted=1)


def statements(client: Client, pages: tuple[str, ...], *, polled: bool) -> dict[str, int]:
    """How many each of them takes."""
    counted = {}
    for page in pages:
        with CaptureQueriesContext(connection) as seen:
            answer = client.get(page, headers={"HX-Request": "true"} if polled else {})
        assert answer.status_code == 200, page
        counted[page] = len(seen)
    return counted


def owner_of(sponsor: Sponsor) -> Client:
    installation.create_groups()
    ann = User.objects.create(username="ann")
    ann.groups.set(Group.objects.filter(name__in=["campaign owner", "integrator"]))
    sponsor.users.add(ann)
    client = Client()
    client.force_login(ann)
    return client


def test_no_page_and_no_poll_takes_more_statements_for_more_rows(admin_client: Client) -> None:
    sponsor = factories.sponsor()
    owner = owner_of(sponsor)

    def counted() -> dict[str, dict[str, int]]:
        return {
            "owner": statements(owner, OWNERS, polled=False),
            "operator": statements(admin_client, OPERATORS, polled=False),
            "owner's polls": statements(owner, POLLS, polled=True),
            "operator's polls": statements(admin_client, OPERATORS_POLLS, polled=True),
        }

    more(sponsor, 1)
    counted()  # what is read once for each process
    few = counted()
    more(sponsor, 2)
    assert counted() == few


@pytest.mark.parametrize("page", ["/webhooks/", "/senders/", "/senders/topics/"])
def test_a_list_shows_fifty_and_leads_to_the_others(admin_client: Client, page: str) -> None:
    sponsor = factories.sponsor("Northwind")
    Webhook.objects.bulk_create(Webhook(sponsor=sponsor, url=f"https://example.com/{n:02}") for n in range(51))
    Topic.objects.bulk_create(Topic(sponsor=sponsor, name=f"news-{n:02}", title=f"News {n:02}") for n in range(51))
    of = {"sponsor": sponsor, "from_address": "news@example.com"}
    Identity.objects.bulk_create(Identity(name=f"news-{n:02}", **of) for n in range(51))
    first, second = (admin_client.get(page, {"page": number}).content.decode() for number in ("1", "2"))
    assert first.count("<tr>") == 51 and second.count("<tr>") == 2  # with the heads
    assert "Page 1 of 2" in first and 'href="?page=2"' in first


def test_keys_that_hold_come_before_those_that_do_not(admin_client: Client) -> None:
    sponsor = factories.sponsor()
    made = [keys.create(sponsor, "test", ["read"])[0] for _ in range(3)]
    made[2].revoked_at = timezone.now()
    made[2].save()
    made[1].expires_at = timezone.now() - datetime.timedelta(days=1)
    made[1].save()
    page = admin_client.get("/keys/").content.decode()
    places = [page.index(key.prefix) for key in made]
    assert places[0] < places[2] < places[1]
