"""The consumer of document 002: takes finished work, writes result, then session, and only then acknowledges.

A store that is away gets a few tries; then the result is dropped, for the rows can answer as well. A session that could
not be written stays open and is found by the sweep.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Now

from campaigns.lifecycle import DONE
from campaigns.locks import hold
from campaigns.models import Job, Session
from campaigns.results import reader
from campaigns.results import store as result_store
from campaigns.webhooks import events

log = logging.getLogger(__name__)

PAUSES = (0.1, 0.5, 2.0)  # seconds between the tries
MOST = 500  # sessions a sweep
Written = TypeVar("Written")


def finished(job_ids: Iterable[int]) -> list[UUID]:
    """The open sessions of these jobs; most jobs have none."""
    mine = Session.objects.filter(job__in=list(job_ids), finished_at=None, job__status__in=DONE)
    return list(mine.values_list("pk", flat=True))


def left_behind() -> list[UUID]:
    """Sessions whose bell was lost, and those of which a doubt was settled since their result was written."""
    still_open = Session.objects.filter(finished_at=None, job__status__in=DONE)
    settled = Session.objects.filter(in_doubt__gt=0, job__status__in=DONE).exclude(job__in_doubt=F("in_doubt"))
    return [*still_open.values_list("pk", flat=True)[:MOST], *settled.values_list("pk", flat=True)[:MOST]]


def consume(session_id: UUID) -> list[int]:
    """Writes a finished session's result; the ids of the webhook calls that are to be made. Twice does no harm."""
    return _tried(lambda: _consume(session_id), (OperationalError, InterfaceError), f"session {session_id}") or []


def _consume(session_id: UUID) -> list[int]:
    session = Session.objects.select_related("job", "job__campaign").filter(pk=session_id, job__status__in=DONE).first()
    if session is None:
        return []
    job = session.job
    messages = reader.of_rows(session, job)
    shard = result_store.shard_of(session_id)
    result = {"tag": reader.tag(job), "messages": messages}
    put = _tried(
        lambda: _put(shard, session_id, result), (result_store.ResultStoreUnreachable,), f"result {session_id}"
    )
    with transaction.atomic():
        hold([job.pk])
        if not Job.objects.filter(pk=job.pk, status=job.status, revision=job.revision).exists():
            return []  # sent again meanwhile
        news = {"finished_at": Now(), "shard": shard if put else None, "in_doubt": job.in_doubt}
        Session.objects.filter(pk=session_id).update(**news)
        return events.emit(session, messages)


def _put(shard: int, session_id: UUID, result: dict[str, Any]) -> bool:
    result_store.put_result(shard, session_id, result)
    return True


def _tried(step: Callable[[], Written], errors: tuple[type[Exception], ...], what: str) -> Written | None:
    """A few times; then it is dropped, with a word in the log."""
    for pause in (*PAUSES, None):
        try:
            return step()
        except errors as error:
            log.warning("%s cannot be written: %s", what, error)
        if pause:
            time.sleep(pause)
    return None
