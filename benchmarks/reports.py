"""The cost of storing a vendor's receipts, a thousand in a report, against the bare UPDATE of as many rows.

`python -m benchmarks.reports [rows] [rounds]`. Once for one large campaign, once with a campaign for each letter. The
bare statement works on a plain table with the same columns, rows and primary key.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.ledger import execute
from benchmarks.sending import login
from benchmarks.stage import numbers, show, stage

MOST = 1000  # receipts in a report
LARGE, SMALL, BARE = "of one campaign", "each of a campaign of its own", "the bare statement"
PLAIN = """
DROP TABLE IF EXISTS plain_message;
CREATE TABLE plain_message AS SELECT * FROM campaigns_message WHERE id >= {0} AND id < {1};
ALTER TABLE plain_message ADD PRIMARY KEY (id);
VACUUM ANALYZE campaigns_message;
VACUUM ANALYZE campaigns_job;
VACUUM ANALYZE plain_message
"""
ACCEPT = """
UPDATE campaigns_message SET dequeued_at = now(), sent_at = now(), delivered_at = now(), message_id = 'v' || id
WHERE id >= %s AND id < %s
"""
UPDATE = """
UPDATE plain_message m SET report = 'delivered', report_at = now(), report_no = 0
FROM unnest(%s::bigint[]) AS a(id) WHERE m.id = a.id
"""


def sent(campaigns: int, each: int) -> tuple[int, int]:
    """Store logged jobs with all letters accepted. Returns the first message, and one past the last."""
    from django.utils import timezone

    from tests import factories

    of, by = login("http://nobody.invalid"), factories.sponsor()
    fields = {"status": "LOGGED", "fence": 1, "accepted": each, "finished_at": timezone.now()}
    jobs = [factories.campaign_with_job(each, of=of, by=by, **fields) for _ in range(campaigns)]
    first, end = jobs[0].first_message, jobs[-1].end
    execute(ACCEPT, [first, end])
    return first, end


def reported(first: int, end: int) -> float:
    from campaigns.engine import delivery_reports
    from campaigns.models import Message
    from vendors.adapters.reports import Reported

    row = Message.objects.select_related("campaign__credential").get(pk=first)
    names = [f"{uuid}-0" for uuid in Message.objects.filter(id__gte=first, id__lt=end).values_list("uuid", flat=True)]
    at = datetime.now(UTC)
    reports = [Reported(name, "delivered", at) for name in names]

    def take(low: int) -> None:
        part = reports[low : low + MOST]
        assert delivery_reports.store_reports(row.campaign.credential.vendor_id, part).changed == len(part)

    return rate(len(reports), take)


def bare(first: int, end: int) -> float:
    ids = list(range(first, end))
    return rate(len(ids), lambda low: execute(UPDATE, [ids[low : low + MOST]]))


def rate(rows: int, work: Callable[[int], Any]) -> float:
    began = time.perf_counter()
    for low in range(0, rows, MOST):
        work(low)
    return rows / (time.perf_counter() - began)


def main() -> None:
    rows, rounds = numbers(50_000, 3)
    rates: dict[str, list[float]] = {LARGE: [], SMALL: [], BARE: []}
    with stage():
        for _ in range(rounds):
            large, small = sent(1, rows), sent(rows // 25, 1)
            execute(PLAIN.format(*large))
            rates[LARGE].append(reported(*large))
            rates[SMALL].append(reported(*small))
            rates[BARE].append(bare(*large))
    show("A vendor's receipts, a thousand in a report", rates, BARE, "receipts/s")


if __name__ == "__main__":
    main()
