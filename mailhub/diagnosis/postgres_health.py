"""Checks of PostgreSQL: its settings, standbys, vacuum, numbers and connections.

Every statement is one that an ordinary role may run. Facts that only a privileged role sees are called unknown.
"""

import time
from collections.abc import Iterator
from typing import Any

from django.db import connection

from campaigns.engine.failover import durability
from mailhub import checks
from mailhub.diagnosis.verdicts import HealthVerdict, VerdictLevel, all_well, error_of, judge_message, warning_of
from vendors.said import Said, gettext_noop

OLDEST = 14  # major version (docs/how-to/install.md)


def read_rows(statement: str, params: Any = None) -> list[tuple[Any, ...]]:
    """Return the rows of a statement on this thread's connection. Raises Django's database errors."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


def read_settings(*names: str) -> dict[str, str]:
    """Return these settings; those that this role may not see are missing."""
    return dict(read_rows("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(names)]))


def bound_statements(seconds: float) -> None:
    """Let PostgreSQL end each statement of this session after `seconds`."""
    read_rows("SELECT set_config('statement_timeout', %s, false)", [str(round(seconds * 1000))])


def look_at_server() -> Iterator[HealthVerdict]:
    """Check that PostgreSQL answers and takes writes, and its version."""
    [(version, number, follows)] = read_rows(
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()"
    )
    if number < OLDEST * 10_000:
        yield error_of(
            f"PostgreSQL is of version {version}",
            f"Upgrade it to {OLDEST} or later",
        )
    elif follows:
        yield error_of(
            "this PostgreSQL is a standby, and takes no writes",
            "Let DATABASE_URL name the primary, or promote this one",
        )
    else:
        yield all_well(f"PostgreSQL {version} answers")


def look_at_durability() -> Iterator[HealthVerdict]:
    """Check for commits that a crash or failover of PostgreSQL would lose."""
    found = durability.postgres_weaknesses()
    for one in found:
        yield HealthVerdict(
            VerdictLevel.ERROR if one.refused else VerdictLevel.WARNING, one.sentence, one.remedy, one.about
        )
    if not found:
        yield all_well("a crash loses nothing")


# Three columns: synchronous_commit of this session, the standbys that a commit waits for, and their number.
COMMITS = """
SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
"""


def look_at_commits() -> Iterator[HealthVerdict]:
    """Check that commits wait for the disk, and for a standby only if there is one."""
    [(waits, names, followers)] = read_rows(COMMITS)
    if waits in ("off", "local"):
        yield error_of(
            Said(gettext_noop("commits of a session do not wait: synchronous_commit is %(value)s"), value=waits),
            Said(gettext_noop("Let no pooler or role change the settings of sessions")),
        )
    elif names and not followers:
        yield error_of(
            Said(gettext_noop("commits wait for a standby (%(names)s), and none is connected"), names=names),
            Said(gettext_noop("Start the standby, or empty synchronous_standby_names until it is back")),
        )
    else:
        yield all_well(f"synchronous_commit is {waits} in each session")


def look_at_sessions() -> Iterator[HealthVerdict]:
    """Check that a session keeps its server process (mailhub/checks.py)."""
    found = checks.sessions_are_kept()
    yield from map(judge_message, found)
    if not found:
        yield all_well("sessions keep their server process")


def look_at_isolation() -> Iterator[HealthVerdict]:
    """Check the isolation of transactions (mailhub/checks.py)."""
    found = checks.transactions_are_read_committed()
    yield from map(judge_message, found)
    if not found:
        yield all_well("transactions are read committed")


LAG_BYTES, LAG_SECONDS = 128 * 2**20, 60
BEHIND = """
SELECT coalesce(nullif(application_name, ''), client_addr::text, 'standby'),
    pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::float8, extract(epoch FROM replay_lag)::float8
FROM pg_stat_replication WHERE application_name <> ALL(ARRAY['pg_basebackup', 'pg_receivewal'])
"""
KEPT_WAL = """
SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8
FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL
"""


def look_at_replication() -> Iterator[HealthVerdict]:
    """Check how far standbys are behind, and slots that keep WAL for nobody."""
    standbys = read_rows(BEHIND)
    for name, behind, lag in standbys:
        if (behind or 0) > LAG_BYTES or (lag or 0) > LAG_SECONDS:
            yield warning_of(
                Said(
                    gettext_noop("standby %(name)s is %(megabytes)s MB and %(seconds)s s behind"),
                    name=name, megabytes=round((behind or 0) / 2**20), seconds=round(lag or 0),
                ),
                Said(gettext_noop("Look at its disk and network; a failover to it now would lose that or wait for it")),
            )  # fmt: skip
    unused = [(name, kept) for name, kept in read_rows(KEPT_WAL) if kept > LAG_BYTES]
    for name, kept in unused:
        yield warning_of(
            Said(
                gettext_noop("replication slot %(name)s is used by nobody and keeps %(megabytes)s MB of WAL"),
                name=name, megabytes=round(kept / 2**20),
            ),
            Said(gettext_noop("Start its standby, or drop the slot before the disk is full")),
        )  # fmt: skip
    if not standbys:
        yield all_well("no standby follows")
    elif any(behind is None for _, behind, _ in standbys):
        yield all_well("standbys follow; how far is unknown: GRANT pg_monitor to this role tells it")
    else:
        yield all_well(f"standbys that follow: {len(standbys)}")


MANY_DEAD, HOPELESS = 100_000, 5  # rows; times the number at which autovacuum begins
DEAD = """
SELECT s.relname, s.n_live_tup, s.n_dead_tup,
    current_setting('autovacuum_vacuum_threshold')::float8
        + current_setting('autovacuum_vacuum_scale_factor')::float8 * greatest(c.reltuples, 0)
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.n_dead_tup > %s ORDER BY s.n_dead_tup DESC LIMIT 5
"""
SWITCHED_OFF = """
SELECT c.relname FROM pg_class c WHERE c.relkind = 'r'
    AND EXISTS (SELECT FROM pg_options_to_table(c.reloptions) o
        WHERE o.option_name = 'autovacuum_enabled' AND NOT o.option_value::boolean)
    AND c.relnamespace = (SELECT s.relnamespace FROM pg_class s WHERE s.oid = to_regclass('campaigns_store'))
"""
OLD = """
SELECT age(datfrozenxid)::float8 / 2^31, current_setting('autovacuum_freeze_max_age')::float8 * 2 / 2^31
FROM pg_database WHERE datname = current_database()
"""
LATE_FREEZE, LAST_FREEZE = 0.4, 0.7  # parts of the 2^31 transactions after which PostgreSQL stops


def look_at_vacuum() -> Iterator[HealthVerdict]:
    """Check that autovacuum runs and keeps up with dead rows and old transactions."""
    there = read_settings("autovacuum", "track_counts")
    off = [name for name, value in there.items() if value == "off"]
    for name in off:
        yield error_of(
            f"{name} is off: tables grow without end",
            f"Set {name} = on",
        )
    for (name,) in read_rows(SWITCHED_OFF):
        yield error_of(
            f"autovacuum is switched off for {name}",
            f"Say ALTER TABLE {name} RESET (autovacuum_enabled)",
        )
    for name, live, dead, begins in read_rows(DEAD, [MANY_DEAD]):
        if dead > HOPELESS * begins or dead > live:
            yield warning_of(
                f"{name} has {dead} dead rows beside {live}",
                f"End old transactions, then say VACUUM {name}; raise autovacuum_max_workers",
            )
    [(used, expected)] = read_rows(OLD)
    if used > max(LATE_FREEZE, expected):
        yield HealthVerdict(
            VerdictLevel.ERROR if used > LAST_FREEZE else VerdictLevel.WARNING,
            f"{round(100 * used)}% of the transaction numbers are used",
            "Say VACUUM as a superuser; find what holds it back: old transactions, slots",
        )
    if not off:
        yield all_well("autovacuum is on")


LONG_SECONDS = 3600.0
OPEN = """
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND datname = current_database()
ORDER BY xact_start LIMIT 1
"""


def look_at_transactions() -> Iterator[HealthVerdict]:
    """Check for a transaction that has been open for long and keeps dead rows alive."""
    for pid, seconds in read_rows(OPEN):
        if seconds > LONG_SECONDS:
            yield warning_of(
                Said(
                    gettext_noop("the transaction of PostgreSQL's process %(pid)s has been open for %(hours)s hours"),
                    pid=str(pid), hours=round(seconds / 3600, 1),
                ),
                Said(gettext_noop("End it: SELECT pg_terminate_backend(%(pid)s)"), pid=str(pid)),
            )  # fmt: skip
            return
    yield all_well("no transaction is open for long")


SOON, LAST = 0.5, 0.9
NUMBERS = """
SELECT sequencename, last_value::float8 / max_value FROM pg_sequences
WHERE last_value > max_value * %s AND NOT cycle AND schemaname = (
    SELECT n.nspname FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
    WHERE c.oid = to_regclass('campaigns_store'))
ORDER BY 2 DESC
"""


def look_at_numbers() -> Iterator[HealthVerdict]:
    """Check that no table comes to the end of its ids."""
    found = read_rows(NUMBERS, [SOON])
    for name, used in found:
        yield HealthVerdict(
            VerdictLevel.ERROR if used > LAST else VerdictLevel.WARNING,
            Said(gettext_noop("%(name)s has used %(percent)s%% of its ids"), name=name, percent=round(100 * used)),
            Said(gettext_noop("Make its column bigint before it ends, or report it")),
        )
    if not found:
        yield all_well("no table is near the end of its ids")


SKEWED, STOPPED = 0.5, 2.0  # seconds; beyond the second no permit is granted (docs/how-to/scale.md)


def judge_clock(server: str, ahead: float, doubt: float) -> HealthVerdict:
    """Return the verdict about a server's clock. ahead: of this machine's, in seconds, known within `doubt`."""
    least = max(0.0, abs(ahead) - doubt)
    if least <= SKEWED:
        return all_well(f"the clocks of {server} and this machine agree")
    level = VerdictLevel.ERROR if least > STOPPED else VerdictLevel.WARNING
    form = (
        gettext_noop("the clock of %(server)s is %(seconds)s s ahead of this machine's")
        if ahead > 0
        else gettext_noop("the clock of %(server)s is %(seconds)s s behind this machine's")
    )
    return HealthVerdict(
        level,
        Said(form, server=server, seconds=round(abs(ahead), 1)),
        Said(gettext_noop("Set the clocks of all machines by NTP; beyond two seconds nothing is sent")),
    )


def look_at_clock() -> Iterator[HealthVerdict]:
    """Compare PostgreSQL's clock with this machine's."""
    connection.ensure_connection()
    began, steady = time.time(), time.monotonic()
    [(theirs,)] = read_rows("SELECT extract(epoch FROM clock_timestamp())::float8")
    half = (time.monotonic() - steady) / 2
    yield judge_clock("PostgreSQL", theirs - began - half, half)


def data_folder() -> str | None:
    """Return the folder of PostgreSQL's data, as it names it; None: this role may not see it."""
    return read_settings("data_directory").get("data_directory")
