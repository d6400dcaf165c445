"""Makes jobs in states that take many steps to reach: finalised ones, and families; and looks at what came of them."""

import io
from datetime import datetime, timedelta
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from campaigns.engine import audit
from campaigns.models import CostEntry, Job, Message
from campaigns.models.states import Status
from tests import factories


def called() -> datetime:
    """A call so long ago that the ledger need not have it any more."""
    return timezone.now() - timedelta(hours=2)


def accepted(vendor_id: str = "v-1") -> dict[str, Any]:
    return {"sent_at": called(), "delivered_at": timezone.now(), "message_id": vendor_id}


def refused() -> dict[str, Any]:
    return {"sent_at": called(), "delivered_at": timezone.now(), "error_code": "bounce"}


def in_doubt() -> dict[str, Any]:
    return {"sent_at": called(), "in_doubt_at": timezone.now(), "error_sub_type": "read timeout"}


def expired() -> dict[str, Any]:
    return {"error_code": "expired"}


def suppressed() -> dict[str, Any]:
    return {"error_code": "suppressed", "error_sub_type": "unsubscribed"}


def logged(recipients: int, shapes: list[dict[str, Any]], **fields: Any) -> Job:
    """A LOGGED job; its first messages have these shapes, the others were never called."""
    fields = {"fence": 1, "finished_at": timezone.now(), **fields}
    job = factories.campaign_with_job(recipients, status=Status.LOGGED, **fields)
    for number, shape in enumerate(shapes):
        Message.objects.filter(id=job.first_message + number).update(dequeued_at=timezone.now(), **shape)
    return recount(job)


def recount(job: Job) -> Job:
    """Sets the job's counters by its messages."""
    rows = Message.objects.filter(id__gte=job.first_message, id__lt=job.end)
    job.accepted = rows.filter(message_id__isnull=False).count()
    job.expired = rows.filter(error_code="expired").count()
    job.suppressed = rows.filter(error_code="suppressed").count()
    job.refused = rows.filter(error_code__isnull=False).count() - job.expired - job.suppressed
    job.delivered, job.bounced = (rows.filter(report=kind).count() for kind in ("delivered", "bounced"))
    job.in_doubt = rows.filter(in_doubt_at__isnull=False).count()
    job.save()
    charged()
    return job


CHARGED = """
INSERT INTO campaigns_costentry (day, sponsor_id, vendor_id, credential_id, messages, units)
SELECT coalesce((m.sent_at AT TIME ZONE 'UTC')::date, '2020-01-01'), j.sponsor_id, j.vendor_id, j.credential_id,
    CASE WHEN m.sent_at IS NULL THEN greatest(0, j.accepted - sum(count(m.id)) OVER (PARTITION BY j.id))
        ELSE count(*) END,
    coalesce(sum(coalesce(m.units, 1)) FILTER (WHERE m.id IS NOT NULL), 0)
FROM campaigns_job j CROSS JOIN LATERAL (
    SELECT m.id, m.sent_at, m.units FROM campaigns_message m
    WHERE m.id >= j.first_message AND m.id < j.first_message + j.size AND m.message_id IS NOT NULL
    UNION ALL SELECT NULL, NULL, NULL
) m WHERE NOT left(j.status, 2) = 'P_' GROUP BY j.id, 1, m.sent_at IS NULL
"""


def charged() -> None:
    """Writes the accounts for all rows, also of jobs whose counters say more than their messages."""
    CostEntry.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(CHARGED)
        cursor.execute("DELETE FROM campaigns_costentry WHERE messages = 0")


def family(*, parent: str, remaining: int, children: list[str], each: int = 10) -> tuple[Job, list[Job]]:
    """A parent of so many messages for each child, cut from the front, and what remains."""
    campaign = factories.campaign(each * len(children) + remaining)
    ended = {"finished_at": timezone.now()} if parent == Status.P_FINISHED else {}
    top = factories.job(campaign, parent, remaining=remaining, started_at=timezone.now(), **ended)
    cut = [
        factories.job(
            campaign,
            status,
            parent=top,
            first_message=campaign.first_message + each * n,
            size=each,
            fence=1,
            finished_at=timezone.now() if status == Status.LOGGED else None,
        )
        for n, status in enumerate(children)
    ]
    return top, cut


def messages(job: Job) -> list[Message]:
    return list(Message.objects.filter(id__gte=job.first_message, id__lt=job.end).order_by("id"))


def statuses(*jobs: Job) -> list[str]:
    return [Job.objects.get(pk=job.pk).status for job in jobs]


def sound() -> bool:
    return [check for check in audit.ask_all_questions() if not check.is_kept] == []


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()
