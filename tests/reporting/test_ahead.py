"""What goes before a sponsor's mail at a vendor that others use too, as forecasts and every door tell it."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.engine.progress import progress_of_jobs
from campaigns.models import Job, Sponsor, SponsorTurn
from campaigns.operations import actions
from campaigns.reporting.forecast import ahead, eta, kept_totals, queues
from campaigns.reporting.forecast.queues import SponsorQueue
from mailhub.monitoring import metrics
from tests import factories
from vendors.history import Actor
from vendors.mail_classes import MailClass
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db


@pytest.fixture
def login() -> Credential:
    """60 messages a second."""
    return factories.credential(factories.at_work(factories.vendor("mail", limits=[(60, 1)])))


def waits(login: Credential, sponsor: Sponsor, messages: int, status: str = "DISPATCHED") -> Job:
    return factories.campaign_with_job(messages, status=status, of=login, by=sponsor, messages=False)


@pytest.fixture
def issue(login: Credential) -> tuple[Job, Job]:
    """The case of the issue: 5,640 of Anton's 6,000 wait when Velma hands in 200."""
    return waits(login, factories.sponsor("Anton"), 5_640), waits(login, factories.sponsor("Velma"), 200)


def foretold(job: Job) -> eta.JobForecast:
    rows = list(eta.select_related_rows(Job.objects.filter(pk=job.pk)))
    return eta.forecast_jobs(rows, progress_of_jobs(rows), timezone.now())[job.pk]


def kept(job: Job) -> eta.JobForecast:
    """The forecast of a page that polls."""
    rows = list(eta.select_related_rows(Job.objects.filter(pk=job.pk)))
    return eta.forecast_jobs(rows, progress_of_jobs(rows), timezone.now(), recent=True)[job.pk]


def seconds(at: Any, now: Any) -> float:
    return float((at - now).total_seconds())


@pytest.mark.usefixtures("frozen_clock")
def test_two_equal_sponsors_have_half_of_the_rate_each_until_one_is_done(issue: tuple[Job, Job]) -> None:
    long, short = issue
    now = timezone.now()
    assert seconds(foretold(short).ends_at, now) == pytest.approx(400 / 60, abs=1)
    assert seconds(foretold(short).first_at, now) == pytest.approx(0, abs=1)
    assert seconds(foretold(long).ends_at, now) == pytest.approx(5_840 / 60, abs=1)


@pytest.mark.usefixtures("frozen_clock")
def test_the_end_changes_when_the_other_one_is_stopped_and_with_the_weights(issue: tuple[Job, Job]) -> None:
    long, short = issue
    now = timezone.now()
    SponsorTurn.objects.create(sponsor_id=short.sponsor_id, vendor=short.vendor, weight=3)
    assert seconds(foretold(short).ends_at, now) == pytest.approx(267 / 60, abs=1)
    actions.stop_jobs([long.pk], Actor("ann"))
    assert seconds(foretold(short).ends_at, now) == pytest.approx(200 / 60, abs=1)
    assert foretold(short).ahead.text_for_operators == foretold(short).ahead.text_for_owners == ""


@pytest.mark.usefixtures("frozen_clock")
def test_who_is_behind_his_own_list_is_told_so_and_when_he_begins(issue: tuple[Job, Job], login: Credential) -> None:
    long, _short = issue
    now = timezone.now()
    last = waits(login, Sponsor.objects.get(name="Anton"), 60)
    found = foretold(last)
    assert seconds(found.first_at, now) == pytest.approx(5_840 / 60, abs=2)
    said = found.describe_ahead(now, is_operator=True)
    assert said.startswith(
        "behind 5,640 of its own; Anton has 1 of 2 shares of the vendor beside Velma (1, 200 wait); first message about"
    )
    for_owner = found.describe_ahead(now, is_operator=False)
    assert for_owner.startswith("behind 5,640 of your own; others share this vendor, and you have about half of it;")
    assert "Velma" not in for_owner and "200" not in for_owner
    assert "first message" not in foretold(waits(login, long.campaign.sponsor, 9, "SENDING")).describe_ahead(
        now, is_operator=True
    )


def test_who_is_held_by_a_limit_or_a_pause_of_his_own_takes_no_share(login: Credential) -> None:
    """Velma's own credential allows 5 a second, Otto's is paused: Anton has the rest."""
    anton, velma, otto = (factories.sponsor(name) for name in ("Anton", "Velma", "Otto"))
    own, paused = factories.credential(login.vendor), factories.credential(login.vendor, paused=True)
    login.vendor.limits.create(credential=own, units=5, seconds=1)
    waits(login, anton, 550)
    waits(own, velma, 1_000)
    waits(paused, otto, 9_000)
    now = timezone.now()
    queue = queues.queues_of_vendors([login.vendor_id], now)[login.vendor_id]
    assert {one.sponsor.name: round(60 * one.part, 3) for one in ahead.list_sharing(queue, now)} == {
        "Velma": 5.0, "Anton": 55.0,
    }  # fmt: skip
    ends = {one.sponsor.name: round(seconds(end.ends_at, now)) for one, end in eta.forecast_sponsors(queue, now)}
    assert ends["Anton"] in (9, 10) and ends["Velma"] in (199, 200)


def test_it_asks_no_more_for_a_hundred_sponsors(login: Credential) -> None:
    first = waits(login, factories.sponsor(), 5)

    def asked() -> int:
        with CaptureQueriesContext(connection) as seen:
            foretold(first)
        return len(seen)

    asked()
    alone = asked()
    for _ in range(99):
        waits(login, factories.sponsor(), 7)
    assert asked() == alone
    assert len(foretold(first).ahead.others) == 99 and "96 more" in foretold(first).ahead.text_for_operators


def owner_of(sponsor: Sponsor) -> Client:
    user = User.objects.create(username="velma", is_staff=True)
    user.groups.set(Group.objects.filter(name__in=["campaign owner", "operator"]))
    sponsor.users.add(user)
    client = Client()
    client.force_login(user)
    return client


def test_pages_tell_operators_all_and_owners_nothing_of_others(issue: tuple[Job, Job], admin_client: Client) -> None:
    _long, short = issue
    page = f"/admin/campaigns/job/{short.pk}/live/"
    said = admin_client.get(page).content.decode()
    assert "Velma has 1 of 2 shares of the vendor beside Anton (1, 5,640 wait)" in said
    owner = owner_of(short.campaign.sponsor)
    for address in (page, f"/campaigns/{short.campaign_id}/"):
        seen = owner.get(address).content.decode()
        assert "Others share this vendor, and you have about half of it" in seen, address
        assert "Anton" not in seen and "5,640" not in seen


def test_commands_tell_shares_and_each_ones_end(
    issue: tuple[Job, Job], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    def out(*order: str) -> str:
        call_command(*order)
        return capsys.readouterr().out

    assert "shares: Anton has 1 of 2 (5,640 wait), Velma has 1 of 2 (200 wait)" in " ".join(out("status").split())
    said = out("forecast", "mail")
    assert re.search(r"; shares: Anton 1 of 2, 5,640 wait, ends \S+ \(\w+ min\); Velma 1 of 2, 200 wait, ends", said), (
        said
    )
    found = json.loads(out("forecast", "mail", "--json"))["sponsors"]
    assert [(one["sponsor"], one["weight"], one["messages"], one["share"]) for one in found] == [
        ("Anton", 1, 5640, 0.5), ("Velma", 1, 200, 0.5),
    ]  # fmt: skip
    assert found[1]["ends_at"] < found[0]["ends_at"]
    rows = [json.loads(line) for line in out("list_jobs", "--json").splitlines()]
    assert rows[0]["sponsor"] == "Velma" and rows[0]["ahead"].startswith("Velma has 1 of 2 shares of the vendor")
    assert rows[0]["ends_at"] < rows[1]["ends_at"]
    (of_vendor,) = [json.loads(line) for line in out("status", "--json").splitlines()]
    assert [one["sponsor"] for one in of_vendor["sponsors"]] == ["Anton", "Velma"]


@pytest.mark.django_db(transaction=True)
def test_metrics_tell_who_shares_a_vendor(issue: tuple[Job, Job]) -> None:
    found = metrics.metrics_text().decode()
    assert 'mailhub_sponsors_queued{vendor="mail"} 2.0' in found
    assert 'mailhub_sponsor_messages_queued{sponsor="Velma",vendor="mail"} 200.0' in found
    assert 'mailhub_sponsor_share{sponsor="Anton",vendor="mail"} 0.5' in found


@pytest.mark.django_db(transaction=True)
def test_metrics_name_no_sponsor_that_is_alone_and_only_so_many(
    login: Credential, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits(login, factories.sponsor("Anton"), 5)
    assert "Anton" not in metrics.metrics_text().decode()
    for name in ("Velma", "Otto", "Udo"):
        waits(login, factories.sponsor(name), 5)
    monkeypatch.setattr(metrics, "PAIRS", 2)
    found = metrics.metrics_text().decode()
    assert 'sponsor="Velma"' in found and "Otto" not in found
    assert 'mailhub_sponsor_messages_queued{sponsor="(others)",vendor="mail"} 10.0' in found


@pytest.mark.parametrize(
    ("weight", "others", "said"),
    [(1, [1], "half"), (1, [2], "a third"), (2, [1], "two thirds"), (1, [1, 2], "a quarter"), (9, [1], "90 percent")],
)
def test_a_part_is_told_in_words(weight: int, others: list[int], said: str) -> None:
    beside = tuple((SponsorQueue(number, "", one), 1) for number, one in enumerate(others, start=2))
    assert ahead.Ahead(0, weight, beside).part == said


def test_a_batch_that_is_not_stored_yet_waits_beside_others(issue: tuple[Job, Job], login: Credential) -> None:
    now = timezone.now()
    queue = queues.queues_of_vendors([login.vendor_id], now)[login.vendor_id]
    newcomer = factories.sponsor("Otto")
    end = eta.forecast_batch(queue, login.pk, newcomer.pk, 0, 300, now)
    assert seconds(end.ends_at, now) == pytest.approx(800 / 60, abs=1), "300 of each of two, and Velma's 200"
    behind_all = eta.forecast_batch(queue, login.pk, None, 0, 300, now)
    assert behind_all.ends_at > end.ends_at + timedelta(seconds=60)


def test_a_vendor_without_a_limit_has_shares_and_no_ends(capsys: pytest.CaptureFixture[str]) -> None:
    fast: Vendor = factories.at_work(factories.vendor("fast"))
    login = factories.credential(fast)
    for name in ("Anton", "Velma"):
        waits(login, factories.sponsor(name), 10)
    call_command("forecast", "fast")
    assert "as fast as the vendor answers" in capsys.readouterr().out


def of_class(login: Credential, name: str, messages: int, mail_class: MailClass, status: str = "DISPATCHED") -> Job:
    by = factories.sponsor(name)
    fields: dict[str, Any] = {"of": login, "by": by, "messages": False, "mail_class": mail_class}
    return factories.campaign_with_job(messages, status=status, **fields)


@pytest.fixture
def classes(login: Credential) -> tuple[Job, Job]:
    """Anton's newsletter of a million waits when Velma sends 540 codes."""
    return of_class(login, "Anton", 1_000_000, MailClass.BULK), of_class(login, "Velma", 540, MailClass.URGENT)


@pytest.mark.usefixtures("frozen_clock")
def test_an_urgent_job_ends_as_if_alone_but_for_the_floor_of_a_bulk_million(classes: tuple[Job, Job]) -> None:
    bulk, urgent = classes
    now = timezone.now()
    assert seconds(foretold(urgent).ends_at, now) == pytest.approx(540 / 54, abs=1)
    assert seconds(foretold(bulk).ends_at, now) == pytest.approx(1_000_540 / 60, abs=1)
    assert seconds(foretold(bulk).first_at, now) == pytest.approx(0, abs=1), "its floor begins at once"
    assert foretold(urgent).describe_ahead(now, is_operator=True) == "", "nothing goes before it"
    Vendor.objects.update(floor=0)
    assert seconds(foretold(urgent).ends_at, now) == pytest.approx(540 / 60, abs=1)
    assert seconds(foretold(bulk).first_at, now) == pytest.approx(540 / 60, abs=1)


@pytest.mark.usefixtures("frozen_clock")
def test_a_bulk_job_tells_its_floor_while_urgent_mail_waits(login: Credential) -> None:
    """60 of Anton's go at the floor, 6 a second, while 5,400 codes go at 54."""
    of_class(login, "Velma", 5_400, MailClass.URGENT)
    bulk = of_class(login, "Anton", 60, MailClass.BULK)
    now = timezone.now()
    assert seconds(foretold(bulk).ends_at, now) == pytest.approx(60 / 6, abs=1)
    said = foretold(bulk).describe_ahead(now, is_operator=True)
    assert said.startswith(
        "more urgent mail goes first, but for a floor of 10 percent: Velma (1, 5,400 wait); first message about"
    )
    for_owner = foretold(bulk).describe_ahead(now, is_operator=False)
    assert for_owner.startswith(
        "more urgent mail of others goes first; others share this vendor, and you have about a tenth of it; first"
    )
    assert "Velma" not in for_owner and "5,400" not in for_owner
    Vendor.objects.update(floor=0)
    assert seconds(foretold(bulk).ends_at, now) == pytest.approx(5_460 / 60, abs=1)
    assert "there is no floor: Velma" in foretold(bulk).describe_ahead(now, is_operator=True)
    assert "goes first; yours waits as long as it comes" in foretold(bulk).describe_ahead(now, is_operator=False)


@pytest.mark.usefixtures("frozen_clock")
def test_urgent_mail_of_ones_own_goes_before_older_bulk_mail(login: Credential) -> None:
    bulk = of_class(login, "Anton", 600, MailClass.BULK)
    urgent = of_class(login, "Anton", 54, MailClass.URGENT)
    now = timezone.now()
    assert seconds(foretold(urgent).ends_at, now) == pytest.approx(1, abs=1)
    assert foretold(bulk).ahead.own == 54 and foretold(urgent).ahead.own == 0
    assert foretold(bulk).describe_ahead(now, is_operator=False).startswith("behind 54 of your own; first message")


@pytest.mark.usefixtures("frozen_clock")
def test_within_a_class_the_weights_hold_and_higher_mail_makes_it_slower(login: Credential) -> None:
    of_class(login, "Otto", 10_000, MailClass.URGENT)
    anton, velma = (of_class(login, name, 30, MailClass.USUAL) for name in ("Anton", "Velma"))
    SponsorTurn.objects.create(sponsor_id=velma.sponsor_id, vendor=velma.vendor, weight=2)
    now = timezone.now()
    assert seconds(foretold(velma).ends_at, now) == pytest.approx(30 / 4, abs=1), "two thirds of 6 a second"
    assert seconds(foretold(anton).ends_at, now) == pytest.approx(60 / 6, abs=1)
    queue = queues.queues_of_vendors([login.vendor_id], now)[login.vendor_id]
    parts = {one.sponsor.name: round(one.part, 3) for one in ahead.list_sharing(queue, now)}
    assert parts == {"Otto": 0.9, "Anton": 0.033, "Velma": 0.067}
    ends = {one.sponsor.name: seconds(end.ends_at, now) for one, end in eta.forecast_sponsors(queue, now)}
    assert ends["Velma"] == pytest.approx(30 / 4, abs=1) and ends["Otto"] == pytest.approx(10_060 / 60, abs=1)


@pytest.mark.usefixtures("frozen_clock")
def test_a_batch_that_is_not_stored_yet_goes_in_its_class(classes: tuple[Job, Job], login: Credential) -> None:
    now = timezone.now()
    queue = queues.queues_of_vendors([login.vendor_id], now)[login.vendor_id]
    velma = classes[1].sponsor_id

    def end(messages: int, mail_class: MailClass) -> float:
        return seconds(eta.forecast_batch(queue, login.pk, velma, 0, messages, now, mail_class).ends_at, now)

    assert end(54, MailClass.URGENT) == pytest.approx(594 / 54, abs=1)
    assert end(60, MailClass.USUAL) == pytest.approx(10, abs=1), "her codes go first; a tenth of 60 is for it"
    assert end(30, MailClass.BULK) == pytest.approx(10, abs=1), "half of bulk mail's tenth"


def test_doors_tell_the_classes_that_wait(
    classes: tuple[Job, Job], admin_client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    said = "classes: urgent 540, bulk 1,000,000; floor 10 percent"
    call_command("status")
    assert said in " ".join(capsys.readouterr().out.split())
    call_command("forecast", "mail")
    assert said in capsys.readouterr().out
    call_command("forecast", "mail", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["classes"] == {"urgent": 540, "bulk": 1_000_000} and facts["floor"] == 10
    assert [one["classes"] for one in facts["sponsors"]] == [{"bulk": 1_000_000}, {"urgent": 540}]
    assert [one["share"] for one in facts["sponsors"]] == [0.1, 0.9]
    call_command("status", "--json")
    assert json.loads(capsys.readouterr().out)["classes"] == {"urgent": 540, "bulk": 1_000_000}
    bulk, _urgent = classes
    page = admin_client.get(f"/admin/campaigns/job/{bulk.pk}/live/").content.decode()
    assert "More urgent mail goes first, but for a floor of 10 percent: Velma (1, 540 wait)" in page
    Vendor.objects.update(floor=0)
    call_command("forecast", "mail")
    assert "bulk 1,000,000; no floor" in capsys.readouterr().out


@pytest.mark.django_db(transaction=True)
def test_metrics_count_what_waits_by_class(classes: tuple[Job, Job]) -> None:
    found = metrics.metrics_text().decode()
    for mail_class, queued in (("urgent", "540.0"), ("usual", "0.0"), ("bulk", "1e+06")):
        assert f'mailhub_class_messages_queued{{class="{mail_class}",vendor="mail"}} {queued}' in found


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place counts as one of many, so places are kept, as long as they may be."""
    monkeypatch.setattr(kept_totals, "MANY_PLACES", 0)
    monkeypatch.setattr(kept_totals, "SHARE", 1e9)
    monkeypatch.setattr(queues, "_near", {})


@pytest.mark.usefixtures("frozen_clock", "many")
def test_pages_that_poll_keep_many_places_for_a_moment_and_follow_all_else(issue: tuple[Job, Job]) -> None:
    long, short = issue
    exact = foretold(short)
    assert kept(short).counted_at is None, "it is not known yet that they are many"
    found = [kept(short), kept(short)]
    assert all(one.counted_at for one in found)
    assert {(one.ends_at, one.first_at, one.next) for one in found} == {(exact.ends_at, exact.first_at, exact.next)}
    assert kept(long).ends_at == foretold(long).ends_at, "the places of the others are kept, too"
    late = waits(long.credential, short.sponsor, 100)
    assert kept(late).ends_at is None and foretold(late).ends_at, "it came since"
    SponsorTurn.objects.create(sponsor_id=short.sponsor_id, vendor=short.vendor, weight=3)
    assert kept(short).ends_at == foretold(short).ends_at != exact.ends_at
    Credential.objects.update(paused=True)
    assert kept(short).next == foretold(short).next and kept(short).stands


@pytest.mark.usefixtures("issue", "many")
def test_the_list_of_jobs_says_when_places_were_counted(admin_client: Client) -> None:
    polled = {"HX-Request": "true"}
    assert "Places in the queues" not in admin_client.get("/admin/campaigns/job/", headers=polled).content.decode()
    assert "Places in the queues" in admin_client.get("/admin/campaigns/job/", headers=polled).content.decode()


@pytest.mark.usefixtures("issue")
def test_few_places_are_counted_at_each_look(admin_client: Client) -> None:
    for _ in range(3):
        page = admin_client.get("/admin/campaigns/job/", headers={"HX-Request": "true"}).content.decode()
        assert "ends about" in page and "Places in the queues" not in page
