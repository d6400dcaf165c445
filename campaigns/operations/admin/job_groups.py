"""Groups of jobs in the operators' list: jobs that one thing holds, with its reason and its way on once."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.text import capfirst
from django.utils.translation import gettext as _

from campaigns.reporting.forecast.eta import JobForecast

FEWEST = 2  # jobs that wait for the same time, and only wait, in a group


@dataclass(slots=True)
class JobGroup:
    """Jobs in the order of the list. title: their common obstacle; "": they share none.

    reason: "" if the title says it. address, button: the page that lets them continue, and the text of its button; ""
    if the reader has none. asks: the person to ask then.
    """

    id: str = ""
    title: str = ""
    reason: str = ""
    button: str = ""
    address: str = ""
    asks: str = ""
    is_bad: bool = False
    jobs: list[Any] = field(default_factory=list)


def group_jobs(jobs: Sequence[Any], user: Any) -> list[JobGroup]:
    """Return the page's jobs in groups: those first that a vendor or a credential holds, the rest in its order.

    jobs: as jobs.add_progress leaves them, with their `forecast`. It takes one statement at most.
    """
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for job in jobs:
        if job.forecast.stands:
            alike[_group_key(job)].append(job)
    found: dict[tuple[Any, ...], JobGroup] = {}
    rest: list[JobGroup] = []
    for job in jobs:
        forecast: JobForecast = job.forecast
        held = alike[_group_key(job)] if forecast.stands else []
        if not (forecast.brief or len(held) >= FEWEST):
            if not rest or rest[-1].title:
                rest.append(JobGroup())
            rest[-1].jobs.append(job)
        elif (key := _group_key(job)) not in found:
            found[key] = _held_group(key, held, user)
            if not forecast.brief:
                rest.append(found[key])
    return [*(one for one in found.values() if one.is_bad), *rest]


def _group_key(job: Any) -> tuple[Any, ...]:
    forecast: JobForecast = job.forecast
    return (0 if forecast.halted else job.vendor_id, forecast.next)


def _held_group(key: tuple[Any, ...], jobs: list[Any], user: Any) -> JobGroup:
    forecast: JobForecast = jobs[0].forecast
    named = {"vendor": jobs[0].vendor.name, "what": forecast.brief or forecast.next}
    remedy = forecast.remedy
    offered = bool(remedy and remedy.address and remedy.is_offered_to(user))
    return JobGroup(
        id=hashlib.blake2b(repr(key).encode(), digest_size=6).hexdigest(),
        title=capfirst(forecast.brief) if forecast.halted else _("%(vendor)s, %(what)s") % named,
        reason=forecast.next if forecast.brief not in ("", forecast.next) else "",
        button=remedy.button if remedy and offered else "",
        address=remedy.address if remedy and offered else "",
        asks=remedy.asks if remedy and not offered else "",
        is_bad=bool(forecast.brief),
        jobs=jobs,
    )
