"""Answers on their way into the ground truth: senders append them, and code that locks a job merges them.

Appending takes no lock. An answer is durable immediately, from any sender and however late. Merging decides, and counts
only its own changes, so appending an answer twice does no harm. `lifecycle.hold_jobs` merges, so all work under a job's
lock sees the earlier answers.
"""

# Letters of AnswerBatch.kinds.
ACCEPTED, REFUSED, NOT_SENT, IN_DOUBT, SUPPRESSED = "a", "r", "n", "d", "s"

WAITING_ANSWERS = "SELECT EXISTS (SELECT FROM campaigns_answerbatch WHERE job_id = ANY(%(jobs)s))"

# An acceptance always wins, even over another answer merged with it. Any other answer counts only for its own call.
# There are two cases. `called`: the claim is under the job's present fence, and the message has not ended. `late`: the
# message is in doubt because of that very call. Answers for a LOGGED job are left for `ground_truth.accept_late`.
#
# A message put off again by the vendor waits for the time since it was first put off, from a minute to an hour. Up to
# half of that is added at random, so the messages do not all come back together. A message certainly not called leaves
# its claim (`uncalled`), so it does not become in doubt if the sender is lost in another call. A message to a
# suppressed recipient is not called either, but it has an end. The ledger is told (`ended`) when calls leave a claim.
# It finds the answers of existing claims itself (claiming/rebuild.py).
#
# ANY(ARRAY[]) allows only a look-up by key; with = the planner may read a whole table.
WRITE = """
        dequeued_at = CASE WHEN a.kind <> 'n' THEN coalesce(m.dequeued_at, a.called_at) END,
        sent_at = CASE WHEN a.kind NOT IN ('n', 's') THEN coalesce(m.sent_at, a.called_at) END,
        delivered_at = CASE WHEN a.kind IN ('a', 'r') THEN a.at END,
        in_doubt_at = CASE WHEN a.kind = 'd' THEN coalesce(m.in_doubt_at, a.at) END,
        settle_at = CASE WHEN a.kind = 'd'
            THEN coalesce(m.settle_at, a.at + interval '1 second' * coalesce(a.wait, 0)) END,
        message_id = CASE WHEN a.kind = 'a' THEN a.code END,
        error_code = CASE a.kind WHEN 'r' THEN a.code WHEN 's' THEN 'suppressed' END,
        error_sub_type = CASE WHEN a.kind IN ('r', 'd', 's') THEN a.note END,
        cause = a.cause,
        units = nullif(a.units, 1),
        destination = CASE WHEN a.kind NOT IN ('n', 's') AND a.known AND m.in_doubt_at IS NULL
            THEN CASE WHEN a.kind = 'd' THEN a.destination ELSE nullif(a.destination, 0) END ELSE m.destination END,
        asked_destination = CASE WHEN a.kind IN ('n', 's') OR m.dequeued_at IS NOT NULL THEN m.asked_destination END,
        put_off_at = CASE WHEN a.kind = 'n' AND a.wait > 0 THEN coalesce(m.put_off_at, a.at) ELSE m.put_off_at END,
        call_after = CASE WHEN a.kind = 'n' AND a.wait > 0 THEN a.at + interval '1 second' * greatest(a.wait,
            least(3600, (1 + random() / 2) * greatest(60, extract(epoch FROM a.at - m.put_off_at)))) END"""
# A message keeps the destination of its last call, except 0: the audit compares the vendor's ids within one
# destination. A message in doubt keeps 0 too, and no answer changes it: the vendor may be asked about it only there.
# The destination of a question about an earlier call is forgotten at the next call.
#
# SENDING is the resend number under which a call of message m was made; the message may have been sent again since. A
# call in doubt is followed by another sending only after a person settled it, and that record keeps the number.
SENDING = """CASE WHEN m.resend_no = 0 THEN 0 ELSE coalesce((
        SELECT r.resend_no FROM campaigns_resolution r WHERE r.message_id = m.id AND r.created_at > a.called_at
        ORDER BY r.id LIMIT 1), m.resend_no) END"""
MERGE = f"""
WITH job AS (
    SELECT * FROM campaigns_job WHERE id = ANY(%(jobs)s) AND status <> 'LOGGED'
), gone AS (
    DELETE FROM campaigns_answerbatch WHERE job_id = ANY(ARRAY(SELECT id FROM job)) RETURNING *
), answer AS (
    SELECT DISTINCT ON (a.id) a.id, a.kind, a.code, a.note, a.cause, a.wait, coalesce(a.units, 1) AS units, g.job_id,
        g.at, g.called_at, c.destination, c.id IS NOT NULL AS known, coalesce(c.fence = j.fence, false) AS present
    FROM gone g JOIN job j ON j.id = g.job_id
        LEFT JOIN campaigns_claim c ON c.id = ANY(ARRAY[g.claim_id]) AND c.at IS NOT DISTINCT FROM g.called_at,
        unnest(g.messages, string_to_array(g.kinds, NULL), g.codes, g.notes, g.causes, g.waits, g.units)
            AS a(id, kind, code, note, cause, wait, units)
    ORDER BY a.id, a.kind = 'a' DESC, coalesce(c.fence = j.fence, false) DESC, g.id DESC
), called AS (
    UPDATE campaigns_message m SET {WRITE}
    FROM answer a WHERE m.id = ANY(ARRAY[a.id]) AND a.present AND m.dequeued_at IS NULL
        AND (a.kind <> 'n' OR a.wait > 0)
    RETURNING a.job_id, a.at, a.kind, a.cause, a.units, m.sent_at, false AS late, false AS doubted,
        NULL AS error_code
), unwritten AS (
    SELECT count(*) FILTER (WHERE present AND (kind <> 'n' OR wait > 0)) - (SELECT count(*) FROM called) AS number
    FROM answer
), strange AS (
    SELECT a.*, m.in_doubt_at IS NOT NULL AS doubted, m.error_code
    FROM answer a JOIN campaigns_message m ON m.id = ANY(ARRAY[a.id])
    WHERE CASE WHEN a.present THEN (SELECT number FROM unwritten) > 0 AND a.kind = 'a' ELSE a.kind = 'a' OR a.known END
        AND m.message_id IS NULL AND CASE
            WHEN a.present THEN m.dequeued_at IS NOT NULL
            ELSE a.kind = 'a' OR m.in_doubt_at IS NOT NULL AND m.sent_at = a.called_at END
), late AS (
    UPDATE campaigns_message m SET {WRITE}
    FROM strange a WHERE m.id = ANY(ARRAY[a.id])
    RETURNING a.job_id, a.at, a.kind, a.cause, a.units, m.sent_at, true AS late, a.doubted, a.error_code
), sums AS (
    SELECT job_id, date_trunc('minute', at) AS minute, count(*) FILTER (WHERE kind = 'a') AS accepted,
        count(*) FILTER (WHERE kind = 'r') AS refused,
        count(*) FILTER (WHERE error_code <> ALL(ARRAY['expired', 'suppressed'])) AS unrefused,
        count(*) FILTER (WHERE error_code = 'expired') AS unexpired,
        count(*) FILTER (WHERE kind = 's') - count(*) FILTER (WHERE error_code = 'suppressed') AS suppressed,
        count(*) FILTER (WHERE kind = 'd' AND NOT doubted) - count(*) FILTER (WHERE kind <> 'd' AND doubted) AS doubts,
        coalesce(sum(units) FILTER (WHERE kind NOT IN ('n', 's') AND NOT doubted AND error_code IS NULL), 0) AS units,
        count(*) FILTER (WHERE late) AS late
    FROM (SELECT * FROM called UNION ALL SELECT * FROM late) written GROUP BY 1, 2
), counted AS (
    UPDATE campaigns_job j SET accepted = j.accepted + s.accepted,
        refused = greatest(0, j.refused + s.refused - s.unrefused), expired = greatest(0, j.expired - s.unexpired),
        suppressed = greatest(0, j.suppressed + s.suppressed),
        in_doubt = greatest(0, j.in_doubt + s.doubts), units = j.units + s.units, learned = j.learned + s.late
    FROM (
        SELECT job_id, sum(accepted) AS accepted, sum(refused) AS refused, sum(unrefused) AS unrefused,
            sum(unexpired) AS unexpired, sum(suppressed) AS suppressed, sum(doubts) AS doubts, sum(units) AS units,
            sum(late) AS late
        FROM sums GROUP BY 1
    ) s WHERE j.id = s.job_id
), plotted AS (
    INSERT INTO vendors_minute AS was (vendor_id, sponsor, at, share, accepted, refused, in_doubt, units)
    SELECT j.vendor_id, j.sponsor_id, s.minute, j.id %% 16, sum(s.accepted), sum(s.refused),
        greatest(0, sum(s.doubts)), sum(s.units)
    FROM sums s JOIN job j ON j.id = s.job_id GROUP BY 1, 2, 3, 4
    HAVING sum(s.accepted) + sum(s.refused) + greatest(0, sum(s.doubts)) > 0
    ORDER BY 3, 1, 2, 4  -- so that two who merge other jobs of one vendor lock its rows in the same order
    ON CONFLICT (at, vendor_id, sponsor, share) DO UPDATE SET accepted = was.accepted + excluded.accepted,
        refused = was.refused + excluded.refused, in_doubt = was.in_doubt + excluded.in_doubt,
        units = was.units + excluded.units
), blamed AS (  -- a deferral of the whole credential writes no message, so all answers are looked at
    INSERT INTO vendors_causecount AS was (vendor_id, cause, what, share, messages)
    SELECT j.vendor_id, a.cause, a.what, j.id %% 16, count(*)
    FROM (
        SELECT job_id, cause, 'refused' AS what FROM (SELECT * FROM called UNION ALL SELECT * FROM late) written
        WHERE kind = 'r'
        UNION ALL SELECT job_id, cause, 'put_off' FROM answer WHERE kind = 'n'
    ) a JOIN job j ON j.id = a.job_id WHERE a.cause IS NOT NULL GROUP BY 1, 2, 3, 4
    ORDER BY 1, 2, 3, 4  -- as in vendors_minute
    ON CONFLICT (vendor_id, cause, what, share) DO UPDATE SET messages = was.messages + excluded.messages
), charged AS (  -- a message is accepted once: by the answer that gives it its message_id
    INSERT INTO campaigns_costentry (day, sponsor_id, vendor_id, credential_id, messages, units)
    SELECT (a.sent_at AT TIME ZONE 'UTC')::date, j.sponsor_id, j.vendor_id, j.credential_id, count(*), sum(a.units)
    FROM (SELECT * FROM called UNION ALL SELECT * FROM late) a JOIN job j ON j.id = a.job_id
    WHERE a.kind = 'a' GROUP BY 1, 2, 3, 4
), identified AS (  -- for vendors whose reports name nothing but their own id (vendor_ids)
    INSERT INTO campaigns_vendormessageid (vendor_id, name, message, uuid, resend_no, destination)
    SELECT j.vendor_id, a.code, m.id, m.uuid, {SENDING}, CASE WHEN a.known THEN a.destination ELSE m.destination END
    FROM vendors_vendor v JOIN job j ON j.vendor_id = v.id JOIN answer a ON a.job_id = j.id AND a.kind = 'a'
        JOIN campaigns_message m ON m.id = ANY(ARRAY[a.id]) AND m.message_id IS DISTINCT FROM a.code
    WHERE v.reports_by_id
), closed AS (
    DELETE FROM campaigns_claim c USING gone g
    WHERE g.last AND c.id = ANY(ARRAY[g.claim_id]) AND c.at IS NOT DISTINCT FROM g.called_at
    RETURNING c.ledger, g.at
), uncalled AS (
    UPDATE campaigns_claim c SET (messages, units) = (
        SELECT coalesce(array_agg(u.id), '{{}}'),
            CASE WHEN c.units IS NOT NULL THEN coalesce(array_agg(u.units), '{{}}') END
        FROM unnest(c.messages, c.units) AS u(id, units) WHERE u.id <> ALL(n.ids)
    )
    FROM (
        SELECT g.claim_id, g.called_at, array_agg(a.id) AS ids, max(g.at) AS at
        FROM gone g, unnest(g.messages, string_to_array(g.kinds, NULL)) AS a(id, kind)
        WHERE strpos(g.kinds, 'n') > 0 AND a.kind = 'n' GROUP BY 1, 2
    ) n
    WHERE c.id = ANY(ARRAY[n.claim_id]) AND c.at IS NOT DISTINCT FROM n.called_at
        AND c.id <> ALL(ARRAY(SELECT claim_id FROM gone WHERE last))
    RETURNING c.ledger, n.at
), ended AS (  -- in the order of their keys, as two who merge other jobs may have answers of one grant
    UPDATE vendors_usage u SET ended_at = greatest(u.ended_at, e.at)
    FROM (
        SELECT ledger, max(at) AS at FROM (SELECT * FROM closed UNION ALL SELECT * FROM uncalled) known
        WHERE ledger IS NOT NULL GROUP BY ledger ORDER BY ledger
    ) e WHERE u.id = ANY(ARRAY[e.ledger])
)
SELECT FROM gone LIMIT 1
"""

# Deletes the claims of a lost sender although their calls may be open. The ledger counts all calls of their grants
# until the deadline.
FORGET_CLAIMS = """
WITH lost AS (
    DELETE FROM campaigns_claim c USING campaigns_job j WHERE {which} RETURNING c.ledger
)
UPDATE vendors_usage u SET ended_at = 'infinity'
FROM (SELECT DISTINCT ledger FROM lost WHERE ledger IS NOT NULL ORDER BY ledger) l WHERE u.id = ANY(ARRAY[l.ledger])
"""

# Messages in flight: in a claim under the job's present fence, and without an end. Alias of the job: j. OFFSET 0 keeps
# the planner from starting at the other end, with all messages.
IN_FLIGHT = """campaigns_claim c CROSS JOIN LATERAL unnest(c.messages) AS u(id)
    CROSS JOIN LATERAL (SELECT FROM campaigns_message m WHERE m.id = u.id AND m.dequeued_at IS NULL OFFSET 0) waiting
    WHERE c.job_id = j.id AND c.fence = j.fence"""
