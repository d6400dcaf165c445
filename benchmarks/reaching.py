"""How close many small jobs come to their vendor's limit: 60 jobs of one letter at 5 in 10 s, over 1, 4 and 16 casters.

`python -m benchmarks.reaching [jobs] [rounds]`. Runs two sender processes, as `up` does. Timed by the vendor's own
books, from the first arrival to the last. With five in the first moment and five in each ten seconds after it, 60 take
at least 110 s.
"""

import math
from functools import partial

from benchmarks.installation import Installation
from benchmarks.results import keep
from benchmarks.stage import console, in_turns, numbers, stage
from tests import sandbox
from tests.waiting import wait_until
from vendors.limits.values import Limit

LIMIT = Limit(5, 10.0)
CASTERS = (1, 4, 16)


def ideal(jobs: int) -> float:
    """Return seconds from the first call to the last."""
    return (math.ceil(jobs / LIMIT.units) - 1) * LIMIT.seconds


def seconds(jobs: int, casters: int) -> float:
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job
    from tests import factories

    with sandbox.running() as vendor:
        limits = [(LIMIT.units, LIMIT.seconds)]
        made = factories.vendor(settings={"url": vendor.url}, limits=limits, casters=["small-only"] * casters)
        login = factories.credential(made)
        ids = [factories.campaign_with_job(of=login).pk for _ in range(jobs)]
        dispatcher.dispatch_ready(ids)
        with Installation().workers(senders=2):
            notify_vendors([made.pk])
            waiting = Job.objects.filter(pk__in=ids).exclude(status="LOGGED")
            wait_until(lambda: not waiting.exists(), "all is sent", 60 + 5 * ideal(jobs))
        arrivals = sorted(vendor.books().arrivals())
        fullest = vendor.books().worst_window(LIMIT.seconds)
    if len(arrivals) != jobs or fullest > LIMIT.units:
        raise SystemExit(f"{len(arrivals)} calls of {jobs}, {fullest} of them within {LIMIT.seconds:g} s")
    return arrivals[-1] - arrivals[0]


def main() -> None:
    jobs, rounds = numbers(60, 1)
    with stage():
        rows = {f"{count} caster{'s' * (count > 1)}": partial(seconds, jobs, count) for count in CASTERS}
        times = in_turns(rows, rounds)
    title = f"Reaching the limit: {jobs} jobs of one letter at {LIMIT.units} in {LIMIT.seconds:g} s"
    keep(title, "s", times)
    for name, measured in times.items():
        console.print(f"{name}: {max(measured):.1f} s, {max(measured) / ideal(jobs):.3f} x the ideal {ideal(jobs):g} s")


if __name__ == "__main__":
    main()
