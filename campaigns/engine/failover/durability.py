"""Settings of PostgreSQL and Redis with which a crash loses commits, and which a session cannot set for itself.

The start-up checks, /readyz, `doctor` and the audit share this list. Sessions set the others (guard.DURABLE).
STORES_MAY_LOSE allows this installation to lose its data, as those of tests may. It then starts despite these settings
and still reports them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from vendors import redis_clients
from vendors.said import Said, gettext_noop

SECONDS = 2.0  # for each answer of Redis


@dataclass(frozen=True, slots=True)
class Weakness:
    """A setting with which a crash loses data. refused: mailhub does not start with it. remedy: what to do."""

    about: str
    sentence: Said
    remedy: Said
    refused: bool

    def __str__(self) -> str:
        return f"{self.sentence}. {self.remedy}"


# Each of these loses commits or whole pages in a crash of PostgreSQL or its machine. A crash empties unlogged tables;
# of ours only the one that detects crashes may be unlogged (guard.INTACT).
LOSING = """
SELECT bad.name AS loses, s.name AS setting, s.setting AS value FROM pg_settings s JOIN (VALUES
    ('fsync', 'off'), ('full_page_writes', 'off'), ('zero_damaged_pages', 'on')
) AS bad(name, setting) ON (bad.name, bad.setting) = (s.name, s.setting)
UNION ALL
SELECT 'tables', c.relname::text, 'unlogged'
FROM pg_class c WHERE c.relpersistence = 'u' AND c.relkind = 'r' AND c.relname <> 'campaigns_intact'
    AND c.relnamespace = (SELECT s.relnamespace FROM pg_class s WHERE s.oid = to_regclass('campaigns_store'))
ORDER BY 1, 2
"""
SET = gettext_noop("Set %(setting)s = %(value)s")
# Sentences about the loss, by LOSING's first column.
SENTENCES = {
    "fsync": gettext_noop(
        "%(setting)s is %(value)s: a crash of the machine loses commits, and may destroy the database"
    ),
    "full_page_writes": gettext_noop(
        "%(setting)s is %(value)s: a crash of the machine may leave pages that are half written"
    ),
    "zero_damaged_pages": gettext_noop(
        "%(setting)s is %(value)s: damaged pages become empty ones, and their rows are gone"
    ),
    "tables": gettext_noop("the table %(setting)s is unlogged: a crash of PostgreSQL empties it"),
}
# Two columns: commits wait for no standby; a physical standby is connected.
ASYNCHRONOUS = """
SELECT current_setting('synchronous_standby_names') = '', EXISTS (
    SELECT FROM pg_stat_replication r
    WHERE coalesce(r.application_name, '') <> ALL(ARRAY['pg_basebackup', 'pg_receivewal'])
        AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'))
"""
WAIT_FOR_ONE = Said("Set synchronous_standby_names on the primary, for example to 'ANY 1 (*)'")
KEEP = Said("Set appendonly yes in its configuration")
FOLLOWED = Said(
    "a standby follows, but commits do not wait for it: a failover loses the latest ones, and recover_store puts in"
    " doubt what may have been called"
)
SEVERAL = Said(
    "DATABASE_URL names several servers, but commits do not wait for a standby: a failover loses the latest ones, and"
    " recover_store puts in doubt what may have been called"
)
EMPTIED = Said(
    "Redis keeps nothing over a restart: notifications wait for the sweep then, and after a failover of PostgreSQL all"
    " that waits is in doubt"
)


def sentence_of(row: dict[str, str]) -> Said:
    """Return the sentence of a row of LOSING."""
    form = SENTENCES[row["loses"]]
    return Said(form, setting=row["setting"], value=row["value"])


def remedy_of(row: dict[str, str]) -> Said:
    """Return what to do about a row of LOSING."""
    if row["loses"] == "tables":
        return Said("Say ALTER TABLE %(table)s SET LOGGED", table=row["setting"])
    return Said(SET, setting=row["setting"], value="off" if row["value"] == "on" else "on")


def postgres_weaknesses() -> list[Weakness]:
    """Return the weaknesses of the PostgreSQL on this thread's connection. Raises Django's database errors."""
    with connection.cursor() as cursor:
        cursor.execute(LOSING, {})
        rows = [dict(zip(("loses", "setting", "value"), row, strict=True)) for row in cursor.fetchall()]
        cursor.execute(ASYNCHRONOUS, {})
        asynchronous, followed = cursor.fetchone()
    refused = not settings.STORES_MAY_LOSE
    found = [Weakness(row["loses"], sentence_of(row), remedy_of(row), refused) for row in rows]
    if asynchronous and (sentence := _expected_failover(followed)):
        found.append(Weakness("standby", sentence, WAIT_FOR_ONE, False))
    return found


def _expected_failover(followed: bool) -> Said | None:
    """Return the warning if this installation has a standby or names several servers, else None."""
    if followed:
        return FOLLOWED
    ours = connection.settings_dict
    several = "," in str(ours["OPTIONS"].get("host") or ours["HOST"] or "")
    return SEVERAL if several else None


def redis_weaknesses() -> Iterator[Weakness]:
    """Yield a weakness if Redis loses its data in a restart; nothing if it does not answer or hides its settings."""
    if redis_clients.keeps_data(settings.REDIS_URL, SECONDS) is False:
        yield Weakness("redis", EMPTIED, KEEP, False)


def list_weaknesses() -> list[Weakness]:
    """Return all weaknesses, refused ones first."""
    return sorted([*postgres_weaknesses(), *redis_weaknesses()], key=lambda one: not one.refused)
