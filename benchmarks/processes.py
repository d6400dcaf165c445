"""The gain of a second sender process and its limits: the processor time of all parts for a message.

`python -m benchmarks.processes [messages] [rounds]`. Senders, PostgreSQL, Redis and the receiver share the machine's
cores. The sum of their processor time a message sets the ceiling: cores / sum messages a second, for any number of
processes.

Against a receiver that answers immediately the machine is the limit: one and two processes share the default
mailcasters of a vendor. Against one with latency and few connections a job, the connections are: one process with one
mailcaster, and two of each. Two mailcasters in one process stand beside them, because a process carries many jobs.
"""

import os
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks import recipients
from benchmarks.capacity import counters
from benchmarks.installation import Installation
from benchmarks.processes_seen import process_seconds
from benchmarks.results import keep
from benchmarks.sending import LOOK, login
from benchmarks.stage import console, in_turns, numbers, ratio, show, stage
from tests import sandbox
from tests.waiting import wait_until

if TYPE_CHECKING:
    from vendors.models import Credential

WARM = 2_000  # messages before the measured ones
LATENCY_MS, FEW = 20.0, 40
PAIR = 4_000  # twice the smallest child; in a multiple of it two mailcasters get the same share
SUM = "all parts, us of CPU"
AT_ONCE = {"one process": 1, "two processes": 2}
FAR = {  # processes, mailcasters
    "one process, one mailcaster": (1, 1),
    "one process, two mailcasters": (1, 2),
    "two processes, two mailcasters": (2, 2),
}
Costs = dict[str, list[float]]


def measure(
    senders: int, messages: int, costs: Costs, casters: int | None, latency: float = 0.0, **settings: object
) -> float:
    """Return messages a second by the receiver's books, and add each part's time for one message to `costs`."""
    with sandbox.running(latency_ms=latency) as vendor:
        made = login(vendor.url, casters, cut_from=100, **settings)
        with Installation().workers(senders) as at:
            deliver(WARM, made)
            before = spent(vendor, at)
            deliver(messages, made)
            after = spent(vendor, at)
        times = vendor.books().arrivals()
    assert len(times) == WARM + messages
    each = {name: (after[name] - value) / messages for name, value in before.items() if "CPU" in name}
    for name, value in {**each, SUM: sum(each.values())}.items():
        costs.setdefault(name, []).append(value)
    return (messages - 1) / (times[-1] - times[WARM])


def spent(vendor: sandbox.Sandbox, at: Installation) -> dict[str, float]:
    return {**counters(at), "receiver, us of CPU": 1e6 * process_seconds(vendor.process.pid)}


def deliver(size: int, of: "Credential") -> None:
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job

    job = recipients.job(size, of)
    dispatcher.dispatch_ready([job.pk])
    notify_vendors([job.vendor_id])
    wait_until(Job.objects.filter(pk=job.pk, status="P_FINISHED").exists, "all is sent", 600, every=LOOK)


def main() -> None:
    messages, rounds = numbers(40_000, 3)
    spends: dict[str, Costs] = {name: {} for name in AT_ONCE}

    def fast(name: str) -> Callable[[], float]:
        return lambda: measure(AT_ONCE[name], messages, spends[name], casters=None)

    def slow(senders: int, casters: int) -> Callable[[], float]:
        few = PAIR * max(1, round(messages / 4 / PAIR))
        return lambda: measure(senders, few, {}, casters, LATENCY_MS, concurrency=FEW)

    with stage():
        at_once = in_turns({name: fast(name) for name in AT_ONCE}, rounds)
        waiting = in_turns({name: slow(*many) for name, many in FAR.items()}, rounds)
    one, two = AT_ONCE
    show("A receiver that answers at once", at_once, one)
    for name, costs in spends.items():
        keep(f"Processor time of a message, {name}", "us", costs)
        cost = statistics.median(costs[SUM])
        parts = ", ".join(f"{part.partition(',')[0]} {statistics.median(us):.0f}" for part, us in costs.items())
        cores = os.cpu_count() or 1
        console.print(f"{name}: {parts} us a message; {cores} cores cannot do more than {cores * 1e6 / cost:,.0f}/s")
    console.print(f"two processes send {ratio(at_once[two], at_once[one]):.2f} x as fast as one\n")
    show(f"A receiver that answers after {LATENCY_MS:g} ms, {FEW} connections a job", waiting, next(iter(FAR)))


if __name__ == "__main__":
    main()
