"""Suppresses recipients that a vendor refused as unknown or because of a STOP, as `vendors/causes/gone.py` judges.

It runs before the message's job is LOGGED, in transactions of its own. After a crash it runs again and changes nothing.
A suppression lifted by a person stays lifted until the vendor refuses anew. Refusals by sandbox vendors suppress
nobody.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from django.db import connection

from campaigns.models import Campaign, Job, Suppression
from campaigns.models.states import OWN_ENDS
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from vendors.causes import AnswerCause
from vendors.causes.consequences import AnswerProof
from vendors.causes.gone import STOPPED, UNKNOWN, may_suppress, read_stored
from vendors.models import Vendor
from vendors.outcomes import Refused
from vendors.said import Said, gettext_noop

AT_ONCE = 20_000  # messages

EITHER = rf"({STOPPED}|{UNKNOWN})"
# The condition for a message m to be refused so. Ends not decided by a vendor may have any text as sub type. Without a
# known cause the words decide.
OTHERS = (*OWN_ENDS, "person")
SUPPRESSING = ["unknown", *(cause.value for cause in AnswerCause if may_suppress(cause, AnswerProof.REFUSED))]
REFUSED_SO = f"""(m.error_code IS NOT NULL AND m.error_code <> ALL(ARRAY{list(OTHERS)})
    AND coalesce(m.cause = ANY(ARRAY{SUPPRESSING}), true)
    AND (m.error_code ~* '{EITHER}' OR coalesce(m.error_sub_type ~* '{EITHER}', false)))"""
READ = f"""
SELECT m.recipient, m.error_code, coalesce(m.error_sub_type, ''), m.delivered_at, m.cause FROM campaigns_message m
WHERE m.id >= %(low)s AND m.id < %(high)s AND {REFUSED_SO} ORDER BY m.id
"""


REASONS = {"stop": Suppression.Reason.STOP, "unknown": Suppression.Reason.BOUNCED}


def reason_of(code: str | None, sub_type: str | None, cause: str | None = None) -> str:
    """Return the reason for which a refusal suppresses its recipient; empty if it does not. cause: as stored."""
    said = () if code in OTHERS else (code or "", sub_type or "")
    return REASONS.get(read_stored(said, cause), "")


def suppress_refused(job_id: int) -> int:
    """Suppress recipients of a leaf refused as unknown or by a STOP; return the number of new ones.

    In constant memory.
    """
    job = Job.objects.select_related("vendor").get(pk=job_id)
    if job.vendor.sandbox:
        return 0
    return lists.add_suppressions(job.sponsor_id, job.vendor.channel, _refused_addresses(job), again=False)


async def suppress_recipient(vendor: Vendor, campaign: Campaign, recipient: str, refusal: Refused) -> None:
    """Suppress one recipient like suppress_refused, before the refusal is stored; uses a thread with its own
    connection.
    """
    if not vendor.sandbox and (reason := reason_of(refusal.code, refusal.sub_type, refusal.cause)):
        new = NewSuppression(recipient, reason, source_of_refusal(campaign.pk, refusal.code, refusal.sub_type))
        await asyncio.to_thread(_add_and_close, campaign.sponsor_id, vendor.channel, new)


def _add_and_close(sponsor_id: int, channel: str, new: NewSuppression) -> None:
    try:
        lists.add_suppressions(sponsor_id, channel, [new])
    finally:
        connection.close()  # of this thread


def source_of_refusal(campaign_id: int, code: str, sub_type: str) -> str:
    """Return the source of such a suppression."""
    form = gettext_noop("campaign %(campaign)s, refused: %(code)s")
    return Said(form, campaign=str(campaign_id), code=f"{code} {sub_type}".rstrip())


def _refused_addresses(job: Job) -> Iterator[NewSuppression]:
    for low in range(job.first_message, job.end, AT_ONCE):
        with connection.cursor() as cursor:
            cursor.execute(READ, {"low": low, "high": min(low + AT_ONCE, job.end)})
            rows: list[Any] = cursor.fetchall()
        for recipient, code, sub_type, at, cause in rows:
            if reason := reason_of(code, sub_type, cause):
                yield NewSuppression(recipient, reason, source_of_refusal(job.campaign_id, code, sub_type), since=at)
