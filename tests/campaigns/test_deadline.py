"""What was not called by its campaign's deadline is taken up at once, to expire, whatever it still waits for."""

from datetime import UTC, datetime, time, timedelta

import pytest

from campaigns.mailcaster import Claimed, claim
from campaigns.models import Campaign
from tests import factories

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


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


def test_a_deadline_does_not_share_an_exclusive_credential() -> None:
    vendor = factories.vendor(casters=["large-priority"])
    login = factories.credential(vendor, exclusive=True)
    factories.campaign_with_job(status="SENDING", of=login)
    job = factories.campaign_with_job(status="DISPATCHED", of=login)
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=NOW)
    assert claim(vendor.mailcasters.get().pk, NOW) is None
