"""The rows for benchmarks.operators: thirty days of an installation with 200 sponsors and eight vendors.

PostgreSQL makes them. Foreign keys are not checked meanwhile, and indexes are built afterwards.
"""

import time
from typing import Any

from benchmarks.owners_rows import OWNERS

SPONSORS, VENDORS = 200, 8

# A sponsor's share falls with its number: the first has a sixth of all jobs. Each campaign has one job of `each`
# messages. Most are logged; of the newest eighth ten in thirteen wait for a window, two for the night, and one is
# stopped. At the end come thirty campaigns of messages / 200, one finished in children, and one being sent in children.
JOBS = """
INSERT INTO campaigns_campaign (sponsor_id, credential_id, name, subject, body, html, first_message, size, time_zone,
    created_at)
SELECT (SELECT min(id) FROM campaigns_sponsor) + floor(200 * power(random(), 3))::int, c.id, 'Campaign ' || n, 'News',
    'Dear {{ name }}', false, 1 + n * %(each)s, %(each)s, '', now() - (%(jobs)s - n) * interval '30 days' / %(jobs)s
FROM generate_series(0, %(jobs)s - 1) n
JOIN vendors_credential c ON c.id = (SELECT min(id) FROM vendors_credential) + n %% 8;
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, status, first_message, size, remaining,
    fence, revision, waits_for, accepted, refused, in_doubt, expired, delivered, bounced, units, created_at,
    dispatched_at, started_at, finished_at, stopped_by)
SELECT c.id, c.sponsor_id, l.vendor_id, l.id, s.status, c.first_message, %(each)s, 0, s.sent, 0, '',
    s.sent * (%(each)s - s.bad - s.doubt), s.sent * s.bad, s.sent * s.doubt, 0,
    s.sent * (%(each)s - s.bad - s.doubt - s.bounced), s.sent * s.bounced, s.sent * (%(each)s - s.bad), c.created_at,
    CASE WHEN s.status <> 'RENDERED' THEN c.created_at END, CASE WHEN s.sent = 1 THEN c.created_at END,
    CASE WHEN s.sent = 1 THEN c.created_at + interval '1 hour' END, ''
FROM (SELECT *, row_number() OVER (ORDER BY id) - 1 AS n FROM campaigns_campaign) c
JOIN vendors_credential l ON l.id = c.credential_id
CROSS JOIN LATERAL (SELECT (k.status = 'LOGGED')::int AS sent, *, (c.n %% 50 = 0)::int AS bad,
        (c.n %% 500 = 1)::int AS doubt, (c.n %% 20 = 3)::int AS bounced
    FROM (SELECT CASE WHEN c.n < %(jobs)s * 0.87 THEN 'LOGGED' WHEN c.n %% 13 < 10 THEN 'DISPATCHED'
        WHEN c.n %% 13 < 12 THEN 'RENDERED' ELSE 'STOPPED' END AS status) k) s;
UPDATE campaigns_job SET status = 'SENDING', fence = 1, heartbeat_at = now() WHERE id IN (
    SELECT id FROM campaigns_job WHERE status = 'DISPATCHED' ORDER BY id LIMIT 50);
INSERT INTO campaigns_campaign (sponsor_id, credential_id, name, subject, body, html, first_message, size, time_zone,
    created_at)
SELECT (SELECT min(id) FROM campaigns_sponsor) + n %% 20, (SELECT min(id) FROM vendors_credential) + n %% 8,
    'Large ' || n, 'News', 'Dear {{ name }}', false, 1 + %(jobs)s * %(each)s + n * (%(messages)s / 200),
    CASE n WHEN 30 THEN %(first)s ELSE %(messages)s / 200 END, '', now()
FROM generate_series(0, 30) n;
INSERT INTO campaigns_campaign (sponsor_id, credential_id, name, subject, body, html, first_message, size, time_zone,
    created_at)
SELECT (SELECT min(id) FROM campaigns_sponsor), (SELECT min(id) FROM vendors_credential), 'Largest', 'News',
    'Dear {{ name }}', false, %(messages)s + 1 - %(messages)s / 10, %(messages)s / 10, '', now();
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, status, first_message, size, remaining,
    fence, revision, waits_for, accepted, refused, in_doubt, expired, delivered, bounced, created_at, dispatched_at,
    started_at, finished_at, stopped_by)
SELECT c.id, c.sponsor_id, l.vendor_id, l.id, s.status, c.first_message, c.size,
    CASE s.status WHEN 'P_ASSIGNING' THEN c.size - c.size / 100 * 44 ELSE 0 END, 1, 0, '',
    CASE s.status WHEN 'LOGGED' THEN c.size - c.size / 50 ELSE 0 END,
    CASE s.status WHEN 'LOGGED' THEN c.size / 50 ELSE 0 END, 0, 0,
    CASE s.status WHEN 'LOGGED' THEN c.size - c.size / 50 ELSE 0 END, 0, c.created_at, c.created_at,
    c.created_at, CASE s.status WHEN 'P_ASSIGNING' THEN NULL ELSE c.created_at END, ''
FROM campaigns_campaign c JOIN vendors_credential l ON l.id = c.credential_id
CROSS JOIN LATERAL (SELECT CASE c.name WHEN 'Largest' THEN 'P_ASSIGNING' WHEN 'Large 30' THEN 'P_FINISHED'
    ELSE 'LOGGED' END AS status) s
WHERE c.name LIKE 'Large%%';
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, parent_id, status, first_message, size,
    remaining, fence, heartbeat_at, revision, waits_for, accepted, refused, in_doubt, expired, delivered, created_at,
    dispatched_at, started_at, finished_at, stopped_by)
SELECT campaign_id, sponsor_id, vendor_id, credential_id, id, s.status, first_message + n * (size / 100), s.part, 0, 1,
    CASE s.sent WHEN 0 THEN now() END, 1, '', s.sent * (s.part - s.part / 50), s.sent * (s.part / 50), 0, 0,
    s.sent * (s.part - s.part / 50), created_at, created_at, created_at, CASE s.sent WHEN 1 THEN now() END, ''
FROM campaigns_job, generate_series(0, 99) n, LATERAL (
    SELECT CASE n WHEN 99 THEN size - 99 * (size / 100) ELSE size / 100 END AS part,
        (status = 'P_FINISHED' OR n < 40)::int AS sent,
        CASE WHEN status = 'P_FINISHED' OR n < 40 THEN 'LOGGED' ELSE 'SENDING' END AS status) s
WHERE campaigns_job.status LIKE 'P\\_%%' AND (campaigns_job.status = 'P_FINISHED' OR n < 44);
INSERT INTO campaigns_message (id, uuid, campaign_id, recipient, params, dequeued_at, sent_at, delivered_at,
    in_doubt_at, message_id, error_code, error_sub_type, report, report_at, report_no)
SELECT j.first_message + n, (lpad(to_hex(j.first_message + n), 12, '0') || '8' || substr(noise, 1, 3) || '8'
        || substr(noise, 4, 15))::uuid, j.campaign_id,
    CASE WHEN (j.first_message + n) %% 400 = 0 THEN 'again' || (j.first_message + n) / 400 %% 100
        ELSE 'person' || (j.first_message + n) * 7919 %% 4000037 END || '@example.org',
    jsonb_build_object('name', 'Anna Müller', 'city', 'Newtown'),
    k.called, k.called, CASE WHEN NOT k.doubt THEN k.called END, CASE WHEN k.doubt THEN k.called END,
    CASE WHEN k.good THEN 'v' || (j.first_message + n) END,
    CASE WHEN k.bad THEN CASE n %% 3 WHEN 0 THEN '550' WHEN 1 THEN '552' ELSE 'bounced' END END,
    CASE WHEN k.bad THEN 'no such user' WHEN k.doubt THEN 'no answer before the deadline' END,
    CASE WHEN k.good THEN CASE WHEN n = 2 AND j.bounced > 0 THEN 'bounced' ELSE 'delivered' END END,
    CASE WHEN k.good THEN k.called END, CASE WHEN k.good THEN 0 END
FROM (SELECT * FROM campaigns_job WHERE parent_id IS NULL OR status IN ('LOGGED', 'SENDING') ORDER BY id) j
CROSS JOIN LATERAL generate_series(0, CASE j.status WHEN 'P_FINISHED' THEN 0 WHEN 'P_ASSIGNING' THEN j.remaining
    ELSE j.size END - 1) AS one
CROSS JOIN LATERAL (SELECT one + CASE j.status WHEN 'P_ASSIGNING' THEN j.size - j.remaining ELSE 0 END AS n) k0
CROSS JOIN LATERAL (SELECT md5((j.first_message + n)::text) AS noise) k2
CROSS JOIN LATERAL (SELECT n >= j.size - j.refused AND j.status = 'LOGGED' AS bad,
    n = 1 AND j.in_doubt > 0 AS doubt, CASE j.status WHEN 'LOGGED' THEN j.started_at END AS called) k1
CROSS JOIN LATERAL (SELECT k1.*, k1.called IS NOT NULL AND NOT k1.bad AND NOT k1.doubt AS good) k
WHERE j.status <> 'P_FINISHED';
INSERT INTO campaigns_claim (job_id, fence, at, messages)
SELECT id, fence, now(), ARRAY(SELECT first_message + n FROM generate_series(0, 3) n) FROM campaigns_job
WHERE status = 'SENDING';
INSERT INTO vendors_minute (vendor_id, at, sponsor, share, accepted, refused, in_doubt)
SELECT v.id, date_trunc('minute', now()) - n * interval '1 minute', s, 0, 10, 1, 0
FROM generate_series(8 * 1440, 0, -1) n, vendors_vendor v,
    (SELECT id AS s FROM campaigns_sponsor ORDER BY id LIMIT 3) s;
INSERT INTO campaigns_costentry (day, sponsor_id, vendor_id, credential_id, messages, units, summed)
SELECT current_date - n, s.id, l.vendor_id, l.id, 500, 500, n > 0
FROM generate_series(0, 60) n, campaigns_sponsor s, vendors_credential l WHERE l.id %% 4 = s.id %% 4;
INSERT INTO campaigns_daycount (day, sponsor_id, delivered, bounced, complained, unsubscribed, summed)
SELECT current_date - n, s.id, 480, 5, 0, 1, n > 0 FROM generate_series(0, 60) n, campaigns_sponsor s;
"""
# Indexes that no constraint needs: dropped before, built after.
INDEXES = """
SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE NOT i.indisunique AND c.relname NOT LIKE 'pg\\_%' AND i.indrelid IN (
    'campaigns_campaign'::regclass, 'campaigns_job'::regclass, 'campaigns_message'::regclass,
    'campaigns_suppression'::regclass, 'django_admin_log'::regclass, 'campaigns_webhookcall'::regclass)
"""


LAST = ("VACUUM ANALYZE", None)


def operators() -> None:
    from campaigns.models import Entitlement, Sponsor
    from vendors.models import Credential, Mailcaster, RateLimit, Vendor

    Sponsor.objects.bulk_create(Sponsor(name=f"Sponsor {n:03}") for n in range(SPONSORS))
    for n in range(VENDORS):
        channel = ("email", "print", "sms")[n % 3]
        vendor = Vendor.objects.create(slug=f"vendor-{n}", name=f"Vendor {n}", channel=channel)
        RateLimit.objects.create(vendor=vendor, units=5, seconds=60)
        Credential.objects.create(vendor=vendor, exclusive=n % 2 == 0)
        for kind in ("small-priority", "large-priority"):
            Mailcaster.objects.create(vendor=vendor, name=kind, kind=kind)
        may = (Entitlement(sponsor=sponsor, vendor=vendor) for sponsor in Sponsor.objects.all())
        Entitlement.objects.bulk_create(may, ignore_conflicts=True)


def seed(jobs: int, messages: int, say: Any = print) -> None:
    """Fill an empty, migrated database. Raises ValueError."""
    from django.db import connection

    if messages < 2 * jobs:
        raise ValueError("a job has two messages or more")
    operators()
    each = messages * 6 // (jobs * 10)
    first = messages - messages // 10 - 30 * (messages // 200) - jobs * each
    numbers = {"jobs": jobs, "messages": messages, "each": each, "first": first}
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        cursor.execute("SET maintenance_work_mem = '1GB'; SET work_mem = '256MB'")
        cursor.execute(INDEXES)
        indexes = cursor.fetchall()
        for name, _made_by in indexes:
            cursor.execute(f"DROP INDEX {name}")
        made_by = [(statement, None) for _name, statement in indexes]
        for statement, given in [*((one, numbers) for one in f"{JOBS}{OWNERS}".split(";\n")), *made_by, LAST]:
            if statement.strip():
                began = time.perf_counter()
                cursor.execute(statement, given)
                took = time.perf_counter() - began
                if took > 5:
                    say(f"{took:.0f} s: {' '.join(statement.split())[:60]}")
        cursor.execute("RESET ALL; CHECKPOINT")
    connection.close()  # the next connection gets the usual session settings
