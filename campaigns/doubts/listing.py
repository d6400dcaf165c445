"""The messages in doubt, as a person who has to decide about them needs to see them."""

from typing import Any

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery

from campaigns.lifecycle import PARENTS
from campaigns.models import Job, Message


def list_doubts(job: Job | None = None, jobs: "QuerySet[Job] | None" = None) -> QuerySet[Message]:
    """In doubt in the ground truth, so their job has been finalised; oldest first, each with its leaf job's id.

    job: its own alone; jobs: those of any of these.
    """
    rows = Message.objects.filter(in_doubt_at__isnull=False)
    if job:
        rows = rows.filter(id__gte=job.first_message, id__lt=job.end)
    if jobs is not None:
        rows = rows.filter(Exists(_around(jobs)))
    leaf = _around(Job.objects.all()).exclude(status__in=PARENTS)
    rows = rows.select_related("campaign__sponsor", "campaign__credential__vendor")
    rows = rows.defer("params", "campaign__subject", "campaign__body", "campaign__credential__secret")
    return rows.annotate(leaf=Subquery(leaf.values("pk")[:1])).order_by("id")


def _around(jobs: "QuerySet[Job]") -> "QuerySet[Job]":
    """Those of the jobs in which the message of the outer statement is."""
    of_campaign = jobs.filter(campaign=OuterRef("campaign"), first_message__lte=OuterRef("id"))
    return of_campaign.filter(size__gt=OuterRef("id") - F("first_message"))


def facts(row: Any) -> dict[str, Any]:
    return {
        "message": row.pk,
        "job": row.leaf,
        "campaign": row.campaign.name,
        "sponsor": row.campaign.sponsor.name,
        "vendor": row.campaign.credential.vendor.slug,
        "recipient": row.recipient,
        "reference": row.reference,
        "called": row.sent_at,
        "seen": row.error_sub_type,
        "asked_again": row.settle_at,
    }
