"""Bounces and complaints are rows for EVENT_DAYS; sums of returned mails are kept for good."""

from datetime import date, timedelta
from typing import Any

import pytest
from django.db.models import Sum
from django.utils import timezone

from campaigns.engine import message_events
from campaigns.models import InboundCount, MessageEvent
from mailhub import tasks
from tests import factories

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def events(*days_ago: float) -> None:
    job = factories.campaign_with_job(len(days_ago))
    for number, days in enumerate(days_ago):
        at = NOW - timedelta(days=days)
        MessageEvent.objects.create(
            message_id=job.first_message + number, campaign=job.campaign, resend_no=0, kind="soft_bounce", at=at,
            stored_at=at, source="receiver",
        )  # fmt: skip


def kept() -> list[int]:
    return sorted((NOW - one.stored_at).days for one in MessageEvent.objects.all())


def test_what_is_older_than_the_setting_goes_in_slices_and_the_rest_stays(settings: Any) -> None:
    settings.EVENTS_KEPT = timedelta(days=100)
    events(300, 250, 200, 150, 101, 99, 1, 0)
    assert message_events.delete_old_events(at_once=2) == 5 and kept() == [0, 1, 99]
    tasks.delete_events()
    assert kept() == [0, 1, 99]


def test_a_soft_bounce_that_still_counts_is_never_deleted(settings: Any) -> None:
    settings.EVENTS_KEPT, settings.SOFT_BOUNCE_WINDOW = timedelta(days=1), timedelta(days=90)
    events(91, 89)
    tasks.delete_events()
    assert kept() == [89]


def test_days_of_returned_mails_become_one_row_of_each_kind_and_no_mail_is_forgotten(settings: Any) -> None:
    settings.EVENTS_KEPT = timedelta(days=100)
    for days, what, mails in [(300, "hard_bounce", 5), (200, "hard_bounce", 7), (200, "forged", 1), (3, "forged", 2)]:
        InboundCount.objects.create(day=NOW.date() - timedelta(days=days), what=what, mails=mails)
    for _ in range(2):
        tasks.delete_events()
        found = dict(InboundCount.objects.values_list("what").annotate(Sum("mails")).order_by())
        assert found == {"hard_bounce": 12, "forged": 3}
        assert InboundCount.objects.filter(day=date(1970, 1, 1)).count() == 2 and InboundCount.objects.count() == 3
    InboundCount.objects.create(day=NOW.date() - timedelta(days=150), what="hard_bounce", mails=1)
    tasks.delete_events()
    assert InboundCount.objects.get(what="hard_bounce").mails == 13
