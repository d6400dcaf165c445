"""Decides which campaigns pause themselves because too many recipients refuse, bounce or complain.

It runs every few seconds. A campaign is judged by all its answers so far, and by the refusals among its latest STRETCH
answers, so that a bad end of a long list shows as well as a bad start.

Refusals that concern policy, credentials or block lists pause a credential immediately and do not count here: they are
not the list's fault. Two rare kinds are not, either, but count because jobs count them: a template that fails to
render, and a doubt that a person settled as failed.

Resuming accepts the rates shown to the person. They are stored, and the campaign pauses itself again only at WORSE
times those rates.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction

from campaigns.engine.lifecycle import hold_campaign, wait_at_most
from campaigns.engine.pausing import pauses
from campaigns.models import HOLDING, Campaign, Job
from campaigns.models.states import PARENTS, S
from vendors import alarms
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)
OF_ONE = ("40", "55P03", "57014")  # SQLSTATEs that concern one campaign: deadlock, lock timeout, statement timeout
_already_logged: set[int] = set()  # campaigns whose error was logged by this process
STRETCH = 10_000  # answers
LEAST_OF_STRETCH = 1_000  # the shortest stretch to judge by
WORSE = 1.5


@dataclass(frozen=True, slots=True)
class Figures:
    """The outcome of a campaign's messages so far. bounced: hard bounces of accepted messages."""

    accepted: int = 0
    refused: int = 0
    bounced: int = 0
    complained: int = 0

    @property
    def answer_count(self) -> int:
        return self.accepted + self.refused

    @property
    def bounce_rate(self) -> float:
        """Refused or bounced messages in percent of the answered."""
        return 100 * (self.refused + self.bounced) / max(1, self.answer_count)

    @property
    def complaint_rate(self) -> float:
        """Complaints in percent of the accepted."""
        return 100 * self.complained / max(1, self.accepted)


@dataclass(frozen=True, slots=True)
class Judged:
    """The stored judgement of a campaign. bounces, complaints: the rates that a person accepted, in percent.

    answered, refused: at the start of the latest stretch. stretch: the accepted rate of refusals in one stretch, in
    percent.
    """

    bounces: float = 0.0
    complaints: float = 0.0
    answered: int = 0
    refused: int = 0
    stretch: float = 0.0

    def stretch_counts(self, now: Figures) -> tuple[int, int]:
        """Return (answers, refusals) since the latest stretch began; (0, 0) if too few to judge by."""
        answered, refused = now.answer_count - self.answered, now.refused - self.refused
        return (answered, refused) if answered >= LEAST_OF_STRETCH else (0, 0)


def pause_reason(now: Figures, judged: Judged, bounce_limit: float, complaint_limit: float) -> str:
    """Return a sentence with the reason to pause a campaign with these figures, or "". A limit of 0 means no limit."""
    bounces, complaints = max(bounce_limit, WORSE * judged.bounces), max(complaint_limit, WORSE * judged.complaints)
    if bounce_limit and now.answer_count >= settings.BOUNCE_LEAST and now.bounce_rate > bounces:
        parts = pauses.join_counts(("refused", "bounced"), (now.refused, now.bounced))
        return Said(
            gettext_noop("%(rate)s%% of %(count)s answered failed (%(sums)s); the limit is %(limit)s%%"),
            rate=Decimal(f"{now.bounce_rate:.1f}"), count=now.answer_count, sums=parts, limit=Decimal(f"{bounces:.3g}"),
        )  # fmt: skip
    answered, refused = judged.stretch_counts(now)
    refusals = max(bounces, WORSE * judged.stretch)
    if bounce_limit and 100 * refused > refusals * answered:
        return Said(
            gettext_noop(
                "%(rate)s%% of the latest %(count)s answers are refusals (%(refused)s); the limit is %(limit)s%%"
            ),
            rate=Decimal(f"{100 * refused / answered:.1f}"), count=answered, refused=refused,
            limit=Decimal(f"{refusals:.3g}"),
        )  # fmt: skip
    if complaint_limit and now.accepted >= settings.COMPLAINT_LEAST and now.complaint_rate > complaints:
        return Said(
            gettext_noop(
                "%(rate)s%% of %(count)s accepted complained (%(complained)s); the limit is %(limit)s%%"
            ),
            rate=Decimal(f"{now.complaint_rate:.2f}"), count=now.accepted, complained=now.complained,
            limit=Decimal(f"{complaints:.3g}"),
        )  # fmt: skip
    return ""


# Soft bounces say nothing about the list, nor do messages blocked because of us. Neither counts as a bounce here.
SUMS = """
SELECT j.campaign_id, sum(accepted), sum(refused), coalesce(min(e.bounced), 0), coalesce(min(e.complained), 0)
FROM campaigns_job j LEFT JOIN (
    SELECT campaign_id, count(*) FILTER (WHERE kind = 'hard_bounce') AS bounced,
        count(*) FILTER (WHERE kind = 'complaint') AS complained
    FROM campaigns_messageevent WHERE campaign_id = ANY(%(campaigns)s) AND kind IN ('hard_bounce', 'complaint')
    GROUP BY 1
) e USING (campaign_id)
WHERE j.campaign_id = ANY(%(campaigns)s) AND j.status <> ALL(%(parents)s) GROUP BY 1
"""


def read_figures(campaign_ids: Iterable[int]) -> dict[int, Figures]:
    """Return figures by campaign, from the counters of leaves and an index of events, without reading messages."""
    with connection.cursor() as cursor:
        cursor.execute(SUMS, {"campaigns": list(campaign_ids), "parents": list(PARENTS)})
        return {campaign: Figures(*map(int, counts)) for campaign, *counts in cursor.fetchall()}


def accepted_rates(campaign: Campaign) -> dict[str, Any]:
    """Return the rates a person accepts by resuming now: the current ones, or those accepted before if higher.

    A new stretch begins.
    """
    now, judged = read_figures([campaign.pk]).get(campaign.pk, Figures()), _judged_rates(campaign)
    answered, refused = judged.stretch_counts(now)
    worst = Judged(
        max(judged.bounces, now.bounce_rate),
        max(judged.complaints, now.complaint_rate),
        now.answer_count,
        now.refused,
        max(judged.stretch, 100 * refused / max(1, answered)),
    )
    return asdict(worst)


def pause_those_too_high() -> list[int]:
    """Pause running campaigns whose rates are too high. Returns their ids. Raises database errors."""
    under_way = Job.objects.filter(HOLDING, paused_at=None).exclude(status=S.STOPPED)
    found = read_figures(under_way.order_by().values_list("campaign", flat=True).distinct())
    least = min(settings.BOUNCE_LEAST, settings.COMPLAINT_LEAST)
    large = [campaign for campaign, now in found.items() if now.answer_count >= least]
    return [one.pk for one in Campaign.objects.filter(pk__in=large) if _judge_alone(one, found[one.pk])]


def _judge_alone(campaign: Campaign, now: Figures) -> bool:
    """Judge one campaign as `_judge_and_pause` does. Its errors do not stop the others; each process logs them once a
    campaign.

    Raises errors of an unreachable database.
    """
    try:
        paused = _judge_and_pause(campaign, now)
    except Exception as error:
        sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
        if isinstance(error, (OperationalError, InterfaceError)) and not sqlstate.startswith(OF_ONE):
            raise  # the database is unreachable, for all campaigns
        if campaign.pk not in _already_logged:
            alarms.RATES_NOT_JUDGED.log(log, campaign.pk, exc_info=True)
        _already_logged.add(campaign.pk)
        return False
    _already_logged.discard(campaign.pk)
    return paused


def _judge_and_pause(campaign: Campaign, now: Figures) -> bool:
    if not _campaign_pause_reason(campaign, now) and now.answer_count - _judged_rates(campaign).answered < STRETCH:
        return False
    with transaction.atomic():
        wait_at_most()
        hold_campaign(campaign.pk)
        campaign.refresh_from_db()  # a person may just have resumed it
        now, judged = read_figures([campaign.pk])[campaign.pk], _judged_rates(campaign)
        if reason := _campaign_pause_reason(campaign, now):
            return pauses.anything_to_pause(campaign.pk) and pauses.pause_itself(campaign.pk, reason)
        if now.answer_count - judged.answered >= STRETCH:
            further = replace(judged, answered=now.answer_count, refused=now.refused)
            Campaign.objects.filter(pk=campaign.pk).update(judged=asdict(further))
        return False


def _campaign_pause_reason(campaign: Campaign, now: Figures) -> str:
    limits = (campaign.bounce_limit, settings.BOUNCE_LIMIT), (campaign.complaint_limit, settings.COMPLAINT_LIMIT)
    return pause_reason(now, _judged_rates(campaign), *(default if own is None else own for own, default in limits))


def _judged_rates(campaign: Campaign) -> Judged:
    return Judged(**campaign.judged or {})
