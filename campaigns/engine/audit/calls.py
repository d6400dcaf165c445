"""Audit questions about calls: within rate limits, in the ledger, none after a stop (promises P4 and P5).

Also defines Question and the conditions shared by many questions.
"""

from dataclasses import dataclass

from campaigns.engine.lifecycle import sql_list
from campaigns.models.states import PARENTS


@dataclass(frozen=True, slots=True)
class Question:
    """One question about the rows. breaches: a SELECT of one text column, one row for each breach."""

    promise: str
    text: str
    breaches: str


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
        "no window holds more calls than its limit",
        """SELECT format('vendor %%s: %%s calls, not %%s, in %%s s from %%s', w.slug, w.calls, w.units, w.seconds, w.at)
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
        "each call is in the ledger",
        # The statement that stamps messages writes the ledger after them.
        f"""SELECT format('credential %%s: %%s called, %%s in the ledger', s.id, s.called, coalesce(u.units, 0)) FROM (
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
        "no call was allowed after a stop or in a pause",
        f"""SELECT format('message %%s of job %%s', c.id, j.id) FROM campaigns_job j
        CROSS JOIN LATERAL (
            SELECT m.id, m.sent_at, m.delivered_at FROM campaigns_message m WHERE {SLICE}
            UNION ALL SELECT m.id, c.at, NULL FROM {CALLED} AND m.dequeued_at IS NULL WHERE c.job_id = j.id
        ) c WHERE {LEAF} AND {FRESH} AND c.sent_at > least(j.stopped_at, j.paused_at) AND {KNOWN}""",
    ),
    Question(
        "P5",
        "no call was allowed in a pause of its vendor or credential",
        # Only the last pause of each. Calls from before a takeover of the store may be known better than the pauses.
        """SELECT CASE WHEN p.credential IS NULL THEN format('vendor %%s: %%s units at %%s', p.name, u.units, u.at)
                ELSE format('credential %%s: %%s units at %%s', p.name, u.units, u.at) END
        FROM (
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
        "no message of a campaign was called before somebody had approved it",
        f"""SELECT format('message %%s of campaign %%s', c.id, a.campaign_id) FROM campaigns_approval a
        JOIN campaigns_job j ON j.campaign_id = a.campaign_id AND {LEAF} AND {FRESH} CROSS JOIN LATERAL (
            SELECT m.id, m.sent_at, m.delivered_at FROM campaigns_message m WHERE {SLICE}
            UNION ALL SELECT m.id, c.at, NULL FROM {CALLED} AND m.dequeued_at IS NULL WHERE c.job_id = j.id
        ) c WHERE c.sent_at IS NOT NULL
            AND (a.verdict IS DISTINCT FROM 'approved' OR c.sent_at < a.decided_at AND {KNOWN})""",
    ),
    Question(
        "P5",
        "no parent that is over hides a child that is not",
        """SELECT format('parent %%s: child %%s is %%s', j.id, k.id, k.status) FROM campaigns_job k
        JOIN campaigns_job j ON j.id = k.parent_id
        WHERE k.finished_at IS NULL AND CASE j.status WHEN 'P_FINISHED' THEN true
            WHEN 'P_STOPPED' THEN k.status NOT IN ('STOPPED', 'SENT') ELSE false END""",
    ),
]
