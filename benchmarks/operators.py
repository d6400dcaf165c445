"""Times of the operators' pages with a million jobs: every tab and status with every filter on offer.

`python -m benchmarks.operators [jobs] [messages]`. Server time of whole pages, including the log-in, and their number
of statements, in its own PostgreSQL, removed afterwards. A hundred thousand jobs wait in the vendors' queues. A slow
page is measured again, and the median of five counts.
"""

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from benchmarks.operators_rows import seed
from benchmarks.results import keep
from benchmarks.stage import console, numbers, stage

SLOW = 60.0  # milliseconds; slower pages are measured again
POLL = "its poll"
NAMES = ("job", "message/attention", "message", "campaign")
JOBS, ATTENTION, MESSAGES, CAMPAIGNS = (f"/admin/campaigns/{page}/" for page in NAMES)
Query = dict[str, str]


def look(client: Any, address: str, query: Query, polled: bool = False) -> tuple[float, int]:
    """Return (milliseconds, statements) of one page, or of its poll."""
    from django.db import connection, reset_queries
    from django.test.utils import CaptureQueriesContext

    times: list[float] = []
    while not times or (len(times) < 5 and times[0] > SLOW):
        reset_queries()  # Django's log of queries is bounded
        with CaptureQueriesContext(connection) as seen:
            began = time.perf_counter()
            answer = client.get(address, query, headers={"HX-Request": "true"} if polled else None)
            times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer
    return statistics.median(times), len(seen)


def pages() -> Iterator[tuple[str, str, list[Query]]]:
    """Yield (name, address, query of each variant)."""
    from campaigns.doors.labels import SHAPES
    from campaigns.engine.lifecycle import GROUPS
    from campaigns.models import Campaign, Job, Sponsor
    from campaigns.models.states import Status
    from campaigns.operations.admin.job_filter import BY, SPANS, TABS
    from vendors.models import Vendor

    common, rare, vendor = Sponsor.objects.earliest("pk"), Sponsor.objects.latest("pk"), Vendor.objects.earliest("pk")
    sponsors = [{}, {"sponsor": str(common.pk)}, {"sponsor": str(rare.pk)}]
    of_vendor, of_channel = {"vendor": str(vendor.pk)}, {"channel": "sms"}
    over = [{}, of_vendor, of_channel, of_vendor | of_channel]  # the last one is empty: the vendor has another channel
    wide, old = {"from": "2000-01-01", "to": "2100-01-01"}, {"from": "2000-01-01", "to": "2000-01-31"}
    dates = [{"date": name} for name in [*SPANS, "any"] if name != "range"] + [wide, old]
    by = [{"by": name} for name in BY]
    for status in (*TABS, *(one for one in (*GROUPS, *Status) if one not in TABS)):
        combined = itertools.product([{"status": status}], sponsors, over, dates, by)
        yield f"jobs: {status or 'All'}", JOBS, [{k: v for one in query for k, v in one.items()} for query in combined]
    yield "jobs: search", JOBS, [{"q": "17"}, {"q": "Campaign 4"}, {"q": "Campaign 99999"}, {"q": "nobody"}]
    yield "jobs: last page", JOBS, [{"p": "40", "date": "any"}, {"p": "40", "date": "any", **sponsors[1]}]
    campaign = str(Campaign.objects.latest("pk").pk)
    shapes = [{}, *({"state": shape} for shape in SHAPES)]
    yield "messages of a campaign", MESSAGES, [{"campaign": campaign, **shape} for shape in shapes]
    yield "messages", MESSAGES, [{}]
    yield "needs attention", ATTENTION, [{}]
    yield "operations", "/admin/", [{}]
    yield f"operations: {POLL}", "/admin/operations/pulse/", [{}]
    yield f"jobs: {POLL}", JOBS, [{}, {"date": "any"}, {"status": "Sending"}, {"q": "campaign 4"}]
    yield "campaigns", CAMPAIGNS, [{}, {"q": "campaign 4"}, {"p": "99"}, {"sponsor": str(common.pk)}]
    parent, leaf = (Job.objects.filter(status=status).latest("pk") for status in ("P_ASSIGNING", "SENDING"))
    for name, job in (("a parent", parent), ("a job", leaf)):
        yield name, f"{JOBS}{job.pk}/change/", [{}]
        yield f"{name}: {POLL}", f"{JOBS}{job.pk}/live/", [{}]
    yield "messages of a job", MESSAGES, [{"job": str(leaf.pk), **shape} for shape in shapes]
    yield "vendors", "/admin/vendors/vendor/", [{}]


def main(jobs: int, messages: int) -> None:
    with stage():
        began = time.perf_counter()
        seed(jobs, messages, console.print)
        console.print(f"seeded in {time.perf_counter() - began:.0f} s")
        from django.contrib.auth.models import User
        from django.test import Client

        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.create(username="bench", is_staff=True, is_superuser=True))
        client.get(JOBS)  # compiles the templates
        console.print(table(client, f"{jobs:,} jobs, {messages:,} messages"))


def table(client: Any, title: str) -> Table:
    shown = Table("page", "looks", "median ms", "slowest ms", "most statements", "the slowest", title=title)
    times: list[float] = []
    kept: dict[str, list[float]] = {}
    for name, address, looks in pages():
        measured = [(*look(client, address, query, name.endswith(POLL)), query) for query in looks]
        slowest, _, query = max(measured, key=lambda one: one[0])
        middle = statistics.median(one[0] for one in measured)
        said = " ".join(f"{key}={value}" for key, value in query.items() if value and key != "status")
        statements = max(one[1] for one in measured)
        shown.add_row(name, f"{len(looks):,}", f"{middle:.0f}", f"{slowest:.0f}", str(statements), said)
        kept[name] = [one[0] for one in measured]
        times += kept[name]
    keep(f"Operators' pages, every look-up: {title}", "ms", kept)
    over = sum(one >= 100 for one in times)
    shown.add_row(
        "all", f"{len(times):,}", f"{statistics.median(times):.0f}", f"{max(times):.0f}", "", f"{over} over 100"
    )
    return shown


if __name__ == "__main__":
    main(*numbers(1_000_000, 2_000_000))
