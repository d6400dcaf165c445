"""Pages of campaigns of some sponsors, newest first; and campaigns that wait for a decision.

Every statement reads at most some thousands of rows, even with a million campaigns. Jobs' states are named as on the
operators' pages: a stopped job stays stopped after its last calls are answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db import connection
from django.db.models import OuterRef

from campaigns.doors.filters import CALLED_OR_CUT, UNDER_WAY
from campaigns.engine import progress
from campaigns.engine.lifecycle import CUT_SHORT, GROUPS
from campaigns.models import Campaign, Job, Sponsor
from campaigns.reporting import campaign_names

ON_A_PAGE = 20
# A campaign's columns in a list.
SHOWN = ("name", "sponsor__name", "created_at", "paused_at", "paused_by", "paused_reason", "stays_paused")
NEWEST = 500  # jobs of a status to search
OF_STATES = {"going": UNDER_WAY, "night": GROUPS["Rendered"], "stopped": GROUPS["Stopped"]}
STATES = (*OF_STATES, "paused", "attention")

MINE = "(%(sponsors)s::bigint[] IS NULL OR {row}.sponsor_id = ANY(%(sponsors)s::bigint[]))"
# Uses the sponsor's own index, so that other sponsors' campaigns do not matter.
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
# The newest jobs of a status, by the index that includes their sponsors, which is ordered by status first. The status
# is a literal: for a value from a row the planner would expect few jobs and sort all of them.
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
# Campaigns that somebody may resume now; UNAPPROVED wait for a decision of somebody who has not asked for it.
RESUMABLE = f"""
SELECT c.id FROM campaigns_campaign c WHERE c.paused_at IS NOT NULL AND {MINE.format(row="c")}
    AND EXISTS (
        SELECT FROM campaigns_job j WHERE j.campaign_id = c.id AND j.parent_id IS NULL AND j.finished_at IS NULL
    )
    AND NOT EXISTS (
        SELECT FROM campaigns_approval a WHERE a.campaign_id = c.id AND a.verdict IS DISTINCT FROM 'approved'
    )
ORDER BY c.id DESC LIMIT %(newest)s
"""
UNAPPROVED = f"""
SELECT a.campaign_id FROM campaigns_approval a WHERE a.verdict IS NULL AND {MINE.format(row="a")}
    AND a.asked_user IS DISTINCT FROM %(user)s AND NOT (a.asked_kind = 'shell' AND a.asked_by = %(name)s)
    AND EXISTS (
        SELECT FROM campaigns_job j
        WHERE j.campaign_id = a.campaign_id AND j.parent_id IS NULL AND j.finished_at IS NULL
    )
ORDER BY a.id DESC LIMIT %(newest)s
"""
# Under way, but paused by vendor or credential: none of their jobs can be called.
HELD = f"""
WITH {progress.SHUT}, mine AS MATERIALIZED (
    SELECT campaign_id, {progress.HELD} AS held FROM campaigns_job j
    WHERE EXISTS (SELECT FROM shut) AND campaign_id IN ({BY_STATUS["going"]}) AND status = ANY(%(called)s)
)
SELECT campaign_id FROM mine GROUP BY 1 HAVING bool_and(held)
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
    """The campaigns asked for. q: prefix of the name, in any case. state: of STATES.

    before: only older ones than this.
    """

    q: str = ""
    sponsor: int | None = None
    state: str = ""
    before: int | None = None

    @property
    def narrowed(self) -> bool:
        return bool(self.q or self.sponsor or self.state or self.before)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a viewer may decide about. most: campaigns of each kind. user, name: the viewer.

    approves: campaigns of others. resumes: paused ones. settles: messages in doubt.
    """

    most: int
    user: int
    name: str
    approves: bool
    resumes: bool
    settles: bool


@dataclass(frozen=True, slots=True)
class CampaignsPage:
    """A page of campaigns, newest first. before: start of the next page, or None. common: as in CampaignsNamed.

    waiting: the newest campaigns that wait for the viewer; each has `need`, a name of Needs.
    """

    rows: Sequence[Campaign]
    before: int | None
    common: bool = False
    waiting: Sequence[Campaign] = ()


def page_of_campaigns(sponsors: list[int] | None, asked: CampaignQuery, needs: Needs | None = None) -> CampaignsPage:
    """Return a page. sponsors: whose campaigns the viewer may see; None: all.

    For a state, only its newest jobs are searched. needs: what to look for that waits for the viewer, of all these
    sponsors.
    """
    mine = sponsors
    if asked.sponsor is not None:
        mine = [asked.sponsor] if sponsors is None or asked.sponsor in sponsors else []
    params = {"sponsors": mine, "before": asked.before, "most": ON_A_PAGE + 1, "newest": NEWEST}
    common = False
    if asked.state:
        ids = _narrow_found(_ids_in_state(asked.state, params), asked)
    elif asked.q:
        named = campaign_names.newest_campaigns(asked.q, mine, ON_A_PAGE + 1, asked.before)
        ids, common = named.ids, named.common
    else:
        ids = _fetch_ids(NEWEST_OF_ALL if mine is None else NEWEST_OF_SPONSORS, params)
    wait = _needs_by_campaign(sponsors, needs) if needs else {}
    light = Campaign.objects.select_related("sponsor").only(*SHOWN)
    rows = {row.pk: row for row in light.filter(pk__in={*ids, *wait}).order_by("-id")}
    found = [row for pk, row in rows.items() if pk in ids]  # without those deleted meanwhile
    before = found[ON_A_PAGE - 1].pk if len(found) > ON_A_PAGE else None
    waiting: list[Any] = [row for pk, row in rows.items() if pk in wait]
    for row in waiting:
        row.need = wait[row.pk]
    return CampaignsPage(found[:ON_A_PAGE], before, common, waiting)


def _narrow_found(found: list[int], asked: CampaignQuery) -> list[int]:
    ids = sorted({pk for pk in found if not asked.before or pk < asked.before}, reverse=True)
    if asked.q:
        named = Campaign.objects.filter(pk__in=ids, name__istartswith=asked.q).order_by("-id")
        return list(named.values_list("pk", flat=True)[: ON_A_PAGE + 1])
    return ids[: ON_A_PAGE + 1]


def _needs_by_campaign(sponsors: list[int] | None, needs: Needs) -> dict[int, str]:
    """Return what each campaign waits for, by its id: the first of settles, resumes, approves."""
    params = {"sponsors": sponsors, "newest": needs.most, "user": needs.user, "name": needs.name}
    found: dict[int, str] = {}
    if needs.settles:
        doubtful = _fetch_ids(f"{IN_DOUBT} LIMIT {needs.most}", params | {"newest": NEWEST})
        found |= dict.fromkeys(doubtful, "settles")
    if needs.resumes:
        found |= dict.fromkeys(_fetch_ids(RESUMABLE, params), "resumes")
    if needs.approves:
        found |= dict.fromkeys(_fetch_ids(UNAPPROVED, params), "approves")
    return found


def _ids_in_state(state: str, params: dict[str, Any]) -> list[int]:
    if state == "paused":
        return [*_fetch_ids(PAUSED, params), *_fetch_ids(HELD, params | {"called": CALLED_OR_CUT})]
    found = _fetch_ids({"attention": IN_DOUBT, **BY_STATUS}[state], params)
    return [*found, *_cut_short(params["sponsors"])] if state == "stopped" else found


def _cut_short(sponsors: list[int] | None) -> list[int]:
    """Return the campaigns with the jobs stopped last and logged since; for given sponsors, the last of each."""
    newest = Job.objects.filter(CUT_SHORT, parent=None).order_by("-stopped_at").values_list("campaign", flat=True)
    if sponsors is None:
        return list(newest[:NEWEST])
    # This order makes the index of each sponsor usable; otherwise all stopped jobs of others would be read. The
    # condition is a range, because "=" would drop the sponsor from the order.
    of_one = newest.filter(sponsor_id__gte=OuterRef("pk"), sponsor_id__lte=OuterRef("pk"))
    each = ArraySubquery(of_one.order_by("-sponsor_id", "-stopped_at")[:NEWEST])
    rows = Sponsor.objects.filter(pk__in=sponsors).order_by().annotate(found=each).values_list("found", flat=True)
    return [campaign for found in rows for campaign in found]


def _fetch_ids(statement: str, params: dict[str, Any]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return [pk for (pk,) in cursor.fetchall()]
