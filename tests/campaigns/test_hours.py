"""When a campaign may be sent, as casters find it: its hours, and its deadline, at which it is taken up to expire."""

from datetime import UTC, datetime, time, timedelta

import pytest

from campaigns.mailcaster import Claimed, claim
from campaigns.models import Campaign
from tests import factories

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.django_db(transaction=True)
def test_a_caster_of_its_own_puts_off_what_is_outside_its_hours_and_takes_the_next_job() -> None:
    """In a worker no test's transaction is around it."""
    vendor = factories.vendor(casters=["small-only"])
    login = factories.credential(vendor)
    closed, other = (factories.campaign_with_job(status="DISPATCHED", of=login) for _ in range(2))
    Campaign.objects.filter(pk=closed.campaign_id).update(hours_from=time(20), hours_to=time(8), time_zone="UTC")
    assert claim(vendor.mailcasters.get().pk, NOW) == Claimed(other.pk, 1, None)
    closed.refresh_from_db()
    assert closed.not_before == NOW.replace(hour=20) and "20:00 UTC" in closed.waits_for


@pytest.mark.django_db
def test_a_job_outside_its_hours_and_without_a_place_for_hours_is_taken_at_its_deadline() -> None:
    vendor = factories.vendor(casters=["large-priority"])
    tomorrow = NOW + timedelta(days=1)
    login = factories.credential(vendor, closed_until=tomorrow, full_until=tomorrow)
    job = factories.campaign_with_job(status="DISPATCHED", of=login, not_before=tomorrow)
    night = {"hours_from": time(20), "hours_to": time(8), "time_zone": "Europe/London"}
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=NOW, **night)
    caster = vendor.mailcasters.get()
    assert claim(caster.pk, NOW - timedelta(seconds=1)) is None
    assert claim(caster.pk, NOW) == Claimed(job.pk, 1, None)


@pytest.mark.django_db
def test_what_is_overdue_but_was_put_back_just_now_holds_up_no_younger_job() -> None:
    """As when its adapter cannot be loaded: it would be taken again at once, without end."""
    vendor = factories.vendor(casters=["small-only"])
    login = factories.credential(vendor)
    broken = factories.campaign_with_job(status="DISPATCHED", of=login, not_before=NOW + timedelta(seconds=59))
    other = factories.campaign_with_job(status="DISPATCHED", of=login)
    Campaign.objects.filter(pk=broken.campaign_id).update(deadline=NOW)
    assert claim(vendor.mailcasters.get().pk, NOW) == Claimed(other.pk, 1, None)
    second = factories.caster(vendor, "second", "small-only")
    assert claim(second.pk, NOW + timedelta(seconds=58)) is None
    assert claim(second.pk, NOW + timedelta(seconds=59)) == Claimed(broken.pk, 1, None)


@pytest.mark.django_db
def test_a_deadline_does_not_share_an_exclusive_credential() -> None:
    vendor = factories.vendor(casters=["large-priority"])
    login = factories.credential(vendor, exclusive=True)
    factories.campaign_with_job(status="SENDING", of=login)
    job = factories.campaign_with_job(status="DISPATCHED", of=login)
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=NOW)
    assert claim(vendor.mailcasters.get().pk, NOW) is None
