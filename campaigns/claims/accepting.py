"""Requests of programs become sessions, campaigns, messages and jobs: any number of requests in one statement.

Each request is stored wholly or not at all, once per idempotency key. Nobody waits for anybody: a request whose key
is just being stored by another transaction is told so. The jobs are born dispatched, for nothing has to be waited for
(a future send_at: READY, for the dispatcher); large ones are born as parents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import psycopg
from django.db import connection

from campaigns.states import Status


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. answer: what the client is told. recipients: stored form, and fields."""

    session: UUID
    sponsor_id: int
    test: bool
    key_prefix: str
    idempotency_key: str
    fingerprint: bytes
    answer: str
    vendor_id: int
    credential_id: int
    small: bool
    name: str
    subject: str
    body: str
    html: bool
    first_message: int
    recipients: Sequence[tuple[str, dict[str, Any]]]
    references: Sequence[str | None] | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    send_at: datetime | None = None
    deadline: datetime | None = None

    @property
    def status(self) -> str:
        if self.send_at:
            return Status.READY.value
        return Status.DISPATCHED.value if self.small else Status.P_QUEUED.value


@dataclass(frozen=True, slots=True)
class Stored:
    """job_id: of the request, now in the database. Without one another request has its key: a finished one, or busy."""

    job_id: int | None
    busy: bool = False


STORE = """
WITH asked AS (
    SELECT * FROM unnest(
        %s::uuid[], %s::bigint[], %s::bool[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::bigint[],
        %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bool[], %s::bigint[], %s::int[], %s::text[],
        %s::text[], %s::timestamptz[], %s::timestamptz[]
    ) WITH ORDINALITY AS a (session, sponsor, test, prefix, idempotency_key, fingerprint, answer, vendor, credential,
        status, name, subject, body, html, first, size, refs, metadata, send_at, deadline, n)
), numbered AS (
    SELECT *, nextval('campaigns_campaign_id_seq') AS campaign, nextval('campaigns_job_id_seq') AS job,
        pg_try_advisory_xact_lock(hashtextextended(sponsor || ' ' || test || ' ' || idempotency_key, 0)) AS free
    FROM asked
), kept AS (
    INSERT INTO campaigns_session (id, sponsor_id, job_id, test, key_prefix, idempotency_key, fingerprint, answer,
        "references", metadata, created_at, in_doubt)
    SELECT session, sponsor, job, test, prefix, idempotency_key, fingerprint, answer, refs::jsonb, metadata::jsonb,
        clock_timestamp(), 0
    FROM numbered WHERE free ORDER BY n
    ON CONFLICT DO NOTHING RETURNING job_id
), campaigns AS (
    INSERT INTO campaigns_campaign (id, sponsor_id, credential_id, name, subject, body, html, first_message, size,
        send_at, deadline, time_zone, created_at)
    SELECT campaign, sponsor, credential, name, subject, body, html, first, size, send_at, deadline, '',
        clock_timestamp()
    FROM numbered JOIN kept ON kept.job_id = job ORDER BY n
), jobs AS (
    INSERT INTO campaigns_job (id, campaign_id, vendor_id, credential_id, status, first_message, size, remaining,
        fence, revision, not_before, waits_for, accepted, refused, in_doubt, expired, created_at, dispatched_at,
        stopped_by)
    SELECT job, campaign, vendor, credential, status, first, size, CASE WHEN status = 'P_QUEUED' THEN size ELSE 0 END,
        0, 0, send_at, '', 0, 0, 0, 0, clock_timestamp(), CASE WHEN status <> 'READY' THEN clock_timestamp() END, ''
    FROM numbered JOIN kept ON kept.job_id = job ORDER BY n
), messages AS (
    INSERT INTO campaigns_message (id, campaign_id, recipient, params)
    SELECT m.id, campaign, m.recipient, m.params::jsonb
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[]) AS m (n, id, recipient, params)
    JOIN numbered USING (n) JOIN kept ON kept.job_id = job ORDER BY m.id
)
SELECT kept.job_id, NOT free FROM numbered LEFT JOIN kept ON kept.job_id = job ORDER BY n
"""


def store(requests: Sequence[Request]) -> list[Stored]:
    """What came of each, in their order. Raises psycopg's errors; then nothing was stored.

    A connection that turns out to be dead is made anew, once: what the lost one may have stored is found by its key.
    """
    parameters = [*_columns(requests), *_messages(requests)]
    connection.ensure_connection()
    try:
        rows = _execute(parameters)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        if connection.in_atomic_block:
            raise
        connection.close()
        connection.ensure_connection()
        rows = _execute(parameters)
    return [Stored(job_id, busy) for job_id, busy in rows]


def _execute(parameters: list[Any]) -> list[Any]:
    # Django's own cursor would put the values into the text and have it planned each time
    with psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(STORE, parameters, prepare=True).fetchall()


def _columns(requests: Sequence[Request]) -> list[list[Any]]:
    rows = (
        (
            r.session, r.sponsor_id, r.test, r.key_prefix, r.idempotency_key, r.fingerprint, r.answer, r.vendor_id,
            r.credential_id, r.status, r.name, r.subject, r.body, r.html, r.first_message, len(r.recipients),
            None if r.references is None else orjson.dumps(r.references).decode(),
            orjson.dumps(r.metadata).decode(), r.send_at, r.deadline,
        )
        for r in requests
    )  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)]


def _messages(requests: Sequence[Request]) -> list[list[Any]]:
    numbers: list[int] = []
    ids: list[int] = []
    recipients: list[str] = []
    params: list[str] = []
    for number, request in enumerate(requests, start=1):
        size = len(request.recipients)
        numbers += [number] * size
        ids += range(request.first_message, request.first_message + size)
        recipients += [recipient for recipient, _ in request.recipients]
        params += [orjson.dumps(fields).decode() for _, fields in request.recipients]
    return [numbers, ids, recipients, params]
