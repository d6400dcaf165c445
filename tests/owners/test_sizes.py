"""However many rows there are, pages and polls take the same number of statements, and lists come page by page."""

import datetime

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.doors.front import keys
from campaigns.models import Approval, Draft, Identity, Job, Sponsor, Suppression, Template, Topic, Webhook
from campaigns.reporting.forecast import streams
from mailhub.operations import outcomes
from mailhub.templatetags import list_rows
from tests import factories
from vendors.models import Minute

pytestmark = pytest.mark.django_db

OWNERS = (
    "/", "/?state=going", "/?state=stopped", "/?q=large", "/approvals/", "/templates/", "/webhooks/", "/keys/",
    "/suppressions/", "/senders/", "/senders/topics/", "/drafts/",
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
    minute = timezone.now().replace(second=0, microsecond=0)
    for number in range(rounds):
        ended = {"finished_at": timezone.now(), "in_doubt": 1, "started_at": timezone.now()}
        for status in STATES:
            fields = ended if status == "LOGGED" else {"stopped_at": timezone.now()} if status == "STOPPED" else {}
            job = factories.campaign_with_job(1, status=status, of=login, by=sponsor, **fields)
        asked = {"asked_kind": "key", "asked_by": "mh", "asked_at": timezone.now(), "recipients": 1, "frozen": {}}
        Approval.objects.create(campaign=job.campaign, **asked)
        Webhook.objects.create(sponsor=sponsor, url="https://example.com/hook")
        keys.create_key(sponsor, "test", ["read"])
        name = f"{login.vendor.slug}-{number}"
        Topic.objects.create(sponsor=sponsor, name=name, title="News")
        Identity.objects.create(sponsor=sponsor, name=name, from_address="news@example.com")
        template = Template.objects.create(sponsor=sponsor, name=name, channel="email")
        template.versions.create(number=1, body="Hello", made_by="ann")
        Draft.objects.create(sponsor=sponsor, name=name)
        known = {"digest": login.pk * 1000 + number, "position": number, "address": "r@example.com"}
        Suppression.objects.create(sponsor=sponsor, channel="email", reason="by_hand", **known)
        at = minute - datetime.timedelta(minutes=number + 1)
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
    ann = User.objects.create(username="ann")
    ann.groups.set(Group.objects.filter(name__in=["campaign owner", "integrator"]))
    sponsor.users.add(ann)
    client = Client()
    client.force_login(ann)
    return client


def test_no_page_and_no_poll_takes_more_statements_for_more_rows(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LATE", 600.0)  # an alarm takes one more
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


MOST = {  # statements of a poll, with those for the session and its user
    "/campaigns/live/": 15, "/campaigns/live/?state=going": 12, "/campaigns/{campaign}/live/": 13,
    "/admin/operations/pulse/": 18, "/admin/operations/halt/": 3, "/admin/campaigns/job/?status=Dispatched&date=any": 9,
    "/admin/campaigns/job/{job}/live/": 9, "/admin/operations/vendors/{vendor}/": 10,
}  # fmt: skip


def test_polls_take_few_statements_and_nothing_of_the_page_around_them(admin_client: Client) -> None:
    more(factories.sponsor(), 1)
    job = Job.objects.get(status="DISPATCHED")
    of = {"campaign": job.campaign_id, "job": job.pk, "vendor": job.vendor_id}
    for address, most in MOST.items():
        page = address.format(**of)
        admin_client.get(page, headers={"HX-Request": "true"})  # what is read once for each process
        with CaptureQueriesContext(connection) as seen:
            answer = admin_client.get(page, headers={"HX-Request": "true"}).content.decode()
        assert len(seen) <= most, (page, [(one["sql"] or "")[:90] for one in seen.captured_queries if one])
        assert "<html" not in answer and "nav-sidebar" not in answer and "<header" not in answer


def test_a_row_that_says_the_same_is_not_rendered_again_and_any_change_of_it_is(admin_client: Client) -> None:
    sponsor = factories.sponsor("Northwind")
    factories.campaign_with_job(3, status="LOGGED", by=sponsor, accepted=1, finished_at=timezone.now())

    def rows(**headers: str) -> tuple[str, str]:
        polls = ("/admin/campaigns/job/?date=any", "/campaigns/live/")
        asked = {"HX-Request": "true", **headers}
        first, second = (admin_client.get(poll, headers=asked).content.decode() for poll in polls)
        return first, second

    rows()
    kept = list_rows._render_cached.cache_info()
    before = rows()
    after = list_rows._render_cached.cache_info()
    assert (after.hits, after.misses) == (kept.hits + 2, kept.misses)
    Job.objects.update(accepted=2)
    Sponsor.objects.update(name="Southwind")
    changed = rows()
    for one, other in zip(before, changed, strict=True):
        assert "Northwind" in one and "1 sent of 3" in one and "Southwind" not in one
        assert "Southwind" in other and "2 sent of 3" in other and "Northwind" not in other
    assert all("2 versandt von 3" in one for one in rows(**{"Accept-Language": "de"}))


def test_outcomes_of_minutes_that_are_over_are_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MANY", 0)
    login = factories.credential()
    now = timezone.now().replace(hour=15, minute=7)

    def count(at: datetime.datetime, share: int = 0) -> None:
        at = at.replace(second=0, microsecond=0)
        Minute.objects.create(vendor=login.vendor, at=at, sponsor=1, share=share, accepted=1, units=2)

    def seen(at: datetime.datetime, sponsors: list[int] | None = None) -> tuple[int, int]:
        today, last = outcomes.outcomes_of_today(at, sponsors)
        return today[login.vendor_id]["accepted"], last

    minute = datetime.timedelta(minutes=1)
    for back in (0, 1, 14, 15, 16, 30, 60, 15 * 60 + 8):
        count(now - back * minute)
    assert seen(now) == seen(now) == (7, 1)  # the last one was yesterday
    with CaptureQueriesContext(connection) as late:
        assert seen(now) == (7, 1)
    assert len(late) == 1
    count(now - 2 * minute)
    assert seen(now) == (8, 1)
    assert seen(now, [1]) == (8, 1) and seen(now, [2]) == (0, 0)
    assert seen(now + 20 * minute) == (8, 0)
    assert seen(now.replace(hour=0, minute=5)) == (8, 0)  # all that has been stored since midnight


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
    made = [keys.create_key(sponsor, "test", ["read"])[0] for _ in range(3)]
    made[2].revoked_at = timezone.now()
    made[2].save()
    made[1].expires_at = timezone.now() - datetime.timedelta(days=1)
    made[1].save()
    page = admin_client.get("/keys/").content.decode()
    places = [page.index(key.prefix) for key in made]
    assert places[0] < places[2] < places[1]
