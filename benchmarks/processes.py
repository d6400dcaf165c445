"""What a second sender process brings, and what stands in its way: the processor time of all parts for a message.

`python -m benchmarks.processes [messages] [rounds]`. Everything shares the machine's cores: senders, PostgreSQL, Redis
and the receiver. Their processor time a message, summed up, gives the ceiling: more messages a second than cores / sum
cannot be, however many processes there are. Against a receiver that answers at once the machine is the limit; against
one with latency, and few connections a process, the sender is.
"""

import os
import statistics
from collections.abc import Callable

from benchmarks import recipients
from benchmarks.capacity import counters, processes
from benchmarks.results import keep
from benchmarks.sending import LOOK, login
from benchmarks.stage import console, in_turns, numbers, ratio, show, stage
from tests import programs, sandbox

WARM = 2_000  # messages before the measured ones
LATENCY_MS, FEW = 20.0, 40
SUM = "all parts, us of CPU"
Costs = dict[str, list[float]]


def measure(count: int, messages: int, costs: Costs, latency: float = 0.0, **settings: object) -> float:
    """Messages a second by the receiver's books; what each part spent on one is added to `costs`."""
    with sandbox.running(latency_ms=latency) as vendor:
        made = login(vendor.url, casters=count, cut_from=100, **settings)
        with programs.worker(processes=count, queues=f"hub,{made.vendor.queue}", LEASE_SECONDS="15") as program:
            deliver(WARM, made)
            before = spent(vendor, program.process.pid)
            deliver(messages, made)
            after = spent(vendor, program.process.pid)
        times = vendor.books().arrivals()
    assert len(times) == WARM + messages
    each = {name: (after[name] - value) / messages for name, value in before.items() if "CPU" in name}
    for name, value in {**each, SUM: sum(each.values())}.items():
        costs.setdefault(name, []).append(value)
    return (messages - 1) / (times[-1] - times[WARM])


def spent(vendor: sandbox.Sandbox, group: int) -> dict[str, float]:
    receiver = sum(own for pid, *_, own, _ in processes() if pid == vendor.process.pid)
    return {**counters(group), "receiver, us of CPU": 1e6 * receiver}


def deliver(size: int, of: object) -> None:
    from campaigns.dispatch import dispatcher
    from campaigns.models import Job
    from campaigns.notifications import notify_vendors

    job = recipients.job(size, of)  # type: ignore[arg-type]
    dispatcher.dispatch_ready([job.pk])
    notify_vendors([job.vendor_id])
    programs.wait_until(Job.objects.filter(pk=job.pk, status="P_FINISHED").exists, "all is sent", 600, every=LOOK)


def main() -> None:
    messages, rounds = numbers(40_000, 3)
    spends: dict[int, Costs] = {1: {}, 2: {}}
    far: Costs = {}
    names = {1: "one process", 2: "two processes"}

    def fast(count: int) -> Callable[[], float]:
        return lambda: measure(count, messages, spends[count])

    def slow(count: int) -> Callable[[], float]:
        return lambda: measure(count, messages // 4, far, LATENCY_MS, concurrency=FEW)

    with stage():
        at_once = in_turns({name: fast(count) for count, name in names.items()}, rounds)
        waiting = in_turns({name: slow(count) for count, name in names.items()}, rounds)
    show("A receiver that answers at once", at_once, names[1])
    for count, name in names.items():
        keep(f"Processor time of a message, {name}", "us", spends[count])
        cost = statistics.median(spends[count][SUM])
        parts = ", ".join(f"{part.partition(',')[0]} {statistics.median(us):.0f}" for part, us in spends[count].items())
        cores = os.cpu_count() or 1
        console.print(f"{name}: {parts} us a message; {cores} cores cannot do more than {cores * 1e6 / cost:,.0f}/s")
    console.print(f"two processes send {ratio(at_once[names[2]], at_once[names[1]]):.2f} x as fast as one\n")
    show(f"A receiver that answers after {LATENCY_MS:g} ms, {FEW} connections a process", waiting, names[1])


if __name__ == "__main__":
    main()
