"""Sessions that wait for a lock in the test's own database; other tests of the run use the same server."""

from django.db import connection


def count_lock_waits(statement: str = "") -> int:
    """Count the sessions of this database that wait for a lock now, of rows, tables or advisory.

    statement: a part of what they run; a vendor's window that is rebuilt beside them may wait, too.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND strpos(query, %s) > 0",
            [statement],
        )
        return int(cursor.fetchone()[0])
