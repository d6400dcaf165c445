"""The checks behind /readyz: the parts that mailhub needs.

A check returns the fault of each of its parts, or "". It may block, because it runs in a thread of its own
(mailhub/monitoring/endpoints.py), with its own connections.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError, IntegrityError, InterfaceError, InternalError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.engine.failover import durability, guard, recovery
from mailhub import stored_moments
from mailhub.broker import connect_to
from mailhub.environment import is_rabbitmq
from vendors import outages, redis_clients
from vendors.condition.reading import conditions_of_vendors
from vendors.condition.values import Condition, ConditionKind, describe_condition
from vendors.models import Credential, Vendor
from vendors.not_now import find_refusal_text, shown_to_anybody

log = logging.getLogger(__name__)

SECONDS = 2.0  # for each answer of a server
SILENT = 60.0  # seconds of beat's silence, at least; it sends the sweep every SWEEP_SECONDS

MIGRATED = (
    "SELECT to_regclass('campaigns_store') IS NOT NULL AND to_regclass('django_celery_beat_periodictask') IS NOT NULL"
)
BEAT = "SELECT extract(epoch FROM max(last_run_at))::float8 FROM django_celery_beat_periodictask"
SILENCE = "SELECT extract(epoch FROM clock_timestamp() - max(last_run_at))::float8 FROM django_celery_beat_periodictask"

Found = dict[str, str]


def probe_database() -> Found:
    """Check PostgreSQL, and by its rows also that the tables match this version and that beat runs."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(MIGRATED)
            if not cursor.fetchone()[0]:
                missing = "the tables are missing: manage.py migrate"
                return {"database": "", "migrations": missing, "beat": missing, "calls": missing}
        unfit = guard.tables_unfit_reason()
        return {
            "database": "",
            "migrations": unfit or "",
            "beat": find_beat_fault(),
            "calls": "" if unfit else _forbidden_calls_reason(),
        }
    finally:
        connection.close()


def probe_commits() -> Found:
    """Check that PostgreSQL keeps its commits. Empty if it is away, because the part `database` reports that."""
    began = time.monotonic()
    try:
        return {"durability": "; ".join(str(one) for one in durability.postgres_weaknesses() if one.refused)}
    except (DatabaseError, InterfaceError):
        if time.monotonic() - began > SECONDS:  # a hanging server is a fault of every part
            raise
        return {"durability": ""}
    finally:
        connection.close()


# An id beyond those of running imports. The row is rolled back, and the sequence does not advance.
TRY_TO_STORE = """
INSERT INTO campaigns_message (id, uuid, campaign_id, recipient, params)
SELECT last_value + 100000, gen_random_uuid(), 0, '', '{}' FROM campaigns_message_block
"""


def probe_storing() -> Found:
    """Check that a message can be stored. Empty if PostgreSQL is away, which the part `database` reports."""
    began = time.monotonic()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '1s'")
            cursor.execute(TRY_TO_STORE)
            transaction.set_rollback(True)
    except (IntegrityError, InternalError) as error:  # a constraint, a missing partition, a read-only server
        return {"storing": f"PostgreSQL stores no message: {str(error).splitlines()[0]}"}
    except (DatabaseError, InterfaceError) as error:
        if time.monotonic() - began > SECONDS:
            raise
        full = getattr(error.__cause__, "sqlstate", "") in ("53100", "53200", "25006")
        return {"storing": f"PostgreSQL stores no message: {str(error).splitlines()[0]}" if full else ""}
    finally:
        connection.close()
    return {"storing": ""}


def _forbidden_calls_reason() -> str:
    """Return the reason for forbidden calls, with its end if known, or empty."""
    halt = recovery.current_halt()
    return f"nothing is called: {halt.held or halt.why}" if halt else ""


def list_silent() -> list[str]:
    """Return until when and why some vendors are not called, without their names; [] if none is silent."""
    try:
        waits = Q(retry_after_until__gt=Now()) | Q(rate_limited_until__gt=Now())
        ids = set(Credential.objects.filter(waits).values_list("vendor", flat=True))
        conditions = conditions_of_vendors(ids).values()
        silent = [one.until for one in conditions if one.kind is ConditionKind.SILENT and one.until]
        if not silent:
            return []
        said = describe_condition(Condition(ConditionKind.SILENT, until=max(silent)), _clock_text)
        return [f"{'some' if len(silent) < Vendor.objects.count() else 'all'} vendors: {said}"]
    finally:
        connection.close()


def _clock_text(at: datetime) -> str:
    return f"{timezone.localtime(at):%H:%M:%S %Z}"


def find_beat_fault() -> str:
    """Return what is wrong with beat by PostgreSQL's clock, or empty.

    A row in the future is a fault, because beat may send nothing until then.
    """
    most = max(SILENT, 3 * settings.SWEEP_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute(SILENCE)
        silent: float | None = cursor.fetchone()[0]
    if silent is None:
        return "beat has not sent anything yet"
    if -silent > stored_moments.SLACK.total_seconds():
        return f"beat's rows lie {-silent:,.0f} s ahead of PostgreSQL's clock: set the clocks"
    return f"beat has sent nothing for {silent:.0f} s" if silent > most else ""


def beat_sent_at() -> float | None:
    """Return when beat last sent a task, in Unix seconds, from its own rows (CELERY_BEAT_SYNC_EVERY)."""
    with connection.cursor() as cursor:
        cursor.execute(BEAT)
        found: float | None = cursor.fetchone()[0]
        return found


def probe_redis() -> Found:
    """Check the throttle's Redis by a write: read-only or without memory it is useless."""
    redis_clients.try_to_write(settings.REDIS_URL, SECONDS)
    return {"redis": ""}


def probe_broker() -> Found:
    """Check the broker, by a write if it is Redis: a read-only one accepts no task."""
    patience: dict[str, Any] = {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS}
    if is_rabbitmq(settings.BROKER_URL):
        patience = {"read_timeout": SECONDS, "write_timeout": SECONDS}
    options = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS, **patience}
    with connect_to(settings.BROKER_URL, SECONDS, **options) as one:
        channel: Any = one.default_channel  # connects
        if one.transport.driver_type == "redis":
            channel.client.set("mailhub:probe", 1, ex=60)
        return {"broker": ""}


Probe = Callable[[], Found]
NAMES = {"database": "PostgreSQL", "redis": "Redis", "broker": "the broker"}


def ask_probe(parts: tuple[str, ...], check: Probe, show: Callable[[str], str] = shown_to_anybody) -> Found:
    """Run a check. If its server is away or refuses, return the server's answer and since when.

    parts: of the check's result; the first one is the server itself. show: returns what of the answer may be shown.
    """
    server = parts[0]
    try:
        found = check()
    except Exception as error:  # a client may raise anything
        sentence = find_refusal_text(error) or f"{type(error).__name__}: {error}"
        outages.note_outage(server, sentence)
        known = outages.find_outage(server)
        since = f" (since {timezone.localtime(known.since):%Y-%m-%d %H:%M:%S %Z})" if known else ""
        log.info("monitoring: %s: %s", server, sentence)
        return dict.fromkeys(parts, f"{NAMES[server]} {show(sentence)}{since}")
    outages.clear_outage(server)
    return found


def refusing_sentences() -> list[str]:
    """Return a sentence for each server that is away or refuses, and for each process of `up` that keeps ending.

    For operators: contains the clients' whole messages, with addresses.
    """
    with ThreadPoolExecutor(len(_SERVERS)) as threads:  # a check ends its thread's session
        servers = list(threads.map(_refusal_of, _SERVERS))
    processes = (f"{one.part.removeprefix(outages.PROCESS)} {one.sentence}" for one in outages.find_process_outages())
    return [*filter(None, servers), *processes]


def _refusal_of(parts: tuple[str, ...]) -> str:
    """Return a sentence if the server of these parts is away or refuses, or empty."""
    return ask_probe(parts, _SERVERS[parts], "is away or refuses: {}".format)[parts[0]]


_SERVERS: dict[tuple[str, ...], Probe] = {
    ("database", "migrations", "beat", "calls"): probe_database,
    ("redis",): probe_redis,
    ("broker",): probe_broker,
}
CHECKS: dict[tuple[str, ...], Probe] = {parts: partial(ask_probe, parts, check) for parts, check in _SERVERS.items()}
CHECKS[("durability",)] = probe_commits
CHECKS[("storing",)] = probe_storing
PARTS = tuple(part for parts in CHECKS for part in parts)
