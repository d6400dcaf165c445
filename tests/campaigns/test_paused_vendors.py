"""A job that nobody may call says Paused through every door: its vendor, its credential or their limits stopped it."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone, translation

from campaigns.doors import filters, labels
from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.engine import progress
from campaigns.engine.routes import entries
from campaigns.models import Job, Message
from campaigns.operations import pausing
from campaigns.reporting import campaign_rows
from campaigns.reporting.campaign_rows import CampaignQuery
from mailhub.operations import dashboard
from tests import factories
from tests.campaigns.rows import accepted, family, manage, recount
from tests.front.program import Program, api_vendor, fresh, letter, problem
from vendors import shut
from vendors.history import Actor
from vendors.models import Credential, RateLimit, Vendor
from vendors.said import show

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
ALL_DAYS = "/admin/campaigns/job/?date=any"


def begun(status: str = "DISPATCHED", **fields: Any) -> Job:
    """One of its three recipients was called."""
    job = factories.campaign_with_job(3, status=status, **fields)
    Message.objects.filter(pk=job.first_message).update(dequeued_at=timezone.now(), **accepted())
    return recount(job)


def vendor_paused(login: Credential) -> str:
    Vendor.objects.filter(pk=login.vendor_id).update(paused=True, paused_reason="stocktaking")
    return "vendor paused: stocktaking"


def credential_paused(login: Credential) -> str:
    Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason="http 401")
    return f"credential {login.name} paused: http 401"


def vendor_at_0(login: Credential) -> str:
    RateLimit.objects.create(vendor_id=login.vendor_id, units=0, seconds=60)
    return "the vendor's limit is 0"


def credential_at_0(login: Credential) -> str:
    RateLimit.objects.create(vendor_id=login.vendor_id, credential=login, units=0, seconds=60)
    return f"credential {login.name}: a limit is 0"


STOPS = pytest.mark.parametrize("stop", [vendor_paused, credential_paused, vendor_at_0, credential_at_0])


def word(*jobs: Job) -> str:
    fresh_rows = Job.objects.filter(pk__in=[job.pk for job in jobs])
    return labels.label_of_sum(sum(progress.progress_of_jobs(fresh_rows).values(), start=progress.Progress()))


@STOPS
def test_what_was_begun_is_not_being_sent_while_nobody_may_call(stop: Any) -> None:
    job, other = begun(), begun()
    assert word(job) == "Sending"
    stop(job.credential)
    assert (word(job), word(other)) == ("Paused", "Sending")


def test_another_credential_of_the_vendor_stops_nothing() -> None:
    job = begun()
    credential_paused(factories.credential(job.vendor))
    credential_at_0(factories.credential(job.vendor))
    assert word(job) == "Sending"


def test_what_waits_for_the_night_waits_for_that_and_what_has_ended_has_ended() -> None:
    night, over = factories.campaign_with_job(3, status="RENDERED"), begun("STOPPED")
    for job in (night, over):
        vendor_paused(job.credential)
    assert (word(night), word(over)) == ("Waiting", "Stopped")


def test_while_one_vendor_of_two_takes_mail_it_goes_on() -> None:
    here, there = begun(), begun()
    vendor_paused(here.credential)
    assert word(here, there) == "Sending"
    vendor_paused(there.credential)
    assert word(here, there) == "Paused"


def test_a_parent_is_paused_once_neither_its_parts_nor_its_rest_may_be_called() -> None:
    parent, (part,) = family(parent="P_ASSIGNING", remaining=10, children=["DISPATCHED"])
    elsewhere = factories.credential()
    Job.objects.filter(pk=part.pk).update(credential=elsewhere, vendor=elsewhere.vendor)  # as a route moves it
    vendor_paused(parent.credential)
    assert word(parent) == "Sending"
    vendor_paused(elsewhere)
    assert word(parent) == "Paused"


def test_a_parent_that_is_cut_follows_its_parts() -> None:
    parent, (part,) = family(parent="P_ASSIGNED", remaining=0, children=["DISPATCHED"])
    elsewhere = factories.credential()
    Job.objects.filter(pk=part.pk).update(credential=elsewhere, vendor=elsewhere.vendor)
    credential_paused(elsewhere)
    assert word(parent) == "Paused", "its own vendor has nothing left to call"


def test_suppressed_recipients_are_no_call() -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED", suppressed=1)
    assert word(job) == "Waiting"


@STOPS
def test_every_door_says_so(stop: Any, admin_client: Client) -> None:
    job, going = begun(), begun()
    factories.at_work(going.credential.vendor)
    ann = User.objects.create_user("ann", password="a long password")
    ann.groups.add(Group.objects.get(name="campaign owner"))
    for one in (job, going):
        one.campaign.sponsor.users.add(ann)
    owner = Client()
    owner.force_login(ann)
    stop(job.credential)
    listed = [json.loads(line) for line in manage("list_jobs", "--json").splitlines()]
    assert {row["id"]: row["in_words"] for row in listed} == {job.pk: "Paused", going.pk: "Sending"}
    jobs = admin_client.get(ALL_DAYS).content.decode()
    assert jobs.count(">Paused</span>") == 1 and jobs.count(">Sending</span>") >= 1
    campaigns = admin_client.get("/admin/campaigns/campaign/").content.decode()
    assert campaigns.count(">Paused<") == campaigns.count(">Sending<") == 1
    home = owner.get("/?state=paused").content.decode()
    assert job.campaign.name in home and going.campaign.name not in home
    assert (
        "It waits: nothing more is sent until its vendor"
        in owner.get(f"/campaigns/{job.campaign_id}/").content.decode()
    )


@STOPS
def test_a_program_reads_why(stop: Any) -> None:
    program = Program()
    link = program.send(letter(api_vendor(), ["p@sandbox.example"])).json()["links"]["self"]
    assert program.get(link).json()["paused"] is None
    why = stop(Job.objects.get().credential)
    session = program.get(link).json()
    assert (session["status"], session["paused"], session["finished"]) == ("paused", why, False)


def test_of_parts_that_went_to_another_vendor_a_program_reads_why_that_one_is_shut() -> None:
    program, vendor = Program(), api_vendor(small_audience_threshold=2)
    link = program.send(letter(vendor, ["p@sandbox.example", "q@sandbox.example"])).json()["links"]["self"]
    parent = Job.objects.get()
    elsewhere = factories.credential()
    part = {"status": "DISPATCHED", "parent": parent, "credential": elsewhere, "vendor": elsewhere.vendor}
    Job.objects.create(
        campaign=parent.campaign, sponsor=parent.sponsor, first_message=parent.first_message, size=2, **part
    )
    Job.objects.filter(pk=parent.pk).update(status="P_ASSIGNED", remaining=0)
    why = vendor_paused(elsewhere)
    assert program.get(link).json()["paused"] == why


@STOPS
def test_every_door_says_the_same_sentence(stop: Any, admin_client: Client) -> None:
    program, vendor = Program(), factories.at_work(api_vendor())
    link = program.send(letter(vendor, ["p@sandbox.example"])).json()["links"]["self"]
    job = Job.objects.get()
    why = stop(job.credential)
    vendor_cache.forget_vendors()
    route = entries.closed_credentials([job.credential_id], 60)
    (service,) = program.get("services").json()["data"]
    (row,) = dashboard.read_dashboard().vendors
    (listed,) = [json.loads(line) for line in manage("list_jobs", "--json").splitlines()]
    said = {
        "session": program.get(link).json()["paused"],
        "services": service["paused"],
        "refusal": problem(program.send(letter(vendor)), "vendor-paused", 503)["detail"].removeprefix(f"{vendor}: "),
        "route": route[job.credential_id],
        "list_jobs": listed["next"],
        "operations": row.ends.removeprefix("no end: "),
    }
    assert said == dict.fromkeys(said, why)
    assert not service["accepting"] and not row.open
    with translation.override("de"):
        (row,) = dashboard.read_dashboard().vendors
        assert row.ends.removeprefix("kein Ende: ").startswith(("Anbieter", "die Grenze", "Zugang"))
    assert ">works<" not in admin_client.get("/admin/vendors/vendor/").content.decode()


def test_a_pause_without_a_reason_is_a_sentence_too() -> None:
    login = factories.credential()
    rows = Credential.objects.annotate(shut=shut.OF_LOGINS).values_list("shut", flat=True)
    assert rows.get() is None
    Credential.objects.update(paused=True)
    assert rows.get() == f"credential {login.name} paused"
    Vendor.objects.update(paused=True)
    assert rows.get() == "vendor paused"
    with translation.override("de"):
        assert show(entries.closed_credentials([login.pk], 60)[login.pk]) == "Anbieter pausiert"
        Vendor.objects.update(paused=False)
        assert show(entries.closed_credentials([login.pk], 60)[login.pk]) == f"Zugang {login.name} pausiert"


class TestLookUp:
    def test_it_finds_whole_jobs_of_which_something_is_held_and_nothing_else(self, admin_client: Client) -> None:
        small, going, over = begun(), begun(), begun("STOPPED")
        night = factories.campaign_with_job(3, status="RENDERED")
        parent, _ = family(parent="P_ASSIGNED", remaining=0, children=["DISPATCHED", "DISPATCHED"])
        credential_paused(parent.credential)
        for job in (small, over, night):
            vendor_paused(job.credential)
        by_hand = begun()
        pausing.pause_jobs([by_hand.pk], Actor("ann"), "a wrong link")
        held = {small.pk, parent.pk, by_hand.pk}
        found = [json.loads(line)["id"] for line in manage("list_jobs", "--status", "Paused", "--json").splitlines()]
        assert set(found) == held and len(found) == len(held)
        page = admin_client.get(f"{ALL_DAYS}&status=Paused").context["cl"]
        assert {row.pk for row in page.result_list} == held
        assert {tab.name: tab.count for tab in page.paginator.tabs}["Paused"] == "3"
        of_one = admin_client.get(f"{ALL_DAYS}&q={small.campaign.name}").context["cl"]
        assert {tab.name: tab.count for tab in of_one.paginator.tabs}["Paused"] == "1"
        assert going.pk not in held

    def test_of_many_it_reads_the_newest(self) -> None:
        job = begun()
        vendor_paused(job.credential)
        later = [begun(of=job.credential) for _ in range(3)]
        assert set(Job.objects.filter(filters.filter_by_status("paused"))) == {job, *later}
        few = filters.HELD.replace(f"LIMIT {filters.MOST_HELD}", "LIMIT 2")
        assert set(Job.objects.extra(where=[few])) == set(later[1:])


class TestOwnersFilter:
    def test_it_finds_what_no_vendor_may_call_and_nothing_else(self) -> None:
        parent, _ = family(parent="P_ASSIGNED", remaining=0, children=["DISPATCHED"])
        half, going = begun(), begun()
        other = begun(of=going.credential, by=half.campaign.sponsor)
        Job.objects.filter(pk=other.pk).update(campaign=half.campaign)
        for job in (parent, half):
            vendor_paused(job.credential)

        def paused(sponsors: list[int] | None) -> list[int]:
            return [row.pk for row in campaign_rows.page_of_campaigns(sponsors, CampaignQuery(state="paused")).rows]

        assert paused(None) == paused([parent.sponsor_id]) == [parent.campaign_id]
        assert paused([going.sponsor_id]) == []
