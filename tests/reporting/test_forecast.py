"""manage.py forecast: when the last message that waits for a vendor will be called (document 000's thousand jobs)."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.models import Campaign, Job
from campaigns.reporting.forecast import eta
from tests import factories
from tests.campaigns.rows import accepted, family, logged
from tests.terminal import Terminal
from vendors import redis_clients
from vendors.limits.throttle import Throttle
from vendors.limits.values import Grant, Limit, Scope
from vendors.models import Minute, Vendor

pytestmark = pytest.mark.django_db


@pytest.fixture
def answer(capsys: pytest.CaptureFixture) -> Any:
    def go(vendor: Vendor, **options: Any) -> Any:
        call_command("forecast", vendor.slug, **options)
        out = capsys.readouterr().out
        return json.loads(out) if options.get("json") else out.strip()

    return go


@pytest.fixture
def throttle() -> Iterator[Throttle]:
    redis = redis_clients.make_client(settings.REDIS_URL)
    yield Throttle(redis)
    redis.close()


def waiting(vendor: Vendor, jobs: int, each: int = 1) -> list[Job]:
    """So many jobs, each of its own campaign, wait for the vendor."""
    login = vendor.credentials.first() or factories.credential(vendor)
    return [factories.campaign_with_job(each, status="DISPATCHED", of=login) for _ in range(jobs)]


def test_a_thousand_letters_at_five_a_minute_end_after_3_hours_and_19_minutes(answer: Any) -> None:
    vendor = factories.at_work(factories.vendor("mail", limits=[(5, 60)]))
    login, sponsor = factories.credential(vendor), factories.sponsor()
    for _ in range(2):
        factories.campaign_with_job(500, status="DISPATCHED", of=login, by=sponsor)
    assert re.fullmatch(r"mail: 1,000 messages in 2 jobs at 5 per 60 s: ends \d\d:\d\d \(3 h 19 min\)", answer(vendor))
    assert answer(vendor, json=True)["seconds"] == 11_940


def test_on_a_terminal_a_forecast_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = factories.at_work(factories.vendor("mail-for-" + "all" * 10, limits=[(5, 60), (200_000, 86_400)]))
    factories.campaign_with_job(4, status="RENDERED", of=factories.credential(vendor))
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    call_command("forecast", vendor.slug, stdout=screen)
    lines = screen.lines()
    assert len(lines) > 1 and max(map(len, lines)) <= 80
    said = " ".join(line.strip() for line in lines)
    assert f"{vendor.slug}: nothing is queued at 5 per 60 s and 200,000 per day; 4 for the nightly dispatch" in said


def test_what_ends_at_this_moment_ends_now() -> None:
    now = timezone.now()
    assert (
        eta.format_about(now, now)
        == f"{timezone.localtime(now):%H:%M} (now)"
        == eta.format_about(now - timedelta(hours=1), now)
    )


def test_messages_that_cost_several_units_are_reckoned_by_what_the_last_ones_cost(answer: Any) -> None:
    vendor = factories.at_work(factories.vendor("sms", limits=[(6, 60)]))
    waiting(vendor, 1, each=30)
    assert answer(vendor, json=True)["seconds"] == 240
    minute = timezone.now().replace(second=0, microsecond=0)
    Minute.objects.create(vendor=vendor, at=minute, share=0, accepted=8, refused=2, units=20)
    assert answer(vendor, json=True)["seconds"] == 540, "60 units, 6 a minute"
    assert "at 6 per 60 s, about 2 units a message: ends" in answer(vendor)


def test_calls_that_are_in_the_window_hold_their_permits(answer: Any, throttle: Throttle) -> None:
    vendor = factories.at_work(factories.vendor(limits=[(2, 600)]))
    (job,) = waiting(vendor, 1, each=3)
    scope = Scope(vendor.pk, job.credential_id, vendor.generation, (Limit(2, 600),))
    assert throttle.rebuild(vendor.pk, vendor.generation, 600, []) is None
    grant = throttle.acquire(scope, 2, hold=1)
    assert isinstance(grant, Grant)
    throttle.done(scope, grant.places())
    seconds = answer(vendor, json=True)["seconds"]
    assert 1_000 < seconds <= 1_200, "two of three wait for the window, the third for the next one"


def test_a_parent_counts_with_what_is_not_cut_and_with_its_children(answer: Any) -> None:
    top, _ = family(parent="P_ASSIGNING", remaining=20, children=["DISPATCHED", "LOGGED"], each=10)
    facts = answer(factories.at_work(top.vendor), json=True)
    assert (facts["jobs"], facts["messages"]) == (1, 30)


def test_what_waits_for_the_night_or_its_own_time_is_listed_apart(answer: Any) -> None:
    vendor = factories.at_work(factories.vendor("mail", limits=[(1, 10)]))
    login = factories.credential(vendor)
    factories.campaign_with_job(4, status="RENDERED", of=login)
    soon = factories.campaign_with_job(3, status="READY", of=login)
    Campaign.objects.filter(pk=soon.campaign_id).update(send_at=timezone.now() + timedelta(hours=1))
    closed = factories.campaign_with_job(2, status="DISPATCHED", of=login)
    Job.objects.filter(pk=closed.pk).update(not_before=timezone.now() + timedelta(hours=1))
    own = r"5 wait for a time of their own, or are paused, the first until \d\d:\d\d"
    night = r"4 for the nightly dispatch \w+, \d+ \w{3} 18:00 UTC"
    said = answer(vendor)
    assert re.fullmatch(f"mail: 5 messages in 2 jobs at 1 per 10 s: put off or paused; {own}; {night}", said), said


def test_nobody_knows_the_end_while_something_is_paused(answer: Any) -> None:
    vendor = factories.at_work(factories.vendor("mail", limits=[(1, 10)]))
    (job,) = waiting(vendor, 1)
    vendor.limits.update(units=0)
    assert answer(vendor).endswith("no end: the vendor's limit is 0")
    type(job.credential).objects.filter(pk=job.credential_id).update(paused=True, paused_reason="401", name="main")
    assert answer(vendor).endswith("no end: the vendor's limit is 0; 1 wait: credential main paused: 401")
    vendor.limits.update(units=1)
    assert answer(vendor).endswith("no end: credential main paused: 401"), "said once"
    Vendor.objects.filter(pk=vendor.pk).update(paused=True, paused_reason="invoice")
    assert answer(vendor).endswith("no end: vendor paused: invoice; 1 wait: credential main paused: 401")
    assert answer(vendor, json=True)["ends_at"] is None


def test_what_is_done_does_not_wait_and_a_limit_of_one_login_counts_for_it_alone(answer: Any) -> None:
    vendor = factories.at_work(factories.vendor(limits=[(1, 1)]))
    slow, fast = factories.credential(vendor), factories.credential(vendor)
    vendor.limits.create(credential=slow, units=1, seconds=100)
    logged(5, [accepted()] * 5, of=slow)
    for login, count in ((slow, 3), (fast, 9)):
        factories.campaign_with_job(count, status="DISPATCHED", of=login)
    facts = answer(vendor, json=True)
    assert (facts["messages"], facts["seconds"]) == (12, 200)


def test_an_unknown_vendor_is_an_error() -> None:
    with pytest.raises(CommandError, match="there is no vendor 'nobody'"):
        call_command("forecast", "nobody")
