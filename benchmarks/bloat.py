"""Growth of the tables: sizes, dead rows and heap-only updates after each ten of fifty campaigns.

`python -m benchmarks.bloat [campaigns] [recipients]`. Real workers send them, ten at a time, with autovacuum as the
migrations set it. The last figures come after autovacuum, which runs every minute. An update is heap-only (HOT) if it
touches no index and its new row fits on the same page.
"""

from benchmarks import recipients
from benchmarks.capacity import asked
from benchmarks.results import keep
from benchmarks.scale import send
from benchmarks.sending import login
from benchmarks.stage import console, numbers, stage
from tests import sandbox
from tests.waiting import wait_until

BATCH = 10
TABLES = ("campaigns_message", "campaigns_claim", "campaigns_answerbatch", "campaigns_job")
# Tables with more dead rows than the migrations allow.
UNVACUUMED = """
SELECT count(*) FROM pg_stat_user_tables WHERE relname IN ('campaigns_claim', 'campaigns_answerbatch')
    AND n_dead_tup > 2000 AND coalesce(last_autovacuum < to_timestamp(%s), true)
"""
LOOK = """
SELECT pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, n_tup_upd, n_tup_hot_upd
FROM pg_stat_user_tables WHERE relname = %s
"""


def look(table: str) -> dict[str, float]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(LOOK, [table])
        size, indexes, dead, updates, hot = cursor.fetchone()
    share = 100 * hot / updates if updates else 100.0
    return {"MB": size / 2**20, "MB of indexes": indexes / 2**20, "dead rows": dead, "% of updates HOT": share}


def note(seen: dict[str, dict[str, list[float]]]) -> None:
    for table, rows in seen.items():
        for name, value in look(table).items():
            rows.setdefault(name, []).append(value)


def main() -> None:
    campaigns, size = numbers(50, 2000)
    seen: dict[str, dict[str, list[float]]] = {table: {} for table in TABLES}
    with stage(), sandbox.running() as vendor:
        made = login(vendor.url, casters=2)
        for _ in range(0, campaigns, BATCH):
            send([recipients.job(size, made) for _ in range(BATCH)])
            note(seen)
        ended = asked("SELECT extract(epoch FROM clock_timestamp())")
        wait_until(lambda: not asked(UNVACUUMED % ended), "autovacuum has looked", 180)
        note(seen)
    when = f"after each {BATCH} of {campaigns} campaigns of {size:,}, and after autovacuum"
    for table, rows in seen.items():
        console.print(f"{table} {when}")
        for name, values in rows.items():
            console.print(f"  {name:18}" + "".join(f"{value:10,.1f}" for value in values))
        keep(f"Bloat of {table} {when}", "", rows)


if __name__ == "__main__":
    main()
