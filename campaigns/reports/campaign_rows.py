"""Campaigns of some sponsors, the newest first, some at a time; and those that wait for a person.

With a million campaigns no statement here reads more than some thousands of rows, whatever is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Q

from campaigns.lifecycle import S
from campaigns.models import Campaign
from campaigns.reports import campaign_names

ON_A_PAGE = 20
# What a list shows of a campaign.
SHOWN = ("name", "sponsor__name", "created_at", "paused_at", "paused_by", "paused_reason", "stays_paused")
NEWEST = 500  # jobs of one status that are looked at
UNDER_WAY = (
    S.READY, S.DISPATCHED, S.ENQUEUED, S.SENDING, S.RECOVERING, S.SENT, S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED,
)  # fmt: skip
OF_STATES = {"going": UNDER_WAY, "night": (S.RENDERED,), "stopped": (S.STOPPED, S.P_STOPPED)}
STATES = (*OF_STATES, "paused", "attention")

MINE = "(%(sponsors)s::bigint[] IS NULL OR {row}.sponsor_id = ANY(%(sponsors)s::bigint[]))"
# By the sponsor's own index, so that it does not matter how many campaigns others have.
NEWEST_OF_SPONSORS = """
SELECT one.id FROM unnest(%(sponsors)s::bigint[]) s(id) CROSS JOIN LATERAL (
    SELECT c.id FROM campaigns_campaign c
    WHERE c.sponsor_id = s.id AND (%(before)s::bigint IS NULL OR c.id < %(before)s::bigint)
    ORDER BY c.id DESC LIMIT %(most)s
) one ORDER BY one.id DESC LIMIT %(most)s
"""
NEWEST_OF_ALL = """
SELECT c.id FROM campaigns_campaign c
WHERE %(before)s::bigint IS NULL OR c.id < %(before)s::bigint ORDER BY c.id DESC LIMIT %(most)s
"""
# The newest jobs of a status, by the index that includes their sponsors; no other has the order with the status. It is
# a literal: of one that comes from a row the planner would expect few jobs, and sort all of them.
OF_STATUS = f"""(
    SELECT campaign_id FROM campaigns_job j
    WHERE j.status BETWEEN '{{status}}' AND '{{status}}' AND j.parent_id IS NULL AND {MINE.format(row="j")}
    ORDER BY j.status DESC, j.created_at DESC, j.id DESC LIMIT %(newest)s
)"""
BY_STATUS = {state: " UNION ".join(map(OF_STATUS.format_map, ({"status": one.value} for one in some)))
    for state, some in OF_STATES.items()}  # fmt: skip
PAUSED = f"""
SELECT c.id FROM campaigns_campaign c WHERE c.paused_at IS NOT NULL AND {MINE.format(row="c")}
ORDER BY c.id DESC LIMIT %(newest)s
"""
IN_DOUBT = f"""
SELECT DISTINCT j.campaign_id FROM (
    SELECT campaign_id FROM campaigns_job j WHERE j.in_doubt > 0 AND {MINE.format(row="j")}
    ORDER BY j.created_at DESC, j.id DESC LIMIT %(newest)s
) j
ORDER BY 1 DESC
"""


@dataclass(frozen=True, slots=True)
class CampaignQuery:
    """Which campaigns: their names begin with q, in any case; state: of STATES; before: older than this one."""

    q: str = ""
    sponsor: int | None = None
    state: str = ""
    before: int | None = None

    @property
    def narrowed(self) -> bool:
        return bool(self.q or self.sponsor or self.state or self.before)


@dataclass(frozen=True, slots=True)
class CampaignsPage:
    """rows: the newest first; before: where the next page begins; None: there is none. common: as CampaignsNamed."""

    rows: Sequence[Campaign]
    before: int | None
    common: bool = False


def page(sponsors: list[int] | None, asked: CampaignQuery) -> CampaignsPage:
    """sponsors: whose campaigns may be seen; None: all. Of a state the newest jobs are looked at."""
    mine = sponsors
    if asked.sponsor is not None:
        mine = [asked.sponsor] if sponsors is None or asked.sponsor in sponsors else []
    params = {"sponsors": mine, "before": asked.before, "most": ON_A_PAGE + 1, "newest": NEWEST}
    common = False
    if asked.state:
        ids = _of_state(asked.state, params)
    elif asked.q:
        named = campaign_names.newest(asked.q, mine, ON_A_PAGE + 1, asked.before)
        ids, common = named.ids, named.common
    else:
        ids = _ids(NEWEST_OF_ALL if mine is None else NEWEST_OF_SPONSORS, params)
    rows = Campaign.objects.filter(pk__in=ids)
    if asked.state:
        rows = rows.filter(Q(name__istartswith=asked.q), Q(pk__lt=asked.before) if asked.before else Q())
    found = list(_light(rows)[: ON_A_PAGE + 1])
    return CampaignsPage(found[:ON_A_PAGE], found[ON_A_PAGE - 1].pk if len(found) > ON_A_PAGE else None, common)


def waiting_for_a_person(sponsors: list[int] | None, most: int) -> list[Campaign]:
    """The newest campaigns that are paused, and those with messages in doubt; so many of each."""
    params = {"sponsors": sponsors, "newest": NEWEST}
    ids = _ids(PAUSED, params)[:most] + _ids(f"{IN_DOUBT} LIMIT {most}", params)
    return list(_light(Campaign.objects.filter(pk__in=ids)))


def _of_state(state: str, params: dict[str, Any]) -> list[int]:
    return _ids({"paused": PAUSED, "attention": IN_DOUBT, **BY_STATUS}[state], params)


def _ids(statement: str, params: dict[str, Any]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return [pk for (pk,) in cursor.fetchall()]


def _light(rows: Any) -> Any:
    return rows.select_related("sponsor").only(*SHOWN).order_by("-id")
