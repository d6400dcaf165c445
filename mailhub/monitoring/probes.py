"""The parts that mailhub needs, each asked in a bounded time: what /readyz answers.

A check returns what is wrong with its parts, "" where nothing is. It may block for as long as it likes: it runs in a
thread of its own (mailhub/monitoring/endpoints.py), with connections of its own.
"""

import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import connection
from kombu import Connection

from campaigns.failover import guard
from mailhub.environment import is_rabbitmq
from vendors import redis_clients

SECONDS = 2.0  # for each answer of a server
SILENT = 60.0  # seconds without a task of beat's, at least; it sends the sweep every SWEEP_SECONDS

MIGRATED = (
    "SELECT to_regclass('campaigns_store') IS NOT NULL AND to_regclass('django_celery_beat_periodictask') IS NOT NULL"
)
BEAT = "SELECT extract(epoch FROM max(last_run_at))::float8 FROM django_celery_beat_periodictask"

Found = dict[str, str]


def database() -> Found:
    """PostgreSQL, with what only its rows tell: whether the tables are those of this version, and whether beat runs."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(MIGRATED)
            if not cursor.fetchone()[0]:
                missing = "the tables are missing: manage.py migrate"
                return {"database": "", "migrations": missing, "beat": missing}
        return {"database": "", "migrations": guard.unfit() or "", "beat": _beat()}
    finally:
        connection.close()


def _beat() -> str:
    sent_at, most = beat_sent_at(), max(SILENT, 3 * settings.SWEEP_SECONDS)
    if sent_at is None:
        return "beat has not sent anything yet"
    silent = time.time() - sent_at
    return f"beat has sent nothing for {silent:.0f} s" if silent > most else ""


def beat_sent_at() -> float | None:
    """When beat last sent a task, in Unix seconds: it writes so into its own rows (CELERY_BEAT_SYNC_EVERY)."""
    with connection.cursor() as cursor:
        cursor.execute(BEAT)
        found: float | None = cursor.fetchone()[0]
        return found


def redis() -> Found:
    """The Redis of the throttle. One that only reads, or has no memory left, is of no use: it has to write."""
    redis_clients.try_to_write(settings.REDIS_URL, SECONDS)
    return {"redis": ""}


def broker() -> Found:
    patience: dict[str, Any] = {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS}
    if is_rabbitmq(settings.BROKER_URL):
        patience = {"read_timeout": SECONDS, "write_timeout": SECONDS}
    options = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS, **patience}
    with Connection(settings.BROKER_URL, connect_timeout=SECONDS, transport_options=options) as one:
        one.default_channel  # noqa: B018 (it connects, and asks a Redis for a sign of life)
        return {"broker": ""}


CHECKS: dict[tuple[str, ...], Callable[[], Found]] = {
    ("database", "migrations", "beat"): database,
    ("redis",): redis,
    ("broker",): broker,
}
PARTS = tuple(part for parts in CHECKS for part in parts)
