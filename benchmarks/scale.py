"""The cost of a message in a job of ten million, or among two hundred campaigns, and the time to the first one.

`python -m benchmarks.scale [messages] [campaigns] [rounds]`. A job of this size is compared with one of 10,000 by the
seconds of sending between a tenth and nine tenths of the vendor's books. A round sends only the next 30,000 messages of
the large job. Then its vendor is paused, which puts the job back, and the next round goes on from there.
"""

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks import recipients
from benchmarks.installation import Installation
from benchmarks.results import keep
from benchmarks.sending import LOOK, login, rate
from benchmarks.stage import console, in_turns, numbers, show, stage
from tests import sandbox
from tests.waiting import wait_until

if TYPE_CHECKING:
    from campaigns.models import Job

SMALL, PART = 10_000, 30_000
EACH, VENDORS, PROCESSES = 500, 4, 2
BEFORE = "RENDERED"  # of jobs whose turn has not come: the sweep would dispatch READY ones
LARGE_ROW, SMALL_ROW = "a large job, of {:,}: its next {:,}", "a small job, of {:,}"


def seconds_for(vendor: sandbox.Sandbox, messages: int) -> float:
    """Return messages a second between a tenth and nine tenths of the first `messages` arrivals."""
    times = vendor.books().arrivals()[:messages]
    if len(times) < messages or vendor.books().duplicates():
        raise SystemExit(f"{messages} messages, in the books: {vendor.ledger()}")
    low, high = messages // 10, 9 * messages // 10
    return (high - low) / (times[high] - times[low])


def begin(job: "Job", url: str) -> float:
    """Point the job's vendor at this address, open it and notify its queue. Returns the Unix time of that."""
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job

    job.vendor.settings["url"] = url
    job.vendor.paused = False
    job.vendor.save(update_fields=["settings", "paused"])
    Job.objects.filter(pk=job.pk, status=BEFORE).update(status="READY")
    dispatcher.dispatch_ready([job.pk])
    began = time.time()
    notify_vendors([job.vendor_id])
    return began


def hold(job: "Job") -> None:
    """Stop calls to this vendor; its leaf jobs are put back."""
    from campaigns.models import Job

    type(job.vendor).objects.filter(pk=job.vendor_id).update(paused=True)
    busy = Job.objects.filter(vendor=job.vendor_id, status__in=("ENQUEUED", "SENDING"))
    wait_until(lambda: not busy.exists(), "the sender lets go", 600)


def first(job: "Job") -> float:
    """Return seconds from the notification to the first message at the vendor."""
    with sandbox.running() as vendor:
        began = begin(job, vendor.url)
        wait_until(lambda: vendor.ledger()["calls"], "the first message", 600)
        hold(job)
        return vendor.books().entries[0].wall - began


def part(job: "Job") -> float:
    with sandbox.running() as vendor:
        begin(job, vendor.url)
        wait_until(lambda: vendor.ledger()["calls"] >= PART, "a part is sent", 600)
        hold(job)
        return seconds_for(vendor, PART)


def whole(job: "Job") -> float:
    from campaigns.models import Job

    with sandbox.running() as vendor:
        begin(job, vendor.url)
        wait_until(Job.objects.filter(pk=job.pk, status="LOGGED").exists, "all is sent", 600, LOOK)
        return seconds_for(vendor, SMALL)


def sizes(messages: int, rounds: int) -> None:
    of_cut = login("http://nobody.invalid", cut_from=100)
    cut = recipients.job(messages, of_cut, BEFORE)
    large = recipients.job(messages, login("http://nobody.invalid"), BEFORE)
    of_small = login("http://nobody.invalid")
    small = [recipients.job(SMALL, of_small, BEFORE) for _ in range(rounds)]
    with Installation().workers():
        starts = {"cut into children": [first(cut)], "as one leaf": [first(large)]}
        keep(f"Start to first message of a job of {messages:,}", "s", starts)
        for how, seconds in starts.items():
            console.print(f"start to first message, {messages:,} {how}: {statistics.median(seconds):.2f} s")
        names = SMALL_ROW.format(SMALL), LARGE_ROW.format(messages, PART)
        rates = in_turns({names[0]: lambda: whole(small.pop()), names[1]: lambda: part(large)}, rounds)
    show("Cost of a message by the size of its job", rates, names[0])


def spread(vendor: sandbox.Sandbox, campaigns: int) -> "list[Job]":
    logins = [login(vendor.url, casters=2) for _ in range(VENDORS)]
    return [recipients.job(EACH, logins[n % VENDORS]) for n in range(campaigns)]


def one(vendor: sandbox.Sandbox, messages: int) -> "list[Job]":
    return [recipients.job(messages, login(vendor.url, casters=2, cut_from=100))]


def send(jobs: "list[Job]") -> None:
    """Send until all jobs are logged."""
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job

    dispatcher.dispatch_ready([job.pk for job in jobs])
    with Installation().workers(PROCESSES):
        notify_vendors({job.vendor_id for job in jobs})
        ended = Job.objects.filter(pk__in=[job.pk for job in jobs], status__in=("LOGGED", "P_FINISHED"))
        wait_until(lambda: ended.count() == len(jobs), "all is sent", 600, LOOK)


def all_at_once(vendor: sandbox.Sandbox, jobs: "list[Job]") -> float:
    send(jobs)
    return rate(vendor, sum(job.size for job in jobs))


def many(campaigns: int) -> float:
    with sandbox.running() as vendor:
        return all_at_once(vendor, spread(vendor, campaigns))


def single(messages: int) -> float:
    with sandbox.running() as vendor:
        return all_at_once(vendor, one(vendor, messages))


def main() -> None:
    messages, campaigns, rounds = numbers(10_000_000, 200, 3)
    with stage():
        sizes(messages, rounds)
        names = f"{campaigns} campaigns of {EACH} over {VENDORS} vendors", f"one campaign of {campaigns * EACH:,}"
        rows = {names[0]: lambda: many(campaigns), names[1]: lambda: single(campaigns * EACH)}
        show(f"Many campaigns, {PROCESSES} processes", in_turns(rows, rounds), names[1])


if __name__ == "__main__":
    main()
