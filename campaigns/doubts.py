"""The messages in doubt, as a person who has to decide about them needs to see them."""

from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery

from campaigns.models import Job, Message
from campaigns.states import PARENTS


def doubts(job: Job | None = None, vendor_slug: str | None = None) -> QuerySet[Message]:
    """In doubt in the ground truth, so their job has been finalised; oldest first, each with its leaf job's id."""
    rows = Message.objects.filter(in_doubt_at__isnull=False)
    if job:
        rows = rows.filter(id__gte=job.first_message, id__lt=job.end)
    if vendor_slug:
        rows = rows.filter(campaign__credential__vendor__slug=vendor_slug)
    leaf = Job.objects.filter(campaign=OuterRef("campaign"), first_message__lte=OuterRef("id"))
    leaf = leaf.filter(size__gt=OuterRef("id") - F("first_message")).exclude(status__in=PARENTS)
    rows = rows.select_related("campaign__sponsor", "campaign__credential__vendor")
    rows = rows.defer("params", "campaign__subject", "campaign__body", "campaign__credential__secret")
    return rows.annotate(leaf=Subquery(leaf.values("pk")[:1])).order_by("id")


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
