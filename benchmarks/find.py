"""The cost of an index for finding recipients during an import, and the time of a look-up.

`python -m benchmarks.find [messages] [imported] [rounds]`. Uses its own PostgreSQL, removed afterwards. generate_series
fills the table with `messages` rows. Then COPY imports rows with each kind of index in turn, each time after a
checkpoint; the time is the database's processor time. Then come look-ups as the page makes them, with the product's
index.
"""

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks.results import keep
from benchmarks.stage import console, numbers, stage

SPONSORS, EACH = 40, 10_000  # sponsors; messages of a campaign
NAME = "benchmark_recipient"
# One recipient in four gets mail of several campaigns.
FILL = """
INSERT INTO campaigns_message (id, uuid, campaign_id, recipient, params)
SELECT n, (lpad(to_hex(n), 12, '0') || '8' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
    (SELECT min(id) FROM campaigns_campaign) + n / %(each)s,
    CASE WHEN n %% 4 = 0 THEN 'again' || n %% 1000000 ELSE 'person' || n END || '@example.org',
    '{"name": "Anna Müller", "city": "Newtown"}'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) n
"""
CAMPAIGNS = """
INSERT INTO campaigns_campaign (sponsor_id, credential_id, name, subject, body, html, first_message, size, time_zone,
    created_at)
SELECT (SELECT min(id) FROM campaigns_sponsor) + n %% 40, (SELECT min(id) FROM vendors_credential), 'Campaign ' || n,
    '', '', false, n * %(each)s + 1, %(each)s, '', now()
FROM generate_series(0, %(campaigns)s::int) n;
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, status, first_message, size, remaining,
    fence, revision, waits_for, accepted, refused, in_doubt, expired, created_at, stopped_by)
SELECT c.id, c.sponsor_id, l.vendor_id, l.id, 'READY', c.first_message, c.size, 0, 0, 0, '', 0, 0, 0, 0, now(), ''
FROM campaigns_campaign c JOIN vendors_credential l ON l.id = c.credential_id;
"""
INDEXES = {
    "no index": "",
    "the address": "(lower(recipient))",
    "8 bytes of its hash": "(hashtextextended(lower(recipient), 0))",
    "4 bytes of its hash": "(hashtext(lower(recipient)))",
    "PostgreSQL's hash index": "USING hash (lower(recipient))",
}


class Cost(NamedTuple):
    """Processor seconds to build the index, its size in MB, and an imported message's microseconds and bytes of WAL."""

    built: float
    size: float
    each: float
    wal: float


def fill(messages: int, imported: int) -> None:
    from django.db import connection

    from campaigns.models import Sponsor
    from vendors.models import Credential, Vendor

    Sponsor.objects.bulk_create(Sponsor(name=f"Sponsor {n}") for n in range(SPONSORS))
    Credential.objects.create(vendor=Vendor.objects.create(slug="vendor", name="Vendor", channel="email"))
    with connection.cursor() as cursor:
        began = time.perf_counter()
        cursor.execute(CAMPAIGNS, {"each": EACH, "campaigns": (messages + imported) // EACH + 1})
        for first in range(1, messages + 1, 1_000_000):
            cursor.execute(FILL, {"each": EACH, "first": first, "last": min(first + 999_999, messages)})
        cursor.execute("VACUUM ANALYZE campaigns_message")
        cursor.execute("ANALYZE")
    console.print(f"{messages:,} messages in {time.perf_counter() - began:.0f} s")


def imports(messages: int, imported: int) -> Iterator[tuple[str, Cost]]:
    """Yield the cost of an import with each kind of index, in turn."""
    from django.db import connection

    first = messages + 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
        for name, on in INDEXES.items():
            built, size = processor(backend), 0.0
            if on:
                cursor.execute(f"CREATE INDEX {NAME} ON campaigns_message {on}")
                cursor.execute(f"SELECT pg_relation_size('{NAME}') / 1048576.0")
                size = float(cursor.fetchone()[0])
            built = processor(backend) - built
            cursor.execute("CHECKPOINT")
            cursor.execute("SELECT pg_current_wal_insert_lsn()")
            (before,) = cursor.fetchone()
            began = processor(backend)
            with cursor.copy("COPY campaigns_message (id, campaign_id, recipient, params) FROM STDIN") as copy:
                for n in range(first, first + imported):
                    to = f"person{n * 7_919 % 99_999_989}@example.org"
                    copy.write_row((n, (n - 1) // EACH + 1, to, '{"name": "Anna Müller"}'))
            each = 1e6 * (processor(backend) - began) / imported
            cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", [before])
            wal = float(cursor.fetchone()[0]) / imported
            cursor.execute("DELETE FROM campaigns_message WHERE id >= %s", [first])
            if on:
                cursor.execute(f"DROP INDEX {NAME}")
            cursor.execute("VACUUM campaigns_message")
            yield name, Cost(built, size, each, wal)


def processor(pid: int) -> float:
    """Return processor seconds of the process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def looks(messages: int) -> dict[str, list[float]]:
    """Return milliseconds of look-ups as the page makes them, by kind of search."""
    from campaigns.audience import finding
    from campaigns.models import Message, Sponsor

    some = list(Sponsor.objects.values_list("pk", flat=True)[:3])
    reference = Message.objects.get(pk=messages // 2).reference
    asked = {
        "an address": [f"person{1 + 4 * n * 99_991 % (messages - 1)}@example.org" for n in range(50)],
        "an address with many letters": [f"again{4 * n}@example.org" for n in range(50)],
        "nobody's": [f"nobody{n}@example.org" for n in range(50)],
        "our reference": [reference] * 50,
    }
    found: dict[str, list[float]] = {}
    for name, texts in asked.items():
        for sponsors in (None, some):
            times = []
            for text in texts:
                began = time.perf_counter()
                finding.look_for(text, sponsors)
                times.append(1000 * (time.perf_counter() - began))
            found[f"{name}, {'all sponsors' if sponsors is None else 'three sponsors'}"] = times
    return found


def plan() -> None:
    from django.db import connection

    from campaigns.audience.finding import BY_ADDRESS

    asked = {"addresses": ["again400@example.org"], "mail": "again400@example.org", "sponsors": None, "most": 51}
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {BY_ADDRESS}", asked)
        console.print("\n".join(line for (line,) in cursor.fetchall()))


def main(messages: int, imported: int, rounds: int) -> None:
    with stage():
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX IF EXISTS message_recipient")
        fill(messages, imported)
        costs: dict[str, list[Cost]] = {name: [] for name in INDEXES}
        for _round in range(rounds):
            for name, cost in imports(messages, imported):
                costs[name].append(cost)
        shown = Table("index", "built in s", "MB", "us a message", "bytes of WAL", title=f"COPY of {imported:,}")
        for name, of in costs.items():
            built, size, each, wal = (statistics.median(column) for column in zip(*of, strict=True))
            shown.add_row(name, f"{built:.1f}", f"{size:.0f}", f"{each:.2f}", f"{wal:.0f}")
        console.print(shown)
        kept = {name: [one.each for one in of] for name, of in costs.items()}
        keep(f"Import with an index on recipients: {messages:,} there, {imported:,} more", "us", kept)
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE INDEX message_recipient ON campaigns_message (hashtextextended(lower(recipient), 0))"
            )
            cursor.execute("ANALYZE campaigns_message")
        plan()
        times = looks(messages)
        shown = Table("looked for", "median ms", "slowest ms", title=f"{messages:,} messages")
        for name, measured in times.items():
            shown.add_row(name, f"{statistics.median(measured):.1f}", f"{max(measured):.1f}")
        console.print(shown)
        keep(f"Look-ups of recipients: {messages:,} messages", "ms", times)


if __name__ == "__main__":
    main(*numbers(10_000_000, 1_000_000, 3))
