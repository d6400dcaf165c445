"""Stores any number of HTTP API requests in one statement, as sessions, campaigns, messages and jobs.

Each request is stored as a whole or not at all, once per idempotency key. Requests do not wait for each other: while
another transaction is storing the same key, the answer is "busy". Jobs start as DISPATCHED, large ones as P_QUEUED;
with a future send_at or a route they are READY, for the dispatcher.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson
import psycopg
from django.db import connection

from campaigns.approvals import approval_rules
from campaigns.approvals.approval_rules import Kind, Party
from campaigns.engine.suppressed import HOLDS
from campaigns.engine.suppressed.digests import digest_address, digest_key
from campaigns.lists.intake.files import CampaignFiles, keep_content
from campaigns.lists.intake.hours import Hours
from campaigns.lists.intake.shared_connections import connection_pool
from campaigns.lists.intake.storage import NO_RULES, PauseRules
from campaigns.lists.intake.to_oneself import count_letter
from campaigns.models.jobs import new_uuids
from campaigns.models.states import Status
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import NewWork, QuotaRefusal
from vendors.mail_classes import MailClass
from vendors.not_now import is_not_now


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. answer: the response as JSON, kept for repeats. recipients: (stored form, fields)."""

    session: UUID
    sponsor_id: int
    test: bool
    key_prefix: str
    idempotency_key: str
    fingerprint: bytes
    answer: str
    vendor_id: int
    channel: str
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
    hours: Hours | None = None
    text: str = ""
    headers: Sequence[tuple[str, str]] = ()
    files: CampaignFiles | None = None
    identity_id: int | None = None
    route_id: int | None = None
    topic_id: int | None = None
    transactional: bool = False
    mail_class: int = MailClass.BULK
    pauses: PauseRules = NO_RULES
    needs_approval: bool = False
    to_oneself: bool = False
    key_maker: int | None = None  # the user who made the key and so may not approve its requests
    template_version_id: int | None = None

    @property
    def wait_after(self) -> int | None:
        return self.pauses.wait_after(len(self.recipients))

    @property
    def status(self) -> str:
        if self.send_at or self.route_id:
            return Status.READY.value
        return Status.DISPATCHED.value if self.small and self.wait_after is None else Status.P_QUEUED.value


@dataclass(frozen=True, slots=True)
class Stored:
    """The result for a request. job_id: None if its key is taken; busy: by a transaction that has not ended.

    refusal: it was not stored, because a quota lacks room for it.
    """

    job_id: int | None
    busy: bool = False
    refusal: QuotaRefusal | None = None


FOR_REQUEST = HOLDS.format(sponsor="a.sponsor", topic="a.topic", transactional="a.transactional")
# A request of a sponsor with quotas (`limited`) is stored only by a caller that has asked them: %s is true.
# All rows are one JSON parameter; a parameter for each column would cost the client more than the server's work.
STORE = f"""
WITH asked AS (
    SELECT * FROM json_to_recordset(%s::json) AS a (n int, session uuid, sponsor bigint, test bool, prefix text,
        idempotency_key text, fingerprint text, answer text, vendor bigint, credential bigint, status text, name text,
        subject text, body text, html bool, first bigint, size int, refs jsonb, metadata jsonb, send_at timestamptz,
        deadline timestamptz, text text, headers jsonb, file_fields jsonb, files jsonb, identity bigint,
        topic bigint, transactional bool, wait_after int, bounce_limit float8, complaint_limit float8, route bigint,
        template_version bigint, to_oneself bool, hours_from time, hours_to time, each_from time, each_to time,
        time_zone text, mail_class int)
), suppressed AS (
    SELECT d.n, d.id, s.reason FROM json_to_recordset(%s::json) AS d (n int, id bigint, digest bigint)
    JOIN asked a USING (n) CROSS JOIN LATERAL (
        SELECT min(s.reason) AS reason FROM campaigns_suppression s WHERE s.digest = d.digest AND {FOR_REQUEST}) s
    WHERE s.reason IS NOT NULL
), numbered AS (
    SELECT *, nextval('campaigns_campaign_id_seq') AS campaign, nextval('campaigns_job_id_seq') AS job,
        pg_try_advisory_xact_lock(hashtextextended(sponsor || ' ' || test || ' ' || idempotency_key, 0)) AS free,
        NOT %s AND EXISTS (SELECT FROM campaigns_sponsorquota q WHERE q.sponsor_id = asked.sponsor) AS limited
    FROM asked
), kept AS (
    INSERT INTO campaigns_session (id, sponsor_id, job_id, test, key_prefix, idempotency_key, fingerprint, answer,
        "references", metadata, created_at, in_doubt)
    SELECT session, sponsor, job, test, prefix, idempotency_key, decode(fingerprint, 'hex'), answer, refs, metadata,
        clock_timestamp(), 0
    FROM numbered WHERE free AND NOT limited ORDER BY n
    ON CONFLICT DO NOTHING RETURNING job_id
), campaigns AS (
    INSERT INTO campaigns_campaign (id, sponsor_id, credential_id, identity_id, name, subject, body, html,
        hours_from, hours_to, each_from, each_to, time_zone, first_message, size, send_at, deadline, created_at,
        text, headers, file_fields, has_files,
        topic_id, transactional, bounce_limit, complaint_limit, route_id, routed, made_by, template_version_id,
        to_oneself, mail_class)
    SELECT campaign, sponsor, credential, identity, name, subject, body, html,
        hours_from, hours_to, each_from, each_to, coalesce(time_zone, ''), first, size, send_at, deadline,
        clock_timestamp(), text, headers, file_fields, files IS NOT NULL,
        topic, transactional, bounce_limit, complaint_limit, route, route IS NOT NULL, prefix, template_version,
        to_oneself, mail_class
    FROM numbered JOIN kept ON kept.job_id = job ORDER BY n
), named AS (
    INSERT INTO campaigns_campaignfile (campaign_id, file_id, name, content_type, cid, to_all)
    SELECT campaign, decode(f.sha256, 'hex'), f.name, f.content_type, f.cid, f.to_all
    FROM numbered JOIN kept ON kept.job_id = job CROSS JOIN LATERAL jsonb_to_recordset(files)
        AS f (sha256 text, name text, content_type text, cid text, to_all bool)
), jobs AS (
    INSERT INTO campaigns_job (id, campaign_id, sponsor_id, vendor_id, credential_id, status, first_message, size,
        remaining, fence, revision, not_before, waits_for, stopped_by, accepted, refused, in_doubt, expired,
        suppressed, remaining_suppressed, suppressions, created_at, dispatched_at, wait_after, mail_class)
    SELECT job, campaign, sponsor, vendor, credential, status, first, size,
        CASE WHEN status = 'P_QUEUED' THEN size ELSE 0 END, 0, 0, send_at, '', '', 0, 0, 0, 0,
        s.count, CASE WHEN status = 'P_QUEUED' THEN s.count ELSE 0 END,
        CASE WHEN %s THEN (SELECT coalesce(max(position), 0) FROM campaigns_suppression) ELSE 0 END,
        clock_timestamp(), CASE WHEN status <> 'READY' THEN clock_timestamp() END, wait_after,
        mail_class
    FROM numbered JOIN kept ON kept.job_id = job
        CROSS JOIN LATERAL (SELECT count(*) FROM suppressed WHERE suppressed.n = numbered.n) s ORDER BY n
), messages AS (
    INSERT INTO campaigns_message (id, uuid, campaign_id, recipient, params, dequeued_at, error_code, error_sub_type,
        cause)
    SELECT m.id, m.uuid, campaign, m.recipient, m.params, CASE WHEN s.id IS NOT NULL THEN clock_timestamp() END,
        CASE WHEN s.id IS NOT NULL THEN 'suppressed' END, s.reason, CASE WHEN s.id IS NOT NULL THEN 'recipient' END
    FROM json_to_recordset(%s::json) AS m (n int, id bigint, uuid uuid, recipient text, params jsonb)
    JOIN numbered USING (n) JOIN kept ON kept.job_id = job LEFT JOIN suppressed s ON s.id = m.id ORDER BY m.id
)
SELECT kept.job_id, NOT free, limited FROM numbered LEFT JOIN kept ON kept.job_id = job ORDER BY n
"""


def store_requests(requests: Sequence[Request]) -> list[Stored]:
    """Store the requests and return the result of each, in order. Raises psycopg's errors; then nothing is stored.

    A letter to oneself must be the only request, because it raises TooManyToOneself above the hourly limit. Contents of
    files are stored first, each once; those without a request are deleted a day later.

    A dead connection is replaced and the statement repeated once; requests that the first try stored are found by key.
    Requests of a sponsor with quotas are stored in a second transaction, one such transaction at a time.
    """
    stored = _store_with_marks(requests, with_quotas=False)
    limited = [number for number, (_, one_of_quota) in enumerate(stored) if one_of_quota]
    found = [one for one, _ in stored]
    for sponsor_id in sorted({requests[number].sponsor_id for number in limited}):
        mine = [number for number in limited if requests[number].sponsor_id == sponsor_id]
        again = _store_with_marks([requests[number] for number in mine], with_quotas=True)
        for number, (one, _) in zip(mine, again, strict=True):
            found[number] = one
    return found


def _store_with_marks(requests: Sequence[Request], with_quotas: bool) -> list[tuple[Stored, bool]]:
    """Store requests as `store_requests` does. Also returns, for each, True if it waits because its sponsor has quotas.

    with_quotas: they belong to one sponsor with quotas, and these are asked.
    """
    if len(requests) > 1 and any(one.to_oneself for one in requests):
        raise ValueError("a letter to oneself is stored by itself")
    files = (file for request in requests if request.files for file in request.files.all())
    contents = [file.read() for file in files if file.digest is None]
    parameters = None if with_quotas else _store_parameters(requests, with_quotas)
    try:
        return _execute_store(requests, parameters, contents)
    except psycopg.Error as error:
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or is_not_now(error)
        if connection.in_atomic_block or not lost:
            raise
        connection_pool.close()
        return _execute_store(requests, parameters, contents)


def _store_parameters(requests: Sequence[Request], with_quotas: bool) -> list[Any]:
    """Return the parameters of STORE."""
    secret = digest_key()
    return [
        _requests_as_json(requests),
        _digests_as_json(requests, secret),
        with_quotas,
        secret is not None,
        _messages_as_json(requests),
    ]


def _execute_store(
    requests: Sequence[Request], parameters: list[Any] | None, contents: list[bytes]
) -> list[tuple[Stored, bool]]:
    """Run the statement. parameters: None if the quotas of their sponsor are to be asked first."""
    alone = parameters is None or any(one.needs_approval or one.to_oneself for one in requests)
    # Parsed and planned once a connection. Django's cursors put values into the text and so prepare nothing.
    with connection_pool.lend_one() as pooled, psycopg.Cursor(pooled) as cursor:
        pooled.prepare_threshold = 0
        for content in contents:
            keep_content(content, pooled)
        if not alone:
            return _insert_requests(cursor, parameters)
        with pooled.transaction():
            if parameters is not None:
                return _ask_approvals(cursor, requests, _insert_requests(cursor, parameters))
            refusals = _ask_quotas(cursor, requests)
            admitted = [one for number, one in enumerate(requests) if number not in refusals]
            stored = iter(
                _ask_approvals(cursor, admitted, _insert_requests(cursor, _store_parameters(admitted, True)))
                if admitted
                else ()
            )
            return [
                (Stored(None, refusal=refusals[number]), False) if number in refusals else next(stored)
                for number in range(len(requests))
            ]


def _insert_requests(cursor: Any, parameters: list[Any] | None) -> list[tuple[Stored, bool]]:
    rows = cursor.execute(STORE, parameters, prepare=True).fetchall()
    return [(Stored(job_id, busy), limited) for job_id, busy, limited in rows]


def _ask_approvals(
    cursor: Any, requests: Sequence[Request], stored: list[tuple[Stored, bool]]
) -> list[tuple[Stored, bool]]:
    """Ask for the approvals of the requests stored, and count a letter to oneself. Returns `stored`."""
    pairs = [(request, one.job_id) for request, (one, _) in zip(requests, stored, strict=True) if one.job_id]
    asking = {job: Party(Kind.KEY, one.key_prefix, one.key_maker) for one, job in pairs if one.needs_approval}
    if asking:
        approval_rules.ask_for_approval(cursor, asking)
    for request, job_id in pairs:
        if request.to_oneself:
            count_letter(cursor, job_id)
    return stored


REPEATED = """
SELECT idempotency_key, test FROM campaigns_session
WHERE sponsor_id = %(sponsor)s AND test = ANY(%(tests)s) AND idempotency_key = ANY(%(keys)s)
"""


# Recipients of each request that are sent nothing. STORE asks once more; a suppression made in between holds there.
SUPPRESSED = f"""
SELECT d.n, count(*) FROM json_to_recordset(%(digests)s::json) AS d (n int, id bigint, digest bigint)
JOIN json_to_recordset(%(requests)s::json) AS a (n int, sponsor bigint, topic bigint, transactional bool) USING (n)
WHERE EXISTS (SELECT FROM campaigns_suppression s WHERE s.digest = d.digest AND {FOR_REQUEST})
GROUP BY 1
"""


def _count_suppressed(cursor: Any, requests: Sequence[Request]) -> dict[int, int]:
    """Return how many recipients of each request are suppressed, by its number."""
    secret = digest_key()
    if secret is None:
        return {}
    about = [
        {"n": number, "sponsor": one.sponsor_id, "topic": one.topic_id, "transactional": one.transactional}
        for number, one in enumerate(requests)
    ]
    asked = {"digests": _digests_as_json(requests, secret), "requests": orjson.dumps(about).decode()}
    return dict(cursor.execute(SUPPRESSED, asked).fetchall())


def _ask_quotas(cursor: Any, requests: Sequence[Request]) -> dict[int, QuotaRefusal]:
    """Return the refusals of a sponsor's requests, by their numbers. One stored before is not asked."""
    keys, tests = [one.idempotency_key for one in requests], list({one.test for one in requests})
    cursor.execute(REPEATED, {"sponsor": requests[0].sponsor_id, "tests": tests, "keys": keys})
    known = set(cursor.fetchall())
    suppressed = _count_suppressed(cursor, requests)
    now = datetime.now(UTC)
    asked = {
        number: NewWork(
            one.sponsor_id,
            one.vendor_id,
            one.credential_id,
            len(one.recipients) - suppressed.get(number, 0),
            one.send_at or now,
        )
        for number, one in enumerate(requests)
        if (one.idempotency_key, one.test) not in known
    }
    found = admission.admit_all(cursor, list(asked.values()))
    return {number: refusal for number, refusal in zip(asked, found, strict=True) if refusal}


def _requests_as_json(requests: Sequence[Request]) -> str:
    rows = [
        {
            "n": number,
            "session": r.session,
            "sponsor": r.sponsor_id,
            "test": r.test,
            "prefix": r.key_prefix,
            "idempotency_key": r.idempotency_key,
            "fingerprint": r.fingerprint.hex(),
            "answer": r.answer,
            "vendor": r.vendor_id,
            "credential": r.credential_id,
            "status": r.status,
            "name": r.name,
            "subject": r.subject,
            "body": r.body,
            "html": r.html,
            "first": r.first_message,
            "size": len(r.recipients),
            "refs": r.references,
            "metadata": r.metadata,
            "send_at": r.send_at,
            "deadline": r.deadline,
            "text": r.text,
            "headers": r.headers or None,
            "file_fields": r.files.fields or None if r.files else None,
            "files": _files_as_data(r.files) if r.files else None,
            "identity": r.identity_id,
            "route": r.route_id,
            "topic": r.topic_id,
            "transactional": r.transactional,
            "mail_class": r.mail_class,
            "wait_after": r.wait_after,
            "bounce_limit": r.pauses.bounce_limit,
            "complaint_limit": r.pauses.complaint_limit,
            "template_version": r.template_version_id,
            "to_oneself": r.to_oneself,
            **(r.hours.columns if r.hours else {}),
        }
        for number, r in enumerate(requests)
    ]
    return orjson.dumps(rows).decode()


def _files_as_data(files: CampaignFiles) -> list[dict[str, Any]]:
    return [
        {
            "sha256": (file.digest or sha256(file.read()).digest()).hex(),
            "name": file.name,
            "content_type": file.kind,
            "cid": file.cid,
            "to_all": file.to_all,
        }
        for file in files.all()
    ]


def _digests_as_json(requests: Sequence[Request], secret: bytes | None) -> str:
    """Return the recipients' digests, to match suppressions; an empty list if there are none."""
    if secret is None:
        return "[]"
    rows = [
        {"n": number, "id": id, "digest": digest_address(secret, request.channel, recipient)}
        for number, request in enumerate(requests)
        for id, (recipient, _) in enumerate(request.recipients, request.first_message)
    ]
    return orjson.dumps(rows).decode()


def _messages_as_json(requests: Sequence[Request]) -> str:
    rows = [
        {"n": number, "id": id, "uuid": uuid.decode(), "recipient": recipient, "params": fields}
        for number, request in enumerate(requests)
        for id, uuid, (recipient, fields) in _name_messages(request)
    ]
    return orjson.dumps(rows).decode()


def _name_messages(request: Request) -> Iterator[tuple[int, bytes, tuple[str, dict[str, Any]]]]:
    ids = range(request.first_message, request.first_message + len(request.recipients))
    return zip(ids, new_uuids(ids), request.recipients, strict=True)
