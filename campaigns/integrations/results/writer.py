"""The consumer of document 002: writes a finished session's result, then its session, and only then acknowledges.

The result store is a list of key/value servers, each with the results of its share of the sessions. A session's server
is a stable hash of its id modulo their number. That index is written to the session, so servers can be appended to
settings.RESULT_URLS at any time. Results contain no addresses, and expire.

A server that does not answer is tried a few times. Then the result is dropped, because the rows can answer as well. A
session that could not be written stays open, and the sweep finds it.
"""

import logging
import time
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import orjson
from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Now
from redis import Redis, RedisError

from campaigns.engine.lifecycle import hold_jobs, wait_at_most
from campaigns.integrations.results import reader
from campaigns.integrations.webhooks import events
from campaigns.models import Job, Session
from vendors import alarms, redis_clients


class ResultStoreUnreachable(Exception):
    """The result server does not answer. The rows in PostgreSQL still do."""


def shard_of(session: UUID) -> int:
    """Return the index of the session's server in settings.RESULT_URLS."""
    return zlib.crc32(session.bytes) % len(settings.RESULT_URLS)


def put_result(shard: int, session: UUID, result: dict[str, Any]) -> None:
    """Store a result for settings.RESULT_TTL seconds. Raises ResultStoreUnreachable."""
    blob = zlib.compress(orjson.dumps(result), 1)
    try:
        _result_server(shard).set(_result_key(session), blob, ex=settings.RESULT_TTL)
    except RedisError as error:
        raise ResultStoreUnreachable(str(error)) from error


def get_result(shard: int, session: UUID) -> dict[str, Any] | None:
    """Return the stored result, or None if it has expired or is lost. Raises ResultStoreUnreachable."""
    if shard >= len(settings.RESULT_URLS):
        return None
    try:
        blob: Any = _result_server(shard).get(_result_key(session))
    except RedisError as error:
        raise ResultStoreUnreachable(str(error)) from error
    return orjson.loads(zlib.decompress(blob)) if blob else None


def _result_server(shard: int) -> Redis:
    return _result_client(settings.RESULT_URLS[shard], settings.STORE_PATIENCE)


@cache
def _result_client(url: str, patience: float) -> Redis:
    return redis_clients.make_client(url, patience)


def _result_key(session: UUID) -> str:
    return f"mailhub:result:{session.hex}"


log = logging.getLogger(__name__)

PAUSES = (0.1, 0.5, 2.0)  # seconds between tries
MOST = 500  # sessions in each sweep
Written = TypeVar("Written")


def left_behind() -> list[UUID]:
    """Return sessions whose notification was lost, and those with doubts settled since their result was written."""
    still_open = Session.objects.filter(finished_at=None, job__finished_at__isnull=False)
    settled = Session.objects.filter(in_doubt__gt=0, job__finished_at__isnull=False)
    settled = settled.exclude(job__in_doubt=F("in_doubt"))
    return [*still_open.values_list("pk", flat=True)[:MOST], *settled.values_list("pk", flat=True)[:MOST]]


def write_result(session_id: UUID) -> list[int]:
    """Write a finished session's result; return the ids of the webhook calls to make. Idempotent."""
    return (
        _try_few_times(
            lambda: _write_result_of(session_id), (OperationalError, InterfaceError), f"session {session_id}"
        )
        or []
    )


def _write_result_of(session_id: UUID) -> list[int]:
    ended = Session.objects.filter(pk=session_id, job__finished_at__isnull=False)
    session = ended.select_related("job", "job__campaign").first()
    if session is None:
        return []
    job = session.job
    messages = reader.messages_from_rows(session, job)
    shard = shard_of(session_id)
    result = {"tag": reader.result_tag(job), "messages": messages}
    put = _try_few_times(
        lambda: _put_and_tell(shard, session_id, result), (ResultStoreUnreachable,), f"result {session_id}"
    )
    with transaction.atomic():
        wait_at_most("1s")  # for each try
        hold_jobs([job.pk])
        if not Job.objects.filter(pk=job.pk, status=job.status, revision=job.revision).exists():
            return []  # sent again meanwhile
        news = {"finished_at": Now(), "shard": shard if put else None, "in_doubt": job.in_doubt}
        Session.objects.filter(pk=session_id).update(**news)
        return events.emit(session, messages)


def _put_and_tell(shard: int, session_id: UUID, result: dict[str, Any]) -> bool:
    put_result(shard, session_id, result)
    return True


def _try_few_times(step: Callable[[], Written], errors: tuple[type[Exception], ...], what: str) -> Written | None:
    """Try the step a few times and log each failure. Returns None if every try failed."""
    for pause in (*PAUSES, None):
        try:
            return step()
        except errors as error:
            alarms.RESULTS_NOT_WRITTEN.log(log, what, error)
        if pause:
            time.sleep(pause)
    return None
