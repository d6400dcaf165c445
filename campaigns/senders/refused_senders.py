"""Sender identities that a vendor does not take, read from the campaigns that are paused for it."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import formats, timezone
from django.utils.translation import ngettext

from campaigns.engine.pausing.pauses import SENDER_REFUSED
from campaigns.models.states import DONE, S
from vendors import said
from vendors.instants import write_time
from vendors.said import show

OVER = (*DONE, S.STOPPED, S.P_STOPPED)
# The index of paused campaigns keeps it short, however many campaigns an identity had.
READ = """
SELECT c.identity_id, count(*), min(c.paused_at), (array_agg(c.paused_reason ORDER BY c.paused_at DESC))[1],
    (array_agg(c.paused_reason_said ORDER BY c.paused_at DESC))[1]
FROM campaigns_campaign c
WHERE c.paused_at IS NOT NULL AND c.identity_id = ANY(%(identities)s) AND c.paused_reason_said->>'form' = %(form)s
    AND EXISTS (SELECT FROM campaigns_job j WHERE j.campaign_id = c.id AND j.status <> ALL(%(over)s))
GROUP BY c.identity_id
"""


@dataclass(frozen=True, slots=True)
class RefusedSender:
    """An identity that a vendor does not take. campaigns: how many wait for it; since: the first of their pauses.

    reason: the vendor's latest answer, and what the sponsor can do.
    """

    campaigns: int
    since: datetime
    reason: str

    def __str__(self) -> str:
        form = ngettext(
            "%(count)s campaign waits since %(at)s: %(why)s",
            "%(count)s campaigns wait since %(at)s: %(why)s",
            self.campaigns,
        )
        count, at = formats.number_format(self.campaigns, force_grouping=True), write_time(self.since, timezone.now())
        return form % {"count": count, "at": at, "why": show(self.reason)}


def find_refused(identity_ids: Collection[int]) -> dict[int, RefusedSender]:
    """Return those of these identities that a vendor does not take now, in one statement."""
    params: dict[str, Any] = {"identities": list(identity_ids), "form": SENDER_REFUSED, "over": list(OVER)}
    with connection.cursor() as cursor:
        cursor.execute(READ, params)
        rows: Any = cursor.fetchall()
    return {pk: RefusedSender(count, since, _read_reason(why, data)) for pk, count, since, why, data in rows}


def _read_reason(why: str, data: Any) -> str:
    return said.read(why, json.loads(data) if isinstance(data, str) else data)
