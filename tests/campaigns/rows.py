"""Makes jobs in states that take many steps to reach: finalised ones, and families; and looks at what came of them."""

import io
from datetime import datetime, timedelta
from typing import Any

from django.core.management import call_command
from django.utils import timezone

from campaigns import audit
from campaigns.lifecycle import Status
from campaigns.models import Job, Message
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
    return job


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
    return [check for check in audit.run() if not check.ok] == []


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()
