"""Messages a second with five million suppressed addresses, beside the same run without.

`python -m benchmarks.suppression [messages] [rounds] [suppressed]`. One sender process and a sandbox vendor, timed by
its books as in `benchmarks.sending`. With suppressions, the time of comparing recipients in the import is added to that
of sending. A thousand addresses are suppressed after the import, so that every claim has to be compared with them. No
recipient is suppressed: both rows make the same calls.
"""

import time

from django.db import connection

from benchmarks import recipients
from benchmarks.installation import Installation
from benchmarks.sending import LOOK, login
from benchmarks.stage import console, in_turns, numbers, ratio, show, stage
from tests import sandbox
from tests.waiting import wait_until

NEWER = 1_000
WITHOUT, WITH = "nobody is suppressed", "suppressed addresses"
FILL = """
INSERT INTO campaigns_suppression (channel, digest, reason, source, since, position)
SELECT 'email', hashint8extended(n, 1), 'unsubscribed', '', now(), nextval('campaigns_suppression_position')
FROM generate_series(1, %s) n
"""


def fill(many: int) -> None:
    """Store this many suppressions with random digests."""
    from campaigns.engine.suppressed.digests import made_key

    made_key()
    began = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(FILL, [many])
        cursor.execute("ANALYZE campaigns_suppression")
        cursor.execute("SELECT pg_total_relation_size('campaigns_suppression') / 1048576")
        console.print(f"{many:,} suppressed in {time.perf_counter() - began:.0f} s: {cursor.fetchone()[0]:,} MB")


def rate(messages: int, compared: bool) -> float:
    """Return messages a second, from the first arrival to the last, plus the import's time for comparing."""
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job
    from campaigns.suppression import comparing, lists
    from campaigns.suppression.lists import NewSuppression

    spent = 0.0
    with sandbox.running() as vendor:
        job = recipients.job(messages, login(vendor.url))
        if compared:
            began = time.perf_counter()
            comparing.end_suppressed(job)
            spent = time.perf_counter() - began
            console.print(f"compared {messages:,} recipients in {spent:.2f} s")
            fresh = (NewSuppression(f"{job.pk}-{n}@example.com", "unsubscribed") for n in range(NEWER))
            lists.add_suppressions(None, "email", fresh)
        dispatcher.dispatch_ready([job.pk])
        with Installation().workers():
            notify_vendors([job.vendor_id])
            wait_until(Job.objects.filter(pk=job.pk, status="LOGGED").exists, "all is sent", 600, every=LOOK)
        books = vendor.books()
        if len(books.accepted) != messages or books.duplicates():
            raise SystemExit(f"{messages} messages, in the books: {vendor.ledger()}")
        arrivals = books.arrivals()
    return messages / (max(arrivals) - min(arrivals) + spent)


def main() -> None:
    messages, rounds, suppressed = numbers(30_000, 5, 5_000_000)
    with stage():
        fill(suppressed)
        rates = in_turns({WITHOUT: lambda: rate(messages, False), WITH: lambda: rate(messages, True)}, rounds)
    show(f"Sending with {suppressed:,} suppressed addresses", rates, WITHOUT)
    cost = 1 - ratio(rates[WITH], rates[WITHOUT])
    console.print(f"{suppressed:,} suppressed addresses, {NEWER:,} of them newer than the import, cost {cost:.1%}")


if __name__ == "__main__":
    main()
