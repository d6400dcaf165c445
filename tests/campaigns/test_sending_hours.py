"""When a campaign may be sent, as casters find it: its hours, and its deadline, at which it is taken up to expire."""

from datetime import UTC, datetime, time, timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.casting.mailcaster import ClaimedJob, claim_next_job
from campaigns.engine.claiming import claims as sending
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending_hours import campaign_opens_at, closes_at
from campaigns.models import Campaign, Message
from tests import factories
from tests.faults.sending import login, taken
from tests.sandbox import Sandbox

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.django_db(transaction=True)
def test_a_caster_of_its_own_puts_off_what_is_outside_its_hours_and_takes_the_next_job() -> None:
    """In a worker there is no surrounding transaction of a test."""
    vendor = factories.vendor(casters=["small-only"])
    login = factories.credential(vendor)
    closed, other = (factories.campaign_with_job(status="DISPATCHED", of=login) for _ in range(2))
    Campaign.objects.filter(pk=closed.campaign_id).update(hours_from=time(20), hours_to=time(8), time_zone="UTC")
    assert claim_next_job(vendor.mailcasters.get().pk, NOW) == ClaimedJob(other.pk, 1, None)
    closed.refresh_from_db()
    assert closed.not_before == NOW.replace(hour=20) and "20:00 UTC" in closed.waits_for


@pytest.mark.django_db
def test_a_job_outside_its_hours_and_without_a_permit_for_hours_is_taken_at_its_deadline() -> None:
    vendor = factories.vendor(casters=["large-priority"])
    tomorrow = NOW + timedelta(days=1)
    login = factories.credential(vendor, retry_after_until=tomorrow, rate_limited_until=tomorrow)
    job = factories.campaign_with_job(status="DISPATCHED", of=login, not_before=tomorrow)
    night = {"hours_from": time(20), "hours_to": time(8), "time_zone": "Europe/London"}
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=NOW, **night)
    caster = vendor.mailcasters.get()
    assert claim_next_job(caster.pk, NOW - timedelta(seconds=1)) is None
    assert claim_next_job(caster.pk, NOW) == ClaimedJob(job.pk, 1, None)


@pytest.mark.django_db
def test_what_is_overdue_but_was_put_back_just_now_holds_up_no_younger_job() -> None:
    """As if its adapter could not be loaded: it would be taken again at once, for ever."""
    vendor = factories.vendor(casters=["small-only"])
    login = factories.credential(vendor)
    broken = factories.campaign_with_job(status="DISPATCHED", of=login, not_before=NOW + timedelta(seconds=59))
    other = factories.campaign_with_job(status="DISPATCHED", of=login)
    Campaign.objects.filter(pk=broken.campaign_id).update(deadline=NOW)
    assert claim_next_job(vendor.mailcasters.get().pk, NOW) == ClaimedJob(other.pk, 1, None)
    second = factories.caster(vendor, "second", "small-only")
    assert claim_next_job(second.pk, NOW + timedelta(seconds=58)) is None
    assert claim_next_job(second.pk, NOW + timedelta(seconds=59)) == ClaimedJob(broken.pk, 1, None)


@pytest.mark.django_db
def test_a_deadline_does_not_share_an_exclusive_credential() -> None:
    vendor = factories.vendor(casters=["large-priority"])
    login = factories.credential(vendor, exclusive=True)
    factories.campaign_with_job(status="SENDING", of=login)
    job = factories.campaign_with_job(status="DISPATCHED", of=login)
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=NOW)
    assert claim_next_job(vendor.mailcasters.get().pk, NOW) is None


@pytest.mark.django_db(transaction=True)
def test_no_call_starts_after_the_deadline_by_the_databases_clock_nor_by_the_vendors_books(sandbox: Sandbox) -> None:
    """One connection, so that a claim comes every tenth of a second; the sender looks at the clock once in a second."""
    sandbox.settings(latency_ms=100.0)
    job = taken(200, login(sandbox.url, concurrency=1))
    deadline = timezone.now() + timedelta(seconds=3.5)
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=deadline)
    assert not sender.send_claimed_job(job.pk, job.fence).left
    assert finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert job.accepted + job.expired == 200 and job.expired
    called = list(Message.objects.filter(sent_at__isnull=False).values_list("sent_at", flat=True))
    assert len(called) == job.accepted == len(sandbox.books().entries)
    assert all(at < deadline for at in called)
    assert all(
        entry.wall < deadline.timestamp() + 10 for entry in sandbox.books().entries
    )  # what is sent takes its way


@pytest.mark.django_db(transaction=True)
def test_a_claim_under_a_look_from_before_the_deadline_takes_nothing() -> None:
    import asyncio

    from campaigns.engine.connections import open_connection

    job = factories.campaign_with_job(2, status="SENDING")
    params = {
        "vendor": job.vendor_id, "limits_version": 0, "generation": 0, "hold": 10.0, "adoptions": 1,
        "credential": job.credential_id,
    }  # fmt: skip
    now = timezone.now()

    async def claims() -> list[int]:
        rows = await open_connection()
        async with rows:
            later, before = now + timedelta(hours=1), now - timedelta(seconds=1)
            ends = ((before, 0), (later, 0), (None, 1))
            tries = [sending.ToClaim(Lease(job.pk, 1), job.first_message + n, job.end, 1, at) for at, n in ends]
            return [len(one.messages) for asked in tries for one in await sending.claim_for_jobs(rows, params, [asked])]

    assert asyncio.run(claims()) == [0, 1, 1]


ZONES = ["Europe/London", "Australia/Lord_Howe", "America/Santiago", "UTC"]
CHANGES = [datetime(2026, *day, tzinfo=UTC) for day in ((3, 28), (10, 24), (4, 4), (10, 3), (9, 5), (4, 25))]


@pytest.mark.parametrize("zone", ZONES)
def test_a_campaign_closes_when_its_hours_end_also_where_clocks_change(zone: str) -> None:
    """Compared with a search minute by minute."""
    minute = timedelta(minutes=1)
    for first, last in ((9, 17), (22, 6), (1, 2), (0, 1), (3, 0)):
        campaign = Campaign(hours_from=time(first), hours_to=time(last, 30), time_zone=zone)
        for day in CHANGES:
            now = day
            while now < day + timedelta(days=2):
                until = now
                while until - now < timedelta(hours=28) and campaign_opens_at(campaign, until) is None:
                    until += minute
                if until > now:
                    assert closes_at(campaign, now) == closes_at(campaign, until - minute) == until
                now = until + timedelta(minutes=31)


def test_the_earlier_of_deadline_and_end_of_hours_closes_a_campaign() -> None:
    day = {"hours_from": time(8), "hours_to": time(20), "time_zone": "UTC"}
    assert closes_at(Campaign(**day), NOW) == NOW.replace(hour=20)
    assert closes_at(Campaign(**day, deadline=NOW.replace(hour=13)), NOW) == NOW.replace(hour=13)
    assert closes_at(Campaign(deadline=NOW.replace(hour=23)), NOW) == NOW.replace(hour=23)
    assert closes_at(Campaign(), NOW) is None
