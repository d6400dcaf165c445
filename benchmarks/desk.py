"""How long the operators' pages take with a million jobs: every tab with every filter.

`python -m benchmarks.desk [jobs]`. Server time of whole pages, log-in included, and their statements; in a PostgreSQL
of its own that is removed again. A hundred thousand jobs stand in the vendors' lines.
"""

import itertools
import statistics
import sys
import time
from typing import Any

from rich.table import Table

from benchmarks.stage import console, stage

JOBS = 1_000_000
ROUNDS = 2
SEED = """
INSERT INTO campaigns_campaign (sponsor_id, credential_id, name, subject, body, html, first_message, size, time_zone,
    created_at)
SELECT (SELECT min(id) FROM campaigns_sponsor) + floor(40 * power(random(), 2))::int, c.id, 'Campaign ' || n, '', '',
    false, 1 + n * 100, 100, '', now()
FROM generate_series(1, %(campaigns)s) n
JOIN vendors_credential c ON c.id = (SELECT min(id) FROM vendors_credential) + n %% 8;
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, status, first_message, size, remaining,
    fence, revision, waits_for, accepted, refused, in_doubt, expired, created_at, dispatched_at, started_at,
    finished_at, stopped_by)
SELECT c.id, c.sponsor_id, l.vendor_id, l.id, s.status, c.first_message + n %% 10 * 10, 10, 0, 1, 0, '',
    CASE WHEN s.status = 'LOGGED' THEN 10 - (n %% 50 = 0)::int - (n %% 1000 = 1)::int ELSE 0 END,
    CASE WHEN s.status = 'LOGGED' AND n %% 50 = 0 THEN 1 ELSE 0 END,
    CASE WHEN s.status = 'LOGGED' AND n %% 1000 = 1 THEN 1 ELSE 0 END, 0, s.at,
    CASE WHEN s.status <> 'RENDERED' THEN s.at END, CASE WHEN s.status = 'LOGGED' THEN s.at END,
    CASE WHEN s.status = 'LOGGED' THEN s.at + interval '1 hour' END, ''
FROM generate_series(0, %(jobs)s - 1) n
JOIN campaigns_campaign c ON c.id = (SELECT min(id) FROM campaigns_campaign) + n / 10
JOIN vendors_credential l ON l.id = c.credential_id
CROSS JOIN LATERAL (SELECT now() - (%(jobs)s - n) * interval '90 days' / %(jobs)s AS at,
    CASE WHEN n < %(jobs)s * 0.87 THEN 'LOGGED' WHEN n < %(jobs)s * 0.97 THEN 'DISPATCHED'
        WHEN n < %(jobs)s * 0.99 THEN 'RENDERED' WHEN n %% 2 = 0 THEN 'STOPPED' ELSE 'LOGGED' END AS status) s;
UPDATE campaigns_job SET status = 'SENDING', heartbeat_at = now() WHERE id IN (
    SELECT id FROM campaigns_job WHERE status = 'DISPATCHED' ORDER BY id LIMIT 50);
"""


def people() -> None:
    from campaigns.models import Sponsor
    from vendors.models import Credential, RateLimit, Vendor

    Sponsor.objects.bulk_create(Sponsor(name=f"Sponsor {n}") for n in range(40))
    for n in range(8):
        channel = ("email", "print", "sms")[n % 3]
        vendor = Vendor.objects.create(slug=f"vendor-{n}", name=f"Vendor {n}", channel=channel)
        RateLimit.objects.create(vendor=vendor, units=5, seconds=60)
        Credential.objects.create(vendor=vendor, exclusive=n % 2 == 0)


def seed(jobs: int) -> None:
    from django.db import connection

    began = time.perf_counter()
    people()
    with connection.cursor() as cursor:
        for statement in SEED.split(";\n"):
            if statement.strip():
                cursor.execute(statement, {"jobs": jobs, "campaigns": jobs // 10 + 1})
        cursor.execute("VACUUM ANALYZE")
    console.print(f"{jobs:,} jobs seeded in {time.perf_counter() - began:.0f} s")


def look(client: Any, address: str, words: dict[str, str]) -> tuple[float, int]:
    """(milliseconds, statements) of one page."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answer = client.get(address, words)
        times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer
    with CaptureQueriesContext(connection) as seen:
        client.get(address, words)
    return statistics.median(times), len(seen)


def pages() -> dict[str, list[dict[str, str]]]:
    """The words of all combinations, by tab."""
    from campaigns.admin.look import TABS
    from campaigns.models import Sponsor
    from vendors.models import Vendor

    common, rare = Sponsor.objects.earliest("pk"), Sponsor.objects.latest("pk")
    vendor = Vendor.objects.earliest("pk")
    sponsors = [{}, {"sponsor": str(common.pk)}, {"sponsor": str(rare.pk)}]
    vendors = [{}, {"vendor": str(vendor.pk)}, {"channel": "sms"}]
    wide = {"from": "2000-01-01", "to": "2100-01-01"}
    dates = [{}, {"date": "7"}, {"date": "any"}, wide, {"date": "any", "by": "sent"}]
    return {
        tab or "All": [
            {"status": tab, **sponsor, **over, **date}
            for sponsor, over, date in itertools.product(sponsors, vendors, dates)
        ]
        for tab in TABS
    }


def main(jobs: int) -> None:
    with stage():
        seed(jobs)
        from django.contrib.auth.models import User
        from django.test import Client

        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.create(username="bench", is_staff=True, is_superuser=True))
        columns = ("page", "looks", "median ms", "slowest ms", "most statements", "the slowest")
        table = Table(*columns, title=f"{jobs:,} jobs")
        listed = {f"jobs: {tab}": ("/admin/campaigns/job/", words) for tab, words in pages().items()}
        others = {"operations": ("/admin/", [{}]), "its live part": ("/admin/operations/pulse/", [{}])}
        for name, (address, looks) in (listed | others).items():
            measured = [(*look(client, address, words), words) for words in looks]
            slowest, _, words = max(measured, key=lambda one: one[0])
            middle = statistics.median(one[0] for one in measured)
            said = " ".join(f"{key}={value}" for key, value in words.items() if value)
            statements = max(one[1] for one in measured)
            table.add_row(name, str(len(looks)), f"{middle:.0f}", f"{slowest:.0f}", str(statements), said)
        console.print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS)
