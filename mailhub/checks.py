"""System checks: the web server, workers, beat and `up` refuse to start if one of them fails.

Django's own checks run there and in `make lint`, not in our commands, where they would load every page and template.

Checks that query a server have the tag "servers". They run with `check --deploy`, and when a worker or beat starts.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
from celery.concurrency import get_implementation
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register, run_checks
from django.db import DatabaseError, OperationalError, connection

from mailhub.broker import connect_to
from vendors import alarms

FORMATS = ("TASK_SERIALIZER", "RESULT_SERIALIZER", "EVENT_SERIALIZER", "ACCEPT_CONTENT", "RESULT_ACCEPT_CONTENT")

logger = logging.getLogger(__name__)


@register("celery")
def json_only(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Require JSON on the broker; other formats could execute code."""
    wrong = {
        name: value
        for name in FORMATS
        if (value := getattr(settings, f"CELERY_{name}", None)) not in ("json", ["json"])
    }
    return [Error(f"CELERY_{name} is {value!r}, not json", id="mailhub.E004") for name, value in wrong.items()]


@register("python")
def python_version(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    if tuple(sys.version_info) >= (3, 11):
        return []
    return [Error(f"mailhub needs Python 3.11 or later, this is {sys.version.split()[0]}", id="mailhub.E005")]


@register("servers", deploy=True)
def redis_keeps_all(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Require that Redis refuses writes when out of memory; it must not drop queues and windows."""
    return [found for url in {settings.BROKER_URL, settings.REDIS_URL} for found in _check_eviction_policy(url)]


def _check_eviction_policy(url: str) -> Iterator[CheckMessage]:
    with connect_to(url, max_retries=1) as connection:
        if connection.transport.driver_type != "redis":
            return
        try:
            channel: Any = connection.default_channel
            policy = channel.client.config_get("maxmemory-policy")["maxmemory-policy"]
        except Exception as why:  # it does not answer, or a hosted one hides its settings
            yield Warning(f"Redis does not tell its maxmemory-policy: {why}", id="mailhub.W001")
            return
    if policy != "noeviction":
        hint = "Set maxmemory-policy noeviction in its configuration."
        yield Error(f"Redis may drop queues: its maxmemory-policy is {policy}", hint=hint, id="mailhub.E006")


POOLED = "PostgreSQL is reached through a pooler that does not keep sessions: two sessions met in one server process"
SESSIONS = "Set pool_mode = session there, or let DATABASE_URL name PostgreSQL itself."
MEETINGS = 5  # tries: a busy pooler may give two sessions different processes for a while


@register("servers", deploy=True)
def sessions_are_kept(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Require that a session keeps its server process.

    Statements are prepared once per session, and session settings must hold for all its statements. With a pooler that
    changes the process after each transaction, both fail while mail is sent. The check observes the behaviour, since a
    pooler need not announce itself.
    """
    try:
        kept = _keeps_sessions()
    except psycopg.errors.ProtocolViolation:  # a pooler in statement mode does not support transactions
        kept = False
    except psycopg.Error as why:  # no answer: senders wait for it
        return [Warning(f"PostgreSQL does not tell whether sessions are kept: {why}", id="mailhub.W002")]
    return [] if kept else [Error(POOLED, hint=SESSIONS, id="mailhub.E007")]


def _keeps_sessions() -> bool:
    with closing(_open_session()) as ours:
        process = _session_process(ours)
        if process == ours.info.backend_pid:  # the id that the server gave at the start: no pooler between
            return True
        with closing(_open_session()) as other:
            for _ in range(MEETINGS):
                with other.transaction():
                    if _session_process(other) == process or _session_process(ours) != process:
                        return False
    return True


def _open_session() -> Any:
    params = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(ours, None)
    return psycopg.connect(**params, autocommit=True, prepare_threshold=None)


def _session_process(session: Any) -> int:
    row = session.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0])


@register("servers", deploy=True)
def tables_are_of_this_version(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Refuse tables of another version, but for those that additive migrations have put one version ahead.

    Tables that `migrate` still has to change are fine; senders wait for it.
    """
    from campaigns.engine.failover import guard  # Django is set up by now

    try:
        why = guard.another_version(to_migrate=False)
    except OperationalError:  # PostgreSQL is unavailable; sessions_are_kept reports it
        return []
    return [Error(why, id="mailhub.E008")] if why else []


@register("servers", deploy=True)
def transactions_are_read_committed(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Refuse servers, databases and roles that isolate transactions more strictly by default.

    Two senders that meet at a row then get an error in place of waiting for each other.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('default_transaction_isolation')")
            [isolation] = cursor.fetchone()
    except DatabaseError:  # unavailable; sessions_are_kept reports it
        return []
    if isolation == "read committed":
        return []
    hint = "Set default_transaction_isolation = 'read committed' for mailhub's role."
    return [Error(f"PostgreSQL's default isolation is {isolation}", hint=hint, id="mailhub.E010")]


@register("servers", deploy=True)
def commits_are_kept(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Refuse servers that lose commits in a crash. Each lost claim is a letter that may be sent twice."""
    from campaigns.engine.failover import durability  # Django is set up by now

    try:
        found = durability.list_weaknesses()
    except DatabaseError:  # unavailable; sessions_are_kept reports it
        return []
    return [
        Error(one.sentence, hint=f"{one.remedy}.", id="mailhub.E009")
        if one.refused
        else Warning(one.sentence, hint=f"{one.remedy}.", id="mailhub.W004")
        for one in found
    ]


@register("servers", deploy=True)
def messages_can_be_stored(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """A constraint that refuses messages from some id on is told before their ids reach it."""
    from campaigns.engine.audit import leftover_bounds  # Django is set up by now

    try:
        found = leftover_bounds.find_leftover_bounds()
    except DatabaseError:  # unavailable; sessions_are_kept reports it
        return []
    return [Warning(one, hint=f"{leftover_bounds.REMEDY}.", id="mailhub.W005") for one in found]


@register("servers", deploy=True)
def bounces_come_somewhere(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Warn if an identity's bounces return to mailhub but nothing receives them."""
    from campaigns.models import Identity  # Django is set up by now

    if settings.BOUNCE_RECEIVER or settings.BOUNCE_MAILBOX:
        return []
    try:
        wanted = Identity.objects.filter(verp=True, enabled=True).exists()
    except DatabaseError:  # unavailable, or not migrated yet
        return []
    hint = "Set BOUNCE_RECEIVER or BOUNCE_MAILBOX, or say `manage.py identity set ... --no-verp`."
    return [Warning("Bounces come back to mailhub, and nothing takes them", hint=hint, id="mailhub.W003")] * wanted


def refuse_to_start(**_: Any) -> None:
    """End this worker or beat if anything is wrong. In a signal Celery lets no exception but SystemExit pass."""
    ours = [*json_only(), *python_version(), *redis_keeps_all()]
    refuse_on_error([*run_checks(tags=["waiter"]), *ours, *check_database()])


def check_database() -> list[CheckMessage]:
    """Run the checks of the database that every user of it needs."""
    asked = (
        *(sessions_are_kept, transactions_are_read_committed),
        *(tables_are_of_this_version, commits_are_kept, messages_can_be_stored),
    )
    return [message for check in asked for message in check()]


def refuse_on_error(found: list[CheckMessage]) -> None:
    """Log all messages; end this process if one of them is an error."""
    for message in found:
        logger.warning("%s", message)
    if any(message.is_serious() for message in found):
        reasons = (f"{one.msg}. {one.hint}" if one.hint else str(one.msg) for one in found if one.is_serious())
        raise SystemExit(alarms.DOES_NOT_START.text % "; ".join(reasons))


def refuse_pool(pool: Any) -> None:
    """End a worker whose pool uses greenlets or is untested, as its work would hang.

    `pool`: a name or a class, as Celery has it.
    """
    kind = get_implementation(pool)
    if not issubclass(kind, PreforkPool | SoloPool | ThreadPool):
        ours = "use -P threads for the vendors' queues, and -P prefork (the default) or -P solo for any"
        why = f"a worker cannot run with the pool {kind.__module__}: {ours}"
        raise SystemExit(alarms.DOES_NOT_START.text % why)
