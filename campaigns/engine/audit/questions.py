"""Audit questions: for each promise, the statements that find rows breaking it, and the sentence of such a row."""

from campaigns.engine.audit import leftover_bounds
from campaigns.engine.audit.calls import (
    CALLED,
    DAY,
    FRESH,
    KNOWN,
    LEAF,
    MESSAGE_OF_CAMPAIGN,
    MESSAGE_OF_JOB,
    P4,
    P5,
    PATIENCE,
    SLICE,
    STARTED,
    Question,
    example_of,
)
from campaigns.engine.failover import durability, guard
from campaigns.engine.lifecycle import sql_list
from campaigns.engine.routes import whose
from campaigns.models.states import DONE, RUNNING
from vendors import destinations, shut
from vendors.said import Said, gettext_noop

ACCEPTED_OF = example_of(gettext_noop("vendor %(vendor_id)s: %(accepted)s accepted of %(all)s"))
ACCOUNT = example_of(gettext_noop("sponsor %(sponsor_id)s, credential %(credential_id)s: %(there)s of %(wanted)s"))
ACCOUNT_UNITS = example_of(
    gettext_noop("sponsor %(sponsor_id)s, credential %(credential_id)s: %(there)s units of %(wanted)s")
)
ANSWERS_OF_JOB = example_of(gettext_noop("answers %(answers_id)s of job %(job_id)s"))
CAMPAIGN_PARTS = example_of(gettext_noop("campaign %(campaign_id)s: %(there)s of %(size)s"))
CLAIM_OF_JOB = example_of(gettext_noop("claim %(claim_id)s of job %(job_id)s"))
CONSTRAINT = example_of(gettext_noop("constraint of %(table)s: %(what)s"))
CONSTRAINT_GONE = example_of("%(name)s")
CREDENTIAL = example_of(gettext_noop("credential %(credential_id)s"))
DECISIONS = example_of(gettext_noop("message %(message_id)s: %(decisions)s decisions"))
JOB = example_of(gettext_noop("job %(job_id)s"))
JOBS_OF_CAMPAIGN = example_of(gettext_noop("jobs %(job_id)s and %(other_id)s of campaign %(campaign_id)s"))
JOB_WITH = example_of(gettext_noop("job %(job_id)s: %(what)s"))
MAILCASTER = example_of(gettext_noop("mailcaster %(mailcaster_id)s"))
MOVED = example_of(gettext_noop("message %(message_id)s, moved at %(at)s"))
PARENT = example_of(gettext_noop("parent %(job_id)s"))
PARENT_PARTS = example_of(gettext_noop("parent %(job_id)s: %(parts)s and %(rest)s of %(size)s"))
RUN_COUNT = example_of(gettext_noop("run %(run_id)s: %(jobs)s, not %(wanted)s"))
SAME_LETTER = example_of(gettext_noop("messages %(message_id)s and %(other_id)s: %(letter)s"))
TAKEN_OVER = example_of(gettext_noop("the store was taken over: %(system)s"))
VENDOR_ON = example_of(gettext_noop("vendor %(vendor_id)s on %(day)s"))

RECENT = f"j.id IN (SELECT j.id FROM campaigns_job j WHERE {FRESH})"  # of a parent j
TODAY = "date_trunc('day', now(), 'UTC')"
P1 = [
    Question(
        "P1",
        Said("no message is in two claims of one sender"),
        MESSAGE_OF_JOB,
        """SELECT u.id AS message_id, c.job_id FROM campaigns_claim c, unnest(c.messages) AS u(id)
        GROUP BY c.job_id, c.fence, u.id HAVING count(*) > 1""",
    ),
    Question(
        "P1",
        Said("no message waits for a call that a lost sender may have made"),
        MESSAGE_OF_JOB,
        f"""SELECT m.id AS message_id, j.id AS job_id FROM {CALLED} JOIN campaigns_job j ON j.id = c.job_id
        -- unless that sender has proved later that it did not
        WHERE c.fence < j.fence AND m.dequeued_at IS NULL AND j.learned = 0
            AND NOT EXISTS (SELECT FROM campaigns_answerbatch b WHERE b.job_id = j.id)""",
    ),
    Question(
        "P1",
        Said("no message belongs to two jobs"),
        JOBS_OF_CAMPAIGN,
        f"""SELECT s.before AS job_id, s.id AS other_id, s.campaign_id FROM (
            SELECT j.id, j.campaign_id, j.first_message, lag(j.id) OVER w AS before,
                max(j.first_message + j.size) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS taken
            FROM campaigns_job j
            WHERE {LEAF} AND j.campaign_id IN (SELECT j.campaign_id FROM campaigns_job j WHERE {FRESH})
            WINDOW w AS (PARTITION BY j.campaign_id ORDER BY j.first_message, j.id)
        ) s WHERE s.taken > s.first_message""",
    ),
    Question(
        "P1",
        Said("each time that a person sent again has a reference of its own"),
        DECISIONS,
        """SELECT m.id AS message_id, count(*) AS decisions
        FROM campaigns_resolution r JOIN campaigns_message m ON m.id = r.message_id
        WHERE r.decision = 'resend' GROUP BY m.id, m.resend_no HAVING count(*) > m.resend_no""",
    ),
    Question(
        "P1",
        Said("no reference has changed but by a decision to send again"),
        MESSAGE_OF_JOB,
        f"""SELECT m.id AS message_id, j.id AS job_id FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND (
            -- the first 48 bits of a version 8 are the message's number
            get_byte(uuid_send(m.uuid), 6) >> 4 = 8
                AND substr(uuid_send(m.uuid), 1, 6) <> substr(int8send(m.id), 3)
            -- a part of a child that was moved counts its decisions anew
            OR m.resend_no > 0 AND m.resend_no > greatest(j.revision, (
                SELECT sum(o.revision) FROM campaigns_job o WHERE o.parent_id = j.parent_id AND EXISTS (
                    SELECT FROM campaigns_routemove w WHERE w.campaign_id = j.campaign_id))) + (
                SELECT count(*) FROM campaigns_resolution r WHERE r.message_id = m.id AND r.decision = 'resend'))""",
    ),
    Question(
        "P1",
        Said("no two messages have one letter of the vendor"),
        # Another server may give the same ids to other letters. If the time of its call is unknown, a message counts as
        # called where its credential calls now. A relay's evidence may be its reply, also if its vendor was a relay
        # earlier.
        SAME_LETTER,
        f"""SELECT min(m.id) AS message_id, max(m.id) AS other_id, m.message_id AS letter FROM campaigns_job j
        JOIN vendors_vendor v ON v.id = j.vendor_id AND v.adapter <> 'smtp'
        JOIN vendors_credential l ON l.id = j.credential_id
        JOIN campaigns_message m ON {SLICE} AND m.message_id NOT LIKE 'person:%%' AND m.message_id NOT LIKE '2__ %%'
        WHERE {LEAF} AND {FRESH} GROUP BY j.credential_id, m.message_id,
            coalesce(m.destination, CASE WHEN {KNOWN.replace("c.", "m.")} THEN 0 ELSE {destinations.NUMBER} END)
        HAVING count(*) > 1""",
    ),
    Question(
        "P1",
        Said("what is in doubt is asked about, and called again, only where and as whom it was called"),
        MESSAGE_OF_JOB,
        f"""SELECT m.id AS message_id, j.id AS job_id FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND m.asked_destination <> coalesce(m.destination, 0)""",
    ),
    Question(
        "P1",
        Said("the rows are in the PostgreSQL that wrote them (else: recover_store)"),
        TAKEN_OVER,
        f"SELECT s.system FROM campaigns_store s WHERE NOT {guard.SAME}",
    ),
    Question(
        "P1",
        Said("no message was called before it went to another vendor"),
        MOVED,
        f"""SELECT c.id AS message_id, r.at::text AS at FROM campaigns_routemove r
        JOIN campaigns_job j ON j.id = r.parent_id AND {RECENT} CROSS JOIN LATERAL (
            SELECT m.id, m.sent_at, m.delivered_at FROM campaigns_message m
            WHERE m.id >= r.first_message AND m.id < r.first_message + r.size
            UNION ALL SELECT m.id, c.at, NULL FROM {CALLED} AND m.dequeued_at IS NULL
            WHERE m.id >= r.first_message AND m.id < r.first_message + r.size
        ) c WHERE c.sent_at < r.at AND {KNOWN}""",
    ),
]
P2 = [
    Question(
        "P2",
        Said("each campaign has as many messages as recipients"),
        CAMPAIGN_PARTS,
        f"""SELECT c.id AS campaign_id, c.there, c.size FROM (
            SELECT c.id, c.size, (SELECT count(*) FROM campaigns_message m WHERE m.campaign_id = c.id
                AND m.id >= c.first_message AND m.id < c.first_message + c.size) AS there
            FROM campaigns_campaign c WHERE c.id IN (SELECT j.campaign_id FROM campaigns_job j WHERE {FRESH})
        ) c WHERE c.there <> c.size""",
    ),
    Question(
        "P2",
        Said("the jobs of a campaign add up to its recipients"),
        CAMPAIGN_PARTS,
        f"""SELECT c.id AS campaign_id, sum(j.size) AS there, c.size
        FROM campaigns_campaign c JOIN campaigns_job j ON j.campaign_id = c.id AND j.parent_id IS NULL
        WHERE c.id IN (SELECT j.campaign_id FROM campaigns_job j WHERE {FRESH})
        GROUP BY c.id HAVING sum(j.size) <> c.size""",
    ),
    Question(
        "P2",
        Said("the children of a parent and what is not cut yet add up to its size"),
        PARENT_PARTS,
        f"""SELECT j.id AS job_id, coalesce(sum(k.size), 0) AS parts, j.remaining AS rest, j.size
        FROM campaigns_job j LEFT JOIN campaigns_job k ON k.parent_id = j.id
        WHERE NOT ({LEAF}) AND {FRESH} GROUP BY j.id HAVING coalesce(sum(k.size), 0) + j.remaining <> j.size""",
    ),
    Question(
        "P2",
        Said("no job counts more messages than it has"),
        JOB,
        f"""SELECT j.id AS job_id FROM campaigns_job j
        WHERE {FRESH} AND j.accepted + j.refused + j.expired + j.suppressed + j.in_doubt > j.size""",
    ),
    Question(
        "P2",
        Said("each claimed message belongs to its job"),
        MESSAGE_OF_JOB,
        f"""SELECT c.message AS message_id, c.job_id FROM (
            SELECT c.job_id, unnest(c.messages) AS message FROM campaigns_claim c
        ) c LEFT JOIN campaigns_job j ON j.id = c.job_id AND {LEAF}
            AND c.message >= j.first_message AND c.message < j.first_message + j.size
        WHERE j.id IS NULL""",
    ),
    Question(
        "P2",
        Said("each answer is merged into its message"),
        ANSWERS_OF_JOB,
        f"""SELECT b.id AS answers_id, b.job_id FROM campaigns_answerbatch b
        WHERE b.at < {PATIENCE}""",
    ),
    Question(
        "P2",
        Said("no job ends without some of its messages"),
        MESSAGE_OF_JOB,
        f"""SELECT m.id AS message_id, j.id AS job_id FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND m.dequeued_at IS NULL
            -- a late proof that a call was not made: the finaliser sends it again
            AND (j.status = 'SENT' AND j.status_at < {PATIENCE} OR j.status = 'LOGGED' AND j.stopped_at IS NULL)""",
    ),
    Question(
        "P2",
        Said("what went to another vendor is in jobs of that vendor"),
        JOB_WITH,
        f"""SELECT k.id AS job_id, k.credential_id AS what FROM campaigns_routemove r
        JOIN campaigns_job j ON j.id = r.parent_id AND {RECENT}
        JOIN campaigns_job k ON k.parent_id = j.id AND k.first_message < r.first_message + r.size
            AND k.first_message + k.size > r.first_message AND {LEAF.replace("j.", "k.")}
        WHERE k.credential_id <> r.went_to_id AND NOT EXISTS (
            SELECT FROM campaigns_routemove later WHERE later.parent_id = j.id AND later.id > r.id
                AND later.first_message < k.first_message + k.size
                AND later.first_message + later.size > k.first_message)""",
    ),
    Question(
        "P2",
        Said("no constraint of a cut that was broken off refuses messages"),
        CONSTRAINT,
        f"SELECT l.name AS table, l.bound AS what FROM ({leftover_bounds.FIND}) AS l",
    ),
    Question(
        "P2",
        Said("no setting of PostgreSQL lets a crash take back what was committed (else: doctor)"),
        durability.sentence_of,
        f"SELECT l.loses, l.setting, l.value FROM ({durability.LOSING}) AS l WHERE NOT %(may_lose)s",
    ),
]
P3 = [
    Question(
        "P3",
        Said("what is accepted has evidence"),
        MESSAGE_OF_JOB,
        f"""SELECT m.id AS message_id, j.id AS job_id FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND (m.message_id = '' OR m.message_id LIKE 'person:%%'
            AND NOT EXISTS (SELECT FROM campaigns_resolution r WHERE r.message_id = m.id AND r.decision = 'sent'))""",
    ),
    Question(
        "P3",
        Said("what was recorded as accepted still is"),
        # A sender counts each answer in a minute not later than the answer itself.
        ACCEPTED_OF,
        f"""SELECT n.vendor_id, coalesce(s.accepted, 0) AS accepted, n.accepted AS all FROM (
            SELECT n.vendor_id, n.sponsor, sum(n.accepted) AS accepted FROM vendors_minute n
            WHERE n.at >= {DAY} GROUP BY n.vendor_id, n.sponsor
        ) n LEFT JOIN (
            SELECT j.vendor_id, j.sponsor_id, count(*) AS accepted FROM campaigns_job j
            JOIN campaigns_message m ON {SLICE}
            WHERE {LEAF} AND {FRESH} AND m.message_id IS NOT NULL AND m.delivered_at >= {DAY}
            GROUP BY 1, 2
        ) s ON (s.vendor_id, s.sponsor_id) = (n.vendor_id, n.sponsor)
        WHERE coalesce(s.accepted, 0) < n.accepted""",
    ),
    Question(
        "P3",
        Said("the accounts of what vendors charge are the messages that were accepted"),
        # After a takeover of the store a parent may have accepted messages not yet in any child.
        ACCOUNT,
        f"""SELECT sponsor_id, credential_id, coalesce(e.messages, 0) AS there, coalesce(j.accepted, 0) AS wanted FROM (
            SELECT sponsor_id, credential_id, sum(accepted) FILTER (WHERE {LEAF}) AS accepted,
                bool_or(NOT ({LEAF}) AND finished_at IS NULL AND learned > 0 AND created_at < (
                    SELECT adopted_at FROM campaigns_store WHERE adoptions > 1)) AS unsure
            FROM campaigns_job j WHERE accepted > 0 GROUP BY 1, 2
        ) j FULL JOIN (
            SELECT sponsor_id, credential_id, sum(messages) AS messages FROM campaigns_costentry GROUP BY 1, 2
        ) e USING (sponsor_id, credential_id)
        WHERE coalesce(e.messages, 0) <> coalesce(j.accepted, 0) AND unsure IS NOT TRUE""",
    ),
    Question(
        "P3",
        Said("the accounts of today have the units of all messages that were called today and accepted"),
        # The accounts may have more: units of calls made today for doubts in jobs that ended long before.
        ACCOUNT_UNITS,
        f"""SELECT s.sponsor_id, s.credential_id, coalesce(e.units, 0) AS there, s.units AS wanted FROM (
            SELECT j.sponsor_id, j.credential_id, sum(coalesce(m.units, 1)) AS units
            FROM campaigns_job j JOIN campaigns_message m ON {SLICE}
            WHERE {LEAF} AND {FRESH} AND m.message_id IS NOT NULL AND m.sent_at >= {TODAY} GROUP BY 1, 2
        ) s LEFT JOIN (
            SELECT sponsor_id, credential_id, sum(units) AS units FROM campaigns_costentry
            WHERE day = ({TODAY} AT TIME ZONE 'UTC')::date GROUP BY 1, 2
        ) e USING (sponsor_id, credential_id) WHERE coalesce(e.units, 0) < s.units""",
    ),
    Question(
        "P3",
        Said("a message reported as delivered or bounced is accepted, and that sending took place"),
        MESSAGE_OF_JOB,
        f"""SELECT m.id AS message_id, j.id AS job_id FROM campaigns_job j
        JOIN campaigns_message m ON {SLICE}
        WHERE {LEAF} AND {FRESH} AND m.report IS NOT NULL
            AND (m.message_id IS NULL OR m.report_no > m.resend_no)""",
    ),
    Question(
        "P3",
        Said("the database still refuses rows that contradict themselves"),
        CONSTRAINT_GONE,
        """SELECT wanted.name FROM unnest(ARRAY['message_ended', 'message_answered', 'message_accepted',
            'message_refused', 'message_in_doubt', 'message_reported'
        ]) AS wanted(name)
        WHERE NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = wanted.name AND c.convalidated)""",
    ),
]
P6 = [
    Question(
        "P6",
        Said("each vendor has at most one dispatch run a night"),
        VENDOR_ON,
        """SELECT r.vendor_id, r.local_date::text AS day FROM campaigns_dispatchrun r
        GROUP BY r.vendor_id, r.local_date HAVING count(*) > 1""",
    ),
    Question(
        "P6",
        Said("each run counted the jobs that it dispatched, all of its own vendor"),
        RUN_COUNT,
        """SELECT r.id AS run_id, count(j.id) AS jobs, r.dispatched AS wanted
        FROM campaigns_dispatchrun r LEFT JOIN campaigns_job j ON j.run_id = r.id
        WHERE r.started_at > now() - interval '1 day'
        GROUP BY r.id HAVING count(j.id) <> r.dispatched OR bool_or(
            j.vendor_id <> r.vendor_id AND NOT EXISTS (SELECT FROM campaigns_routemove m WHERE m.parent_id = j.id))""",
    ),
]
P7 = [
    Question(
        "P7",
        Said("a logged job has no claims"),
        CLAIM_OF_JOB,
        f"""SELECT c.id AS claim_id, j.id AS job_id
        FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id WHERE j.status IN {sql_list(DONE)}""",
    ),
    Question(
        "P7",
        Said("the counters of a logged job are those of its messages"),
        JOB,
        f"""SELECT j.id AS job_id FROM campaigns_job j CROSS JOIN LATERAL (
            SELECT count(m.message_id) AS accepted, count(m.in_doubt_at) AS in_doubt,
                count(*) FILTER (WHERE m.error_code = 'expired') AS expired,
                count(*) FILTER (WHERE m.error_code = 'suppressed') AS suppressed,
                count(*) FILTER (WHERE m.error_code <> ALL(ARRAY['expired', 'suppressed'])) AS refused,
                count(*) FILTER (WHERE m.report = 'delivered') AS delivered,
                count(*) FILTER (WHERE m.report = 'bounced') AS bounced
            FROM campaigns_message m WHERE {SLICE}
        ) s WHERE j.status = 'LOGGED' AND {FRESH}
            AND (s.accepted, s.refused, s.expired, s.suppressed, s.in_doubt, s.delivered, s.bounced)
                <> (j.accepted, j.refused, j.expired, j.suppressed, j.in_doubt, j.delivered, j.bounced)""",
    ),
    # After a takeover, a parent with an uncut rest may have learned of acceptances in that rest alone.
    Question(
        "P7",
        Said("the counters of a finished parent are those of its children"),
        PARENT,
        """SELECT j.id AS job_id FROM campaigns_job j JOIN campaigns_job k ON k.parent_id = j.id
        WHERE j.status IN ('P_FINISHED', 'P_STOPPED') AND j.remaining = 0
            AND j.finished_at > now() - interval '1 day' GROUP BY j.id
        HAVING (sum(k.accepted), sum(k.refused), sum(k.expired), sum(k.suppressed), sum(k.in_doubt), sum(k.delivered),
            sum(k.bounced))
            <> (j.accepted, j.refused, j.expired, j.suppressed, j.in_doubt, j.delivered, j.bounced)""",
    ),
]
ORDER = [
    Question(
        "001",
        Said("no exclusive credential serves two campaigns"),
        CREDENTIAL,
        f"""SELECT c.id AS credential_id FROM vendors_credential c
        JOIN campaigns_job j ON j.credential_id = c.id AND {STARTED}
        WHERE c.exclusive GROUP BY c.id HAVING count(DISTINCT j.campaign_id) > 1""",
    ),
    Question(
        "003",
        Said("no mailcaster has two jobs"),
        MAILCASTER,
        f"""SELECT j.mailcaster_id FROM campaigns_job j
        WHERE j.status IN {sql_list(RUNNING)} AND j.mailcaster_id IS NOT NULL
        GROUP BY j.mailcaster_id HAVING count(*) > 1""",
    ),
    Question(
        "stuck",
        Said("every job that is not final has been moved within its deadline"),
        # A UNION plans faster than one OR, which the planner would test against each partial index.
        JOB_WITH,
        f"""SELECT s.id AS job_id, s.status AS what FROM (SELECT j.id, j.status FROM campaigns_job j
            WHERE j.status IN ('ENQUEUED', 'SENDING', 'SENT', 'STOPPED') AND j.heartbeat_at < {PATIENCE}
            UNION SELECT j.id, j.status FROM campaigns_job j
            WHERE j.status = 'STOPPED' AND j.heartbeat_at IS NULL AND j.stopped_at < {PATIENCE}
            UNION SELECT j.id, j.status FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id
            WHERE j.status = 'READY' AND greatest(j.created_at, j.not_before, c.send_at) < {PATIENCE} AND (
                c.deadline < {PATIENCE} OR EXISTS (
                    SELECT FROM campaigns_entitlement e WHERE e.sponsor_id = j.sponsor_id
                        AND e.vendor_id = j.vendor_id AND coalesce(e.credential_id, j.credential_id) = j.credential_id)
                AND coalesce((SELECT i.enabled FROM campaigns_identity i WHERE i.id = c.identity_id), true))
            UNION SELECT j.id, j.status FROM campaigns_job j
            WHERE j.status IN ('P_ASSIGNED', 'P_STOPPED') AND j.finished_at IS NULL
                AND coalesce(j.stopped_at < {PATIENCE}, true) AND {PATIENCE} > ALL (
                    SELECT coalesce(k.finished_at, 'infinity') FROM campaigns_job k WHERE k.parent_id = j.id)) s""",
    ),
    Question(
        "stuck",
        Said("each doubt that the vendor can settle waits for its turn"),
        MESSAGE_OF_CAMPAIGN,
        f"""SELECT m.id AS message_id, m.campaign_id FROM campaigns_message m
        JOIN campaigns_campaign c ON c.id = m.campaign_id JOIN vendors_credential l ON l.id = {whose.CREDENTIAL}
        JOIN vendors_vendor v ON v.id = l.vendor_id
        JOIN unnest(%(vendors)s::bigint[], %(asked_for)s::float8[]) AS can(vendor, seconds) ON can.vendor = v.id
        WHERE m.in_doubt_at IS NOT NULL AND {shut.WHY} IS NULL AND NOT {whose.LOST_MOVE} AND (
            m.settle_at < now() - 2 * %(give_up)s * interval '1 second'
            OR m.settle_at IS NULL AND m.sent_at > now() - can.seconds * interval '1 second'
                AND NOT {whose.ELSEWHERE})""",
    ),
]
QUESTIONS = [*P1, *P2, *P3, *P4, *P5, *P6, *P7, *ORDER]
