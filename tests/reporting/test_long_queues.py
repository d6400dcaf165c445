"""Forecasts where thousands of jobs wait, against a walk through the turns; and what is told behind the last one."""

import html
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from campaigns.engine.progress import progress_of_jobs
from campaigns.models import Job, Sponsor, SponsorTurn
from campaigns.reporting.forecast import campaign_states, eta, kept_totals, queues
from tests import factories
from vendors.models import Credential

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen_clock")]
RATE = 60  # messages a second
BEYOND = "no end is told beyond the vendor's first 100 jobs"


@pytest.fixture
def login() -> Credential:
    return factories.credential(factories.at_work(factories.vendor("mail", limits=[(RATE, 1)])))


def queue_up(login: Credential, sponsors: Sequence[Sponsor], size: int = 2) -> list[int]:
    """Store a job for each of these sponsors, in this order, copied from one that a factory has made."""
    campaigns = {
        one.pk: factories.campaign(size, of=login, by=one, messages=False) for one in dict.fromkeys(sponsors)
    }  # fmt: skip
    pattern = factories.job(next(iter(campaigns.values())), "DISPATCHED")
    columns = {field.column: f'j."{field.column}"' for field in Job._meta.concrete_fields if field.column != "id"}
    columns |= {"sponsor_id": "a.sponsor", "campaign_id": "a.campaign"}
    names = ", ".join(f'"{one}"' for one in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""INSERT INTO campaigns_job ({names}) SELECT {", ".join(columns.values())}
            FROM campaigns_job j, unnest(%s::bigint[], %s::bigint[]) WITH ORDINALITY a(sponsor, campaign, n)
            WHERE j.id = %s ORDER BY n RETURNING id""",
            [[one.pk for one in sponsors], [campaigns[one.pk].pk for one in sponsors], pattern.pk],
        )
        made = [pk for (pk,) in cursor.fetchall()]
    pattern.delete()
    return made


def walk(jobs: Sequence[int], sponsors: Sequence[Sponsor], weights: dict[Sponsor, int], size: int = 2) -> Any:
    """Give each message to the sponsor that has had least by its weight; its jobs go by age. Seconds, by job."""
    waiting = {one: deque[int]() for one in dict.fromkeys(sponsors)}
    for job, one in zip(jobs, sponsors, strict=True):
        waiting[one].extend([job] * size)
    given, times = dict.fromkeys(waiting, 0.0), dict[int, list[float]]()
    for number in range(len(jobs) * size):
        one = min((one for one in waiting if waiting[one]), key=lambda each: given[each] / weights.get(each, 1))
        given[one] += 1
        times.setdefault(waiting[one].popleft(), []).append(number / RATE)
    return times


def foretold(job: int, *, recent: bool = False) -> eta.JobForecast:
    rows = list(eta.select_related_rows(Job.objects.filter(pk=job)))
    return eta.forecast_jobs(rows, progress_of_jobs(rows), timezone.now(), recent=recent)[job]


def seconds(at: Any) -> float:
    return float((at - timezone.now()).total_seconds())


def test_first_and_last_message_at_place_five_thousand_are_told(login: Credential) -> None:
    """Anton came with 3,000 jobs before Velma's 7,000; hers have twice the weight."""
    anton, velma = factories.sponsor("Anton"), factories.sponsor("Velma")
    order = [anton] * 3_000 + [velma] * 7_000
    jobs = queue_up(login, order)
    SponsorTurn.objects.create(sponsor=velma, vendor=login.vendor, weight=2)
    happens = walk(jobs, order, {velma: 2})
    for place in (900, 2_900, 5_000, 9_999):
        found, times = foretold(jobs[place]), happens[jobs[place]]
        assert seconds(found.first_at) == pytest.approx(times[0], rel=0.15, abs=1), place
        assert seconds(found.ends_at) == pytest.approx(times[-1], rel=0.15, abs=1), place


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are told of a vendor's first hundred jobs."""
    monkeypatch.setattr(queues, "NEAR", 100)
    monkeypatch.setitem(queues._PLACES, "most", 100)


@pytest.mark.usefixtures("short")
def test_what_stands_behind_the_last_place_has_its_share(login: Credential) -> None:
    anton, velma, otto = factories.sponsor("Anton"), factories.sponsor("Velma"), factories.sponsor("Otto")
    order = [anton] * 90 + [velma] * 30 + [otto] * 200
    jobs = queue_up(login, order, 60)
    happens = walk(jobs, order, {}, 60)
    for place in (10, 85, 95):
        assert seconds(foretold(jobs[place]).ends_at) == pytest.approx(happens[jobs[place]][-1], rel=0.15, abs=1)
    said = foretold(jobs[10]).describe_ahead(timezone.now(), is_operator=True)
    assert "Otto (1, 12,000 wait), Velma (1, 1,800 wait)" in said


@pytest.mark.usefixtures("short")
def test_behind_the_last_place_no_end_is_told_and_that_is_said(login: Credential, admin_client: Client) -> None:
    anton = factories.sponsor("Anton")
    jobs = queue_up(login, [anton] * 150)
    assert (foretold(jobs[149]).next, foretold(jobs[149]).ends) == ("waits for its turn", BEYOND)
    assert foretold(jobs[99]).ends.startswith("ends about")
    assert BEYOND in html.unescape(admin_client.get("/admin/campaigns/job/").content.decode())
    campaign = Job.objects.get(pk=jobs[0]).campaign_id
    assert BEYOND in campaign_states.states_of_campaigns([campaign])[campaign].why
    Job.objects.filter(pk__in=jobs[:60]).update(status="LOGGED", finished_at=timezone.now())
    assert foretold(jobs[149]).ends.startswith("ends about")


@pytest.mark.usefixtures("short")
def test_kept_places_say_the_same(login: Credential, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_totals, "MANY_PLACES", 0)
    monkeypatch.setattr(kept_totals, "SHARE", 1e9)
    monkeypatch.setattr(queues, "_near", {})
    anton, velma = factories.sponsor("Anton"), factories.sponsor("Velma")
    jobs = queue_up(login, [anton] * 100 + [velma] * 50, 60)
    exact = [foretold(jobs[place]) for place in (50, 149)]
    foretold(jobs[50], recent=True)
    for _ in range(2):
        kept = [foretold(jobs[place], recent=True) for place in (50, 149)]
        assert kept[0].counted_at and kept[0].ends_at == exact[0].ends_at
        assert kept[1].ends == exact[1].ends == BEYOND
