"""The statement about vendors' queues, in parts: VENDORS, then TOTALS of the queues or POSITIONS of jobs in them."""

from campaigns.engine.failover import guard
from campaigns.engine.merging import IN_FLIGHT
from vendors import shut

# Adds to jobs j the number of open messages and a flag for queued ones. Joins only campaigns with a time of their own,
# which have an index. Zone offsets come from Python, because PostgreSQL may not know every zone name. Calls in flight
# are counted message by message, so only while few streams run; with many it would be slow and would change the
# forecast by no more than the length of a call. OFFSET 0 makes the planner compute `open` once for each job, not once
# for each sum.
FEW = 20  # streams
SEEN = f"""
SELECT j.*, c.at, c.closes,
    j.paused_at IS NULL AND coalesce(j.wait_after > j.size - j.remaining, true)
        AND (coalesce(j.not_before <= %(now)s, true) AND NOT coalesce(c.put_off, false)
            OR j.status = ANY(%(running)s)) AS queued,
    greatest(0, CASE WHEN j.status = ANY(%(parents)s) THEN j.remaining - j.remaining_suppressed
        ELSE j.size - j.accepted - j.refused - j.expired - j.suppressed - j.in_doubt END
        - coalesce(f.calls, 0)) AS open
FROM {{jobs}} j LEFT JOIN (
    SELECT j.id, (SELECT count(*) FROM {IN_FLIGHT}) AS calls FROM campaigns_job j
    WHERE j.status = 'SENDING' AND (SELECT count(*) <= %(few)s FROM (
        SELECT FROM campaigns_job WHERE status = 'SENDING' LIMIT %(few)s + 1) running)
) f ON f.id = j.id LEFT JOIN (
    SELECT id, send_at > %(now)s OR NOT opened AS put_off,
        greatest(send_at, CASE WHEN NOT opened THEN %(now)s + opens END) AS at,
        CASE WHEN opened THEN closes END AS closes
    FROM (
        SELECT c.id, send_at, hours_from IS NULL OR hours_to IS NULL OR hours_from = hours_to OR CASE
                WHEN hours_from < hours_to THEN local >= hours_from AND local < hours_to
                ELSE local >= hours_from OR local < hours_to END AS opened,
            hours_from - local + CASE WHEN hours_from <= local THEN interval '1 day' ELSE interval '0' END AS opens,
            CASE WHEN hours_from <> hours_to THEN %(now)s + (hours_to - local
                + CASE WHEN hours_to <= local THEN interval '1 day' ELSE interval '0' END) END AS closes
        FROM campaigns_campaign c LEFT JOIN unnest(%(zones)s::text[], %(shifts)s::int[]) z(name, shift)
            ON z.name = c.time_zone
        CROSS JOIN LATERAL (
            SELECT (%(now)s AT TIME ZONE 'UTC' + coalesce(z.shift, 0) * interval '1 second')::time AS local
        ) clock
        WHERE c.send_at IS NOT NULL OR c.hours_from IS NOT NULL
    ) timed
) c ON c.id = j.campaign_id OFFSET 0
"""

VENDORS = f"""
SELECT 'vendor' AS what, v.id, json_build_object('slug', v.slug, 'name', v.name, 'shut', {shut.VENDOR},
    'shut_said', {shut.VENDOR_SAID}, 'shut_brief', {shut.VENDOR_BRIEF}, 'paused', v.paused,
    'logins', (SELECT json_agg(json_build_array(l.id, l.name, {shut.LOGIN}, {shut.LOGIN_SAID}, {shut.LOGIN_BRIEF},
        extract(epoch from l.retry_after_until), extract(epoch from l.rate_limited_until)))
        FROM vendors_credential l WHERE l.vendor_id = v.id),
    'limits', (SELECT json_agg(json_build_array(r.credential_id, r.units, r.seconds) ORDER BY r.id)
        FROM vendors_ratelimit r WHERE r.vendor_id = v.id),
    'kinds', (SELECT json_agg(DISTINCT m.kind) FROM vendors_mailcaster m WHERE m.vendor_id = v.id AND m.enabled),
    'nights', (SELECT json_agg(json_build_array(d.local_date, extract(epoch from d.started_at),
        d.finished_at IS NOT NULL, d.missed)) FROM campaigns_dispatchrun d
        WHERE d.vendor_id = v.id AND d.local_date >= %(since)s),
    'each', e.each, 'floor', v.floor,
    'weights', (SELECT json_object_agg(t.sponsor_id, t.weight) FROM campaigns_sponsorturn t
        WHERE t.vendor_id = v.id AND t.weight <> 1),
    'store', (SELECT json_build_array({guard.ALL}) FROM campaigns_store s)
) AS facts FROM vendors_vendor v LEFT JOIN (
    SELECT vendor_id, sum(units)::float8 / sum(accepted + refused + in_doubt) AS each FROM vendors_minute
    WHERE at >= %(now)s - interval '1 hour' AND accepted + refused + in_doubt > 0 GROUP BY 1
) e ON e.vendor_id = v.id WHERE v.id = ANY(%(vendors)s)
UNION ALL SELECT 'sending', 0, coalesce(json_object_agg(slug, n), '{{}}') FROM (
    SELECT v.slug, count(*) AS n FROM campaigns_job j JOIN vendors_vendor v ON v.id = j.vendor_id
    WHERE j.status = 'SENDING' GROUP BY v.slug
) busy
"""

TOTALS = f"""
SELECT 'totals', vendor_id, json_build_array(credential_id,
    count(*) FILTER (WHERE parent_id IS NULL AND status <> 'RENDERED'),
    coalesce(sum(open) FILTER (WHERE status <> 'RENDERED'), 0),
    coalesce(sum(open) FILTER (WHERE mine AND status <> 'RENDERED'), 0),
    coalesce(sum(open) FILTER (WHERE queued AND status <> 'RENDERED'), 0),
    coalesce(sum(open) FILTER (WHERE status = 'RENDERED'), 0),
    extract(epoch from min(greatest(not_before, at)) FILTER (WHERE NOT queued AND status <> 'RENDERED')),
    extract(epoch from min(closes) FILTER (WHERE queued AND open > 0 AND status <> 'RENDERED')),
    sponsor_id, (SELECT name FROM campaigns_sponsor s WHERE s.id = sponsor_id), mail_class)
FROM (
    SELECT *, %(sponsors)s::bigint[] IS NULL OR sponsor_id = ANY(%(sponsors)s::bigint[]) AS mine FROM ({
    SEEN.format(jobs="(SELECT * FROM campaigns_job WHERE vendor_id = ANY(%(vendors)s) AND status = ANY(%(counted)s))")
}) seen
) queue GROUP BY vendor_id, credential_id, sponsor_id, mail_class
"""

# A sponsor's jobs of a class are sent by age, and children count as their parent. Other sponsors' younger jobs matter
# too, since sponsors share the vendor. Only the oldest jobs in each status are read, of any class: younger ones get no
# forecast, and if all asked jobs are younger, nothing is summed. Vendors with younger ones are told as `cut`, and their
# sponsors come from TOTALS: what stands behind has its shares, too. With `all` the asked jobs only name their vendors,
# and the positions of all old jobs are returned. `edges` finds where the old ones end, so that the planner can read
# their pages once each. ORDER BY includes the status so that the index job_pick, the only one in that order, is used
# with any statistics.
NEEDED = """
    id, vendor_id, credential_id, sponsor_id, campaign_id, parent_id, mail_class, status, fence, size, remaining,
    remaining_suppressed, accepted, refused, expired, suppressed, in_doubt, paused_at, wait_after, not_before
"""
POSITIONS = f"""
UNION ALL SELECT * FROM (
WITH logins AS MATERIALIZED (
    SELECT l.id, {shut.LOGIN} IS NULL AS open FROM vendors_credential l WHERE l.vendor_id = ANY(%(vendors)s)
), edges AS MATERIALIZED (
    SELECT v.id AS vendor, s.name AS status, f.id AS last
    FROM unnest(%(vendors)s::bigint[]) v(id) CROSS JOIN unnest(%(queued)s::text[]) s(name) LEFT JOIN LATERAL (
        SELECT id FROM campaigns_job WHERE vendor_id = v.id AND status BETWEEN s.name AND s.name
        ORDER BY status, id OFFSET %(most)s LIMIT 1
    ) f ON true
), far AS MATERIALIZED (
    SELECT vendor, min(last) AS last FROM edges GROUP BY vendor
), asked AS MATERIALIZED (
    SELECT a.id, a.vendor FROM unnest(%(jobs)s::bigint[], %(of)s::bigint[]) a(id, vendor) LEFT JOIN far USING (vendor)
    WHERE a.id < coalesce(far.last, %(end)s)
), near AS MATERIALIZED (
    SELECT one.* FROM (SELECT DISTINCT vendor FROM asked) v JOIN edges e USING (vendor) LEFT JOIN far USING (vendor)
    CROSS JOIN LATERAL (
        (SELECT {NEEDED} FROM campaigns_job WHERE vendor_id = e.vendor AND status BETWEEN e.status AND e.status
            AND id < coalesce(e.last, %(end)s) AND parent_id IS NULL)
        UNION ALL (SELECT {NEEDED} FROM campaigns_job
        WHERE vendor_id = e.vendor AND status BETWEEN e.status AND e.status AND id < coalesce(far.last, %(end)s)
            AND parent_id IS NOT NULL ORDER BY status, id LIMIT %(most)s)
    ) one
), queue AS MATERIALIZED (
    SELECT seen.id, seen.vendor_id, credential_id, sponsor_id, mail_class, coalesce(parent_id, seen.id) AS age,
        CASE WHEN queued AND l.open THEN seen.open ELSE 0 END AS part
    FROM ({SEEN.format(jobs="near")}) seen JOIN logins l ON l.id = seen.credential_id
), beside AS (
    SELECT DISTINCT vendor_id, sponsor_id, mail_class FROM queue LEFT JOIN asked USING (id)
    WHERE %(all)s OR asked.id IS NOT NULL
), placed AS (
    SELECT id, vendor_id,
        sum(part) OVER (PARTITION BY vendor_id, sponsor_id, mail_class ORDER BY age)::bigint AS of_vendor,
        sum(part) OVER (PARTITION BY vendor_id, sponsor_id, mail_class, credential_id
            ORDER BY age)::bigint AS of_login,
        sum(part) OVER (PARTITION BY vendor_id, sponsor_id, mail_class, age)::bigint AS own
    FROM queue JOIN beside USING (vendor_id, sponsor_id, mail_class)
)
SELECT 'near', 0, to_json(count(*)) FROM queue
UNION ALL SELECT 'cut', vendor, 'true' FROM far WHERE last IS NOT NULL
UNION ALL SELECT 'positions', vendor_id, json_agg(json_build_array(id, of_vendor, of_login, own))
FROM placed LEFT JOIN asked USING (id) WHERE %(all)s OR asked.id IS NOT NULL GROUP BY vendor_id
UNION ALL SELECT 'sponsors', vendor_id, json_agg(json_build_array(credential_id, sponsor_id, s.name, mail_class, part))
FROM (
    SELECT vendor_id, credential_id, sponsor_id, mail_class, sum(part) AS part FROM queue
    GROUP BY vendor_id, credential_id, sponsor_id, mail_class HAVING sum(part) > 0
) parts JOIN campaigns_sponsor s ON s.id = parts.sponsor_id GROUP BY vendor_id
) positions
"""
