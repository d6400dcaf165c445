"""Messages a second over HTTP with everything switched on, against the usual way and against the bare loop.

`python -m benchmarks.sending [messages] [rounds]`. All rows send to the same sandbox vendor and are timed by its books,
from the first arrival to the last. The rows are measured in turns, for the machine's speed drifts.
"""

import sys
from collections.abc import Callable

from benchmarks.stage import show, stage
from tests import programs, sandbox

MESSAGES = 30_000
ROUNDS = 3
SHARE = 10  # the usual way gets a tenth of the messages, or the run would take an hour
POOLS = {"prefork 2": ("prefork", 2), "prefork 8": ("prefork", 8), "threads 50": ("threads", 50)}


def rate(vendor: sandbox.Sandbox, messages: int) -> float:
    """By the vendor's books, which must hold every message once."""
    books = vendor.books()
    if len(books.accepted) != messages or books.duplicates():
        raise SystemExit(f"{messages} messages, in the books: {vendor.ledger()}")
    arrivals = books.arrivals()
    return messages / (max(arrivals) - min(arrivals))


def campaign(url: str, messages: int, **settings: object):  # type: ignore[no-untyped-def]
    from tests import factories

    vendor = factories.vendor(settings={"url": url, **settings}, casters=["large-only"], small_audience_threshold=10**9)
    factories.caster(vendor, "small", "small-only")
    return factories.campaign_with_job(messages, of=factories.credential(vendor))


def mailhub(messages: int, concurrency: int = 100) -> float:
    """One sender process, claims, ledger, throttle and results on."""
    from campaigns import dispatcher
    from campaigns.models import Job
    from campaigns.tasks import ring

    with sandbox.running() as vendor:
        job = campaign(vendor.url, messages, concurrency=concurrency)
        dispatcher.dispatch_ready([job.pk])
        with programs.worker(processes=1, queues=f"hub,{job.vendor.queue}", LEASE_SECONDS="15"):
            ring([job.vendor_id])
            programs.wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "all is sent", 600)
        return rate(vendor, messages)


def usual(pool: str, size: int, messages: int) -> float:
    """One Celery task per message; the queue is full before the worker starts."""
    from benchmarks.naive import deliver
    from campaigns.models import Message

    with sandbox.running() as vendor:
        job = campaign(vendor.url, messages)
        ids = range(job.first_message, job.end)
        with deliver.app.producer_pool.acquire(block=True) as producer:
            for message_id in ids:
                deliver.apply_async((message_id, vendor.url), queue="naive", producer=producer)
        options = ["-m", "celery", "-A", "mailhub", "worker", "-I", "benchmarks.naive", "-Q", "naive"]
        with programs.running(*options, "-P", pool, "-c", str(size), "--without-mingle"):
            mine = Message.objects.filter(pk__in=ids, message_id__isnull=False)
            programs.wait_until(lambda: mine.count() == messages, "all is sent", 600)
        return rate(vendor, messages)


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with stage():
        from benchmarks.yardsticks import bare_aiohttp, measure

        rows: dict[str, Callable[[], float]] = {"mailhub, one process": lambda: mailhub(messages)}
        rows["bare aiohttp loop"] = lambda: measure(bare_aiohttp, messages)
        for name, (pool, size) in POOLS.items():
            rows[f"a task a message, {name}"] = lambda pool=pool, size=size: usual(pool, size, messages // SHARE)  # type: ignore[misc]
        rates: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(rounds):
            for name, row in rows.items():
                rates[name].append(row())
        show("Sending over HTTP", rates, "bare aiohttp loop")
        best = [max(rates[f"a task a message, {name}"][n] for name in POOLS) for n in range(rounds)]
        ratio = sorted(a / b for a, b in zip(rates["mailhub, one process"], best, strict=True))[rounds // 2]
        print(f"mailhub sends {ratio:.1f} x as fast as one Celery task per message in its best pool")


if __name__ == "__main__":
    main()
