"""An identity that a vendor does not take says so on its pages, in lists, by the API and the command."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.engine.pausing import pauses
from campaigns.models import Campaign, Identity, Job, Sponsor
from campaigns.senders.refused_senders import find_refused
from tests import factories
from tests.front.program import Program, fresh
from vendors.said import Said

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
REPLY = "550 sender rejected"
SAID = f"the vendor does not take its sender: {REPLY}. Correct the sender, or have the vendor allow it; then resume"


def identity_of(sponsor: Sponsor, name: str = "news") -> Identity:
    return Identity.objects.create(sponsor=sponsor, name=name, from_address=f"{name}@one.invalid")


def refuse(identity: Identity, why: Any = None) -> Job:
    job = factories.campaign_with_job(3, status="DISPATCHED", by=identity.sponsor)
    Campaign.objects.filter(pk=job.campaign_id).update(identity=identity)
    pauses.pause_campaign(
        job.campaign_id, pauses.ITSELF, Said(pauses.SENDER_REFUSED, reply=REPLY) if why is None else why
    )
    return job


def owner_of(sponsor: Sponsor) -> Client:
    user = User.objects.create(username="ida")
    user.groups.set(Group.objects.filter(name="campaign owner"))
    sponsor.users.add(user)
    client = Client()
    client.force_login(user)
    return client


def test_page_list_and_api_say_it_until_the_campaigns_go_on() -> None:
    sponsor, other = factories.sponsor("Velma"), factories.sponsor()
    row, program, owner = identity_of(sponsor), Program(sponsor), owner_of(sponsor)
    factories.entitle([sponsor], [factories.vendor()])
    jobs = [refuse(row), refuse(row)]
    refuse(identity_of(other, "theirs"))
    pages = ("/senders/", f"/senders/{row.pk}/")
    for page in pages:
        shown = owner.get(page).content.decode()
        assert "2 campaigns wait since" in shown and SAID in shown and "theirs" not in shown, page
    (found,) = program.get("/api/v1/identities").json()["data"]
    first = Campaign.objects.get(pk=jobs[0].campaign_id).paused_at
    assert first and found["refused"]["since"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"
    assert (found["refused"]["campaigns"], found["refused"]["reason"]) == (2, SAID)
    Job.objects.filter(pk=jobs[0].pk).update(status="LOGGED", finished_at=timezone.now())
    assert find_refused([row.pk])[row.pk].campaigns == 1, "a campaign that is over waits for nobody"
    Campaign.objects.update(paused_at=None)
    assert all("wait since" not in owner.get(page).content.decode() for page in pages)
    assert program.get("/api/v1/identities").json()["data"][0]["refused"] is None


def test_the_admin_and_the_command_say_it_until_the_campaigns_go_on(admin_client: Client) -> None:
    row = identity_of(factories.sponsor("Velma"))
    refuse(row)

    def doors() -> list[str]:
        call_command("identity", "list", stdout=(table := io.StringIO()))
        call_command("identity", "list", "--json", stdout=(facts := io.StringIO()))
        pages = ("/admin/campaigns/identity/", f"/admin/campaigns/identity/{row.pk}/change/")
        shown = [admin_client.get(page).content.decode() for page in pages]
        return [*shown, " ".join(table.getvalue().split()), str(json.loads(facts.getvalue())["refused"])]

    for shown in doors():
        assert "1 campaign waits since" in shown, shown
    assert SAID in doors()[0] and SAID in doors()[1] and SAID in doors()[3]
    Campaign.objects.update(paused_at=None)
    assert all("waits since" not in shown for shown in doors())


def test_the_admin_s_list_and_the_command_s_take_as_many_statements_for_ten_as_for_two(admin_client: Client) -> None:
    sponsor = factories.sponsor()

    def counted() -> list[int]:
        found = []
        for look in (
            lambda: admin_client.get("/admin/campaigns/identity/"),
            lambda: call_command("identity", "list", stdout=io.StringIO()),
        ):
            with CaptureQueriesContext(connection) as seen:
                look()
            found.append(len(seen))
        return found

    for number in range(2):
        refuse(identity_of(sponsor, f"news-{number}"))
    counted()  # what is read once for each process
    few = counted()
    for number in range(2, 10):
        refuse(identity_of(sponsor, f"news-{number}"))
    assert counted() == few


def test_a_pause_of_another_kind_says_nothing_of_the_sender() -> None:
    row = identity_of(factories.sponsor())
    refuse(row, "Ann looks at the text")
    assert find_refused([row.pk]) == {}


def test_it_takes_one_statement_however_many_wait() -> None:
    sponsor = factories.sponsor()
    rows = [identity_of(sponsor, f"news-{number}") for number in range(5)]
    for row in rows:
        refuse(row)
    with CaptureQueriesContext(connection) as seen:
        assert len(find_refused([row.pk for row in rows])) == 5
    assert len(seen) == 1
