"""Puts back what full runs of equal refusals have refused, and pauses their credentials or campaigns."""

from typing import Any

from django.db import connection

from campaigns.engine import decisions, lifecycle
from campaigns.engine.pausing import pauses
from campaigns.engine.refusal_runs.run_rows import IS_CONFIRMED, RunKey, SeenRun, statements_of
from campaigns.models import Job
from campaigns.models.states import PARENTS, Status
from vendors.own_reasons import PAUSE, pause_params

ITSELF = "mailhub"  # the name in Resolution.decided_by
REASON = "it was refused in a row of equal refusals, which paused its credential or campaign"


def put_runs_back() -> list[RunKey]:
    """Put back the messages refused in full runs, and pause their credentials or campaigns. Returns the runs.

    Also puts back messages of calls open at that time, once these are answered in the same words. A run with a locked
    job is left to the next sweep.
    """
    with connection.cursor() as cursor:
        cursor.execute(FULL)
        full = [RunKey(*row) for row in cursor.fetchall()]
        cursor.execute(TAILS)
        tails = [tail_id for (tail_id,) in cursor.fetchall()]
    for tail_id in tails:
        lifecycle.unless_locked(_put_tail_back, tail_id)
    return [key for key in full if lifecycle.unless_locked(_put_run_back, key)]


# A full run of the credential comes first: its sponsors' runs are a part of it.
FULL = f"""
SELECT credential_id, 0 FROM campaigns_refusalrun run WHERE {IS_CONFIRMED}
UNION ALL SELECT credential_id, sponsor_id FROM campaigns_sponsorrefusalrun run WHERE {IS_CONFIRMED} AND NOT EXISTS (
    SELECT FROM campaigns_refusalrun c WHERE c.credential_id = run.credential_id AND c.full_at IS NOT NULL)
ORDER BY 1, 2
"""
# A message in an open claim would look as if it were in a call, so it waits until the claim is closed.
OPEN = """
SELECT m.id FROM unnest(%(messages)s::bigint[]) AS m(id) WHERE EXISTS (
    SELECT FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id AND j.fence = c.fence
    WHERE c.job_id = ANY(%(jobs)s) AND m.id = ANY(c.messages))
"""
# All of the credential or of the sponsor there, after the pause: no further claim was allowed.
OPEN_OF_RUN = """
SELECT u.id FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id AND j.fence = c.fence,
    unnest(c.messages) AS u(id)
WHERE j.credential_id = %(credential)s AND (%(sponsor)s = 0 OR j.sponsor_id = %(sponsor)s)
"""
# Also those with open calls: messages of these calls may be put back later and must not be called immediately.
CAMPAIGNS = """
SELECT campaign_id FROM campaigns_message WHERE id = ANY(%(messages)s)
UNION SELECT j.campaign_id FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id AND j.fence = c.fence
WHERE j.credential_id = %(credential)s AND j.sponsor_id = %(sponsor)s
"""
PUT_BACK = """
WITH back AS (
    UPDATE campaigns_message m SET resend_no = m.resend_no + 1, dequeued_at = NULL, sent_at = NULL,
        delivered_at = NULL, error_code = NULL, error_sub_type = NULL, cause = NULL, put_off_at = NULL,
        call_after = NULL
    FROM campaigns_job j
    WHERE m.id = ANY(%(messages)s) AND j.id = ANY(%(jobs)s) AND j.status <> ALL(%(parents)s)
        AND m.id >= j.first_message AND m.id < j.first_message + j.size
        AND m.message_id IS NULL AND m.in_doubt_at IS NULL
        AND m.error_code = %(code)s AND coalesce(m.error_sub_type, '') = %(sub_type)s
        AND NOT EXISTS (SELECT FROM campaigns_resolution r WHERE r.message_id = m.id AND r.decided_by = %(itself)s)
    RETURNING m.id, m.resend_no - 1 AS resend_no, j.id AS job_id, j.parent_id
), kept AS (
    INSERT INTO campaigns_resolution (message_id, resend_no, decision, reason, decided_by, evidence, created_at)
    SELECT id, resend_no, 'resend', %(reason)s, %(itself)s, %(said)s, clock_timestamp() FROM back
), numbers AS (
    SELECT id, sum(number) AS number FROM (
        SELECT job_id AS id, count(*) AS number FROM back GROUP BY 1
        UNION ALL SELECT parent_id, count(*) FROM back WHERE parent_id IS NOT NULL GROUP BY 1
    ) each GROUP BY 1
), counted AS (
    UPDATE campaigns_job j SET refused = greatest(j.refused - n.number, 0), learned = j.learned + 1
    FROM numbers n WHERE j.id = n.id
)
SELECT DISTINCT job_id FROM back
"""
# A stop of the parent marked no child that had been logged; it stays stopped.
STOPPED_ABOVE = """
UPDATE campaigns_job j SET stopped_at = p.stopped_at, stopped_by = p.stopped_by FROM campaigns_job p
WHERE j.id = ANY(%(jobs)s) AND j.status = 'LOGGED' AND j.stopped_at IS NULL AND p.id = j.parent_id
    AND p.stopped_at IS NOT NULL
"""
FORGET = "DELETE FROM campaigns_refusalrun WHERE credential_id = %(credential)s"
FORGET_OF_SPONSORS = """
DELETE FROM campaigns_sponsorrefusalrun
WHERE credential_id = %(credential)s AND (%(sponsor)s = 0 OR sponsor_id = %(sponsor)s)
"""
KEEP_TAIL = """
INSERT INTO campaigns_refusaltail (credential_id, code, sub_type, messages, at)
VALUES (%(credential)s, %(code)s, %(sub_type)s, %(messages)s, clock_timestamp())
"""
TAILS = "SELECT id FROM campaigns_refusaltail ORDER BY id"
TAIL_MESSAGES = "SELECT messages FROM campaigns_refusaltail WHERE id = %(tail)s"
TAIL = "SELECT code, sub_type FROM campaigns_refusaltail WHERE id = %(tail)s FOR UPDATE"
SHORTEN = "UPDATE campaigns_refusaltail SET messages = %(messages)s WHERE id = %(tail)s"
END_TAIL = "DELETE FROM campaigns_refusaltail WHERE id = %(tail)s"


def _put_run_back(key: RunKey) -> bool:
    """Put a confirmed run back, and pause its credential, or the campaigns of its sponsor."""
    of_run, statements = key.params, statements_of(key)
    with connection.cursor() as cursor:
        read = _read_ids(cursor, statements.messages, of_run)
        campaigns = _read_ids(cursor, CAMPAIGNS, {**of_run, "messages": list(read)}) if key.sponsor_id else set()
        jobs = lifecycle.hold_campaigns(campaigns) if key.sponsor_id else lifecycle.hold_around(read)
        cursor.execute(statements.confirmed_statement, of_run)
        row = cursor.fetchone()
        if row is None:
            return False
        *seen, messages = row
        run = SeenRun.read_run(seen)
        assert run is not None
        if not key.sponsor_id:
            cursor.execute(PAUSE, pause_params(key.credential_id, run.pause_outcome().reason))
        left = _read_ids(cursor, OPEN, {"messages": messages, "jobs": jobs}) | (set(messages) - read)
        _put_messages_back(cursor, run.code, run.sub_type, read - left, jobs)
        if left := left | _read_ids(cursor, OPEN_OF_RUN, of_run):
            tail = {"code": run.code, "sub_type": run.sub_type, "messages": sorted(left)}
            cursor.execute(KEEP_TAIL, of_run | tail)
        if not key.sponsor_id:
            cursor.execute(FORGET, of_run)
        cursor.execute(FORGET_OF_SPONSORS, of_run)
    for campaign_id in sorted(campaigns):
        if pauses.anything_to_pause(campaign_id):
            pauses.pause_itself(campaign_id, run.campaign_reason)
    return True


def _put_tail_back(tail_id: int) -> None:
    """Put back the messages that calls of a tail refused in its words. Calls still open wait."""
    of_tail: dict[str, Any] = {"tail": tail_id}
    with connection.cursor() as cursor:
        messages = _read_ids(cursor, TAIL_MESSAGES, of_tail)
        jobs = lifecycle.hold_around(messages)
        cursor.execute(TAIL, of_tail)
        row = cursor.fetchone()
        if row is None:
            return
        code, sub_type = row
        left = _read_ids(cursor, OPEN, {"messages": list(messages), "jobs": jobs})
        _put_messages_back(cursor, code, sub_type, messages - left, jobs)
        cursor.execute(SHORTEN if left else END_TAIL, of_tail | {"messages": sorted(left)})


def _put_messages_back(cursor: Any, code: str, sub_type: str, messages: set[int], jobs: list[int]) -> None:
    """Put back the messages refused in these words. Their jobs are locked."""
    params = {
        "messages": list(messages), "jobs": jobs, "parents": list(PARENTS), "code": code, "sub_type": sub_type,
        "itself": ITSELF, "reason": REASON, "said": f"{code} {sub_type}".strip(),
    }  # fmt: skip
    of_jobs = _read_ids(cursor, PUT_BACK, params)
    cursor.execute(STOPPED_ABOVE, {"jobs": list(of_jobs)})
    logged = Job.objects.filter(pk__in=of_jobs, status=Status.LOGGED)
    decisions.reopen_leaves(logged.filter(stopped_at=None))
    decisions.reopen_parents(logged.filter(stopped_at__isnull=False))


def _read_ids(cursor: Any, statement: str, params: dict[str, Any]) -> set[int]:
    """Return the ids that the statement finds, as rows or in lists."""
    cursor.execute(statement, params)
    found = [one for (one,) in cursor.fetchall()]
    return {each for one in found for each in (one if isinstance(one, list) else [one])}
