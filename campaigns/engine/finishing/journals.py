"""Takes over from dead processes what their journals prove, without waiting for a lease (decision 66)."""

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from django.conf import settings
from django.db import DataError, Error, connection, transaction

from campaigns.engine import failpoints
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.failover import guard
from campaigns.engine.finishing import finalizer
from campaigns.engine.journal import reading
from campaigns.engine.journal.file import read_identity
from campaigns.engine.journal.reading import DeadJournal, MarkedClaim, MarkedStream
from campaigns.engine.lifecycle import LOCKED_BRIEFLY, hold_jobs, wait_at_most
from campaigns.engine.merging import ACCEPTED, NOT_SENT
from campaigns.models import Job
from vendors import alarms

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
CLOSE_SECONDS = 5.0  # that the end of a process waits for a look: its statement may hang

KNOWN = f"SELECT s.adoptions {guard.KNOWN.removeprefix('SELECT ')}"
# An answer as of the dead sender's recorder. If the store was taken over since its claim, the ids may mean other
# messages, so the very claim has to be there.
APPEND = """
INSERT INTO campaigns_answerbatch
    (job_id, fence, claim_id, called_at, last, messages, kinds, codes, notes, causes, waits, units)
SELECT job, fence, claim, called_at, false, messages, kinds, codes, notes, causes, waits, units
FROM json_to_recordset(%(batches)s::json) AS a(job bigint, fence int, claim bigint, called_at timestamptz,
    messages bigint[], kinds text, codes text[], notes text[], causes text[], waits float8[], units int[], same boolean)
WHERE a.same OR EXISTS (SELECT FROM campaigns_claim c WHERE c.id = a.claim AND c.at = a.called_at AND c.job_id = a.job
    AND c.fence = a.fence AND a.messages <@ c.messages)
"""
# Claims that the sender had asked for and not yet received: it notes each one before its first call.
NEVER_BEGUN = """
INSERT INTO campaigns_answerbatch (job_id, fence, claim_id, called_at, last, messages, kinds, units)
SELECT job_id, fence, id, at, false, messages, repeat('n', cardinality(messages)), units
FROM campaigns_claim WHERE job_id = %(job)s AND fence = %(fence)s AND id > %(noted)s AND id <> ALL(%(marked)s)
    AND cardinality(messages) > 0
"""


_put_off: set[int] = set()  # jobs already logged as waiting
_taken: set[tuple[str, int]] = set()  # journals that stay, with their jobs that this process has taken over


class StoreHalted(Exception):
    """Nothing is decided now: the store is being looked into, or has other tables."""


@dataclass(slots=True)
class TakenOver:
    """The results taken over. doubts: calls still open at the death of their process."""

    jobs: list[int] = field(default_factory=list)
    answers: int = 0
    uncalled: int = 0
    doubts: int = 0


def read_journals(*, wakes: bool = False) -> list[int]:
    """Take over the jobs of dead processes of this machine. Returns those that go on.

    Reading a journal twice does no harm, so its file is removed only after everything has committed. wakes: notify the
    vendors; the sweep does that itself.
    """
    if not settings.JOURNAL:
        return []
    recovered: list[int] = []
    for dead in reading.dead_journals(read_identity):
        found = _take_over(dead)
        recovered += found.jobs
        if found.jobs or found.answers or found.uncalled:
            alarms.JOURNAL_READ.log(log, found.jobs, found.answers, found.uncalled, found.doubts)
    if wakes and recovered:
        vendors = Job.objects.filter(pk__in=recovered).values_list("vendor_id", "vendor__slug").distinct()
        for vendor_id, slug in vendors:
            dispatcher.wake_vendor(vendor_id, slug)
    return recovered


def _take_over(dead: DeadJournal) -> TakenOver:
    """Store the results proved by the journal, job by job. The file stays if one of them has to be tried again."""
    claims = defaultdict[int, list[MarkedClaim]](list)
    streams = {one.job: one for one in sorted(dead.streams, key=lambda one: one.fence)}
    for claim in dead.claims:
        claims[claim.job].append(claim)
    found, left = TakenOver(), False
    for job_id in sorted({*claims, *streams}):
        if (dead.path.name, job_id) in _taken:
            continue
        try:
            with transaction.atomic():
                wait_at_most(LOCKED_BRIEFLY)  # a locked job is tried again at the next look
                _take_job(job_id, claims[job_id], streams.get(job_id), found)
            failpoints.here("after_take_job")
        except DataError as error:  # it would be refused each time
            alarms.JOURNAL_UNFIT.log(log, dead.path.name, error)
        except (Error, StoreHalted) as error:
            if job_id not in _put_off:
                log.info("job %s: the journal of its dead sender is read later: %s", job_id, error)
            _put_off.add(job_id)
            left = True
        else:
            _put_off.discard(job_id)
            _taken.add((dead.path.name, job_id))
    failpoints.here("before_forget_journal")
    if not left:
        dead.delete_file()
        _taken.difference_update([one for one in _taken if one[0] == dead.path.name])
    failpoints.here("after_forget_journal")
    return found


def _take_job(job_id: int, claims: list[MarkedClaim], stream: MarkedStream | None, found: TakenOver) -> None:
    if not hold_jobs([job_id]):  # merges the answers stored by the process itself
        return
    with connection.cursor() as cursor:
        cursor.execute(KNOWN)
        known = cursor.fetchone()
        if known is None:
            raise StoreHalted("calls are halted")
        adoptions = known[0]
        batches = [batch for one in claims if (batch := _batch_row(one, same=one.adoptions == adoptions))]
        if batches:
            cursor.execute(APPEND, {"batches": orjson.dumps(batches).decode()})
        uncalled = sum(batch["kinds"].count(NOT_SENT) for batch in batches)
        if stream is not None and stream.adoptions == adoptions:
            marked = [one.claim for one in claims if one.fence == stream.fence]
            its: dict[str, Any] = {"job": job_id, "fence": stream.fence, "noted": stream.noted, "marked": marked}
            cursor.execute(NEVER_BEGUN, its)
    failpoints.here("mid_journal")
    hold_jobs([job_id])  # merges the answers proved by the journal
    fences = {one.fence for one in (*claims, stream) if one is not None and one.adoptions == adoptions}
    doubts = finalizer.recover_dead(job_id, fences)
    found.answers += sum(len(one.answers) for one in claims)
    found.uncalled += uncalled
    if doubts is not None:
        found.jobs.append(job_id)
        found.doubts += doubts


def _batch_row(claim: MarkedClaim, *, same: bool) -> dict[str, Any] | None:
    """Return the row of AnswerBatch. same: the store was not taken over since; else only acceptances count.

    After a takeover the store may lack a later call of the same messages.
    """
    answers = {one: answer for one, answer in claim.answers.items() if same or answer.kind == ACCEPTED}
    waits: Iterable[int] = claim.waits if same else ()
    messages = [*answers, *waits]
    if not messages:
        return None
    number = len(claim.waits) if same else 0
    blank = [None] * number
    units = [claim.units[one] for one in messages]
    return {
        "job": claim.job,
        "fence": claim.fence,
        "claim": claim.claim,
        "called_at": claim.at,
        "messages": messages,
        "kinds": "".join(one.kind for one in answers.values()) + NOT_SENT * number,
        "codes": [one.code for one in answers.values()] + blank,
        "notes": [one.note for one in answers.values()] + blank,
        "causes": [one.cause for one in answers.values()] + blank,
        "waits": [one.wait for one in answers.values()] + blank,
        "units": units if any(one != 1 for one in units) else None,
        "same": same,
    }


class JournalWatch:
    """A thread that looks for journals of dead processes while this process lives."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch_journals, name="journals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(CLOSE_SECONDS)

    def _watch_journals(self) -> None:
        said = ""
        while not self._over.is_set():
            try:
                read_journals(wakes=True)
                said = ""
            except Exception as error:  # mostly the database is away; the next look does it
                if said != (said := str(error)):
                    log.info("journals are read later: %s", error)
            finally:
                with suppress(Error):
                    connection.close()
            self._over.wait(LOOK_SECONDS)
