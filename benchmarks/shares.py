"""How long a sponsor waits for a cheap answer while another one runs forty dry runs of a million steps each.

`python -m benchmarks.shares [rounds]`. In turns: without load, and with the forty clients, who ask again after each
answer; their sponsor's minute of steps is unlimited. The other sponsor asks for the vendors.
"""

import statistics

from benchmarks.doors import rows, times
from benchmarks.results import keep
from benchmarks.stage import console, numbers, ratio, stage
from tests.front.doors import doors, get

ROUNDS, FIRST, TIMES = 5, 20, 200
COSTLY = "costly letters"


def main() -> None:
    (rounds,) = numbers(ROUNDS)
    with stage():
        from campaigns.doors.front import keys
        from tests import factories

        vendor = factories.vendor(settings={"url": "http://127.0.0.1:9/letters"}, casters=())
        factories.credential(vendor, "default")
        _, one = keys.create_key(factories.sponsor(), "live", ["send", "read"], requests_per_minute=0)
        _, other = keys.create_key(factories.sponsor(), "live", ["send", "read"], requests_per_minute=0)
        with doors(RENDER_STEPS="1000000000000") as running:
            asked = {"GET /services": lambda: get(running.api, "/api/v1/services", Authorization=f"Bearer {other}")[0]}
            times(asked, FIRST)
            took: dict[str, list[float]] = {}
            medians: dict[str, list[float]] = {}
            for _ in range(rounds):
                for row, begin in rows(running, one, vendor.slug, costly=40).items():
                    if row == "nothing else" or COSTLY in row:
                        with begin():
                            times(asked, FIRST)  # until the load has started
                            waits = times(asked, TIMES)["GET /services"]
                        took.setdefault(row, []).extend(waits)
                        medians.setdefault(row, []).append(statistics.median(waits))
        halves = {row: [statistics.median(waits)] for row, waits in took.items()}
        keep("GET /services of another sponsor: half within, while there are", "ms", halves)
        for row, waits in took.items():
            most = statistics.quantiles(waits, n=100)[98]
            console.print(f"{row}: half within {halves[row][0]:.1f} ms, 99 % within {most:.1f} ms")
        idle, busy = medians.values()
        each = ", ".join(f"{slow / quick:.2f}" for slow, quick in zip(busy, idle, strict=True))
        console.print(f"{ratio(busy, idle):.2f} times the idle latency; by round: {each}")


if __name__ == "__main__":
    main()
