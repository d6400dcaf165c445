"""The processor time of a child, by part: a campaign cut into many children, and the same campaign as one.

`python -m benchmarks.children [messages] [messages of a child] [rounds]`. The whole shipped Procfile runs, as in
benchmarks/as_run.py, to the same receiver. A child's cost is the difference of two equal campaigns, divided by the
number of children. It includes the cost of smaller claims.
"""

import statistics
import tempfile
from pathlib import Path

from benchmarks import sink
from benchmarks.as_run import NEVER_BINDS, WARM, HttpReceiver, Lists, deliver
from benchmarks.installation import Installation, end_at_sigterm
from benchmarks.results import keep
from benchmarks.stage import console, numbers, stage

VENDORS = {"cut": "many children", "whole": "one child"}
THRESHOLD = 100  # campaigns of at least this many messages are cut


def prepare(at: Installation, where: sink.Sink, sizes: dict[str, int]) -> None:
    """Add a vendor for each size of a child; all its mailcasters cut children of that size."""
    from vendors.models import Mailcaster, Vendor

    for slug, size in sizes.items():
        order = ["vendor", "add", slug, "--adapter", "http", "--limit", NEVER_BINDS]
        at.manage(*order, "--set", f"url={where.url(slug)}")
        at.manage("entitlement", "add", "Velma", slug, "--new-sponsor")
        vendor = Vendor.objects.filter(slug=slug)
        vendor.update(small_audience_threshold=THRESHOLD)
        Mailcaster.objects.filter(vendor__slug=slug).update(min_size=size, max_size=size)


def seconds(at: Installation, lists: Lists, where: sink.Sink, slug: str, messages: int) -> dict[str, float]:
    """Return processor time by part for one campaign."""
    receiver = HttpReceiver(where, slug)
    campaign = deliver(at, lists, slug, messages)
    receiver.arrivals(messages)
    receiver.forget()
    return {**campaign.seconds, "all parts": sum(campaign.seconds.values())}


def main() -> None:
    messages, size, rounds = numbers(10_000, 100, 3)
    end_at_sigterm()
    costs: dict[str, list[float]] = {}
    with stage(), sink.running() as where, tempfile.TemporaryDirectory() as folder:
        lists, at = Lists(Path(folder)), Installation()
        prepare(at, where, {"cut": size, "whole": messages})
        with at.up():
            for slug in VENDORS:
                seconds(at, lists, where, slug, WARM)
            for _ in range(rounds):
                spent = {slug: seconds(at, lists, where, slug, messages) for slug in VENDORS}
                for part, whole in spent["whole"].items():
                    costs.setdefault(part, []).append(1e3 * (spent["cut"][part] - whole) / (messages / size - 1))
    title = f"A child of {size} messages: processor time"
    keep(title, "ms", costs)
    console.print(title)
    for part, found in costs.items():
        console.print(f"  {part:20} {statistics.median(found):8.2f} ms {[round(one, 1) for one in found]}")


if __name__ == "__main__":
    main()
