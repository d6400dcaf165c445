"""Runs of equal refusals over one credential. They concern the account or one sponsor's mail, not the recipients.

A vendor may refuse everything with words that no rule knows. Every refusal that may be our fault extends two runs: of
its credential, and of its sponsor's mail over that credential. Job and sender do not matter. Another wording or an
acceptance ends a run: of the credential whoever it comes to, of a sponsor only his own. Refusals that are the
recipients' fault are passed by. A run of EQUAL_REFUSALS is full: claims wait until no sender has contradicted it for
CONFIRMED.

A sponsor's full run pauses the campaigns in it; other sponsors' mail goes on. A credential's run is full only if the
account is the likelier cause: one sponsor alone may use it, or the refusals of other sponsors are as many as a run
needs, without those of the sponsor that has most. It pauses the credential.

The sweep puts the refused messages of a full run back: they wait again under a new reference, also in a job that was
logged, and a resolution by `mailhub` records it. A message is put back once only, so whoever resumes gets past refusals
that were true after all. Messages that a person sends again after a refusal may be refused again for their recipients'
fault, so a run of them is full when it is RETRIED times as long.

A run is a row, written in the transaction that stores the answers. A killed sender therefore loses none of it. Calls
that are open when the run is put back were allowed before the pause, so they belong to it. Another row
(`campaigns_refusaltail`) keeps their messages until they are answered. Those refused in the same words are put back.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns.engine import decisions, lifecycle
from campaigns.engine.pausing import pauses
from campaigns.models import Job
from campaigns.models.states import PARENTS, Status
from vendors.locks import CREDENTIAL_ALONE
from vendors.outcomes import Accepted, NotSent, Refused
from vendors.said import Said, gettext_noop

ITSELF = "mailhub"  # the name in Resolution.decided_by
CONFIRMED = 3.0  # seconds; senders read their contexts every second
REASON = "it was refused in a row of equal refusals, which paused its credential or campaign"
REPLY_LENGTH = 80  # characters of the vendor's reply in the reason of a paused campaign
CAMPAIGN_REASON = gettext_noop(
    "%(count)s messages in a row were refused with the same words: %(reply)s. They wait. Correct content or sender, or "
    "ask for a look at the account; then resume"
)

# A clock that was set back must not keep claims waiting.
IS_CONFIRMED = f"abs(extract(epoch FROM clock_timestamp() - run.full_at)) >= {CONFIRMED}"
RETRIED = 10
# A message that was sent again more often than doubts were decided and runs were put back was sent again by a person.
IS_FIRST = """m.resend_no <= (
    SELECT count(*) FROM campaigns_resolution r WHERE r.message_id = m.id AND r.decision = 'resend')"""
FULL_WITH = f"""(cardinality({{messages}}) >= {RETRIED} * %(most)s OR cardinality({{messages}}) >= %(most)s
    AND (SELECT count(*) FROM campaigns_message m WHERE m.id = ANY({{messages}}) AND {IS_FIRST}) >= %(most)s)"""
# Messages of one sponsor say nothing of an account that others may use.
OF_ACCOUNT = f"""(SELECT coalesce(
        whole.first - whole.most >= %(most)s OR whole.sponsors = 1 AND NOT EXISTS (
            SELECT FROM vendors_credential l JOIN campaigns_entitlement e
                ON e.vendor_id = l.vendor_id AND coalesce(e.credential_id, l.id) = l.id
            WHERE l.id = %(credential)s AND e.sponsor_id <> whole.sponsor_id), false)
    FROM (SELECT sum(first) AS first, max(first) AS most, count(*) AS sponsors, min(sponsor_id) AS sponsor_id
        FROM (SELECT k.sponsor_id, count(*) FILTER (WHERE {IS_FIRST}) AS first
            FROM campaigns_message m JOIN campaigns_campaign k ON k.id = m.campaign_id
            WHERE m.id = ANY({{messages}}) GROUP BY 1) each) whole)"""


class RunKey(NamedTuple):
    """Identifies a run: of a sponsor's mail over a credential, or of the credential. sponsor_id 0: of all sponsors."""

    credential_id: int
    sponsor_id: int = 0

    @property
    def of_all(self) -> "RunKey":
        """The run of the credential."""
        return RunKey(self.credential_id)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the statements below."""
        return {"credential": self.credential_id, "sponsor": self.sponsor_id}


@dataclass(frozen=True, slots=True)
class RunStatements:
    """SQL about the runs of credentials, or of sponsors. columns, values: of a run's key; is_full: with {messages}."""

    table: str
    columns: str
    values: str
    is_full: str

    @property
    def note(self) -> str:
        """Extend the run, or begin it.

        An answer may be stored twice, so a message counts once. A confirmed run stays until the sweep has put it back,
        whatever calls that were open meanwhile are answered; those with its words extend it.
        """
        return f"""
INSERT INTO {self.table} AS run ({self.columns}, code, sub_type, messages, since, full_at)
SELECT {self.values}, %(code)s, %(sub_type)s, part.messages, clock_timestamp(),
    CASE WHEN {self.is_full.format(messages="part.messages")} THEN clock_timestamp() END
FROM (SELECT %(messages)s::bigint[] AS messages) part
ON CONFLICT ({self.columns}) DO UPDATE SET (code, sub_type, messages, since, full_at) = (
    SELECT CASE WHEN kept THEN run.code ELSE excluded.code END,
        CASE WHEN kept THEN run.sub_type ELSE excluded.sub_type END,
        CASE WHEN kept THEN run.messages ELSE whole.messages END,
        CASE WHEN whole.longer OR kept THEN run.since ELSE excluded.since END,
        coalesce(CASE WHEN whole.longer OR kept THEN run.full_at END,
            CASE WHEN {self.is_full.format(messages="whole.messages")} THEN clock_timestamp() END)
    FROM (
        SELECT longer, NOT longer AND is_confirmed AS kept,
            CASE WHEN longer THEN ARRAY(SELECT DISTINCT unnest(run.messages || excluded.messages))
                ELSE excluded.messages END AS messages
        FROM (SELECT run.code = excluded.code AND run.sub_type = excluded.sub_type
                AND (NOT %(anew)s OR coalesce({IS_CONFIRMED}, false)) AS longer,
            coalesce({IS_CONFIRMED}, false) AS is_confirmed) same
    ) whole
)
RETURNING full_at IS NOT NULL
"""

    @property
    def end(self) -> str:
        """Delete the run if it began by then and is not confirmed."""
        return f"""
DELETE FROM {self.table} run WHERE ({self.columns}) = ({self.values}) AND since <= %(since)s
    AND NOT coalesce({IS_CONFIRMED}, false)
"""

    def seen(self, values: str) -> str:
        """Return a subquery for the contexts of senders. values: the key there."""
        return f"""(SELECT json_build_array(run.code, run.sub_type, cardinality(run.messages),
        extract(epoch FROM run.since)::float8, run.full_at IS NOT NULL, coalesce({IS_CONFIRMED}, false))
    FROM {self.table} run WHERE ({self.columns}) = ({values}))"""

    @property
    def messages(self) -> str:
        """Return the messages of a confirmed run."""
        return f"SELECT messages FROM {self.table} run WHERE ({self.columns}) = ({self.values}) AND {IS_CONFIRMED}"

    @property
    def whole(self) -> str:
        """Lock a confirmed run and return it for SeenRun, and its messages."""
        return f"""
SELECT code, sub_type, cardinality(messages), extract(epoch FROM since)::float8, true, true, messages
FROM {self.table} run WHERE ({self.columns}) = ({self.values}) AND {IS_CONFIRMED} FOR UPDATE
"""


OF_CREDENTIAL = RunStatements(
    "campaigns_refusalrun", "credential_id", "%(credential)s", f"({FULL_WITH} AND {OF_ACCOUNT})"
)
OF_SPONSOR = RunStatements(
    "campaigns_sponsorrefusalrun", "credential_id, sponsor_id", "%(credential)s, %(sponsor)s", FULL_WITH
)
# Of a credential l and a job j, for the contexts of senders.
SEEN, SEEN_OF_SPONSOR = OF_CREDENTIAL.seen("l.id"), OF_SPONSOR.seen("l.id, j.sponsor_id")


class SeenRun(NamedTuple):
    """A run as a sender has read it. is_confirmed: no sender has contradicted the full run."""

    code: str
    sub_type: str
    length: int
    since: datetime
    is_full: bool
    is_confirmed: bool

    @classmethod
    def read(cls, found: Sequence[Any] | None) -> "SeenRun | None":
        """Return the value of SEEN."""
        if found is None:
            return None
        code, sub_type, length, since, *flags = found
        return cls(code, sub_type, length, datetime.fromtimestamp(since, UTC), *flags)

    @property
    def reply(self) -> str:
        """The vendor's words."""
        return f"{self.code} {self.sub_type}".strip()

    def pause(self) -> NotSent:
        """Return the outcome for such a run of a credential: its pause."""
        reason = f"{self.length} messages in a row were refused with the same words: {self.reply}: check the account"
        return NotSent(reason, scope="credential", pause=True)

    @property
    def campaign_reason(self) -> Said:
        """Why the campaigns in such a run of a sponsor are paused."""
        return Said(CAMPAIGN_REASON, count=self.length, reply=self.reply[:REPLY_LENGTH])


@dataclass(frozen=True, slots=True)
class RunPart:
    """Equal refusals at the end of a batch of answers. anew: an acceptance or other words came before them."""

    key: RunKey
    refusal: Refused
    messages: list[int]
    anew: bool

    async def note(self, rows: AsyncConnection[TupleRow], code: str, sub_type: str) -> bool:
        """Extend the run, or begin it. code, sub_type: as stored. Returns whether the run is full."""
        params = {**self.key.params, "code": code, "sub_type": sub_type, "messages": self.messages}
        statements = OF_SPONSOR if self.key.sponsor_id else OF_CREDENTIAL
        cursor = await rows.execute(statements.note, {**params, "anew": self.anew, "most": settings.EQUAL_REFUSALS})
        row = await cursor.fetchone()
        return bool(row and row[0])


class KnownRuns:
    """What one sender process knows of runs: its acceptances, and the runs that it has filled."""

    def __init__(self) -> None:  # in seconds of time.monotonic
        self._accepted: dict[RunKey, float] = {}
        self._noted: dict[RunKey, float] = {}
        self._filled: dict[RunKey, float] = {}

    def read_part(self, key: RunKey, answers: Iterable[tuple[int, Any]]) -> RunPart | None:
        """Return the part of a run at the end of a batch of answers, which are (message, outcome)."""
        last: Refused | None = None
        messages: list[int] = []
        accepted = anew = False
        for message_id, outcome in answers:
            if isinstance(outcome, Accepted):
                accepted = True
                if last is not None:
                    last, messages = None, []
            elif isinstance(outcome, Refused) and outcome.may_be_ours:
                if outcome != last:
                    messages, anew = [], anew or last is not None
                last = outcome
                messages.append(message_id)
        if accepted:
            self._accepted[key] = time.monotonic()
        if last is None or not settings.EQUAL_REFUSALS:
            return None
        anew = anew or self._accepted.get(key, 0.0) > self._noted.get(key, 0.0)
        return RunPart(key, last, messages, anew)

    def part_noted(self, part: RunPart, is_full: bool) -> None:
        """Remember that the part is committed."""
        self._noted[part.key] = time.monotonic()
        if is_full:
            self._filled[part.key] = time.monotonic()

    def holds_claims(self, key: RunKey, seen: SeenRun | None, asked: float) -> bool:
        """Return whether the run is full, by the row as read at `asked` or by what was noted since."""
        return self._filled.get(key, 0.0) > asked or (seen is not None and seen.is_full)

    def contradicts(self, key: RunKey, since: float) -> bool:
        """Return whether this process has stored an acceptance since then (seconds of time.monotonic)."""
        return self._accepted.get(key, 0.0) > since


async def end_run(rows: Any, key: RunKey, since: datetime) -> None:
    """End the run that began by then: the vendor has accepted something."""
    statements = OF_SPONSOR if key.sponsor_id else OF_CREDENTIAL
    await rows.execute(statements.end, {**key.params, "since": since})


def put_runs_back() -> list[RunKey]:
    """Put back what full runs have refused, and pause their credentials or campaigns. Returns the runs.

    Also puts back what was refused in the same words by calls that were open then, once they are answered. A run of
    which some job is locked is left to the next sweep.
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
PAUSE = f"""
UPDATE vendors_credential SET paused = true, paused_reason = %(reason)s
WHERE id = %(credential)s AND CASE WHEN NOT paused THEN {CREDENTIAL_ALONE} END
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
# Those with open calls, too: what is put back of these calls later must not be called at once.
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
    of_run, statements = key.params, OF_SPONSOR if key.sponsor_id else OF_CREDENTIAL
    with connection.cursor() as cursor:
        read = _read_ids(cursor, statements.messages, of_run)
        campaigns = _read_ids(cursor, CAMPAIGNS, {**of_run, "messages": list(read)}) if key.sponsor_id else set()
        jobs = lifecycle.hold_campaigns(campaigns) if key.sponsor_id else lifecycle.hold_around(read)
        cursor.execute(statements.whole, of_run)
        row = cursor.fetchone()
        if row is None:
            return False
        *seen, messages = row
        run = SeenRun.read(seen)
        assert run is not None
        if not key.sponsor_id:
            cursor.execute(PAUSE, {**of_run, "reason": run.pause().reason[:255]})
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
    """Put back what the calls of a tail have refused in its words. Calls that are still open wait."""
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
    """Put back those of the messages that were refused in these words. Their jobs are locked."""
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
