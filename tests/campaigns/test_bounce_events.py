"""What is stored of bounces and complaints: once, whoever reports it and how often."""

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from campaigns.models import Job, MessageEvent
from tests.campaigns.rows import accepted, logged, messages

pytestmark = pytest.mark.django_db


def event(job: Job, kind: MessageEvent.Kind, resend_no: int = 0) -> MessageEvent:
    (row,) = messages(job)
    return MessageEvent.objects.create(
        message=row, campaign_id=job.campaign_id, resend_no=resend_no, kind=kind, at=timezone.now(), source="receiver"
    )


def test_a_sending_of_a_message_has_one_event_of_each_kind() -> None:
    job = logged(1, [accepted()])
    for kind in MessageEvent.Kind:
        event(job, kind)
    event(job, MessageEvent.Kind.HARD_BOUNCE, resend_no=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        event(job, MessageEvent.Kind.COMPLAINT)
    assert MessageEvent.objects.of_sponsors([job.sponsor_id]).count() == 5
    assert MessageEvent.objects.of_sponsors([]).count() == 0
