"""Lists say why a routed job whose vendor takes nothing is taken by no other vendor of its route either."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.engine import progress
from campaigns.engine.routes import moving
from campaigns.models import Campaign, Entitlement, Job, Route, RouteMove, Sponsor, SponsorQuota
from campaigns.reporting.api import forecasts
from campaigns.reporting.forecast import campaign_states, eta
from mailhub.operations import dashboard
from tests import factories as make
from tests.owners.test_sizes import owner_of
from vendors.mail_classes import MailClass
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db


class Stuck:
    """A route of three: the first vendor is paused, the second is another sponsor's, the third has a quota."""

    def __init__(self) -> None:
        self.first, self.barred, self.third = (make.at_work(make.vendor(casters=["large-priority"])) for _ in range(3))
        self.login = make.credential(self.first, "main")
        make.credential(self.barred, "of-the-rival")
        make.credential(self.third, "spare")
        self.route = Route.objects.create(name=make.unique("mail"), channel="email", patience=5)
        for position, vendor in enumerate((self.first, self.barred, self.third), 1):
            self.route.entries.create(position=position, credential=Credential.objects.get(vendor=vendor))
        Vendor.objects.filter(pk=self.first.pk).update(paused=True, paused_reason="maintenance")

    def job(self, by: Sponsor, mail_class: MailClass = MailClass.BULK, **campaign: Any) -> Job:
        """A job of ten messages, where the sponsor's quota at the third vendor is nine."""
        SponsorQuota.objects.get_or_create(
            sponsor=by, vendor=self.third, span="month", measure="messages", defaults={"most": 9, "warn_percent": 80}
        )
        Entitlement.objects.filter(sponsor=by, vendor=self.barred).delete()
        one = make.campaign(10, of=self.login, by=by, messages=True, route=self.route, routed=True, **campaign)
        make.entitle([by], [self.first, self.third])
        Entitlement.objects.filter(vendor=self.barred).delete()
        return make.job(one, "P_QUEUED", remaining=10, mail_class=mail_class)


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


def test_each_door_says_it_and_no_owner_reads_of_a_credential_that_is_not_for_him(
    stuck: Stuck, admin_client: Client
) -> None:
    velma = make.sponsor("Velma")
    job = stuck.job(velma)
    quota = f"{stuck.third.slug}/spare takes none of it: the quota of Velma is 9 messages a month"
    rival = f"{stuck.barred.slug}/of-the-rival takes none of it: its sponsor may not use it"
    listed = admin_client.get("/admin/campaigns/job/", headers={"HX-Request": "true"}).content.decode()
    assert quota in listed and rival in listed
    out = io.StringIO()
    call_command("list_jobs", "--json", stdout=out)
    assert quota in out.getvalue() and rival in out.getvalue()
    owner = owner_of(velma)
    stored = Job.objects.select_related("campaign", "vendor", "credential").get(pk=job.pk)
    forecast = forecasts.forecast_of_job(stored, progress.progress_of_jobs([stored])[job.pk])
    for page in (
        owner.get("/").content.decode(),
        owner.get(f"/campaigns/{job.campaign_id}/").content.decode(),
        campaign_states.states_of_campaigns([job.campaign_id])[job.campaign_id].why,
        str(forecast and forecast["basis"]),
    ):
        assert quota in page and "rival" not in page


def out(*args: str) -> str:
    return " ".join(run(*args).split())


def run(*args: str) -> str:
    call_command(*args, stdout=(written := io.StringIO()))
    return written.getvalue()


def test_status_forecast_and_the_operations_page_say_it_of_the_oldest_job(stuck: Stuck, admin_client: Client) -> None:
    velma = make.sponsor("Velma")
    oldest, quota = stuck.job(velma), "spare takes none of it: the quota of Velma is 9 messages a month"
    stuck.job(velma)
    said = f"job {oldest.pk}: {stuck.barred.slug}/of-the-rival takes none of it: its sponsor may not use it"
    (facts,) = [json.loads(line) for line in run("forecast", stuck.first.slug, "--json").splitlines()]
    (of_job,) = [json.loads(line) for line in run("forecast", "--job", str(oldest.pk), "--json").splitlines()]
    of_vendors = [json.loads(line) for line in run("status", "--json").splitlines()]
    (notes,) = [one["notes"] for one in of_vendors if one["vendor"] == stuck.first.slug]
    assert facts["routes"] == notes and len(notes) == 1 and notes[0].startswith(said) and quota in notes[0]
    assert f"job {oldest.pk}: {of_job['routes']}" == notes[0]
    page = admin_client.get("/admin/").content.decode()
    for text in (out("forecast", stuck.first.slug), page):
        assert said in text and quota in text
    assert said in out("forecast") and quota in out("forecast", "--job", str(oldest.pk))
    Campaign.objects.filter(pk=oldest.campaign_id).update(routed=False, route=None)
    assert said not in out("forecast")


def test_a_forecast_of_a_job_tells_what_goes_before_it() -> None:
    vendor = make.at_work(make.vendor(limits=[(20, 1)]))
    login = make.credential(vendor)
    velma, anton = make.sponsor("Velma"), make.sponsor("Anton")
    make.job(make.campaign(600, of=login, by=anton, messages=True), "DISPATCHED")
    make.job(make.campaign(300, of=login, by=velma, messages=True), "DISPATCHED")
    second = make.job(make.campaign(100, of=login, by=velma, messages=True), "DISPATCHED")
    said = out("forecast", "--job", str(second.pk))
    assert said.startswith(f"job {second.pk}: waits for its turn; behind 300 of its own; ")
    assert "Velma has 1 of 2 shares of the vendor beside Anton (1, 600 wait); first message about" in said
    assert "ends about" in said
    with pytest.raises(CommandError, match="there is no job 0"):
        out("forecast", "--job", "0")


def test_nothing_is_said_while_another_vendor_takes_it_or_its_own_one_does(stuck: Stuck) -> None:
    job = stuck.job(make.sponsor())
    SponsorQuota.objects.update(most=10)
    assert not stays_of([job])[job.pk]
    SponsorQuota.objects.update(most=9)
    assert stays_of([job])[job.pk]
    Vendor.objects.filter(pk=stuck.first.pk).update(paused=False)
    assert not stays_of([job])[job.pk]


def test_a_vendor_that_had_the_messages_before_is_named_so(stuck: Stuck) -> None:
    job = stuck.job(make.sponsor())
    SponsorQuota.objects.all().delete()
    spare = Credential.objects.get(vendor=stuck.third)
    RouteMove.objects.create(
        campaign_id=job.campaign_id, parent=job, first_message=job.first_message, size=10, messages=10,
        came_from=spare, went_to=stuck.login, at=timezone.now(), reason="it was paused",
    )  # fmt: skip
    assert f"{stuck.third.slug}/spare takes none of it: it had them before" in stays_of([job])[job.pk]
    assert moving.reroute_due().messages == 0


def test_a_hundred_jobs_of_as_many_sponsors_take_as_many_statements_as_ten(stuck: Stuck) -> None:
    def more(number: int) -> list[Job]:
        found = []
        for n in range(number):
            mail_class = MailClass.URGENT if n % 3 == 0 else MailClass.BULK
            files = {"html": True, "has_files": True, "body": '<img src="cid:logo">'} if n % 2 else {}
            found.append(stuck.job(make.sponsor(), mail_class, **files))
        return found

    def counted(jobs: list[Job]) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert all(stays_of(jobs).values())
        return len(seen)

    few = more(10)
    counted(few)  # what is read once for each process
    taken = counted(few)
    many = [*few, *more(90)]
    assert counted(many) == taken
    with CaptureQueriesContext(connection) as seen:
        assert len(campaign_states.states_of_campaigns({job.campaign_id for job in many})) == 100
    assert len(seen) <= taken + 1, "with the totals of the campaigns"


def test_lists_of_campaigns_without_a_route_take_no_further_statement(stuck: Stuck) -> None:
    job = stuck.job(make.sponsor())
    with CaptureQueriesContext(connection) as routed:
        stays_of([job])
    Campaign.objects.update(routed=False, route=None)
    with CaptureQueriesContext(connection) as plain:
        assert not stays_of([job])[job.pk]
    with CaptureQueriesContext(connection) as alone:
        list(eta.select_related_rows(Job.objects.filter(pk=job.pk)))
    assert len(plain) <= 4 + len(alone) < len(routed)


def test_status_takes_as_many_statements_for_ten_stuck_vendors_as_for_two() -> None:
    def counted() -> int:
        with CaptureQueriesContext(connection) as seen:
            found = dashboard.read_dashboard()
        assert all("spare takes none of it" in one.notes[0] for one in found.vendors if one.vendor.paused)
        assert sum(one.vendor.paused for one in found.vendors) == len(routes)
        return len(seen)

    routes = [Stuck() for _ in range(2)]
    for one in routes:
        one.job(make.sponsor())
    counted()  # what is read once for each process
    few = counted()
    routes += [Stuck() for _ in range(8)]
    for one in routes:
        for _ in range(3):
            one.job(make.sponsor())
    assert counted() == few


def stays_of(jobs: list[Job]) -> dict[int, str]:
    rows = list(eta.select_related_rows(Job.objects.filter(pk__in=[job.pk for job in jobs])))
    found = eta.forecast_jobs(rows, progress.progress_of_jobs(rows), timezone.now())
    return {pk: one.stays for pk, one in found.items()}
