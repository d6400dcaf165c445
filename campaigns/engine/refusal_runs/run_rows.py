"""Rows of runs of equal refusals: their keys, their statements, and a run as it is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from vendors.outcomes import NotSent
from vendors.said import Said, gettext_noop

CONFIRMED = 3.0  # seconds; senders read their contexts every second
REPLY_LENGTH = 80  # characters of the vendor's reply in the reason of a paused campaign
CAMPAIGN_REASON = gettext_noop(
    "%(count)s messages in a row were refused with the same words: %(reply)s. They wait. Correct content or sender, or "
    "ask for a look at the account; then resume"
)

# A clock set back must not keep claims waiting.
IS_CONFIRMED = f"abs(extract(epoch FROM clock_timestamp() - run.full_at)) >= {CONFIRMED}"
RETRIED = 10
# A person has sent a message again if it has more repeats than decisions of doubts and put-back runs account for.
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
    def credential_key(self) -> "RunKey":
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
        regardless of answers to calls open meanwhile; answers with its words extend it.
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
    def delete_statement(self) -> str:
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
    def confirmed_statement(self) -> str:
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
# For a credential l and a job j, for the contexts of senders.
SEEN, SEEN_OF_SPONSOR = OF_CREDENTIAL.seen("l.id"), OF_SPONSOR.seen("l.id, j.sponsor_id")


def statements_of(key: RunKey) -> RunStatements:
    """Return the statements about this run."""
    return OF_SPONSOR if key.sponsor_id else OF_CREDENTIAL


class SeenRun(NamedTuple):
    """A run as a sender has read it. is_confirmed: no sender has contradicted the full run."""

    code: str
    sub_type: str
    length: int
    since: datetime
    is_full: bool
    is_confirmed: bool

    @classmethod
    def read_run(cls, found: Sequence[Any] | None) -> "SeenRun | None":
        """Return the value of SEEN."""
        if found is None:
            return None
        code, sub_type, length, since, *flags = found
        return cls(code, sub_type, length, datetime.fromtimestamp(since, UTC), *flags)

    @property
    def vendor_reply(self) -> str:
        """The vendor's words."""
        return f"{self.code} {self.sub_type}".strip()

    def pause_outcome(self) -> NotSent:
        """Return the outcome for such a run of a credential: its pause."""
        reason = (
            f"{self.length} messages in a row were refused with the same words: {self.vendor_reply}: check the account"
        )
        return NotSent(reason, scope="credential", pause=True)

    @property
    def campaign_reason(self) -> Said:
        """The reason for the pause of the campaigns in such a run of a sponsor."""
        return Said(CAMPAIGN_REASON, count=self.length, reply=self.vendor_reply[:REPLY_LENGTH])


async def end_run(rows: Any, key: RunKey, since: datetime) -> None:
    """End the run that began by then: the vendor has accepted something."""
    await rows.execute(statements_of(key).delete_statement, {**key.params, "since": since})
