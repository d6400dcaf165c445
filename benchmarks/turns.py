"""The cost of a mailcaster's choice while many sponsors have work at its vendor.

`python -m benchmarks.turns [sponsors] [jobs of each] [claims]`. In turns, a mailcaster claims a job at two vendors. At
one, a single sponsor has all the jobs; at the other, the sponsors share the same number of jobs. Each claim is rolled
back. Counts statements, too.
"""

import statistics
import time
from typing import Any

from benchmarks.results import keep
from benchmarks.stage import console, numbers, ratio, stage

ONE = "one sponsor"


def fill(sponsors: int, jobs: int) -> Any:
    """Return a mailcaster of a new vendor, with this number of sponsors and of waiting jobs for each."""
    from django.db import connection

    from campaigns.engine.threads import columns_of
    from campaigns.models import Job
    from tests import factories

    login = factories.credential(factories.vendor())
    for _ in range(sponsors):
        factories.campaign_with_job(1, of=login, by=factories.sponsor(), status="DISPATCHED", messages=False)
    names = columns_of(Job, "j").replace("j.id, ", "")
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO campaigns_job ({names.replace('j.', '')}) SELECT {names} FROM campaigns_job j,"
            " generate_series(2, %s) WHERE j.vendor_id = %s",
            [jobs, login.vendor_id],
        )
        cursor.execute("ANALYZE")
    return factories.caster(login.vendor, kind="small-priority")


def claim_once(caster: Any) -> tuple[float, int]:
    """Return milliseconds and statements of a claim."""
    from django.db import connection, transaction
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone

    from campaigns.engine.casting import mailcaster

    with transaction.atomic(), CaptureQueriesContext(connection) as asked:
        began = time.perf_counter()
        assert mailcaster.claim_next_job(caster.pk, timezone.now())
        took = time.perf_counter() - began
        transaction.set_rollback(True)
    return 1000 * took, len(asked)


def main() -> None:
    sponsors, jobs, claims = numbers(1_000, 20, 200)
    many = f"{sponsors:,} sponsors"
    with stage():
        casters = {ONE: fill(1, sponsors * jobs), many: fill(sponsors, jobs)}
        took: dict[str, list[float]] = {name: [] for name in casters}
        counts: dict[str, int] = {}
        for _ in range(claims):
            for name, caster in casters.items():
                milliseconds, counts[name] = claim_once(caster)
                took[name].append(milliseconds)
    keep("A mailcaster's claim", "ms", took)
    for name, values in took.items():
        console.print(f"{name}: {statistics.median(values):.2f} ms in the middle, {counts[name]} statements")
    console.print(f"{ratio(took[many], took[ONE]):.2f} times")


if __name__ == "__main__":
    main()
