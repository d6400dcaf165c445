"""Audit questions about calls: within rate limits, in the ledger, none after a stop (promises P4 and P5).

Also defines Question and the conditions shared by many questions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from campaigns.engine.lifecycle import sql_list
from campaigns.models.states import PARENTS
from vendors.said import Said, gettext_noop

Breach = dict[str, Any]
"""The columns of a breach by their names."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question about the rows.

    example: makes the sentence of a row. breaches: a SELECT of its columns, one row for each breach.
    """

    promise: str
    text: Said
    example: Callable[[Breach], Said]
    breaches: str


def example_of(form: str) -> Callable[[Breach], Said]:
    """Return what makes the sentence of a row: `form` with its columns."""
    return lambda row: Said(form, **{name: _ids_without_commas(name, value) for name, value in row.items()})


def _ids_without_commas(name: str, value: Any) -> Any:
    """Write ids without commas between thousands."""
    return str(value) if name.endswith("_id") else value


def describe_calls_in_pause(row: Breach) -> Said:
    """Return the sentence of units that were called in a pause of a vendor, or of one of its credentials."""
    units = {"name": row["name"], "units": row["units"], "at": row["at"]}
    if row["credential"] is None:
        return Said("vendor %(name)s: %(units)s units at %(at)s", **units)
    return Said("credential %(name)s: %(units)s units at %(at)s", **units)


MESSAGE_OF_JOB = example_of(gettext_noop("message %(message_id)s of job %(job_id)s"))
MESSAGE_OF_CAMPAIGN = example_of(gettext_noop("message %(message_id)s of campaign %(campaign_id)s"))
HIDDEN_CHILD = example_of(gettext_noop("parent %(job_id)s: child %(child_id)s is %(state)s"))
LEDGER = example_of(gettext_noop("credential %(credential_id)s: %(called)s called, %(known)s in the ledger"))
IN_A_BRAKE = example_of(gettext_noop("credential %(name)s: %(calls)s calls, %(probes)s probes"))
WINDOW = example_of(gettext_noop("vendor %(vendor)s: %(calls)s calls, not %(limit)s, in %(seconds)s s from %(at)s"))


DAY = "date_trunc('minute', now() - interval '1 day') + interval '2 minutes'"
# A parent that ended as stopped has ended: its month may have left (docs/partitioning.md). now() is constant within a
# statement, so the condition can use an index; clock_timestamp() differs from row to row and cannot.
FRESH = "(j.finished_at IS NULL OR j.finished_at > now() - interval '1 day')"
LEAF = f"j.status NOT IN {sql_list(PARENTS)}"
SLICE = "m.id >= j.first_message AND m.id < j.first_message + j.size"
STARTED = "(j.status IN ('ENQUEUED', 'SENDING', 'RECOVERING', 'SENT') " + (
    "OR j.status IN ('DISPATCHED', 'STOPPED') AND j.started_at IS NOT NULL)"
)
PATIENCE = "now() - %(patience)s * interval '1 second'"
# If an acceptance became known after the message was waiting again, the time of the call is unknown: its sent_at is the
# time the acceptance was learned.
KNOWN = "c.sent_at IS DISTINCT FROM c.delivered_at"
CALLED = "campaigns_claim c CROSS JOIN LATERAL unnest(c.messages) AS u(id) JOIN campaigns_message m ON m.id = u.id"


# The ledger goes back an hour at least. It may lack calls from before a takeover of the store.
SINCE = "greatest(now() - interval '50 minutes', (SELECT max(s.adopted_at) FROM campaigns_store s))"
# Windows of the ledger by the time each call was allowed; permits last longer than that. Times are in units of the
# limit's own window, because the frame of a window function must be constant. A window during which the limit was
# edited is not judged by the new limit.
P4 = [
    Question(
        "P4",
        Said("no window holds more calls than its limit"),
        WINDOW,
        """SELECT w.slug AS vendor, w.calls, w.units AS limit, w.seconds, w.at::text AS at
        FROM (
            SELECT v.slug, l.units, l.seconds, u.at, sum(u.units) OVER (
                PARTITION BY l.id ORDER BY extract(epoch FROM u.at - v.limits_since)::float8 / l.seconds
                RANGE BETWEEN CURRENT ROW AND 0.999999 FOLLOWING) AS calls
            FROM vendors_ratelimit l JOIN vendors_vendor v ON v.id = l.vendor_id
            JOIN vendors_usage u ON u.vendor_id = l.vendor_id AND coalesce(l.credential_id, u.credential_id)
                = u.credential_id AND u.at > greatest(v.limits_since, now() - interval '1 day')
        ) w WHERE w.calls > w.units""",
    ),
    Question(
        "P4",
        Said("each call is in the ledger"),
        # The statement that stamps messages writes the ledger after them.
        LEDGER,
        f"""SELECT s.id AS credential_id, s.called, coalesce(u.units, 0) AS known FROM (
            SELECT j.credential_id AS id, count(*) AS called FROM campaigns_job j CROSS JOIN LATERAL (
                SELECT m.sent_at, m.delivered_at, coalesce(m.error_code, '') AS error_code
                FROM campaigns_message m WHERE {SLICE}
                UNION ALL SELECT c.at, NULL, '' FROM {CALLED} AND m.dequeued_at IS NULL WHERE c.job_id = j.id
            ) c WHERE {LEAF} AND (j.finished_at IS NULL OR j.finished_at > {SINCE})
                AND c.sent_at > {SINCE} AND {KNOWN}
                AND c.error_code NOT IN ('template', 'too_dear')  -- these were not called
            GROUP BY 1
        ) s LEFT JOIN (
            SELECT u.credential_id AS id, sum(u.units) AS units FROM vendors_usage u
            WHERE u.vendor_id IN (SELECT v.id FROM vendors_vendor v) AND u.until > {SINCE} AND u.at > {SINCE}
            GROUP BY 1
        ) u USING (id) WHERE s.called > coalesce(u.units, 0)""",
    ),
]
P5 = [
    Question(
        "P5",
        Said("no call was allowed after a stop or in a pause"),
        MESSAGE_OF_JOB,
        f"""SELECT c.id AS message_id, j.id AS job_id FROM campaigns_job j
        CROSS JOIN LATERAL (
            SELECT m.id, m.sent_at, m.delivered_at FROM campaigns_message m WHERE {SLICE}
            UNION ALL SELECT m.id, c.at, NULL FROM {CALLED} AND m.dequeued_at IS NULL WHERE c.job_id = j.id
        ) c WHERE {LEAF} AND {FRESH} AND c.sent_at > least(j.stopped_at, j.paused_at) AND {KNOWN}""",
    ),
    Question(
        "P5",
        Said("no call was allowed while its vendor or credential was paused"),
        # Only the last pause of each. Calls from before a takeover of the store may be known better than the pauses.
        describe_calls_in_pause,
        """SELECT p.credential, p.name, u.units, u.at::text AS at FROM (
            SELECT v.id AS vendor, NULL::bigint AS credential, v.slug AS name,
                v.paused_at AS first, v.paused, v.resumed_at FROM vendors_vendor v
            UNION ALL SELECT c.vendor_id, c.id, v.slug || '/' || c.name,
                c.paused_at, c.paused, c.resumed_at
            FROM vendors_credential c JOIN vendors_vendor v ON v.id = c.vendor_id
        ) p JOIN vendors_usage u ON u.vendor_id = p.vendor AND u.until > p.first AND u.at > p.first
            AND u.credential_id = coalesce(p.credential, u.credential_id)
            AND (p.paused OR u.at < p.resumed_at) AND u.units > 0
        WHERE u.at > coalesce((SELECT max(s.adopted_at) FROM campaigns_store s), '-infinity')""",
    ),
    Question(
        "P5",
        Said("no call was allowed in a brake of its credential but one for each probe"),
        # Look-ups pass a brake, so the messages are counted, not the ledger.
        IN_A_BRAKE,
        f"""SELECT v.slug || '/' || l.name AS name, s.calls, l.probe_no - l.brake_no AS probes
        FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id CROSS JOIN LATERAL (
            SELECT count(*) AS calls FROM campaigns_job j CROSS JOIN LATERAL (
                SELECT m.sent_at, m.delivered_at FROM campaigns_message m WHERE {SLICE}
                UNION ALL SELECT c.at, NULL FROM {CALLED} AND m.dequeued_at IS NULL WHERE c.job_id = j.id
            ) c WHERE j.credential_id = l.id AND {LEAF} AND {FRESH} AND c.sent_at > l.braked_at AND {KNOWN}
        ) s WHERE s.calls > l.probe_no - l.brake_no
            AND l.braked_at > coalesce((SELECT max(s.adopted_at) FROM campaigns_store s), '-infinity')""",
    ),
    Question(
        "P5",
        Said("no message of a campaign was called before somebody had approved it"),
        MESSAGE_OF_CAMPAIGN,
        f"""SELECT c.id AS message_id, a.campaign_id FROM campaigns_approval a
        JOIN campaigns_job j ON j.campaign_id = a.campaign_id AND {LEAF} AND {FRESH} CROSS JOIN LATERAL (
            SELECT m.id, m.sent_at, m.delivered_at FROM campaigns_message m WHERE {SLICE}
            UNION ALL SELECT m.id, c.at, NULL FROM {CALLED} AND m.dequeued_at IS NULL WHERE c.job_id = j.id
        ) c WHERE c.sent_at IS NOT NULL
            AND (a.verdict IS DISTINCT FROM 'approved' OR c.sent_at < a.decided_at AND {KNOWN})""",
    ),
    Question(
        "P5",
        Said("no parent that is over hides a child that is not"),
        HIDDEN_CHILD,
        """SELECT j.id AS job_id, k.id AS child_id, k.status AS state FROM campaigns_job k
        JOIN campaigns_job j ON j.id = k.parent_id
        WHERE k.finished_at IS NULL AND CASE j.status WHEN 'P_FINISHED' THEN true
            WHEN 'P_STOPPED' THEN k.status NOT IN ('STOPPED', 'SENT') ELSE false END""",
    ),
]
