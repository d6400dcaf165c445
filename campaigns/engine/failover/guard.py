"""Checks before any call that this PostgreSQL wrote the rows and that its tables are those of this version.

After a restore, or a failover to a lagging standby, the last calls are missing from the rows and would be made again. A
promotion starts a new timeline immediately, even for open sessions. Another cluster has another identifier, another
database another oid, and restoring a dump creates the table anew. A copy of the disk shows none of this: after such a
restore run `recover_store --since` (docs/how-to/back-up-and-restore.md).

Values that cannot change within a session are stored in it at its start, because reading them is ten times as expensive
as the rest. A session without them starts no call. Every session that may start a call therefore also has the settings
that make its commits durable, so a crash takes back nothing. Each crash is followed by a check of that (crash.py).
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from django.apps import apps
from django.db import ProgrammingError, connection
from django.db.backends.utils import CursorWrapper

from campaigns.models import Store
from vendors.said import Said

# Called before a process uses its first session for anything else; None: nothing (mailhub/presence.py).
ask_first: Callable[[], None] | None = None

OURS = ("campaigns", "mailhub", "vendors", "waiter")

SYSTEM = """(SELECT system_identifier FROM pg_control_system())
    || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())"""
TIMELINE = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
# A commit is on disk before a call starts, regardless of the settings of server, database or role. Otherwise a crash of
# PostgreSQL would take back claims whose calls were made. Other values, which wait for a standby, are the operator's
# choice.
DURABLE = """set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN 'on' ELSE current_setting('synchronous_commit') END, false)"""
NOTED = f"set_config('mailhub.system', {SYSTEM}, false), set_config('mailhub.tables', %(tables)s, false), {DURABLE}"
SAME = f"""(s.system = current_setting('mailhub.system', true) AND s.relation = s.tableoid::bigint
    AND s.timeline = {TIMELINE})"""
# After additive migrations the program before them may call, too: `tables` names its migrations, `applied` all of them.
# While `tables` is empty, nobody may.
FITS = "(s.tables <> '' AND current_setting('mailhub.tables', true) IN (s.tables, s.applied))"
# The same where the column may still be missing: beside the tables of a version that did not have it.
FITS_SEEN = FITS.replace("s.applied", "coalesce(to_jsonb(s) ->> 'applied', '')")
# A crash removes the row behind this. The row comes back once a comparison has found no loss (crash.py).
INTACT = "campaigns_is_intact()"
KNOWN = f"SELECT FROM campaigns_store s WHERE s.id = 1 AND {SAME} AND {FITS} AND {INTACT}"

TAKEN_OVER = Said("the store was taken over: a person has to run manage.py recover_store")
LOST = Said("PostgreSQL has lost commits in a crash: a person has to run manage.py recover_store")
CRASHED = Said("PostgreSQL has crashed: what Redis remembers is compared with the rows")
# Replaces the timeline while calls are held, so that no PostgreSQL counts as the one that wrote the rows (holding.py).
HELD_TIMELINE = "held"
HELD = Said("this installation was copied, moved or away: a person has to run manage.py recover_store")
FOR_A_PERSON = (TAKEN_OVER, LOST, HELD)
MIGRATING = Said("the tables are being migrated")
ANOTHER = "the database was made by another version of mailhub"
NEWER = "install that version again, on this machine too; an older one cannot use its tables"
ANEW = (
    "tables of 0.1 cannot be migrated, so name a new, empty database in DATABASE_URL and run manage.py migrate; where"
    " mailhub brings its own PostgreSQL, `manage.py services reset` deletes the old one with all its mail"
)
SINCE_0_2 = ("campaigns", "0002_storage")
OTHER_TABLES = Said("the schema does not match this version of the program: manage.py migrate, then start it again")


@cache
def list_migrations() -> dict[str, list[str]]:
    """Return the migrations of each of our apps in this version of the program, in order."""
    paths = {name: Path(apps.get_app_config(name).path, "migrations") for name in OURS}
    return {name: sorted(one.stem for one in path.glob("0*.py")) for name, path in paths.items()}


@cache
def newest_migrations() -> str:
    """Return the newest migration of each of our apps in this version of the program."""
    return " ".join(f"{name}.{known[-1]}" for name, known in list_migrations().items())


def another_version(*, to_migrate: bool = True) -> str | None:
    """Return why this version cannot use this database and what to do, or None if it can.

    to_migrate: it is to change the tables. Otherwise tables ahead by additive migrations are fine.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return None
        cursor.execute("SELECT app, name FROM django_migrations WHERE app = ANY(%s) ORDER BY id", [list(OURS)])
        applied = cursor.fetchall()
    unknown = [f"{app}.{name}" for app, name in applied if name not in list_migrations()[app]]
    if not unknown or (not to_migrate and SINCE_0_2 in applied and tables_unfit_reason() is None):
        return None
    return f"{ANOTHER} (it has {unknown[-1]}): {NEWER if SINCE_0_2 in applied else ANEW}"


def has_unapplied() -> bool:
    """Return True if a migration of ours is not applied. Compares file names: loading migrations takes seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return True
        cursor.execute("SELECT app, name FROM django_migrations WHERE app = ANY(%s)", [list(OURS)])
        applied = set(cursor.fetchall())
    return any((app, name) not in applied for app, names in list_migrations().items() for name in names)


# Replaces the timeline if a crash has lost commits, so that no PostgreSQL counts as the one that wrote the rows.
NO_TIMELINE = "lost"
STATE = f"{SAME}, {FITS_SEEN}, s.tables = '', s.timeline = '{NO_TIMELINE}', s.timeline = '{HELD_TIMELINE}'"
ASK = f"SELECT {STATE} FROM campaigns_store s"
ALL = f"{STATE}, {INTACT}"
ASK_ALL = f"SELECT {ALL} FROM campaigns_store s"


def judge_halt(
    same: bool, fits: bool, migrating: bool, lost: bool = False, held: bool = False, intact: bool = True
) -> Said | None:
    """Return the reason for these answers of ASK and INTACT, or None if calls may start."""
    if not same:
        return LOST if lost else HELD if held else TAKEN_OVER
    if not fits:
        return MIGRATING if migrating else OTHER_TABLES
    return None if intact else CRASHED


def halt_reason() -> Said | None:
    """Return the reason no call may start, or None."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(ASK_ALL)
        except ProgrammingError:  # tables older than INTACT
            if connection.in_atomic_block:
                raise
            cursor.execute(ASK)
        return judge_halt(*map(bool, cursor.fetchone() or (False, False, False)))


def tables_unfit_reason() -> Said | None:
    """Return the reason the tables do not match this version of the program, or None."""
    with connection.cursor() as cursor:
        cursor.execute(ASK)
        _, fits, migrating, *_ = map(bool, cursor.fetchone() or (False, False, True))
        return judge_halt(True, fits, migrating)


ADOPT = f"""
INSERT INTO campaigns_store (id, system, relation, timeline, adoptions, tables)
SELECT 1, {SYSTEM}, 'campaigns_store'::regclass::oid::bigint, {TIMELINE}, 1, ''
ON CONFLICT (id) DO NOTHING
"""
NEWEST = """
SELECT string_agg(app || '.' || name, ' ' ORDER BY app) AS names FROM (
    SELECT app, max(name) AS name FROM django_migrations WHERE app = ANY(%(ours)s) GROUP BY app
) newest"""
# Closing the store empties `tables`: only the new program may call. Otherwise all applied migrations are additive, so
# the program before may continue.
FIT = f"""
UPDATE campaigns_store s SET applied = n.names, tables = CASE
    WHEN s.tables = '' THEN n.names
    WHEN s.applied IN ('', n.names) THEN s.tables
    ELSE s.applied END
FROM ({NEWEST}) n
"""
FIT_WITHOUT = f"UPDATE campaigns_store SET tables = n.names FROM ({NEWEST}) n"
HAS_APPLIED = """
SELECT EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = 'campaigns_store'::regclass AND attname = 'applied' AND NOT attisdropped)
"""


def finish_migration() -> None:
    """Finish a migration: adopt PostgreSQL in a new installation, and store who may call from now on."""
    with connection.cursor() as cursor:
        cursor.execute(ADOPT)
        cursor.execute(FIT if _has_applied(cursor) else FIT_WITHOUT, {"ours": list(OURS)})


def _has_applied(cursor: CursorWrapper) -> bool:
    """Return False for tables of 0.3.0 and before, where only one version fits."""
    cursor.execute(HAS_APPLIED)
    return bool(cursor.fetchone()[0])


def close_before_migration() -> str | None:
    """Forbid calls before a migration. Once this has committed, no claim is made.

    Waits for claims under way. Returns the value for `undo_close`, or None if the table does not exist yet.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('campaigns_store') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return None
        cursor.execute("SELECT tables FROM campaigns_store")
        before = cursor.fetchone()
        cursor.execute("UPDATE campaigns_store SET tables = ''")
    return before[0] if before else None


def undo_close(before: str | None) -> None:
    """Undo `close_before_migration` if nothing was migrated."""
    if before is not None:
        Store.objects.update(tables=before)


ALIVE = """
SELECT count(*) FROM campaigns_job WHERE status IN ('ENQUEUED', 'SENDING', 'SENT', 'STOPPED')
    AND heartbeat_at > clock_timestamp() - %(lease)s * interval '1 second'
"""


def count_live_jobs(lease: float) -> int:
    """Count jobs with a heartbeat within the lease (seconds), using columns of every version."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('campaigns_job') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(ALIVE, {"lease": lease})
        return int(cursor.fetchone()[0])
