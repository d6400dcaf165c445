"""What is asked: for each promise, statements that find the rows which break it. Each row is an example in words."""

from dataclasses import dataclass

from campaigns.states import DONE, PARENTS, RUNNING, Status


@dataclass(frozen=True, slots=True)
class Question:
    """breaches: a SELECT of one text column."""

    promise: str
    text: str
    breaches: str


def _in(statuses: tuple[Status, ...]) -> str:
    return "(" + ", ".join(f"'{status}'" for status in statuses) + ")"


FRESH = f"(j.status NOT IN {_in(DONE)} OR j.finished_at > clock_timestamp() - interval '1 day')"
LEAF = f"j.status NOT IN {_in(PARENTS)}"
SLICE = "m.id >= j.first_message AND m.id < j.first_message + j.size"
STARTED = "(j.status IN ('ENQUEUED', 'SENDING', 'RECOVERING', 'SENT') " + (
    "OR j.status IN ('DISPATCHED', 'STOPPED') AND j.started_at IS NOT NULL)"
)
ANSWERED = "(m.message_id IS NOT NULL OR m.error_code IS NOT NULL OR m.in_doubt_at IS NOT NULL)"
PATIENCE = "clock_timestamp() - %(patience)s * interval '1 second'"
WAITING = "o.sent_at IS NULL AND o.message_id IS NULL AND o.error_code IS NULL"

P1 = [
    Question(
        "P1",
        "no message waits for a call that was accepted or is in doubt already",
        f"""SELECT format('message %%s of job %%s', o.id, o.job_id)
        FROM campaigns_opsmessage o JOIN campaigns_message m USING (id)
        WHERE {WAITING} AND (m.message_id IS NOT NULL OR m.in_doubt_at IS NOT NULL)""",
    ),
    Question(
        "P1",
        "no message belongs to two jobs",
        f"""SELECT format('jobs %%s and %%s of campaign %%s', s.before, s.id, s.campaign_id) FROM (
            SELECT j.id, j.campaign_id, j.first_message, lag(j.id) OVER w AS before,
                max(j.first_message + j.size) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS taken
            FROM campaigns_job j
            WHERE {LEAF} AND j.campaign_id IN (SELECT j.campaign_id FROM campaigns_job j WHERE {FRESH})
            WINDOW w AS (PARTITION BY j.campaign_id ORDER BY j.first_message, j.id)
        ) s WHERE s.taken > s.first_message""",
    ),
    Question(
        "P1",
        "each time that a person sent again has a reference of its own",
        """SELECT format('message %%s: %%s decisions', m.id, count(*))
        FROM campaigns_resolution r JOIN campaigns_message m ON m.id = r.message_id
        WHERE r.decision = 'resend' GROUP BY m.id, m.resend_no HAVING count(*) > m.resend_no""",
    ),
]
P2 = [
    Question(
        "P2",
        "each campaign has as many messages as recipients",
        f"""SELECT format('campaign %%s: %%s of %%s', c.id, c.there, c.size) FROM (
            SELECT c.id, c.size, (SELECT count(*) FROM campaigns_message m WHERE m.campaign_id = c.id
                AND m.id >= c.first_message AND m.id < c.first_message + c.size) AS there
            FROM campaigns_campaign c WHERE c.id IN (SELECT j.campaign_id FROM campaigns_job j WHERE {FRESH})
        ) c WHERE c.there <> c.size""",
    ),
    Question(
        "P2",
        "the jobs of a campaign add up to its recipients",
        f"""SELECT format('campaign %%s: %%s of %%s', c.id, sum(j.size), c.size)
        FROM campaigns_campaign c JOIN campaigns_job j ON j.campaign_id = c.id AND j.parent_id IS NULL
        WHERE c.id IN (SELECT j.campaign_id FROM campaigns_job j WHERE {FRESH})
        GROUP BY c.id HAVING sum(j.size) <> c.size""",
    ),
    Question(
        "P2",
        "the children of a parent and what is not cut yet add up to its size",
        f"""SELECT format('parent %%s: %%s and %%s of %%s', j.id, coalesce(sum(k.size), 0), j.remaining, j.size)
        FROM campaigns_job j LEFT JOIN campaigns_job k ON k.parent_id = j.id
        WHERE NOT ({LEAF}) AND {FRESH} GROUP BY j.id HAVING coalesce(sum(k.size), 0) + j.remaining <> j.size""",
    ),
    Question(
        "P2",
        "no job counts more messages than it has",
        f"""SELECT format('job %%s', j.id) FROM campaigns_job j
        WHERE {FRESH} AND j.accepted + j.refused + j.expired + j.in_doubt > j.size""",
    ),
    Question(
        "P2",
        "each message in ops is queued in the truth and belongs to its job",
        f"""SELECT format('message %%s of job %%s', m.id, m.job_id) FROM (
            SELECT o.id, o.job_id, t.dequeued_at FROM campaigns_opsmessage o LEFT JOIN campaigns_message t USING (id)
        ) m LEFT JOIN campaigns_job j ON j.id = m.job_id AND {SLICE} AND {LEAF}
        WHERE j.id IS NULL OR m.dequeued_at IS NULL""",
    ),
    Question(
        "P2",
        "each queued message is in ops, or it has an end",
        f"""SELECT format('message %%s of job %%s', m.id, j.id) FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND m.dequeued_at IS NOT NULL AND NOT {ANSWERED}
            AND NOT EXISTS (SELECT FROM campaigns_opsmessage o WHERE o.id = m.id)""",
    ),
    Question(
        "P2",
        "no job ends without some of its messages",
        f"""SELECT format('message %%s of job %%s', m.id, j.id) FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND m.dequeued_at IS NULL
            AND (j.status = 'SENT' OR j.status = 'LOGGED' AND j.stopped_at IS NULL)""",
    ),
    Question(
        "P2",
        "no message is passed over while those after it are enqueued",
        f"""SELECT format('message %%s of job %%s', m.id, j.id) FROM campaigns_job j CROSS JOIN LATERAL (
            SELECT max(m.id) AS last FROM campaigns_opsmessage m WHERE {SLICE} AND m.job_id = j.id
        ) enqueued JOIN campaigns_message m ON {SLICE} AND m.id < enqueued.last
        WHERE j.status = 'SENDING' AND m.dequeued_at IS NULL""",
    ),
]
P3 = [
    Question(
        "P3",
        "what is accepted has evidence",
        f"""SELECT format('message %%s of job %%s', m.id, j.id) FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND (m.message_id = '' OR m.message_id LIKE 'person:%%'
            AND NOT EXISTS (SELECT FROM campaigns_resolution r WHERE r.message_id = m.id AND r.decision = 'sent'))""",
    ),
    Question(
        "P3",
        "what is reported as delivered or bounced is accepted, by a sending that there was",
        f"""SELECT format('message %%s of job %%s', m.id, j.id) FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE} LEFT JOIN campaigns_opsmessage o ON o.id = m.id
        WHERE {LEAF} AND {FRESH} AND m.receipt IS NOT NULL
            AND (m.message_id IS NULL OR m.receipt_no > m.resend_no OR o.id IS NOT NULL AND o.message_id IS NULL)""",
    ),
    Question(
        "P3",
        "the database still refuses rows that contradict themselves",
        """SELECT wanted.name FROM unnest(ARRAY['message_answered', 'message_accepted', 'message_refused',
            'message_in_doubt', 'message_reported', 'ops_answered', 'ops_accepted', 'ops_refused', 'ops_in_doubt'
        ]) AS wanted(name)
        WHERE NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = wanted.name AND c.convalidated)""",
    ),
]
# Windows of the ledger by the time at which the calls were allowed to start: the places were held for longer than
# that. In units of the limit's own window, because a frame must be a constant; a window that a limit's edit lies in
# is not judged by the new limit.
P4 = [
    Question(
        "P4",
        "no window holds more calls than its limit",
        """SELECT format('vendor %%s: %%s calls, not %%s, in %%s s from %%s', w.slug, w.calls, w.units, w.seconds, w.at)
        FROM (
            SELECT v.slug, l.units, l.seconds, u.at, sum(u.units) OVER (
                PARTITION BY l.id ORDER BY extract(epoch FROM u.at - v.terms_since)::float8 / l.seconds
                RANGE BETWEEN CURRENT ROW AND 0.999999 FOLLOWING) AS calls
            FROM vendors_ratelimit l JOIN vendors_vendor v ON v.id = l.vendor_id
            JOIN vendors_usage u ON u.vendor_id = l.vendor_id AND coalesce(l.credential_id, u.credential_id)
                = u.credential_id AND u.at > greatest(v.terms_since, clock_timestamp() - interval '1 day')
        ) w WHERE w.calls > w.units""",
    ),
]
P5 = [
    Question(
        "P5",
        "no call started after a stop",
        f"""SELECT format('message %%s of job %%s', c.id, j.id) FROM campaigns_job j
        CROSS JOIN LATERAL (
            SELECT m.id, m.sent_at FROM campaigns_message m WHERE {SLICE}
            UNION ALL SELECT m.id, m.sent_at FROM campaigns_opsmessage m WHERE {SLICE} AND m.job_id = j.id
        ) c WHERE {LEAF} AND {FRESH} AND c.sent_at > j.stopped_at""",
    ),
]
P6 = [
    Question(
        "P6",
        "each vendor has at most one dispatch run a night",
        """SELECT format('vendor %%s on %%s', r.vendor_id, r.local_date) FROM campaigns_dispatchrun r
        GROUP BY r.vendor_id, r.local_date HAVING count(*) > 1""",
    ),
    Question(
        "P6",
        "each run counted the jobs that it dispatched, all of its own vendor",
        """SELECT format('run %%s: %%s, not %%s', r.id, count(j.id), r.dispatched)
        FROM campaigns_dispatchrun r LEFT JOIN campaigns_job j ON j.run_id = r.id
        WHERE r.started_at > clock_timestamp() - interval '1 day'
        GROUP BY r.id HAVING count(j.id) <> r.dispatched OR bool_or(j.vendor_id <> r.vendor_id)""",
    ),
]
P7 = [
    Question(
        "P7",
        "a logged job has left nothing in ops",
        f"""SELECT format('message %%s of job %%s', o.id, j.id)
        FROM campaigns_opsmessage o JOIN campaigns_job j ON j.id = o.job_id WHERE j.status IN {_in(DONE)}""",
    ),
    Question(
        "P7",
        "the counters of a logged job are those of its messages",
        f"""SELECT format('job %%s', j.id) FROM campaigns_job j CROSS JOIN LATERAL (
            SELECT count(m.message_id) AS accepted, count(m.in_doubt_at) AS in_doubt,
                count(*) FILTER (WHERE m.error_code = 'expired') AS expired,
                count(*) FILTER (WHERE m.error_code <> 'expired') AS refused,
                count(*) FILTER (WHERE m.receipt = 'delivered') AS delivered,
                count(*) FILTER (WHERE m.receipt = 'bounced') AS bounced
            FROM campaigns_message m WHERE {SLICE}
        ) s WHERE j.status = 'LOGGED' AND {FRESH}
            AND (s.accepted, s.refused, s.expired, s.in_doubt, s.delivered, s.bounced)
                <> (j.accepted, j.refused, j.expired, j.in_doubt, j.delivered, j.bounced)""",
    ),
    Question(
        "P7",
        "the counters of a finished parent are those of its children",
        f"""SELECT format('parent %%s', j.id) FROM campaigns_job j JOIN campaigns_job k ON k.parent_id = j.id
        WHERE j.status = 'P_FINISHED' AND {FRESH} GROUP BY j.id
        HAVING (sum(k.accepted), sum(k.refused), sum(k.expired), sum(k.in_doubt), sum(k.delivered), sum(k.bounced))
            <> (j.accepted, j.refused, j.expired, j.in_doubt, j.delivered, j.bounced)""",
    ),
]
ORDER = [
    Question(
        "001",
        "no exclusive credential serves two campaigns",
        f"""SELECT format('credential %%s', c.id) FROM vendors_credential c
        JOIN campaigns_job j ON j.credential_id = c.id AND {STARTED}
        WHERE c.exclusive GROUP BY c.id HAVING count(DISTINCT j.campaign_id) > 1""",
    ),
    Question(
        "003",
        "no mailcaster has two jobs",
        f"""SELECT format('mailcaster %%s', j.mailcaster_id) FROM campaigns_job j
        WHERE j.status IN {_in(RUNNING)} AND j.mailcaster_id IS NOT NULL
        GROUP BY j.mailcaster_id HAVING count(*) > 1""",
    ),
    Question(
        "stuck",
        "every job that is not final has been moved within its deadline",
        f"""SELECT format('job %%s: %%s', j.id, j.status) FROM campaigns_job j
        JOIN campaigns_campaign c ON c.id = j.campaign_id
        WHERE j.status IN ('ENQUEUED', 'SENDING', 'SENT', 'STOPPED') AND j.heartbeat_at < {PATIENCE}
            OR j.status = 'STOPPED' AND j.heartbeat_at IS NULL AND j.stopped_at < {PATIENCE}
            OR j.status = 'READY' AND greatest(j.created_at, j.not_before, c.send_at) < {PATIENCE}
            OR j.status = 'P_ASSIGNED' AND {PATIENCE} > ALL (
                SELECT coalesce(k.finished_at, 'infinity') FROM campaigns_job k WHERE k.parent_id = j.id)""",
    ),
]
QUESTIONS = [*P1, *P2, *P3, *P4, *P5, *P6, *P7, *ORDER]
