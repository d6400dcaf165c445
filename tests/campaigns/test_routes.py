"""Routes at their doors: the command, a campaign by command and by the API, the admin's pages."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from campaigns.engine.dispatch import dispatcher
from campaigns.engine.ports import NotEntitled
from campaigns.engine.routes import entries, moving
from campaigns.models import Entitlement, Job, Route, RouteMove, Sponsor, SponsorQuota
from tests import factories as make
from tests.front.program import Program, api_vendor, forget, fresh, letter
from vendors.mail_classes import MailClass
from vendors.models import Credential, Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def vendors(number: int = 2, **facts: Any) -> list[Vendor]:
    found = [make.vendor(casters=["large-priority"], **facts) for _ in range(number)]
    for one in found:
        make.credential(one, "default")
    return found


def close(vendor: Vendor) -> None:
    Vendor.objects.filter(pk=vendor.pk).update(paused=True, paused_reason="maintenance")


def test_the_command_keeps_the_order_and_tells_what_takes_no_work() -> None:
    one, other = vendors()
    said = manage("route", "add", "mail", other.slug, f"{one.slug}/default", "--patience", "30")
    assert said.strip() == f"mail: {other.slug}/default, then {one.slug}/default"
    close(other)
    facts = json.loads(manage("route", "list", "--json"))
    assert facts["by"] == [f"{other.slug}/default", f"{one.slug}/default"] and facts["patience"] == 30
    assert facts["closed"] == [f"{other.slug}/default: vendor paused: maintenance"]
    manage("route", "set", "mail", one.slug)
    assert json.loads(manage("route", "list", "--json"))["by"] == [f"{one.slug}/default"]
    manage("route", "remove", "mail")
    assert not Route.objects.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [({"channel": "sms"}, "one channel"), ({"sandbox": True}, "sandboxes"), ({"slug": "same"}, "there is no vendor")],
)
def test_a_route_has_one_channel_and_never_a_sandbox_beside_what_delivers(change: dict[str, Any], why: str) -> None:
    one, other = vendors()
    Vendor.objects.filter(pk=other.pk).update(**change)
    with pytest.raises(CommandError, match=why):
        manage("route", "add", "mail", one.slug, other.slug)
    assert not Route.objects.exists()


def test_a_campaign_goes_by_the_first_that_its_sponsor_may_use_and_then_by_the_next(tmp_path: Path) -> None:
    sponsor = make.sponsor("Velma")
    barred, one, other = vendors(3)
    Entitlement.objects.filter(vendor=barred).delete()
    manage("route", "add", "mail", barred.slug, one.slug, other.slug)
    (tmp_path / "people.csv").write_text("email\nann@sandbox.example\nben@sandbox.example\n")
    (tmp_path / "body.txt").write_text("Dear you\n")
    content = [str(tmp_path / "people.csv"), "--subject", "Hello", "--body", str(tmp_path / "body.txt"), "--json"]
    order = ["send_campaign", *content, "--route", "mail", "--sponsor", "Velma"]
    job = Job.objects.get(pk=json.loads(manage(*order, "--at", "now"))["job"])
    assert (job.vendor, job.status, job.campaign.credential.vendor) == (one, "P_QUEUED", one)
    close(one)
    assert moving.reroute_due().vendors == {other.pk}
    job.refresh_from_db()
    assert (job.vendor, RouteMove.objects.get().size) == (other, 2)
    with pytest.raises(CommandError, match="has no route 'sms'"):
        manage(*order[:-4], "--route", "sms", "--sponsor", "Velma")
    Entitlement.objects.filter(sponsor=sponsor).delete()
    with pytest.raises(CommandError, match="may use no credential of the route mail"):
        manage(*order)


def test_a_route_of_a_sponsor_is_for_no_other_and_comes_before_the_one_for_all() -> None:
    one, other = vendors()
    mine, theirs = make.sponsor(), make.sponsor()
    manage("route", "add", "mail", one.slug)
    manage("route", "add", "mail", other.slug, "--sponsor", mine.name)
    manage("route", "add", "own", other.slug, "--sponsor", mine.name)
    found = {who: entries.usable_credentials(entries.named_route(who, "mail"), who)[0].vendor for who in (mine, theirs)}
    assert found == {mine: other, theirs: one}
    with pytest.raises(NotEntitled):
        entries.named_route(theirs, "own")


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(any))
def test_each_entry_with_a_weight_begins_its_share_of_campaigns(weights: list[int]) -> None:
    weighted, total = list(enumerate(weights)), sum(weights)
    first = Counter[int]()
    for n in range(total):
        order = entries.share_out(weighted, (n + 0.5) / total)
        assert sorted(order) == list(range(len(weights))) and order[1:] == sorted(order[1:])
        first[order[0]] += 1
    assert [first[n] for n in range(len(weights))] == weights


def test_campaigns_begin_with_vendors_by_weight_and_the_others_are_in_reserve() -> None:
    reserve, one, other = vendors(3)
    manage("route", "add", "mail", reserve.slug, f"{one.slug}=1", f"{other.slug}/default=3")
    shown = [f"{reserve.slug}/default", f"{one.slug}/default=1", f"{other.slug}/default=3"]
    assert json.loads(manage("route", "list", "--json"))["by"] == shown
    sponsor = make.sponsor()
    make.entitle([sponsor], [reserve, one, other])
    route = entries.named_route(sponsor, "mail")
    assert {entries.usable_credentials(route, sponsor)[0].vendor for _ in range(200)} == {one, other}
    Entitlement.objects.exclude(vendor=reserve).delete()
    assert entries.usable_credentials(route, sponsor)[0].vendor == reserve
    for weight in ("0", "-1", "1001", "x", "²"):
        with pytest.raises(CommandError, match="a weight is a number from 1 to 1000"):
            manage("route", "set", "mail", f"{one.slug}={weight}")


def test_requests_begin_with_vendors_by_weight() -> None:
    program, one, other = Program(), api_vendor(), api_vendor()
    for vendor in (one, other):
        make.caster(vendor, kind="large-priority")
    make.entitle([program.sponsor], [one, other])
    manage("route", "add", "mail", one.slug, f"{other.slug}=1000")
    order = letter(one) | {"route": "mail"}
    del order["vendor"]
    assert program.send(order).status_code == 202
    assert Job.objects.get().vendor == other
    close(other)
    forget()
    assert program.send(order).status_code == 202, "what is in reserve takes it"
    assert set(Job.objects.values_list("vendor", flat=True)) == {one.pk, other.pk}


def test_a_program_names_a_route_and_its_session_tells_the_moves() -> None:
    program, one, other = Program(), api_vendor(), api_vendor()
    for vendor in (one, other):
        make.caster(vendor, kind="large-priority")
    make.entitle([program.sponsor], [one, other])
    manage("route", "add", "mail", one.slug, other.slug)
    order = letter(one) | {"route": "mail"}
    assert program.send(order).status_code == 422  # a vendor and a route
    del order["vendor"]
    unknown = program.send(order | {"route": "none"})
    assert unknown.json()["errors"][0]["pointer"] == "/route"
    answer = program.send(order)
    assert answer.status_code == 202, answer.content
    job = Job.objects.get()
    assert (job.status, job.vendor, job.campaign.routed) == ("READY", one, True)
    dispatcher.dispatch_ready()
    close(one)
    moving.reroute_due()
    session = program.client.get(answer.json()["links"]["self"]).json()
    assert (session["route"], session["vendor"]) == ("mail", other.slug)
    [move] = session["moves"]
    assert move["messages"] == job.size and move["reason"] == "vendor paused: maintenance"
    assert move["went_to"].startswith(f"{other.slug}/")
    close(other)
    forget()  # what the API knows of vendors is a second old
    assert program.send(order).status_code == 503


def test_the_pages_show_the_route_and_a_person_of_one_sponsor_makes_none_for_all(client: Client) -> None:
    one, other = vendors()
    sponsor = make.sponsor()
    user = User.objects.create_user("vera", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="campaigns"))
    user.user_permissions.remove(Permission.objects.get(codename="all_sponsors"))
    sponsor.users.add(user)
    client.force_login(user)
    logins = list(Credential.objects.order_by("pk"))
    form = {"name": "mail", "channel": "email", "patience": 5, "sponsor": "", "_save": "Save"}
    form |= {"entries-TOTAL_FORMS": 2, "entries-INITIAL_FORMS": 0}
    for number, login in enumerate(logins):
        form |= {f"entries-{number}-position": number + 1, f"entries-{number}-credential": login.pk}
        form[f"entries-{number}-weight"] = 0
    add = reverse("admin:campaigns_route_add")
    assert "required" in client.post(add, form).content.decode() and not Route.objects.exists()
    Vendor.objects.filter(pk=other.pk).update(channel="sms")
    assert "not of the channel" in client.post(add, form | {"sponsor": sponsor.pk}).content.decode()
    Vendor.objects.filter(pk=other.pk).update(channel="email")
    assert client.post(add, form | {"sponsor": sponsor.pk}).status_code == 302
    route = Route.objects.get()
    parent = make.campaign_with_job(3, of=logins[0], by=sponsor, status="P_QUEUED")
    type(parent.campaign).objects.update(route=route, routed=True)
    close(one)
    assert moving.reroute_parent(parent.pk).messages == 3
    listed = client.get(reverse("admin:campaigns_route_changelist")).content.decode()
    assert "vendor paused: maintenance" in listed
    page = client.get(reverse("admin:campaigns_job_change", args=[parent.pk])).content.decode()
    assert f"3 from {logins[0]} to {logins[1]}" in page
    story = client.get(reverse("admin:campaigns_job_history", args=[parent.pk])).content.decode()
    assert f"3 that {logins[0]} has not taken go by {logins[1]}" in story


def routed(size: int, mail_class: MailClass = MailClass.BULK, **facts: Any) -> tuple[Job, Vendor, Vendor]:
    """An open campaign at the first vendor of its route, which is then closed, and the two vendors."""
    one, other = vendors()
    manage("route", "add", "mail", one.slug, other.slug)
    by, login = make.sponsor("Velma"), Credential.objects.get(vendor=one)
    campaign = make.campaign(size, of=login, by=by, messages=True, route=Route.objects.get(), routed=True)
    job = make.job(campaign, "P_QUEUED", remaining=size, mail_class=mail_class, **facts)
    close(one)
    return job, one, other


def quota(most: int, **fields: Any) -> SponsorQuota:
    facts = {"span": "month", "measure": "messages", "warn_percent": 80, **fields}
    return SponsorQuota.objects.create(sponsor=Sponsor.objects.get(name="Velma"), most=most, **facts)


def test_a_quota_at_the_next_vendor_keeps_what_does_not_fit_and_lets_it_go_once_it_does(admin_client: Client) -> None:
    job, one, other = routed(3)
    row = quota(2, vendor=other)
    assert moving.reroute_due().messages == 0
    job.refresh_from_db()
    assert job.vendor == one
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/live/").content.decode()
    assert f"{other.slug}/default takes none of it: the quota of Velma is 2 messages a month at {other.slug}" in page
    row.most = 3
    row.save()
    assert "takes none of it" not in admin_client.get(f"/admin/campaigns/job/{job.pk}/live/").content.decode()
    row.refresh_from_db()
    assert row.warned_on is None, "a look warns of nothing"
    assert moving.reroute_due().messages == 3
    job.refresh_from_db()
    assert job.vendor == other
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/live/").content.decode()
    assert f"{one.slug}/default takes none of it: vendor paused: maintenance" in page


def test_a_quota_in_all_and_one_at_the_vendor_that_is_left_have_counted_it_already() -> None:
    _job, one, _other = routed(3)
    quota(3)
    quota(3, vendor=one)
    assert moving.reroute_due().messages == 3


def test_parts_move_as_long_as_the_quota_has_room() -> None:
    job, one, other = routed(6)
    Job.objects.filter(pk=job.pk).update(status="P_ASSIGNED", remaining=0)
    for number in range(3):
        facts = {"first_message": job.first_message + 2 * number, "size": 2, "parent": job}
        make.job(job.campaign, "DISPATCHED", **facts)
    quota(4, vendor=other)
    assert moving.reroute_due().messages == 4
    assert Counter(Job.objects.filter(parent=job).values_list("vendor", flat=True)) == {other.pk: 2, one.pk: 1}
    assert moving.reroute_due().messages == 0, "the four are counted there now"


def test_urgent_mail_moves_only_to_a_vendor_where_its_sponsor_may_send_it() -> None:
    job, _one, other = routed(2, MailClass.URGENT)
    assert moving.reroute_due().messages == 0
    (first, second) = entries.route_states(job.campaign)
    assert "maintenance" in first.why
    assert second.why == f"only single letters may be urgent over {other.slug}, and this is a list"
    Entitlement.objects.filter(vendor=other).update(urgent="all")
    assert moving.reroute_due().messages == 2
    job.refresh_from_db()
    assert (job.vendor, job.mail_class) == (other, MailClass.URGENT)
