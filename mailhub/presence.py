"""Checks, before a worker or beat starts, that this is the installation that wrote the rows, and was not away for long.

If mailhub runs its own PostgreSQL, the rows hold a mark of their environment: the inodes of its folder, and the
machine. A copy of the disk has other inodes. So does a moved disk, so a move prompts the question too. For a PostgreSQL
that the environment names, only the rows' last sign of life is known.

A person decides the rest (recover_store); until then nothing is called (failover/holding.py).
"""

import json
import logging
from pathlib import Path

from django.conf import settings
from django.db import InterfaceError, OperationalError, ProgrammingError, connection
from django.utils import timezone

from campaigns.engine.dispatch import nightly
from campaigns.engine.failover import guard, holding
from campaigns.engine.failover.holding import Mark
from mailhub import embedded
from mailhub.embedded.postgres import Postgres
from vendors import alarms
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

COPIED = Said("these rows were written on another disk or machine: they were copied, restored or moved")
WAITING = gettext_noop("waiting: %(waiting)s")
AWAY = gettext_noop("nothing has run here for %(span)s, and mail fell due or was under way: %(waiting)s")

MACHINE, BOOT = Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id")
# Files that PostgreSQL creates once and never replaces.
MADE_ONCE = ("", "PG_VERSION", "base", "global")
# Written by running workers, beat and senders, but not by a process at its start.
SILENT = """
SELECT extract(epoch FROM clock_timestamp() - greatest(
    (SELECT max(ran_at) FROM mailhub_periodicrun WHERE task <> 'mailhub.stored_moments'),
    (SELECT max(last_run_at) FROM django_celery_beat_periodictask),
    (SELECT max(heartbeat_at) FROM campaigns_job WHERE status IN ('ENQUEUED', 'SENDING', 'SENT', 'STOPPED'))
))::float8
"""


def present_mark() -> Mark | None:
    """Return the mark of the home's own PostgreSQL; None if the environment names another one."""
    own = Postgres(embedded.Home())
    if own.url() != settings.DATABASE_URL:
        return None
    try:
        inodes = "-".join(str((own.data / name).stat().st_ino) for name in MADE_ONCE)
    except OSError:  # it belongs to a user whose folders this process may not see
        return None
    return {"disk": inodes, "machine": _read_mark_file(MACHINE), "boot": _read_mark_file(BOOT)}


def _read_mark_file(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def is_same(mark: Mark, known: Mark) -> bool:
    """Return True for the same disk and machine. A reboot changes the boot id, a new container the machine-id."""
    machine = mark["machine"] == known["machine"] or mark["boot"] == known["boot"] != ""
    return mark["disk"] == known["disk"] and machine


def look_for_mark() -> str | None:
    """Hold calls if a person must answer first. Returns why nothing is called, or None if calls may start.

    While PostgreSQL is unavailable, the check waits for the first session of this process or its pool. Calls need a
    session of Django's, so none can start before.
    """
    try:
        return _look_for_reason()
    except ProgrammingError:  # tables of another version, which forbid calls anyway
        return None
    except (OperationalError, InterfaceError) as why:
        alarms.DATABASE_AWAY_AT_START.log(log, why)
        guard.ask_first = _ask_first
        return None
    finally:
        connection.close()


def _ask_first() -> None:
    guard.ask_first = None  # the check has a session already
    try:
        _look_for_reason()
    except ProgrammingError:
        pass
    except BaseException:
        guard.ask_first = _ask_first
        raise


def _look_for_reason() -> str | None:
    known, same = holding.read_mark()
    if not same:
        return guard.halt_reason()
    mark = present_mark()
    if mark is not None and known is not None and not is_same(mark, known):
        return _hold_or_log(mark)
    silent = _seconds_silent()
    if silent is not None and 0 < settings.AWAY_SECONDS < silent:
        waiting = holding.find_waiting(everything=False, nights=_nights_in_silence(silent))
        if waiting.jobs:
            return _hold_calls_because(Said(AWAY, span=_span_text(silent), waiting=waiting.sentence), mark)
    if mark != known:
        holding.note_mark(json.dumps(mark))
    return None


def _hold_or_log(mark: Mark) -> str | None:
    waiting = holding.find_waiting()
    if waiting:
        return _hold_calls_because(Said.join_parts("; ", [COPIED, Said(WAITING, waiting=waiting.sentence)]), mark)
    alarms.MOVED_WITHOUT_MAIL.log(log, COPIED)
    holding.note_mark(json.dumps(mark))
    return None


def _hold_calls_because(why: Said, mark: Mark | None) -> Said:
    holding.hold_calls(why, json.dumps(mark))
    alarms.HELD_UNTIL_DECIDED.log(log, guard.HELD, why)
    return Said.join_parts(": ", [guard.HELD, why])


def _seconds_silent() -> float | None:
    """Return the seconds since the rows' last sign of life; None if there is none."""
    with connection.cursor() as cursor:
        cursor.execute(SILENT)
        found: float | None = cursor.fetchone()[0]
        return found


def _nights_in_silence(silent: float) -> list[int]:
    """Return the vendors whose night fell into the silence."""
    now = timezone.now()
    nights = ((vendor.pk, nightly.latest_due_run(vendor, now)) for vendor in Vendor.objects.all())
    return [pk for pk, night in nights if night and (now - night[1]).total_seconds() < silent]


def _span_text(seconds: float) -> Said:
    days, hours = divmod(round(seconds / 3600), 24)
    if days:
        return Said("%(days)s d %(hours)s h", days=days, hours=hours)
    if hours:
        return Said.count_form(gettext_noop("1 hour"), gettext_noop("%(count)s hours"), count=hours)
    return Said.count_form(gettext_noop("1 minute"), gettext_noop("%(count)s minutes"), count=round(seconds / 60))
