"""The state of campaigns as their owners see it: totals, the next step or the reason to wait, and a forecast."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine import prepared, progress
from campaigns.engine.progress import Progress
from campaigns.models import Job
from campaigns.reporting.forecast import eta
from vendors.remedies import Remedy
from vendors.reporting import find_reporting

CLOCK = re.compile(r"\b\d\d:\d\d\b")
MOST_SAID = 3  # sentences from the jobs of one campaign


@dataclass(frozen=True, slots=True)
class CampaignState:
    """The state of one campaign at one moment.

    next: the next step, or the reason it waits. ends: the forecast of its end, or why no other vendor of its route
    takes it. Both may be "". jobs: its top-level jobs, each with its totals (`sums`) and forecast (`forecast`).
    finished: no call is made any more unless somebody decides to. at: when it was read.
    """

    sums: Progress
    jobs: tuple[Any, ...]
    next: str
    ends: str
    finished: bool
    finished_at: datetime | None
    at: datetime | None = None

    @property
    def ahead(self) -> str:
        """What goes before it, for its owners; "" if nothing does."""
        if self.at is None:
            return ""
        found = dict.fromkeys(job.forecast.describe_ahead(self.at, is_operator=False) for job in self.jobs)
        return "; ".join(list(filter(None, found))[:MOST_SAID])

    @property
    def label(self) -> str:
        """The label of its sums, but that nothing is *Sending* while it waits."""
        return labels.label_of_sum(self.sums, stands=self.is_at_rest)

    @property
    def has_stopped_short(self) -> bool:
        """Whether it has begun, and nothing is being called now."""
        return labels.label_of_sum(self.sums) == labels.SENDING and self.is_at_rest

    @property
    def reports_deliveries(self) -> bool:
        """Whether its vendors report deliveries; otherwise *sent* means accepted by the vendor. Asks the database."""
        return self.sums.delivered > 0 or bool(find_reporting({job.vendor_id for job in self.jobs}))

    @property
    def list_remedies(self) -> list[Remedy]:
        """The actions that let the campaign continue, each once."""
        found = (job.forecast.remedy for job in self.jobs if job.forecast.remedy)
        return list(dict.fromkeys(found))[:MOST_SAID]

    @property
    def is_at_rest(self) -> bool:
        """Whether no message is being called now, for the reason in `next`."""
        return not self.sums.in_flight and all(job.is_done or job.forecast.stands for job in self.jobs)

    @property
    def why(self) -> str:
        """`next` and `ends` as one sentence, with the zone of its times; "" if nothing is to come."""
        said = "; ".join(filter(None, (self.next, self.ends)))
        zone = timezone.get_current_timezone_name()
        named = f" ({zone})" if CLOCK.search(said) and not said.endswith(zone) else ""
        return f"{said[0].upper()}{said[1:]}{named}." if said else ""


APPROVAL = tuple(f"campaign__approval__{one}" for one in ("verdict", "asked_by", "asked_kind", "asked_user"))
NOTHING = CampaignState(Progress(), (), "", "", True, None)

_JOBS = prepared.RowsByKey(
    lambda: eta.select_related_rows(Job.objects.filter(parent=None).select_related("campaign__approval"), *APPROVAL),
    "campaign_id",
)


def states_of_campaigns(ids: Collection[int]) -> dict[int, CampaignState]:
    """Return the state of each campaign by id, in a fixed number of statements.

    Places in long queues may be some seconds old.
    """
    now = timezone.now()
    jobs: list[Any] = sorted(_JOBS.of(ids), key=lambda job: int(job.pk))
    sums = progress.progress_of_jobs(jobs)
    forecasts = eta.forecast_jobs(jobs, sums, now, recent=True)
    of: dict[int, list[Any]] = {}
    for job in jobs:
        job.sums, job.forecast = sums[job.pk], forecasts[job.pk]
        of.setdefault(job.campaign_id, []).append(job)
    return {pk: _make_state(of[pk], now) if pk in of else NOTHING for pk in ids}


def _make_state(jobs: list[Any], now: datetime) -> CampaignState:
    said = list(dict.fromkeys(job.forecast.owner_sentence for job in jobs if job.forecast.next))
    later = (said for job in jobs for said in (job.forecast.ends, job.forecast.plain_stays))
    ends = list(dict.fromkeys(filter(None, later)))
    finished = all(job.is_done for job in jobs)
    sums = sum((job.sums for job in jobs), start=Progress())
    over = [job.finished_at for job in jobs if job.finished_at]
    return CampaignState(
        sums,
        tuple(jobs),
        "; ".join(said[:MOST_SAID]),
        "; ".join(ends[:MOST_SAID]),
        finished,
        max(over) if over and finished else None,
        now,
    )
