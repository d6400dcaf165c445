"""Messages a second over HTTP with everything switched on, against the usual way and the bare loop.

`python -m benchmarks.sending [messages] [rounds]`. All rows send to the same kind of sandbox vendor and are timed by
its books, from the first arrival to the last. mailhub has one sender process and sends one job over a hundred
connections. The rows are measured in turns, because the machine's speed drifts.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks import recipients
from benchmarks.installation import Installation
from benchmarks.stage import console, in_turns, numbers, ratio, show, stage
from tests import sandbox
from tests.waiting import wait_until

if TYPE_CHECKING:
    from vendors.models import Credential

SHARE = 10  # the usual way gets a tenth of the messages, or the run would take an hour
POOLS = {"prefork 2": ("prefork", 2), "prefork 8": ("prefork", 8), "threads 50": ("threads", 50)}
CONNECTIONS = 100
WHOLE = 10**9  # larger than any job, so none is cut
LOOK = 0.05  # seconds between two checks for the end; each takes database time from the sending
LIMIT = (10**6, 1.0)  # never binds, but is checked for every call
ONE, BARE = "mailhub, one process", "bare aiohttp loop"


def rate(vendor: sandbox.Sandbox, messages: int) -> float:
    """Return messages a second by the vendor's books, which must hold every message once."""
    books = vendor.books()
    if len(books.accepted) != messages or books.duplicates():
        raise SystemExit(f"{messages} messages, in the books: {vendor.ledger()}")
    arrivals = books.arrivals()
    return messages / (max(arrivals) - min(arrivals))


def login(url: str, casters: int | None = 1, cut_from: int = WHOLE, **settings: object) -> "Credential":
    """Return a credential of a vendor with this many casters (None: the default). Jobs of `cut_from` on are cut."""
    from tests import factories

    known = {"url": url, "concurrency": CONNECTIONS, **settings}
    kinds = None if casters is None else ["small-priority"] * casters
    made = factories.vendor(settings=known, casters=kinds, limits=[LIMIT], small_audience_threshold=cut_from)
    return factories.credential(made)


def deliver_all(of: "Credential", messages: int) -> None:
    """Send one campaign, from the notification until the last message is in the ground truth."""
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job

    job = recipients.job(messages, of)
    dispatcher.dispatch_ready([job.pk])
    with Installation().workers():
        notify_vendors([job.vendor_id])
        ended = Job.objects.filter(pk=job.pk, status__in=("LOGGED", "P_FINISHED"))
        wait_until(ended.exists, "all is sent", 600, every=LOOK)


def one_process(messages: int) -> float:
    """Measure with claims, ledger, throttle, rendering and results."""
    with sandbox.running() as vendor:
        deliver_all(login(vendor.url), messages)
        return rate(vendor, messages)


def usual(pool: str, size: int, messages: int) -> float:
    """Measure one Celery task per message; the queue is full before the worker starts."""
    from benchmarks import naive
    from campaigns.models import Message

    with sandbox.running() as vendor:
        job = recipients.job(messages, login(vendor.url))
        ids = range(job.first_message, job.end)
        naive.publish(ids, vendor.url)
        with naive.worker(pool, size) as lives:
            mine = Message.objects.filter(pk__in=ids, message_id__isnull=False)
            wait_until(lambda: lives() and mine.count() == messages, "all is sent", 600)
        return rate(vendor, messages)


def main() -> None:
    messages, rounds = numbers(30_000, 3)
    with stage():
        from benchmarks.yardsticks import bare_aiohttp, measure

        rows: dict[str, Callable[[], float]] = {
            ONE: lambda: one_process(messages),
            BARE: lambda: measure(bare_aiohttp, messages),
        }
        for name, (pool, size) in POOLS.items():
            rows[f"a task a message, {name}"] = lambda pool=pool, size=size: usual(pool, size, messages // SHARE)  # type: ignore[misc]
        rates = in_turns(rows, rounds)
    show("Sending over HTTP", rates, BARE)
    best = [max(rates[f"a task a message, {name}"][n] for name in POOLS) for n in range(rounds)]
    console.print(
        f"mailhub sends {ratio(rates[ONE], best):.1f} x as fast as one Celery task per message, "
        "connections kept, its best pool"
    )


if __name__ == "__main__":
    main()
