"""One receiving domain that defers, beside nine that do not: what the nine lose of their rate.

`python -m benchmarks.deferring [messages a domain] [rounds]`. The relay takes each mail after LATENCY. In one row it
asks gmail.com to slow down for all the time; in the yardstick it takes the mail to all ten domains. Both rows are the
rate of the nine, by the relay's book, from their first mail to their last.
"""

from benchmarks.installation import Installation
from benchmarks.sending import LIMIT, LOOK
from benchmarks.stage import console, in_turns, numbers, ratio, show, stage
from tests.waiting import wait_until

CONNECTIONS = 16
LATENCY = 0.02  # seconds
DEFERS = "gmail.com"
NINE = [f"nine{number}.example" for number in range(9)]
SLOW = "450 4.7.1 too many messages, slow down"
BESIDE, ALONE = "nine domains beside one that defers", "the same ten, none defers"


def rate_of_nine(messages: int, *, defers: bool) -> float:
    """Return the nine's messages a second while one domain defers, or takes its mail as they do."""
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.operations import actions
    from tests import factories
    from tests.receivers.relays import Moody, account, serve_relay
    from vendors.models import RateLimit

    relay = Moody(lambda to: SLOW if defers and to.endswith(DEFERS) else None, LATENCY)
    with serve_relay(relay) as port:
        login = account(port, CONNECTIONS)
        factories.caster(login.vendor)
        RateLimit.objects.create(vendor=login.vendor, units=LIMIT[0], seconds=LIMIT[1])
        to = [f"r{number}@{domain}" for number in range(messages) for domain in (DEFERS, *NINE)]
        job = factories.campaign_with_job(to, of=login, status="DISPATCHED")
        with Installation().workers():
            notify_vendors([job.vendor_id])
            wait_until(lambda: sum(relay.took[one] for one in NINE) >= 9 * messages, "all are taken", 600, every=LOOK)
            actions.stop_jobs([job.pk])  # what waits would go on in the next row
        if max(map(relay.taken.count, relay.taken[:100])) > 1:
            raise SystemExit("a mail was taken twice")
        times = [at for to, at in relay.taken_at if not to.endswith(DEFERS)]
        return (len(times) - 1) / (max(times) - min(times))


def main() -> None:
    messages, rounds = numbers(400, 5)
    rows = {
        BESIDE: lambda: rate_of_nine(messages, defers=True),
        ALONE: lambda: rate_of_nine(messages, defers=False),
    }
    with stage():
        rates = in_turns(rows, rounds)
    show("One domain that defers beside nine", rates, ALONE)
    console.print(f"the nine keep {ratio(rates[BESIDE], rates[ALONE]):.3f} of their rate")


if __name__ == "__main__":
    main()
